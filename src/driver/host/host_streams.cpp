// Owns: stream, event and work calls of the host driver. Any thread.
#include <algorithm>

#include "driver/host/host_driver.hpp"
#include "driver/host/limits.hpp"

namespace kmm::driver::host {
namespace {

// CUDA stages pageable sources up to this size and returns before the copy has run.
constexpr std::size_t max_staged_bytes = 64 << 10;

std::size_t box_span(std::size_t width, std::size_t height, std::size_t depth, std::size_t row_pitch,
                     std::size_t plane_pitch) {
    return (depth - 1) * plane_pitch + (height - 1) * row_pitch + width;
}

}  // namespace

void HostDriver::Queue::append_implicit_waits() {
    expect_held();
    Stream& legacy = *driver_.devices_[stream_.device].legacy;
    if (&stream_ != &legacy) {
        if (stream_.blocking.load(std::memory_order_relaxed)) stream_.append_wait(legacy, legacy.enqueued());
        return;
    }
    for (std::uint32_t i = 0; i < driver_.streams_.size(); ++i) {
        Stream& other = driver_.streams_[i];
        if (other.device.load(std::memory_order_relaxed) == stream_.device &&
            other.blocking.load(std::memory_order_relaxed))
            stream_.append_wait(other, other.enqueued());
    }
}

/// Whether work of this stream goes into a graph, which reads its sources at each launch.
bool HostDriver::captured(StreamHandle handle) {
    const Stream* stream = resolve(handle);
    return stream != nullptr && stream->capture.load(std::memory_order_acquire) != nullptr;
}

/// The position after all work so far, implicit waits included. Throws std::bad_alloc.
std::uint64_t HostDriver::tail_of(Stream& stream) {
    Queue queue(*this, stream);
    return queue.tail();
}

/// As `tail_of`, for calls that must not fail: if there is no memory to queue the implicit waits, the thread waits
/// instead.
std::uint64_t HostDriver::certain_tail_of(Stream& stream) noexcept {
    try {
        return tail_of(stream);
    } catch (const std::bad_alloc&) {
        Stream& legacy = *devices_[stream.device].legacy;
        if (&stream != &legacy) {
            legacy.wait_until(legacy.enqueued(), executor_.spins());  // only a blocking stream has something to queue
        } else {
            for (std::uint32_t i = 0; i < streams_.size(); ++i) {
                Stream& other = streams_[i];
                if (other.device.load(std::memory_order_relaxed) == stream.device &&
                    other.blocking.load(std::memory_order_relaxed))
                    other.wait_until(other.enqueued(), executor_.spins());
            }
        }
        return stream.enqueued();
    }
}

Status HostDriver::create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        *out = {streams_.handle(take_stream(device, !non_blocking, priority < 0))};
        return {};
    });
}

Status HostDriver::destroy_stream(StreamHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Stream* stream = streams_.find(handle.native);
    if (stream == nullptr) return fail(Code::invalid_handle);
    if (stream->capture.load(std::memory_order_acquire) != nullptr) return fail(Code::capture_error);
    retire_stream(*stream);
    return {};
}

Status HostDriver::finish_synchronization(Stream& stream, std::uint64_t position) noexcept {
    pools_.after_synchronization();
    if (!stream.may_have_failed.load(std::memory_order_acquire)) return {};
    const locks::Guard lock(stream.mutex);
    return stream.take_failure(position) ? fail(Code::launch_failed) : Status{};
}

Status HostDriver::synchronize_stream(StreamHandle handle) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        if (const Status status = refuse_captured(*stream); !status.ok()) return status;
        const std::uint64_t position = stream->legacy ? certain_tail_of(*stream) : stream->enqueued();
        stream->wait_until(position, executor_.spins());
        return finish_synchronization(*stream, position);
    });
}

Status HostDriver::query_stream(StreamHandle handle) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        if (const Status status = refuse_captured(*stream); !status.ok()) return status;
        const std::uint64_t position = stream->legacy ? tail_of(*stream) : stream->enqueued();
        if (!stream->reached(position)) return {Code::not_ready};
        return finish_synchronization(*stream, position);
    });
}

Status HostDriver::stream_id(StreamHandle handle, std::uint64_t* out) noexcept {
    return guarded([&]() -> Status {
        const Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        *out = stream->id.load(std::memory_order_relaxed);
        return {};
    });
}

Status HostDriver::stream_device(StreamHandle handle, int* out) noexcept {
    return guarded([&]() -> Status {
        const Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        *out = stream->device.load(std::memory_order_relaxed);
        return {};
    });
}

Status HostDriver::wait_event(StreamHandle handle, EventHandle event_handle) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        Event* event = events_.find(event_handle.native);
        if (stream == nullptr || event == nullptr) return {Code::invalid_handle};
        Stream* target = nullptr;
        std::uint64_t position = 0;
        bool captured = stream->capture.load(std::memory_order_acquire) != nullptr;
        {
            const locks::Guard lock(event->mutex);
            captured |= event->capture_id != 0;
            if (event->recorded) {
                target = event->stream;
                position = event->position;
            }
        }
        if (captured) return wait_event_in_capture(*stream, *event);
        if (stream->legacy)
            if (const Status status = refuse_implicit(*stream); !status.ok()) return status;
        if (target == nullptr || (!races::tracked && target->reached(position))) return {};
        Queue queue(*this, *stream);
        stream->append_wait(*target, position);
        return {};
    });
}

Status HostDriver::create_event(int device, bool timing, bool, EventHandle* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        Event& event = events_.take();
        const locks::Guard lock(event.mutex);
        event.timing = timing;
        event.recorded = false;
        event.capture_id = 0;
        event.nodes.clear();
        Slots<Event>::revive(event);
        *out = {events_.handle(event)};
        return {};
    });
}

Status HostDriver::destroy_event(EventHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Event* event = events_.find(handle.native);
    if (event == nullptr) return fail(Code::invalid_handle);
    Slots<Event>::retire(*event);
    {
        const locks::Guard lock(event->mutex);
        ++event->record;  // a timestamp that is still queued is dropped
    }
    events_.recycle(*event);
    return {};
}

void HostDriver::record(Event& event, Queue& queue, Stream& stream) {
    std::uint64_t number = 0;
    bool timing = false;
    {
        const locks::Guard lock(event.mutex);
        number = ++event.record;
        timing = event.timing;
    }
    if (timing) queue.append([&](Work& work) { work.set_timestamp(&event, number); });
    const locks::Guard lock(event.mutex);
    if (event.record != number) return;  // recorded again by another thread
    event.recorded = true;
    event.stream = &stream;
    event.position = queue.tail();
    event.capture_id = 0;
    event.nodes.clear();
}

Status HostDriver::record_event(EventHandle event_handle, StreamHandle handle) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        Event* event = events_.find(event_handle.native);
        if (stream == nullptr || event == nullptr) return {Code::invalid_handle};
        if (stream->capture.load(std::memory_order_acquire) != nullptr) {
            const locks::Guard lock(captures_mutex_);
            Capture* capture = stream->capture.load(std::memory_order_acquire);
            if (capture == nullptr || capture->invalidated()) return {Code::capture_error};
            const locks::Guard event_lock(event->mutex);
            event->nodes = capture->tail(*stream);
            event->capture_id = capture->id();
            event->recorded = false;
            ++event->record;
            return {};
        }
        if (stream->legacy)
            if (const Status status = refuse_implicit(*stream); !status.ok()) return status;
        Queue queue(*this, *stream);
        record(*event, queue, *stream);
        return {};
    });
}

Status HostDriver::query_event(EventHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Event* event = events_.find(handle.native);
    if (event == nullptr) return fail(Code::invalid_handle);
    Stream* stream = nullptr;
    std::uint64_t position = 0;
    {
        const locks::Guard lock(event->mutex);
        if (event->capture_id != 0) return fail(Code::capture_error);
        if (!event->recorded) return {};
        stream = event->stream;
        position = event->position;
    }
    if (!stream->reached(position)) return {Code::not_ready};
    return finish_synchronization(*stream, position);
}

Status HostDriver::synchronize_event(EventHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Event* event = events_.find(handle.native);
    if (event == nullptr) return fail(Code::invalid_handle);
    Stream* stream = nullptr;
    std::uint64_t position = 0;
    {
        const locks::Guard lock(event->mutex);
        if (event->capture_id != 0) return fail(Code::capture_error);
        if (!event->recorded) return {};
        stream = event->stream;
        position = event->position;
    }
    stream->wait_until(position, executor_.spins());
    return finish_synchronization(*stream, position);
}

Status HostDriver::elapsed_ms(EventHandle begin_handle, EventHandle end_handle, float* out) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    std::chrono::steady_clock::time_point times[2];
    int i = 0;
    for (const EventHandle handle : {begin_handle, end_handle}) {
        Event* event = events_.find(handle.native);
        if (event == nullptr) return fail(Code::invalid_handle);
        const locks::Guard lock(event->mutex);
        if (!event->timing || !event->recorded) return fail(Code::invalid_handle);
        if (!event->stream->reached(event->position)) return {Code::not_ready};
        times[i++] = event->time;
    }
    *out = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
    return {};
}

Status HostDriver::device_event_record(int device, EventHandle handle) noexcept {
    if (!device_events_) return fail(Code::not_supported);
    if (!valid_device(device)) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        Event* event = events_.find(handle.native);
        if (event == nullptr) return {Code::invalid_handle};
        Stream& fence = *devices_[device].fence;
        Queue queue(*this, fence);
        for (std::uint32_t i = 0; i < streams_.size(); ++i) {
            Stream& stream = streams_[i];
            if (stream.device.load(std::memory_order_relaxed) == device) fence.append_wait(stream, stream.enqueued());
        }
        record(*event, queue, fence);
        return {};
    });
}

Status HostDriver::copy(void* destination, const void* source, std::size_t bytes, StreamHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (bytes == 0) return enqueue(handle, [](Work& work) { work.kind = WorkKind::none; });
    if (destination == nullptr || source == nullptr) return fail(Code::invalid_argument);
    const Memory::CopyEnds ends = memory_.classify(destination, bytes, source, bytes);
    if (!ends.in_bounds) return fail(Code::invalid_argument);
    const CopyPiece piece{destination, source, bytes};
    if (!ends.source_pageable && !ends.destination_pageable)
        return enqueue(handle, [&](Work& work) { work.set_copy(piece); });
    const bool staged = !ends.destination_pageable && bytes <= max_staged_bytes && !captured(handle);
    if (staged) return enqueue(handle, [&](Work& work) { work.set_staged_copy(piece); });
    return enqueue(handle, [&](Work& work) { work.set_copy(piece); }, true);
}

Status HostDriver::copy_peer(void* destination, int destination_device, const void* source, int source_device,
                             std::size_t bytes, StreamHandle handle) noexcept {
    if (!valid_device(destination_device) || !valid_device(source_device)) return fail(Code::invalid_argument);
    return copy(destination, source, bytes, handle);
}

Status HostDriver::copy_box(const BoxCopy& box, StreamHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    if (!valid_box(box)) return fail(Code::invalid_argument);
    if (box.width_bytes == 0 || box.height == 0 || box.depth == 0)
        return enqueue(handle, [](Work& work) { work.kind = WorkKind::none; });
    const Memory::CopyEnds ends = memory_.classify(
        box.destination,
        box_span(box.width_bytes, box.height, box.depth, box.destination_row_pitch, box.destination_plane_pitch),
        box.source, box_span(box.width_bytes, box.height, box.depth, box.source_row_pitch, box.source_plane_pitch));
    if (!ends.in_bounds) return fail(Code::invalid_argument);
    return enqueue(handle, [&](Work& work) { work.set_box(box); }, ends.source_pageable || ends.destination_pageable);
}

Status HostDriver::copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle handle) noexcept {
    return guarded([&]() -> Status {
        bool pageable = false;
        for (std::size_t i = 0; i < num_pieces; ++i) {
            const CopyPiece& piece = pieces[i];
            if (piece.size_bytes == 0) continue;
            if (piece.destination == nullptr || piece.source == nullptr) return {Code::invalid_argument};
            const Memory::CopyEnds ends =
                memory_.classify(piece.destination, piece.size_bytes, piece.source, piece.size_bytes);
            if (!ends.in_bounds) return {Code::invalid_argument};
            pageable |= ends.source_pageable || ends.destination_pageable;
        }
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        if (stream->capture.load(std::memory_order_acquire) != nullptr) {
            for (std::size_t i = 0; i < num_pieces; ++i)
                if (const Status s = capture_work(*stream, [&](Work& work) { work.set_copy(pieces[i]); }); !s.ok())
                    return s;
            return {};
        }
        if (stream->legacy)
            if (const Status status = refuse_implicit(*stream); !status.ok()) return status;
        std::uint64_t position = 0;
        {
            Queue queue(*this, *stream);
            stream->reserve(num_pieces, 0);  // all pieces or none
            for (std::size_t i = 0; i < num_pieces; ++i) queue.append([&](Work& work) { work.set_copy(pieces[i]); });
            position = queue.tail();
        }
        if (pageable) stream->wait_until(position, executor_.spins());
        return {};
    });
}

Status HostDriver::fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                        StreamHandle handle) noexcept {
    std::size_t total = 0;
    if (pattern == nullptr || pattern_bytes == 0 || pattern_bytes > max_pattern_bytes ||
        !multiply(pattern_bytes, count, &total) || (total != 0 && destination == nullptr))
        return fail(Code::invalid_argument);
    if (total == 0) return enqueue(handle, [](Work& work) { work.kind = WorkKind::none; });
    if (!memory_.classify(destination, total, destination, total).in_bounds) return fail(Code::invalid_argument);
    return enqueue(handle, [&](Work& work) { work.set_fill(destination, pattern, pattern_bytes, count); });
}

Status HostDriver::host_callback(StreamHandle handle, HostCallback function, void* user) noexcept {
    if (function == nullptr) return fail(Code::invalid_argument);
    return enqueue(handle, [&](Work& work) { work.set_callback(function, user); });
}

Status HostDriver::launch(const KernelLaunch& launch, StreamHandle handle) noexcept {
    if (!valid_launch(launch)) return fail(Code::invalid_argument);
    return enqueue(handle, [&](Work& work) { work.set_kernel(launch); });
}

Status HostDriver::prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept {
    const auto* kernel = static_cast<const HostKernel*>(function);
    if (kernel == nullptr || kernel->run_blocks == nullptr) return fail(Code::invalid_handle);
    return shared_bytes <= max_shared_memory_per_block ? Status{} : fail(Code::invalid_argument);
}

}  // namespace kmm::driver::host
