#include "kmm/engine/device_clock.hpp"

#include <algorithm>
#include <new>

#include "kmm/trace/events.hpp"

namespace kmm::engine {

namespace {

// Drivers tell the time between two events as a float of milliseconds: within a second it is right to 60 nanoseconds.
constexpr std::int64_t longest_since_base_ns = 1'000'000'000;
// The base is somewhere between two looks at the host's clock: of a few attempts the narrowest counts.
constexpr int base_attempts = 3;
constexpr std::int64_t narrow_enough_ns = 20'000;
// A launch takes a few microseconds.
constexpr std::int64_t longest_call_ns = 20'000;

std::int64_t ns_of(float ms) noexcept { return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6); }

}  // namespace

DeviceClock::~DeviceClock() {
    for (const driver::EventHandle e : free_) (void)driver_.destroy_event(e);
    if (base_.native != nullptr) (void)driver_.destroy_event(base_);
    if (base_stream_.native != nullptr) (void)driver_.destroy_stream(base_stream_);
}

driver::EventHandle DeviceClock::take() noexcept {
    driver::EventHandle event;
    if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
        return event;
    }
    if (!driver_.create_event(ordinal_, true, false, &event).ok()) {
        (void)driver_.take_last_error();
        return {};
    }
    return event;
}

void DeviceClock::give(driver::EventHandle event) noexcept {
    if (event.native == nullptr) return;
    try {
        free_.push_back(event);
    } catch (const std::bad_alloc&) {
        (void)driver_.destroy_event(event);
    }
}

/// Nothing else is on the stream: the event's time is that of the call, but for the way to the device and back.
bool DeviceClock::set_base() noexcept {
    driver::Status status;
    if (base_stream_.native == nullptr) status = driver_.create_stream(ordinal_, true, 0, &base_stream_);
    std::int64_t narrowest_ns = 0;
    for (int attempt = 0; attempt < base_attempts; ++attempt) {
        const driver::EventHandle event = status.ok() ? take() : driver::EventHandle{};
        if (event.native == nullptr) break;
        const std::int64_t before = trace::clock_ns();
        status = driver_.record_event(event, base_stream_);
        if (status.ok()) status = driver_.synchronize_event(event);
        const std::int64_t took_ns = trace::clock_ns() - before;
        if (!status.ok() || (attempt > 0 && took_ns >= narrowest_ns)) {
            give(event);
            continue;
        }
        give(base_);
        base_ = event;
        base_ns_ = before + took_ns / 2;
        narrowest_ns = took_ns;
        if (took_ns <= narrow_enough_ns) break;
    }
    if (!status.ok()) (void)driver_.take_last_error();
    return base_ns_ != 0;
}

TimedWork DeviceClock::begin(driver::StreamHandle stream, bool with_times) noexcept {
    if (with_times && trace::clock_ns() - base_ns_ > longest_since_base_ns && !set_base()) return {};
    TimedWork work;
    work.begin = take();
    work.end = take();
    if (work.begin.native != nullptr && work.end.native != nullptr && driver_.record_event(work.begin, stream).ok()) {
        work.begun_ns = trace::clock_ns();
        return work;
    }
    (void)driver_.take_last_error();
    drop(work);
    return {};
}

/// A device that has not come to `begin` yet has the work in time. One that has may have waited for it since, or may
/// just have come there: in a call that took long the difference is too large to tell anything.
void DeviceClock::put(TimedWork& work) noexcept {
    if (work.begin.native == nullptr) return;
    const std::int64_t took_ns = trace::clock_ns() - work.begun_ns;
    if (!driver_.query_event(work.begin).ok()) return;
    work.waited_ns = took_ns <= longest_call_ns ? took_ns : -1;
}

void DeviceClock::end(TimedWork& work, driver::StreamHandle stream) noexcept {
    if (work.begin.native == nullptr || driver_.record_event(work.end, stream).ok()) return;
    (void)driver_.take_last_error();
    drop(work);
    work = {};
}

DeviceTimes DeviceClock::read(const TimedWork& work) noexcept {
    if (work.begin.native == nullptr) return {};
    float since_base_ms = 0;
    float duration_ms = 0;
    const bool known = driver_.elapsed_ms(base_, work.begin, &since_base_ms).ok() &&
                       driver_.elapsed_ms(work.begin, work.end, &duration_ms).ok();
    drop(work);
    if (!known) {
        (void)driver_.take_last_error();
        return {};
    }
    DeviceTimes times;
    times.begin_ns = base_ns_ + ns_of(since_base_ms);
    times.end_ns = times.begin_ns + ns_of(duration_ms);
    return times;
}

std::int64_t DeviceClock::duration_ns(const TimedWork& work) noexcept {
    if (work.begin.native == nullptr) return -1;
    float duration_ms = 0;
    const bool known = driver_.elapsed_ms(work.begin, work.end, &duration_ms).ok();
    drop(work);
    if (!known) (void)driver_.take_last_error();
    return known && work.waited_ns >= 0 ? std::max<std::int64_t>(0, ns_of(duration_ms) - work.waited_ns) : -1;
}

void DeviceClock::drop(const TimedWork& work) noexcept {
    give(work.begin);
    give(work.end);
}

}  // namespace kmm::engine
