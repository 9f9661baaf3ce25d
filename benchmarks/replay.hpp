// Replays a log of allocations and frees on a resource: in the order of the log, or each thread at its own pace.
//
// Owns: its streams and threads, for the length of a replay. Must not know: where resources come from, and files. A
// replay runs a thread for each thread of the log and returns when all have ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include "utilities/log_parser.hpp"

namespace kmm::bench {

using Event = rmm::detail::event;
using Action = rmm::detail::action;

/// What a log asks for, found out once for all replays of it.
class ReplayLog {
  public:
    static constexpr std::size_t nothing = ~std::size_t{0};
    // A replay makes a thread for each of the log, and a stream. Systems give some ten thousand threads to a process.
    static constexpr std::size_t most_threads = 4096;
    static constexpr std::size_t most_streams = 16384;

    /// Throws rmm::logic_error, with the line, for more threads or streams than that, and for live memory beyond
    /// 64 bits.
    explicit ReplayLog(std::vector<Event> events);

    const std::vector<Event>& events() const { return events_; }
    /// Of the event numbered `index`, a free: the event that allocated the block, or `nothing`.
    std::size_t allocated_by(std::size_t index) const { return allocated_by_[index]; }
    /// Numbers of the events of each thread, threads in the order of their first event.
    const std::vector<std::vector<std::size_t>>& threads() const { return threads_; }
    /// The thread of an event, as an index into `threads`.
    std::size_t thread_of(std::size_t index) const { return thread_of_[index]; }
    /// The streams that are no default stream, as logged.
    const std::vector<std::uintptr_t>& streams() const { return streams_; }

    /// The most bytes that were live at once if everything is served.
    std::size_t peak_bytes() const { return peak_bytes_; }
    /// Events that no program has done: frees of what is not live or with another size, addresses that are given out
    /// twice. They are replayed as far as they make sense. The first of them in words.
    std::size_t num_odd() const { return num_odd_; }
    const std::vector<std::string>& odd() const { return odd_; }
    std::size_t num_leaked() const { return num_leaked_; }
    std::size_t leaked_bytes() const { return leaked_bytes_; }

  private:
    std::string place_of(std::size_t index) const;
    [[noreturn]] void refuse(std::size_t index, const std::string& why) const;
    void note_odd(std::size_t index, const std::string& what);
    void note_allocation(std::size_t index, std::size_t* live_bytes);

    std::vector<Event> events_;
    std::vector<std::size_t> allocated_by_;
    std::vector<std::size_t> thread_of_;
    std::vector<std::vector<std::size_t>> threads_;
    std::vector<std::uintptr_t> streams_;
    std::vector<std::string> odd_;
    std::size_t num_odd_ = 0;
    std::size_t peak_bytes_ = 0;
    std::size_t num_leaked_ = 0;
    std::size_t leaked_bytes_ = 0;
};

enum class ReplayOrder {
    of_the_log,      ///< one event after the other, exactly as logged
    of_each_thread,  ///< threads run beside each other; a free waits for its allocation and for nothing else
};

struct ReplayFailure {
    std::size_t event = 0;
    std::string reason;  ///< of the first thousand or so in full, of others one line
};

struct ReplayResult {
    double seconds = 0;                   ///< the events alone: not the frees of what the log leaks
    std::vector<ReplayFailure> failures;  ///< by event
};

/// A stream of its own for each of the log's; the default streams stay what they are.
class ReplayStreams {
  public:
    explicit ReplayStreams(const ReplayLog& log);
    rmm::cuda_stream_view of(std::uintptr_t logged) const;
    void synchronize() const;

  private:
    std::map<std::uintptr_t, rmm::cuda_stream> streams_;
};

/// Replays all events but `allocate failure`. A request that the resource refuses is reported, and its free is left
/// out. A free of an address that the log has not allocated frees null; every block is freed with the size that it was
/// allocated with. `before_cleanup` runs after the last event; then what the log leaks is freed. Throws what the driver
/// throws, and rmm::logic_error where the system refuses to start the threads.
ReplayResult replay(const ReplayLog& log, rmm::mr::device_memory_resource& resource, const ReplayStreams& streams,
                    ReplayOrder order, void (*before_cleanup)(void*) = nullptr, void* user = nullptr);

}  // namespace kmm::bench
