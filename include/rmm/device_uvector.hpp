// Uninitialized device memory of a number of elements.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/element_access.hpp>
#include <rmm/detail/exec_check_disable.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>

#ifdef RMM_WITH_CCCL
#include <cuda/std/span>
#include <thrust/iterator/reverse_iterator.h>
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Owns `size()` elements in device memory, uninitialized. T is trivially copyable. Everything counts elements. Memory,
/// streams, devices, errors and thread-safety: as device_buffer. Element functions check the index and throw
/// rmm::out_of_range; those that give a value to the host wait for the stream. A span of libcu++ is made from it as
/// from any range; a conversion of its own beside that would only be a warning in programs.
template<typename T>
class device_uvector {
    static_assert(std::is_trivially_copyable<T>::value,
                  "device_uvector only supports types that are trivially copyable.");

  public:
    using value_type = T;
    using size_type = std::size_t;
    using reference = value_type&;
    using const_reference = value_type const&;
    using pointer = value_type*;
    using const_pointer = value_type const*;
    using iterator = pointer;
    using const_iterator = const_pointer;
#ifdef RMM_WITH_CCCL
    using reverse_iterator = thrust::reverse_iterator<iterator>;
    using const_reverse_iterator = thrust::reverse_iterator<const_iterator>;
#else
    using reverse_iterator = std::reverse_iterator<iterator>;
    using const_reverse_iterator = std::reverse_iterator<const_iterator>;
#endif

    RMM_EXEC_CHECK_DISABLE
    ~device_uvector() = default;
    RMM_EXEC_CHECK_DISABLE
    device_uvector(device_uvector&&) noexcept = default;
    device_uvector& operator=(device_uvector&&) noexcept = default;
    device_uvector(device_uvector const&) = delete;
    device_uvector& operator=(device_uvector const&) = delete;
    device_uvector() = delete;

    /// Throws rmm::bad_alloc where the size in bytes does not fit into size_t.
    RMM_UNIT_INLINE explicit device_uvector(size_type size, cuda_stream_view stream)
        : storage_{bytes_of(size), stream} {}
    RMM_UNIT_INLINE explicit device_uvector(size_type size, cuda_stream_view stream, device_async_resource_ref mr)
        : storage_{bytes_of(size), stream, mr} {}

    /// Copies the elements on the stream.
    RMM_UNIT_INLINE explicit device_uvector(device_uvector const& other, cuda_stream_view stream,
                                            device_async_resource_ref mr = mr::get_current_device_resource_ref())
        : storage_{other.storage_, stream, mr} {}

    /// Device address of an element. The index is asserted only.
    [[nodiscard]] pointer element_ptr(size_type element_index) noexcept {
        assert(element_index < size());
        return data() + element_index;
    }
    [[nodiscard]] const_pointer element_ptr(size_type element_index) const noexcept {
        assert(element_index < size());
        return data() + element_index;
    }

    /// Writes one element in stream order. The value is read before the call returns if it has at most 64 bytes,
    /// otherwise it must outlive the copy.
    RMM_UNIT_INLINE void set_element_async(size_type element_index, value_type const& value, cuda_stream_view stream) {
        expect_index(element_index);
        detail::write_element(element_ptr(element_index), detail::address_of(value), sizeof(value_type),
                              detail::explicit_stream(stream));
    }
    // Would not outlive the copy.
    void set_element_async(size_type, value_type const&&, cuda_stream_view) = delete;

    RMM_UNIT_INLINE void set_element_to_zero_async(size_type element_index, cuda_stream_view stream) {
        expect_index(element_index);
        detail::zero_element(element_ptr(element_index), sizeof(value_type), detail::explicit_stream(stream));
    }

    /// Writes one element and waits for the stream.
    RMM_UNIT_INLINE void set_element(size_type element_index, T const& value, cuda_stream_view stream) {
        set_element_async(element_index, value, stream);
        stream.synchronize();
    }

    /// Reads one element and waits for the stream.
    [[nodiscard]] RMM_UNIT_INLINE value_type element(size_type element_index, cuda_stream_view stream) const {
        expect_index(element_index);
        detail::host_copy<value_type> copy;
        detail::read_element(copy.bytes, element_ptr(element_index), sizeof(value_type),
                             detail::explicit_stream(stream));
        return copy.value();
    }
    [[nodiscard]] RMM_UNIT_INLINE value_type front_element(cuda_stream_view stream) const { return element(0, stream); }
    [[nodiscard]] RMM_UNIT_INLINE value_type back_element(cuda_stream_view stream) const {
        // An empty vector has no last index; size() - 1 is out of range then.
        return element(size() - 1, stream);
    }

    RMM_UNIT_INLINE void reserve(size_type new_capacity, cuda_stream_view stream) {
        storage_.reserve(bytes_of(new_capacity), stream);
    }
    RMM_UNIT_INLINE void resize(size_type new_size, cuda_stream_view stream) {
        storage_.resize(bytes_of(new_size), stream);
    }
    RMM_UNIT_INLINE void shrink_to_fit(cuda_stream_view stream) { storage_.shrink_to_fit(stream); }

    /// Gives the storage away; the vector is empty then.
    device_buffer release() noexcept { return std::move(storage_); }

    [[nodiscard]] size_type capacity() const noexcept { return storage_.capacity() / sizeof(value_type); }
    [[nodiscard]] pointer data() noexcept { return static_cast<pointer>(storage_.data()); }
    [[nodiscard]] const_pointer data() const noexcept { return static_cast<const_pointer>(storage_.data()); }

    [[nodiscard]] iterator begin() noexcept { return data(); }
    [[nodiscard]] const_iterator cbegin() const noexcept { return data(); }
    [[nodiscard]] const_iterator begin() const noexcept { return cbegin(); }
    [[nodiscard]] iterator end() noexcept { return data() + size(); }
    [[nodiscard]] const_iterator cend() const noexcept { return data() + size(); }
    [[nodiscard]] const_iterator end() const noexcept { return cend(); }
    [[nodiscard]] reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
    [[nodiscard]] const_reverse_iterator crbegin() const noexcept { return const_reverse_iterator(cend()); }
    [[nodiscard]] const_reverse_iterator rbegin() const noexcept { return crbegin(); }
    [[nodiscard]] reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
    [[nodiscard]] const_reverse_iterator crend() const noexcept { return const_reverse_iterator(cbegin()); }
    [[nodiscard]] const_reverse_iterator rend() const noexcept { return crend(); }

    [[nodiscard]] size_type size() const noexcept { return storage_.size() / sizeof(value_type); }
    [[nodiscard]] std::int64_t ssize() const noexcept { return static_cast<std::int64_t>(size()); }
    [[nodiscard]] bool is_empty() const noexcept { return size() == 0; }
    [[nodiscard]] rmm::device_async_resource_ref memory_resource() const noexcept { return storage_.memory_resource(); }
    [[nodiscard]] cuda_stream_view stream() const noexcept { return storage_.stream(); }
    RMM_UNIT_INLINE void set_stream(cuda_stream_view stream) noexcept { storage_.set_stream(stream); }

  private:
    [[nodiscard]] static size_type bytes_of(size_type num_elements) {
        if (num_elements > std::numeric_limits<size_type>::max() / sizeof(value_type))
            detail::refuse_element_count(num_elements, sizeof(value_type));
        return num_elements * sizeof(value_type);
    }
    void expect_index(size_type element_index) const {
        if (element_index >= size()) detail::refuse_element_index(element_index, size());
    }

    device_buffer storage_;
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
