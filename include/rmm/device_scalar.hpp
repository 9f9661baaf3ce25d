// One value in device memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Owns one T in device memory. T is trivially copyable. Memory, streams, devices, errors and thread-safety: as
/// device_buffer. Only `value` waits for the stream, and `set_value` for types of more than 64 bytes.
template<typename T>
class device_scalar {
  public:
    static_assert(std::is_trivially_copyable<T>::value, "Scalar type must be trivially copyable");

    using value_type = typename device_uvector<T>::value_type;
    using size_type = typename device_uvector<T>::size_type;
    using reference = typename device_uvector<T>::reference;
    using const_reference = typename device_uvector<T>::const_reference;
    using pointer = typename device_uvector<T>::pointer;
    using const_pointer = typename device_uvector<T>::const_pointer;

    RMM_EXEC_CHECK_DISABLE
    ~device_scalar() = default;
    RMM_EXEC_CHECK_DISABLE
    device_scalar(device_scalar&&) noexcept = default;
    device_scalar& operator=(device_scalar&&) noexcept = default;
    device_scalar(device_scalar const&) = delete;
    device_scalar& operator=(device_scalar const&) = delete;
    device_scalar() = delete;

    /// Uninitialized.
    RMM_UNIT_INLINE explicit device_scalar(cuda_stream_view stream,
                                           device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : storage_{1, stream, mr} {}

    /// The value is read before the call returns if it has at most 64 bytes, otherwise it must outlive the copy.
    RMM_UNIT_INLINE explicit device_scalar(value_type const& initial_value, cuda_stream_view stream,
                                           device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : storage_{1, stream, mr} {
        set_value_async(initial_value, stream);
    }
    /// On the default stream, as in 0.16. Never taken for what names a stream.
    template<class V, std::enable_if_t<std::is_convertible<V const&, value_type>::value &&
                                           !std::is_convertible<V const&, cuda_stream_view>::value,
                                       int> = 0>
    RMM_UNIT_INLINE explicit device_scalar(V const& initial_value)
        : device_scalar(static_cast<value_type>(initial_value), cuda_stream_default) {}

    /// Copies on the stream.
    RMM_UNIT_INLINE device_scalar(device_scalar const& other, cuda_stream_view stream,
                                  device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : storage_{other.storage_, stream, mr} {}

    /// Reads the value and waits for the stream.
    [[nodiscard]] RMM_UNIT_INLINE value_type value(cuda_stream_view stream) const {
        return storage_.front_element(stream);
    }

    /// Writes in stream order; the lifetime of `value` is as in the constructor.
    RMM_UNIT_INLINE void set_value_async(value_type const& value, cuda_stream_view stream) {
        storage_.set_element_async(0, value, stream);
    }
    // Would not outlive the copy.
    void set_value_async(value_type&&, cuda_stream_view) = delete;

    RMM_UNIT_INLINE void set_value_to_zero_async(cuda_stream_view stream) {
        storage_.set_element_to_zero_async(0, stream);
    }

    /// Writes a value that may be gone right after the call.
    RMM_UNIT_INLINE void set_value(value_type const& value, cuda_stream_view stream = cuda_stream_default) {
        set_value_async(value, stream);
        if constexpr (sizeof(value_type) > 64) stream.synchronize();
    }

    [[nodiscard]] pointer data() noexcept { return storage_.data(); }
    [[nodiscard]] const_pointer data() const noexcept { return storage_.data(); }
    [[nodiscard]] constexpr size_type size() const noexcept { return 1; }
    [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }
    RMM_UNIT_INLINE void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }
    [[nodiscard]] rmm::device_async_resource_ref memory_resource() const noexcept { return storage_.memory_resource(); }

  private:
    rmm::device_uvector<T> storage_;
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
