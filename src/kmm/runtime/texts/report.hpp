// What a runtime counted, as numbers and for people.
//
// Owns: counters of copies between chunks and memory of the program, and of late kernels. All other numbers are read
// while the thread has the baton, so that they are of one moment; worded afterwards. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

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

/// Kernels whose parameters the program's own code makes from addresses: a launcher builds them when the task runs.
class LateKernels {
  public:
    struct Place {
        std::string submit;  ///< kmm::detail::text_of its launcher
        SourceLocation location;
        std::uint64_t kernels = 0;
    };
    /// Those of a submit. Of more than 16 places, and where the host has no memory, they are counted without a
    /// place. O(places).
    void count(const LauncherInfo& launcher, std::size_t kernels) noexcept;
    /// In the order of their first submits; those without a place come last. Throws std::bad_alloc.
    std::vector<Place> places() const;

  private:
    static constexpr std::size_t most_places = 16;
    mutable locks::Mutex mutex_;
    std::vector<Place> places_ KMM_GUARDED_BY(mutex_);
    std::uint64_t elsewhere_ KMM_GUARDED_BY(mutex_) = 0;
};

class Reports {
  public:
    Reports(const Platform& platform, const TaskBooks& books, const EngineRoom& engine, SchedulerTurns& turns,
            const CopyBuffers& copy_buffers) noexcept
        : platform_(platform), books_(books), engine_(engine), turns_(turns), copy_buffers_(copy_buffers) {}

    UserCopies& user_copies() noexcept { return user_copies_; }
    LateKernels& late_kernels() noexcept { return late_kernels_; }
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
    LateKernels late_kernels_;
    const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace kmm::detail
