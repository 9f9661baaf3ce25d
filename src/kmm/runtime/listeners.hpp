// Trace events of a runtime for its listeners, and the files that are made of them.
//
// Owns: the point to which a sink is attached, the collector, which trace is being written. Must not know: what the
// scheduler decides. Any thread.
#pragma once

#include <memory>
#include <string>

#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/turns.hpp"
#include "kmm/trace/collector.hpp"
#include "kmm/trace/text_file.hpp"

namespace kmm::plan {
struct Request;
}  // namespace kmm::plan

namespace kmm::detail {

class Listeners {
  public:
    explicit Listeners(const Platform& platform) noexcept : platform_(platform) {}

    const trace::Emitter& emitter() const noexcept { return emitter_; }
    /// Whether there is a listener. Otherwise nothing below needs to be called.
    bool any() const noexcept { return emitter_.sink() != nullptr; }
    /// `requests` are one for each access of `tasks`, in their order, or null; at `begin_ns` their submit began, if not
    /// 0. Before anybody can run them, and forget their names.
    /// `ahead` and `helpers` are told before and behind the tasks.
    void tell_submitted(const graph::TaskList& ahead, const graph::TaskList& tasks, const graph::TaskList& helpers,
                        const plan::Request* requests, std::int64_t begin_ns) noexcept;
    /// An array, or a temporary, has become the runtime's.
    void tell_bound(const memory::Owner& data, const Box& box, bool is_named) noexcept;
    void tell_named(const memory::Array& data, const std::string& name) noexcept;
    /// The last handle is gone. O(1); no effect without listeners.
    void tell_dropped(const memory::Array& data) noexcept;

    /// Before any thread begins: the files that the configuration asks for. IA where one cannot be written.
    void begin_files_of_config(const schedule::LanePositions& lanes);
    /// Begins a trace in the file, and ends the one that was written before; an empty path only ends that. IA where the
    /// file cannot be written. Blocks until what happened before is in the file that ends.
    void trace(const std::string& path, SchedulerTurns& turns);

  private:
    trace::Machine machine(const schedule::LanePositions& lanes) const;
    trace::Collector& collector() KMM_REQUIRES(mutex_);
    void begin_trace(const trace::FilePath& path, const char* what_for, trace::Machine machine) KMM_REQUIRES(mutex_);

    const Platform& platform_;
    trace::Emitter emitter_;
    locks::Mutex mutex_;
    /// Outlives the threads that tell it; made when it is asked for.
    std::unique_ptr<trace::Collector> collector_ KMM_GUARDED_BY(mutex_);
    const trace::Consumer* writer_ KMM_GUARDED_BY(mutex_) = nullptr;  ///< of the trace that is being written
};

}  // namespace kmm::detail
