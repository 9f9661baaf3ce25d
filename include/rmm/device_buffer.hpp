// Untyped device memory with an owner.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Owns `capacity()` bytes of a resource, of which `size()` are in use; uninitialized unless copied from something.
///
/// - All work is in stream order and waits for nothing: memory is allocated and copied on the stream given to the call,
///   and freed on the stream given last. The calls that free or resize remember their stream as that one.
/// - Remembers the device that was current when it was made, and makes it current around every allocation, copy and
///   free.
/// - A size of 0 has a null pointer and calls no resource.
/// - Throws rmm::bad_alloc, rmm::out_of_memory or rmm::cuda_error; contents and stream are unchanged then.
/// - Not thread-safe. Does not own its resource, which must outlive it.
class device_buffer {
  public:
    /// Empty, with the current resource.
    device_buffer() : device_buffer(mr::detail::get_current_resource()) {}

    /// Without `mr`: from the current resource.
    RMM_UNIT_INLINE explicit device_buffer(std::size_t size, cuda_stream_view stream)
        : device_buffer(mr::detail::get_current_resource()) {
        acquire(size, nullptr, stream, detail::explicit_stream(stream));
    }
    RMM_UNIT_INLINE explicit device_buffer(std::size_t size, cuda_stream_view stream, device_async_resource_ref mr)
        : device_buffer(mr) {
        acquire(size, nullptr, stream, detail::explicit_stream(stream));
    }

    /// Copies from host or device memory on the stream; `source_data` must stay valid until the copy is done. Throws
    /// rmm::logic_error for null with a size above 0.
    RMM_UNIT_INLINE device_buffer(void const* source_data, std::size_t size, cuda_stream_view stream,
                                  device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : device_buffer(mr) {
        if (size > 0 && source_data == nullptr) refuse_null_source(size);
        acquire(size, source_data, stream, detail::explicit_stream(stream));
    }

    /// Copies the `size()` bytes in use; the capacity is the size.
    RMM_UNIT_INLINE device_buffer(device_buffer const& other, cuda_stream_view stream,
                                  device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : device_buffer(other.data(), other.size(), stream, mr) {}

    device_buffer(device_buffer const&) = delete;
    device_buffer& operator=(device_buffer const&) = delete;

    /// Takes everything; `other` is empty then, on the default stream.
    device_buffer(device_buffer&& other) noexcept : mr_{other.mr_}, device_{other.device_} { take(other); }
    /// Frees its own memory first, on its own stream and device.
    device_buffer& operator=(device_buffer&& other) noexcept {
        if (&other != this) {
            release();
            take(other);
        }
        return *this;
    }
    ~device_buffer() noexcept { release(); }

    /// Grows the capacity to exactly `new_capacity` if it is below; contents are copied on the stream.
    RMM_UNIT_INLINE void reserve(std::size_t new_capacity, cuda_stream_view stream) {
        reallocate(new_capacity > capacity_, new_capacity, size_, stream, detail::explicit_stream(stream));
    }
    /// Above the capacity: new memory of exactly `new_size`, with the old contents. Otherwise only the size changes.
    RMM_UNIT_INLINE void resize(std::size_t new_size, cuda_stream_view stream) {
        reallocate(new_size > capacity_, new_size, new_size, stream, detail::explicit_stream(stream));
    }
    /// Reallocates to `size()` unless that is the capacity.
    RMM_UNIT_INLINE void shrink_to_fit(cuda_stream_view stream) {
        reallocate(size_ != capacity_, size_, size_, stream, detail::explicit_stream(stream));
    }

    [[nodiscard]] void const* data() const noexcept { return data_; }
    void* data() noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::int64_t ssize() const noexcept { return static_cast<std::int64_t>(size_); }
    [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

    /// The stream on which the memory will be freed.
    [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }
    RMM_UNIT_INLINE void set_stream(cuda_stream_view stream) noexcept {
        stream_ = stream;
        free_stream_ = detail::explicit_stream(stream);
    }
    [[nodiscard]] rmm::device_async_resource_ref memory_resource() const noexcept { return mr_; }

  private:
    explicit device_buffer(device_async_resource_ref mr) : mr_{mr} {}
    explicit device_buffer(mr::detail::current_resource current) : mr_{current.ref}, device_{current.device} {}

    [[noreturn]] static void refuse_null_source(std::size_t size);
    // `stream` is what the caller named, `explicit_stream` what compiled code must be given for it.
    void acquire(std::size_t size, void const* source, cuda_stream_view stream, cuda_stream_view explicit_stream);
    void reallocate(bool needed, std::size_t new_capacity, std::size_t new_size, cuda_stream_view stream,
                    cuda_stream_view explicit_stream);
    void release() noexcept;
    void take(device_buffer& other) noexcept;

    void* data_{};
    std::size_t size_{};
    std::size_t capacity_{};
    cuda_stream_view stream_{};
    cuda_stream_view free_stream_{};
    device_async_resource_ref mr_;
    cuda_device_id device_{};
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
