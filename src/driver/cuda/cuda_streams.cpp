// Streams, events and captures.
//
// Owns: nothing. Must not know: rmm, kmm. Any thread. Record, query and wait are the hot calls: they go to the driver
// library directly.
#include "driver/cuda/calls.hpp"
#include "driver/cuda/cuda_driver.hpp"

namespace kmm::driver::vendor {

Status VendorDriver::create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept {
    if (!is_device(device)) return no_such_device;
    RelaxedInteraction relaxed;
    DeviceGuard guard(*this, device);
    Stream stream{};
    const Status status = runtime_status(vendor::create_stream(&stream, non_blocking, priority));
    out->native = stream;
    return status;
}

Status VendorDriver::destroy_stream(StreamHandle stream) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::destroy_stream(native(stream)));
}

Status VendorDriver::synchronize_stream(StreamHandle stream) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::synchronize_stream(native(stream)));
}

Status VendorDriver::query_stream(StreamHandle stream) noexcept {
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::query_stream(native(stream)); });
}

Status VendorDriver::stream_id(StreamHandle stream, std::uint64_t* out) noexcept {
    return library_call([&] { return vendor::stream_id(native(stream), out); });
}

Status VendorDriver::stream_device(StreamHandle stream, int* out) noexcept {
    return runtime_status(vendor::stream_device(native(stream), out));
}

Status VendorDriver::wait_event(StreamHandle stream, EventHandle event) noexcept {
    return library_call([&] { return vendor::wait_event(native(stream), native(event)); });
}

Status VendorDriver::create_event(int device, bool timing, bool blocking_sync, EventHandle* out) noexcept {
    if (!is_device(device)) return no_such_device;
    DeviceGuard guard(*this, device);
    Event event{};
    const Status status = runtime_status(vendor::create_event(&event, timing, blocking_sync));
    out->native = event;
    return status;
}

Status VendorDriver::destroy_event(EventHandle event) noexcept {
    return runtime_status(vendor::destroy_event(native(event)));
}

Status VendorDriver::record_event(EventHandle event, StreamHandle stream) noexcept {
    return library_call([&] { return vendor::record_event(native(event), native(stream)); });
}

Status VendorDriver::query_event(EventHandle event) noexcept {
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::query_event(native(event)); });
}

Status VendorDriver::synchronize_event(EventHandle event) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::synchronize_event(native(event)));
}

Status VendorDriver::elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept {
    return runtime_status(vendor::elapsed_ms(out, native(begin), native(end)));
}

Status VendorDriver::device_event_record(int device, EventHandle event) noexcept {
    if (!capabilities_.device_event) return not_supported;
    void* context = nullptr;
    if (const Status status = context_of(device, &context); !status.ok()) return status;
    return library_call([&] { return record_context(native(event), context); });
}

Status VendorDriver::begin_capture(StreamHandle stream, CaptureMode mode) noexcept {
    static_assert(static_cast<int>(CaptureMode::global) == 0 && static_cast<int>(CaptureMode::thread_local_) == 1 &&
                  static_cast<int>(CaptureMode::relaxed) == 2);
    return runtime_status(vendor::begin_capture(native(stream), static_cast<int>(mode)));
}

Status VendorDriver::end_capture(StreamHandle stream, GraphHandle* out) noexcept {
    Graph graph{};
    const Status status = runtime_status(vendor::end_capture(native(stream), &graph));
    out->native = graph;
    return status;
}

Status VendorDriver::capture_status(StreamHandle stream, CaptureStatus* out, std::uint64_t* id) noexcept {
    // Nearly every stream captures nothing, and this question costs half as much as the full one.
    bool capturing = false;
    const Status asked = library_call([&] { return is_capturing(native(stream), &capturing); });
    if (!asked.ok() || !capturing) {
        *out = CaptureStatus::none;
        if (id) *id = 0;
        return asked;
    }
    RawCaptureStatus raw = RawCaptureStatus::none;
    std::uint64_t number = 0;
    const Status status = runtime_status(capture_info(native(stream), &raw, &number));
    *out = raw == RawCaptureStatus::active        ? CaptureStatus::active
           : raw == RawCaptureStatus::invalidated ? CaptureStatus::invalidated
                                                  : CaptureStatus::none;
    if (id) *id = number;
    return status;
}

Status VendorDriver::keep_with_capture(StreamHandle stream, HostCallback on_end, void* user) noexcept {
    Graph graph{};
    if (const Status status = runtime_status(capture_graph(native(stream), &graph)); !status.ok()) return status;
    if (graph == Graph{}) return {Code::capture_error};
    return runtime_status(keep_with_graph(graph, on_end, user));
}

}  // namespace kmm::driver::vendor
