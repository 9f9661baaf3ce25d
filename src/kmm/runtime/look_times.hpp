// When the scheduler is asked again whether its front has moved.
//
// Owns: one time. Must not know: what a look is for.
#pragma once

#include <atomic>
#include <chrono>

namespace kmm::detail {

/// A look is due an interval after the one before was taken, however long that had stood in a queue: two looks have an
/// interval between them. Any thread.
class LookTimes {
  public:
    using Clock = std::chrono::steady_clock;
    LookTimes(Clock::duration interval, Clock::time_point now) noexcept : interval_(interval) { taken(now); }

    /// True once: then the look must be asked for, or `taken` be called.
    bool is_due(Clock::time_point now) noexcept {
        if (now.time_since_epoch().count() < next_.load(std::memory_order_relaxed)) return false;
        next_.store(never, std::memory_order_relaxed);
        return true;
    }
    /// The look was taken, or there was no need of it, or no memory to ask for it.
    void taken(Clock::time_point now) noexcept {
        next_.store((now + interval_).time_since_epoch().count(), std::memory_order_relaxed);
    }

  private:
    static constexpr Clock::rep never = Clock::duration::max().count();
    const Clock::duration interval_;
    std::atomic<Clock::rep> next_{never};
};

}  // namespace kmm::detail
