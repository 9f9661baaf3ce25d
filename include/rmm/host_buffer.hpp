// Untyped host memory with an owner.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/host_memory.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Owns `capacity()` bytes of a resource of host memory, of which `size()` are in use; uninitialized unless copied from
/// something. The counterpart of device_buffer; page-locked unless a resource is given, so that copies to and from
/// devices run in stream order and the host waits for none.
///
/// - The host may use the memory as soon as it has it: where the resource hands it out in stream order (a pool), the
///   constructor waits for the stream. Contents that a constructor copies are there when the stream is synchronized.
/// - Freed when the stream given last has done what it does with it: in stream order where the resource can, else the
///   destructor waits for the stream, which must still exist.
/// - What reallocates waits for the stream, because the host moves the contents.
/// - Aligned to 64 bytes. A size of 0 has a null pointer and calls no resource.
/// - Throws std::bad_alloc or a class derived from it, or rmm::cuda_error; contents and stream are unchanged then.
/// - Not thread-safe. Does not own its resource, which must outlive it.
class host_buffer {
  public:
    /// Empty.
    host_buffer() : host_buffer(detail::default_host_resource()) {}

    RMM_UNIT_INLINE explicit host_buffer(std::size_t size, cuda_stream_view stream = cuda_stream_default,
                                         host_resource_ref mr = detail::default_host_resource())
        : host_buffer(mr) {
        acquire(size, nullptr, stream, detail::explicit_stream(stream));
    }

    /// Copies from host or device memory on the stream; `source_data` must stay valid until the copy is done. Throws
    /// rmm::logic_error for null with a size above 0.
    RMM_UNIT_INLINE host_buffer(void const* source_data, std::size_t size,
                                cuda_stream_view stream = cuda_stream_default,
                                host_resource_ref mr = detail::default_host_resource())
        : host_buffer(mr) {
        if (size > 0 && source_data == nullptr) refuse_null_source(size);
        acquire(size, source_data, stream, detail::explicit_stream(stream));
    }

    /// Copies the `size()` bytes in use; the capacity is the size.
    RMM_UNIT_INLINE host_buffer(host_buffer const& other, cuda_stream_view stream,
                                host_resource_ref mr = detail::default_host_resource())
        : host_buffer(other.data(), other.size(), stream, mr) {}

    host_buffer(host_buffer const&) = delete;
    host_buffer& operator=(host_buffer const&) = delete;

    /// Takes everything; `other` is empty then, on the default stream.
    host_buffer(host_buffer&& other) noexcept : mr_{other.mr_}, device_{other.device_} { take(other); }
    /// Frees its own memory first.
    host_buffer& operator=(host_buffer&& other) noexcept {
        if (&other != this) {
            release();
            take(other);
        }
        return *this;
    }
    ~host_buffer() noexcept { release(); }

    /// Grows the capacity to exactly `new_capacity` if it is below.
    RMM_UNIT_INLINE void reserve(std::size_t new_capacity, cuda_stream_view stream = cuda_stream_default) {
        reallocate(new_capacity > capacity_, new_capacity, size_, stream, detail::explicit_stream(stream));
    }
    /// Above the capacity: new memory of exactly `new_size`, with the old contents. Otherwise only the size changes.
    RMM_UNIT_INLINE void resize(std::size_t new_size, cuda_stream_view stream = cuda_stream_default) {
        reallocate(new_size > capacity_, new_size, new_size, stream, detail::explicit_stream(stream));
    }
    /// Reallocates to `size()` unless that is the capacity.
    RMM_UNIT_INLINE void shrink_to_fit(cuda_stream_view stream = cuda_stream_default) {
        reallocate(size_ != capacity_, size_, size_, stream, detail::explicit_stream(stream));
    }

    [[nodiscard]] void const* data() const noexcept { return data_; }
    void* data() noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::int64_t ssize() const noexcept { return static_cast<std::int64_t>(size_); }
    [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

    /// The stream whose work comes before the memory is freed.
    [[nodiscard]] cuda_stream_view stream() const noexcept { return stream_; }
    RMM_UNIT_INLINE void set_stream(cuda_stream_view stream) noexcept {
        stream_ = stream;
        free_stream_ = detail::explicit_stream(stream);
    }
    [[nodiscard]] host_resource_ref memory_resource() const noexcept { return mr_; }

  private:
    explicit host_buffer(host_resource_ref mr) : mr_{mr} {}

    [[noreturn]] static void refuse_null_source(std::size_t size);
    // `stream` is what the caller named, `explicit_stream` what compiled code must be given for it.
    void acquire(std::size_t size, void const* source, cuda_stream_view stream, cuda_stream_view explicit_stream);
    void reallocate(bool needed, std::size_t new_capacity, std::size_t new_size, cuda_stream_view stream,
                    cuda_stream_view explicit_stream);
    void release() noexcept;
    void take(host_buffer& other) noexcept;

    void* data_{};
    std::size_t size_{};
    std::size_t capacity_{};
    cuda_stream_view stream_{};
    cuda_stream_view free_stream_{};
    host_resource_ref mr_;
    cuda_device_id device_{};
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
