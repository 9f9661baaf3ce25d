#include "kmm/api/caller_stream.hpp"

#include "kmm/execute/device_error.hpp"

namespace kmm::detail {

namespace {

/// Of the runtime, so that the program has a context there: asking another one would make it.
bool uses_device(RuntimeCore& core, int ordinal) {
    for (const DeviceInfo& d : core.info().devices())
        if (d.device_ordinal() == ordinal) return true;
    return false;
}

}  // namespace

CallerStream::CallerStream(RuntimeCore& core, int ordinal, DefaultStream means, const char* what)
    : driver_(core.driver()) {
    try {
        const execute::TaskStream* const task = execute::TaskScope::stream();
        if (task != nullptr && task->driver == &driver_) {
            record(task->ordinal, task->stream, what);
            // Work on the legacy stream counts as the task's.
            if (core.config().legacy_stream_capture && driver_.kind() != driver::Kind::host)
                record(task->ordinal, driver::legacy_stream(), what);
            return;
        }
        const driver::StreamHandle stream =
            means == DefaultStream::per_thread ? driver::per_thread_stream() : driver::legacy_stream();
        record(ordinal, stream, what);
        int current = ordinal;
        if (!driver_.current_device(&current).ok() || current == ordinal || !uses_device(core, current)) return;
        record(current, stream, what);
    } catch (...) {
        drop();
        throw;
    }
}

void CallerStream::record(int ordinal, driver::StreamHandle stream, const char* what) {
    const driver::DeviceGuard guard(driver_, ordinal);
    // Asked first: recording would make the event part of the capture, or end it.
    driver::CaptureStatus capture = driver::CaptureStatus::none;
    const driver::Status asked = driver_.capture_status(stream, &capture, nullptr);
    if (asked.code == driver::Code::capture_error || (asked.ok() && capture != driver::CaptureStatus::none)) {
        (void)driver_.take_last_error();
        throw InvalidArgument(
            std::string(what) +
            ": the calling thread's stream is being captured, or a stream that it waits for, and a copy "
            "with device memory is ordered after it: end the capture first, or copy with memory of the "
            "host");
    }
    static constexpr char attempted[] = "ordering a copy after the calling thread's stream";
    check_device(driver_, ordinal, asked, attempted);
    driver::EventHandle event;
    check_device(driver_, ordinal, driver_.create_event(ordinal, false, false, &event), attempted);
    events_[count_++] = event;
    check_device(driver_, ordinal, driver_.record_event(event, stream), attempted);
}

driver::Status CallerStream::order(driver::StreamHandle stream) const noexcept {
    for (std::size_t i = 0; i < count_; ++i)
        if (const driver::Status status = driver_.wait_event(stream, events_[i]); !status.ok()) return status;
    return {};
}

bool CallerStream::passed() const noexcept {
    for (std::size_t i = 0; i < count_; ++i)
        if (driver_.query_event(events_[i]).code == driver::Code::not_ready) return false;
    return true;
}

void CallerStream::drop() noexcept {
    while (count_ > 0) (void)driver_.destroy_event(events_[--count_]);
}

}  // namespace kmm::detail
