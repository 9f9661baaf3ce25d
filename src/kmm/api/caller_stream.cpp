#include "kmm/api/caller_stream.hpp"

#include <optional>

#include "driver/registry.hpp"
#include "kmm/engine/device_error.hpp"

namespace kmm::detail {

namespace {

// An event takes 2 to 5 microseconds from its record on a stream of a GPU that has no work; waking a thread that waits
// takes as long.
constexpr std::int64_t patience_ns = 10'000;
constexpr char attempted[] = "ordering a copy after the calling thread's stream";

/// Whether the program has a context on a device, as far as we know: asking the device would make one.
bool has_context(RuntimeCore& core, const driver::Driver& driver, int ordinal) {
    if (driver.kind() == driver::Kind::host) return true;
    for (const DeviceInfo& d : core.platform().info().devices())
        if (d.device_ordinal() == ordinal) return true;
    return false;
}

bool find(driver::Driver& driver, const void* address, DeviceMemory* found) {
    driver::PointerInfo place;
    if (!driver.pointer_info(address, &place).ok()) return false;
    if (place.kind != driver::MemoryKind::device && place.kind != driver::MemoryKind::managed) return false;
    if (place.device < 0) (void)driver.current_device(&place.device);
    *found = {&driver, place.device};
    return true;
}

}  // namespace

DeviceMemory device_memory_at(RuntimeCore& core, const void* address) {
    DeviceMemory found;
    if (find(core.platform().driver(), address, &found) || core.platform().driver().kind() != driver::Kind::host)
        return found;
    const engine::TaskStream* const task = engine::TaskScope::stream();
    if (task != nullptr && task->driver->kind() == driver::Kind::host && find(*task->driver, address, &found))
        return found;
    const auto of_process = driver::host_if_open();  // it lives as long as the process
    if (of_process != nullptr && of_process.get() != &core.platform().driver())
        (void)find(*of_process, address, &found);
    return found;
}

CallerStream::CallerStream(RuntimeCore& core, const DeviceMemory& memory, DefaultStream means, const char* what)
    : driver_(*memory.driver), ordinal_(memory.ordinal) {
    try {
        const engine::TaskStream* const task = engine::TaskScope::stream();
        if (task != nullptr && task->driver == &driver_) {
            record(task->ordinal, task->stream, what);
            // Work on the legacy stream counts as the task's.
            if (core.platform().config().legacy_stream_capture && driver_.kind() != driver::Kind::host)
                record(task->ordinal, driver::legacy_stream(), what);
            return;
        }
        const driver::StreamHandle stream =
            means == DefaultStream::per_thread ? driver::per_thread_stream() : driver::legacy_stream();
        record(ordinal_, stream, what);
        int current = ordinal_;
        if (!driver_.current_device(&current).ok() || current == ordinal_ || !has_context(core, driver_, current))
            return;
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

bool CallerStream::passes_soon() const noexcept {
    const std::int64_t end = engine::now_ns() + patience_ns;
    while (!passed())
        if (engine::now_ns() >= end) return false;
    return true;
}

void CallerStream::wait() const {
    // It may take long, or wait for tasks that stand behind the caller's.
    std::optional<engine::Workers::Wait> wait;
    if (!passes_soon()) wait.emplace();
    for (std::size_t i = 0; i < count_; ++i)
        check_device(driver_, ordinal_, driver_.synchronize_event(events_[i]), attempted);
}

void CallerStream::drop() noexcept {
    while (count_ > 0) (void)driver_.destroy_event(events_[--count_]);
}

}  // namespace kmm::detail
