// Managed memory that is moved before it is needed.
#pragma once

#include <cstddef>

#include <rmm/aligned.hpp>  // users lean on it
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>  // and on this

#ifdef RMM_WITH_CCCL
#include <cuda/std/span>
#else
#include <type_traits>
#include <utility>
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

void prefetch_bytes(void const* ptr, std::size_t size, cuda_device_id device, cuda_stream_view stream);

#ifdef RMM_WITH_CCCL
template<typename T>
using prefetch_range = cuda::std::span<T const>;
#else
/// What a span of libcu++ is made from: an address and a count, two addresses, or an object with `data()` and `size()`.
template<typename T>
class prefetch_range {
  public:
    constexpr prefetch_range(T const* data, std::size_t size) noexcept : data_{data}, size_{size} {}
    constexpr prefetch_range(T const* begin, T const* end) noexcept
        : data_{begin}, size_{static_cast<std::size_t>(end - begin)} {}
    template<
        class Range,
        std::enable_if_t<std::is_convertible<decltype(std::declval<Range const&>().data()), T const*>::value &&
                             std::is_convertible<decltype(std::declval<Range const&>().size()), std::size_t>::value,
                         int> = 0>
    constexpr prefetch_range(Range const& range) noexcept : data_{range.data()}, size_{range.size()} {}

    [[nodiscard]] constexpr T const* data() const noexcept { return data_; }
    [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }

  private:
    T const* data_;
    std::size_t size_;
};
#endif

}  // namespace detail

/// Queues on `stream` that the pages of `[ptr, ptr + size)` move to `device` (cudaCpuDeviceId, -1, is the host).
/// Nothing happens for 0 bytes, for memory that is not managed, and where the current device cannot share managed
/// memory with the host at any time. Does not wait. Thread-safe. Throws rmm::cuda_error for a device that does not
/// exist and for every other failure; leaves no error behind.
RMM_UNIT_INLINE void prefetch(void const* ptr, std::size_t size, rmm::cuda_device_id device,
                              rmm::cuda_stream_view stream) {
    detail::prefetch_bytes(ptr, size, device, detail::explicit_stream(stream));
}

/// The same for elements: `prefetch<int>(vector, ..)`, `prefetch<int>({begin, end}, ..)`.
template<typename T>
RMM_UNIT_INLINE void prefetch(detail::prefetch_range<T> data, rmm::cuda_device_id device,
                              rmm::cuda_stream_view stream) {
    prefetch(data.data(), data.size_bytes(), device, stream);
}

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
