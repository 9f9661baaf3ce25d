// Collects the events of all threads of a runtime, stamps them, and passes them to consumers on a thread of its own.
//
// Owns: the batches of events between emitting threads and its own, that thread, and the consumers. Must not know: what
// consumers do with an event. An emitting thread appends under a short lock. When the consumers are 128 batches of 4096
// events behind, it waits for them, so that no event is dropped and memory stays bounded. Consumers that keep up
// are half a second behind at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::trace {

/// A receiver of events. All calls come from one thread, in an order that agrees with each emitting thread's own;
/// across threads, an event whose emission ended before another's began comes first. Must not throw.
class Consumer {
  public:
    virtual ~Consumer() = default;
    virtual void bound(const Array& array, std::int64_t time_ns) noexcept = 0;
    virtual void named(Number array, const std::string& name, std::int64_t time_ns) noexcept = 0;
    virtual void submitted(const Task& task, std::int64_t time_ns) noexcept = 0;
    /// `thread`: a small number for each emitting thread of the process.
    virtual void note(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
                      std::uint32_t thread) noexcept = 0;
    /// No event may come for a while: the consumer should write out what it has.
    virtual void flush() noexcept {}
    /// No more calls follow. `lost`: events since the consumer was added that found no host memory.
    virtual void finish(std::uint64_t lost) noexcept = 0;
};

class Collector final : public Sink {
  public:
    /// Listens to `emitter`, which outlives it, whenever there is a consumer.
    explicit Collector(Emitter& emitter) noexcept : emitter_(emitter) {}
    /// Finishes all consumers. No thread may emit any more.
    ~Collector();
    Collector(const Collector&) = delete;
    Collector& operator=(const Collector&) = delete;

    /// The consumer gets all events from now on. Any thread. Throws std::system_error if the system has no thread for
    /// it, and std::bad_alloc.
    void add(std::unique_ptr<Consumer> consumer);
    /// Passes the consumer all events from before the call, then finishes and destroys it. No effect if it was removed
    /// already. Blocks until the consumer has done its work; not inside a call of a sink or consumer.
    void remove(const Consumer* consumer);

    // Sink
    void bound(const Array& array) noexcept override;
    void named(Number array, const std::string& name) noexcept override;
    void submitted(Task&& task) noexcept override;
    void note(const Event& event, const FenceSet* fences) noexcept override;
    void lost(std::uint64_t count) noexcept override;

  private:
    enum class Kind : std::uint8_t { event, task, array, name };
    struct Entry {
        Event event;
        std::int64_t time_ns = 0;
        std::uint32_t thread = 0;
        std::uint32_t first = 0;  ///< of its fences; the task's or array's place
        std::uint32_t num_fences = 0;
        Kind kind = Kind::event;
    };
    struct Batch {
        // Without the host's reserve: an event without memory is lost, and counted.
        std::vector<Entry> entries;
        std::vector<Fence> fences;
        std::vector<Task> tasks;
        std::vector<Array> arrays;
        void clear() noexcept;
    };

    using Lock = locks::Lock<locks::Mutex>;
    template<typename Fill>
    void append(Fill&& fill) noexcept KMM_EXCLUDES(mutex_, consumers_mutex_);
    void hand_over() KMM_REQUIRES(mutex_);
    void run() noexcept;
    void consume(const Batch& batch) noexcept;
    void flush(Lock& lock) KMM_REQUIRES(mutex_);
    std::uint64_t num_lost() noexcept;

    Emitter& emitter_;
    // Lock order: consumers_mutex_, mutex_, filling_lock_. An emitting thread takes the last and, when a batch is full,
    // the second.
    locks::ShortLock filling_lock_;
    Batch filling_ KMM_GUARDED_BY(filling_lock_);
    std::uint64_t lost_ KMM_GUARDED_BY(filling_lock_) = 0;
    locks::Mutex mutex_;
    locks::Condition wake_;      ///< of the thread
    locks::Condition consumed_;  ///< something was
    std::vector<Batch> full_ KMM_GUARDED_BY(mutex_);
    std::vector<Batch> empty_ KMM_GUARDED_BY(mutex_);
    std::uint64_t num_full_ KMM_GUARDED_BY(mutex_) = 0;      ///< so far
    std::uint64_t num_consumed_ KMM_GUARDED_BY(mutex_) = 0;  ///< of these
    bool stop_ KMM_GUARDED_BY(mutex_) = false;
    bool has_consumers_ KMM_GUARDED_BY(mutex_) = false;
    locks::Mutex consumers_mutex_;
    struct Listener {
        std::unique_ptr<Consumer> consumer;
        std::uint64_t lost_before = 0;
    };
    std::vector<Listener> consumers_ KMM_GUARDED_BY(consumers_mutex_);
    std::thread thread_;
};

}  // namespace kmm::trace
