#include "kmm/execute/device_clock.hpp"

#include <new>

#include "kmm/trace/events.hpp"

namespace kmm::execute {

namespace {

// Drivers tell the time between two events as a float of milliseconds: after a second it is right to 60 nanoseconds.
constexpr float longest_since_base_ms = 1000;

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
    if (status.ok() && base_.native == nullptr) status = driver_.create_event(ordinal_, true, false, &base_);
    const std::int64_t before = trace::clock_ns();
    if (status.ok()) status = driver_.record_event(base_, base_stream_);
    if (status.ok()) status = driver_.synchronize_event(base_);
    if (!status.ok()) (void)driver_.take_last_error();
    base_ns_ = status.ok() ? before + (trace::clock_ns() - before) / 2 : 0;
    return status.ok();
}

TimedWork DeviceClock::begin(driver::StreamHandle stream) noexcept {
    if (base_ns_ == 0 && !set_base()) return {};
    TimedWork work{take(), take()};
    if (work.begin.native != nullptr && work.end.native != nullptr && driver_.record_event(work.begin, stream).ok())
        return work;
    drop(work);
    return {};
}

void DeviceClock::end(TimedWork& work, driver::StreamHandle stream) noexcept {
    if (work.begin.native == nullptr || driver_.record_event(work.end, stream).ok()) return;
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
    if (since_base_ms > longest_since_base_ms) (void)set_base();
    return times;
}

void DeviceClock::drop(const TimedWork& work) noexcept {
    give(work.begin);
    give(work.end);
}

}  // namespace kmm::execute
