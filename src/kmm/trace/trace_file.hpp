// A trace for people: events as the trace-event format has them, which Perfetto and `kmm trace view` show
// (docs/traces.md).
//
// Owns: the form of the file, and what is begun and not ended: work on lanes, and the names of what has not settled.
// Must not know: who decided what it shows.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kmm/trace/collector.hpp"
#include "kmm/trace/text_file.hpp"

namespace kmm::trace {

class TraceWriter final : public Consumer {
  public:
    /// Times count from `begin_ns`. Throws InvalidArgument where the file cannot be written.
    TraceWriter(const FilePath& path, const char* what_for, Machine machine, std::int64_t begin_ns, bool device_times);
    void bound(const Array& array, std::int64_t time_ns) noexcept override;
    void named(Number array, const std::string& name, std::int64_t time_ns) noexcept override;
    void submitted(const Task& task, std::int64_t time_ns) noexcept override;
    void note(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
              std::uint32_t thread) noexcept override;
    void flush() noexcept override { file_.flush(); }
    void finish(std::uint64_t lost) noexcept override;

  private:
    struct Named {
        std::string name;
        std::string chunk;  ///< "3 of 10"
    };
    /// Work on a lane that has not been seen to be done.
    struct Pending {
        Position position = 0;
        std::string name;
        std::string arguments;  ///< of JSON, without braces
        const char* category = "kernel";
        std::vector<Fence> after;
        std::int64_t fed_ns = 0;
        std::int64_t ran_begin_ns = 0;  ///< 0: the device's own times are not known
        std::int64_t ran_end_ns = 0;
    };
    struct Lane {
        std::deque<Pending> pending;
        std::int64_t last_end_ns = 0;
        std::deque<std::pair<Position, std::int64_t>> ends_ns;  ///< of the latest positions, in order
    };

    void write_event(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
                     std::uint32_t thread);
    void copy(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns);
    void move(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns);
    void launch(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns);
    void returned(const Event& event, std::int64_t time_ns);
    void function(const Event& event, std::uint32_t thread);
    void completed(const Event& event, std::int64_t time_ns);
    void wait_for_memory(const Event& event, std::int64_t time_ns);
    void settled(const Event& event, std::int64_t time_ns);
    Pending* find(const Event& event);
    std::int64_t begin_of(const Lane& lane, const Pending& pending) const;
    void note_end(Lane& lane, Position position, std::int64_t time_ns);
    Named named(Number task) const;
    std::string chunk_name(Number array, std::uint32_t chunk) const;
    std::string task_arguments(Number task, const Named& named) const;
    std::string after_text(const Fence* fences, std::size_t num_fences) const;
    void name_process(std::uint64_t process, std::string_view name, std::uint64_t rank);
    void name_thread(std::uint64_t process, std::uint64_t thread, std::string_view name);
    void need_thread(std::uint64_t process, std::uint32_t thread, const char* name);
    void slice(std::uint64_t process, std::uint64_t thread, std::string_view name, const char* category,
               std::int64_t begin_ns, std::int64_t end_ns, std::string_view arguments);
    void mark(std::uint64_t process, std::string_view name, const char* category, std::int64_t time_ns,
              std::string_view arguments);
    TextFile& begin_event();
    TextFile& time(std::int64_t time_ns);
    std::uint64_t process_of(LaneId lane) const;

    Machine machine_;
    TextFile file_;
    std::int64_t begin_ns_;
    bool device_times_;
    bool first_ = true;
    std::vector<Lane> lanes_;
    std::unordered_map<Number, Named> tasks_;
    std::unordered_map<Number, std::string> arrays_;
    struct Function {
        LaneId lane = LaneId::none;
        std::int64_t begin_ns = 0;
    };
    std::unordered_map<Number, Function> functions_;  ///< of devices, that have not returned
    std::unordered_map<Number, Memory> waiting_;      ///< for memory
    std::unordered_set<std::uint64_t> named_threads_;
    std::uint64_t num_dropped_ = 0;  ///< events for which the host had no memory
};

}  // namespace kmm::trace
