// Implements <rmm/device_buffer.hpp>. Runs on the caller's thread; queues work, waits for nothing.
#include "rmm/device_buffer.hpp"

#include <string>

#include "driver/format.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace {

/// Where nothing may be thrown: what the resource throws is reported, and the memory counts as freed.
void give_back(device_async_resource_ref const& mr, void* data, std::size_t bytes, cuda_stream_view stream,
               cuda_stream_view meant) noexcept {
    if (data == nullptr) return;
    try {
        detail::deallocate_on(mr.raw(), data, bytes, CUDA_ALLOCATION_ALIGNMENT, stream, meant);
    } catch (...) {
        mr::detail::report_throw_in_deallocate();
    }
}

/// Memory that goes back unless it is kept.
struct new_memory {
    new_memory(device_async_resource_ref mr, std::size_t bytes, cuda_stream_view stream, cuda_stream_view meant)
        : mr{mr}, bytes{bytes}, stream{stream}, meant{meant}, data{allocated(mr, bytes, stream, meant)} {}
    ~new_memory() { give_back(mr, data, bytes, stream, meant); }
    new_memory(new_memory const&) = delete;
    new_memory& operator=(new_memory const&) = delete;
    static void* allocated(device_async_resource_ref const& mr, std::size_t bytes, cuda_stream_view stream,
                           cuda_stream_view meant) {
        if (bytes == 0) return nullptr;
        return detail::allocate_on(mr.raw(), bytes, CUDA_ALLOCATION_ALIGNMENT, stream, meant);
    }
    void* keep() noexcept {
        void* const kept = data;
        data = nullptr;
        return kept;
    }

    device_async_resource_ref mr;
    std::size_t bytes;
    cuda_stream_view stream;
    cuda_stream_view meant;
    void* data;
};

}  // namespace

void device_buffer::refuse_null_source(std::size_t size) {
    RMM_FAIL(kmm::driver::format("Invalid copy from nullptr: {} bytes were asked for", size));
}

void device_buffer::acquire(std::size_t size, void const* source, cuda_stream_view stream,
                            cuda_stream_view explicit_stream) {
    if (source == nullptr) {
        data_ = new_memory::allocated(mr_, size, stream, explicit_stream);
    } else {
        new_memory memory{mr_, size, stream, explicit_stream};
        if (size > 0)
            detail::check(detail::the_driver().copy(memory.data, source, size, detail::handle_of(explicit_stream)));
        data_ = memory.keep();
    }
    size_ = size;
    capacity_ = size;
    stream_ = stream;
    free_stream_ = explicit_stream;
}

void device_buffer::reallocate(bool needed, std::size_t new_capacity, std::size_t new_size, cuda_stream_view stream,
                               cuda_stream_view explicit_stream) {
    if (needed) {
        cuda_set_device_raii device{device_};
        new_memory memory{mr_, new_capacity, stream, explicit_stream};
        const std::size_t kept = size_ < new_capacity ? size_ : new_capacity;
        if (kept > 0)
            detail::check(detail::the_driver().copy(memory.data, data_, kept, detail::handle_of(explicit_stream)));
        // The copy reads the old memory on the new stream, so it is freed there and not on the stream of before.
        give_back(mr_, data_, capacity_, stream, explicit_stream);
        data_ = memory.keep();
        capacity_ = new_capacity;
    }
    size_ = new_size;
    stream_ = stream;
    free_stream_ = explicit_stream;
}

void device_buffer::release() noexcept {
    if (data_ != nullptr && !detail::lost_in_fork()) {
        // Goes on where the device cannot be made current: the resource then reports why it cannot free.
        detail::driver::DeviceGuard device{detail::the_driver(), device_.value()};
        give_back(mr_, data_, capacity_, stream_, free_stream_);
    }
    data_ = nullptr;
    size_ = 0;
    capacity_ = 0;
}

void device_buffer::take(device_buffer& other) noexcept {
    data_ = other.data_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    stream_ = other.stream_;
    free_stream_ = other.free_stream_;
    mr_ = other.mr_;
    device_ = other.device_;
    other.data_ = nullptr;
    other.size_ = 0;
    other.capacity_ = 0;
    other.stream_ = cuda_stream_view{};
    other.free_stream_ = cuda_stream_view{};
}

}  // namespace kmm_v0
}  // namespace rmm
