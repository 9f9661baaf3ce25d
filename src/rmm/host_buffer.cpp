// Implements <rmm/host_buffer.hpp>. Runs on the caller's thread.
#include "rmm/host_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "driver/format.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/host_memory.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace {

// A cache line, and the widest vector registers.
constexpr std::size_t alignment = 64;

}  // namespace

void host_buffer::refuse_null_source(std::size_t size) {
    RMM_FAIL(kmm::driver::format("Invalid copy from nullptr: {} bytes were asked for", size));
}

void host_buffer::acquire(std::size_t size, void const* source, cuda_stream_view stream,
                          cuda_stream_view explicit_stream) {
    void* const memory = detail::allocate_host(mr_, size, alignment, stream, explicit_stream);
    if (source != nullptr && size > 0) {
        const detail::driver::Status copied =
            detail::the_driver().copy(memory, source, size, detail::handle_of(explicit_stream));
        if (!copied.ok()) {
            detail::deallocate_host(mr_, memory, size, alignment, stream, explicit_stream);
            detail::check(copied);
        }
    }
    data_ = memory;
    size_ = size;
    capacity_ = size;
    stream_ = stream;
    free_stream_ = explicit_stream;
}

void host_buffer::reallocate(bool needed, std::size_t new_capacity, std::size_t new_size, cuda_stream_view stream,
                             cuda_stream_view explicit_stream) {
    if (needed) {
        cuda_set_device_raii device{device_};
        // What the stream still does with the old memory comes before the host reads it, and before it is freed.
        if (data_ != nullptr) detail::synchronize_stream(explicit_stream.value());
        void* const memory = detail::allocate_host(mr_, new_capacity, alignment, stream, explicit_stream);
        if (const std::size_t kept = std::min(size_, new_capacity); kept > 0) std::memcpy(memory, data_, kept);
        detail::deallocate_host(mr_, data_, capacity_, alignment, stream, explicit_stream);
        data_ = memory;
        capacity_ = new_capacity;
    }
    size_ = new_size;
    stream_ = stream;
    free_stream_ = explicit_stream;
}

void host_buffer::release() noexcept {
    if (data_ != nullptr && !detail::lost_in_fork()) {
        detail::driver::DeviceGuard device{detail::the_driver(), device_.value()};
        // A resource that knows no streams may give the memory away at once.
        if (!detail::hands_out_in_stream_order(mr_))
            detail::report_failure(detail::the_driver().synchronize_stream(detail::handle_of(free_stream_)),
                                   "wait for the stream of a host_buffer");
        detail::deallocate_host(mr_, data_, capacity_, alignment, stream_, free_stream_);
    }
    data_ = nullptr;
    size_ = 0;
    capacity_ = 0;
}

void host_buffer::take(host_buffer& other) noexcept {
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
