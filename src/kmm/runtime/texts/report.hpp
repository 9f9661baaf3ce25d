// What a runtime counted, as numbers and for people.
//
// Owns: counters of copies between chunks and memory of the program. All numbers are read while the thread has the
// baton, so that they are of one moment; worded afterwards. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "kmm/core/stats.hpp"
#include "kmm/runtime/copy_buffers.hpp"
#include "kmm/runtime/engine_room.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/turns.hpp"

namespace kmm::detail {

/// Counted in the fields of the other copies.
class UserCopies {
  public:
    enum class Kind : std::uint8_t { host_to_device, device_to_host, device_to_device, host_to_host };
    static constexpr std::size_t num_kinds = 4;
    struct Count {
        std::uint64_t bytes = 0, copies = 0;
        std::int64_t nanoseconds = 0;
    };
    /// Adds `copies` copies, with the sums of their bytes and durations.
    void count(Kind kind, std::size_t bytes, std::size_t copies, std::int64_t nanoseconds) noexcept;
    Count of(Kind kind) const noexcept;

  private:
    struct Counters {
        std::atomic<std::uint64_t> bytes{0}, copies{0};
        std::atomic<std::int64_t> nanoseconds{0};
    };
    Counters counters_[num_kinds];  ///< by Kind
};

class Reports {
  public:
    Reports(const Platform& platform, const TaskBooks& books, const EngineRoom& engine, SchedulerTurns& turns,
            const CopyBuffers& copy_buffers) noexcept
        : platform_(platform), books_(books), engine_(engine), turns_(turns), copy_buffers_(copy_buffers) {}

    UserCopies& user_copies() noexcept { return user_copies_; }
    /// Both read what was posted before, and take the baton. O(memories).
    RuntimeStats stats();
    /// O(replicas).
    std::string report(ReportFormat format);

  private:
    struct Figures;

    RuntimeStats read_stats(const schedule::Scheduler& scheduler) const;
    void read_figures(Figures& figures, const schedule::Scheduler& scheduler, const Outgoing::MemoryWaits& waits) const;

    const Platform& platform_;
    const TaskBooks& books_;
    const EngineRoom& engine_;
    SchedulerTurns& turns_;
    const CopyBuffers& copy_buffers_;
    UserCopies user_copies_;
    const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace kmm::detail
