// Single elements in device memory, for the typed containers. The work is compiled (src/rmm/element_access.cpp).
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Writes `bytes` bytes in stream order. Up to 64 bytes are read before the call returns; more must outlive the copy.
void write_element(void* device_address, void const* value, std::size_t bytes, cuda_stream_view stream);
void zero_element(void* device_address, std::size_t bytes, cuda_stream_view stream);
/// Waits for the stream.
void read_element(void* value, void const* device_address, std::size_t bytes, cuda_stream_view stream);

[[noreturn]] void refuse_element_index(std::size_t index, std::size_t size);
[[noreturn]] void refuse_element_count(std::size_t count, std::size_t element_bytes);

/// The address of a value whose type may overload `&`; std::addressof would cost the whole of <memory>.
template<class T>
void const* address_of(T const& value) noexcept {
    return &reinterpret_cast<unsigned char const&>(value);
}

/// Room for a value that need not have a default constructor.
template<class T>
struct host_copy {
    alignas(T) unsigned char bytes[sizeof(T)];
    T value() const noexcept { return *std::launder(reinterpret_cast<T const*>(bytes)); }
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
