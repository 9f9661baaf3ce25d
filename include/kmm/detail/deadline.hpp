// From any duration and any clock to a point of the steady clock, without overflow.
//
// Owns: nothing. Any thread. C++17.
#pragma once

#include <chrono>

namespace kmm {
namespace detail {

struct Deadline {
    std::chrono::steady_clock::time_point time;
    bool bounded = true;  ///< false: so far away that it will not come
};

/// Longer waits (9.5 years) count as unbounded, since adding them to the clock could overflow.
inline constexpr double unbounded_wait_seconds = 3.0e8;

template<typename Rep, typename Period>
Deadline deadline_after(std::chrono::duration<Rep, Period> timeout) {
    using Steady = std::chrono::steady_clock;
    const double seconds = std::chrono::duration_cast<std::chrono::duration<double>>(timeout).count();
    if (seconds >= unbounded_wait_seconds) return Deadline{Steady::time_point::max(), false};
    if (!(seconds > 0)) return Deadline{Steady::now(), true};
    // Rounded up: a wait must not end before the time that was asked for.
    auto length = std::chrono::duration_cast<Steady::duration>(timeout);
    if (length < timeout) length += Steady::duration(1);
    return Deadline{Steady::now() + length, true};
}

/// Calls `wait(deadline)` until it returns true or `time` of any clock has come: another clock may have been set back.
template<typename Wait, typename Clock, typename Duration>
bool wait_until_clock(const Wait& wait, std::chrono::time_point<Clock, Duration> time) {
    for (;;) {
        // First in double: the exact difference of far times would overflow.
        const auto now = Clock::now();
        const double left = std::chrono::duration<double>(time.time_since_epoch()).count() -
                            std::chrono::duration<double>(now.time_since_epoch()).count();
        if (left >= unbounded_wait_seconds) return wait(nullptr);
        const Deadline deadline = left < -1 ? deadline_after(std::chrono::seconds(0)) : deadline_after(time - now);
        if (wait(&deadline.time)) return true;
        if (left < -1 || Clock::now() >= time) return false;
    }
}

}  // namespace detail
}  // namespace kmm
