// A stream handle with a type of its own. Does not own the stream.
#pragma once

#include <cstddef>
#include <iosfwd>

#include <rmm/detail/cuda_types.hpp>
#include <rmm/detail/export.hpp>

#ifdef RMM_WITH_CCCL
#include <cuda/stream_ref>
#include <ostream>  // users lean on it
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

namespace detail {
void synchronize_stream(cudaStream_t stream);
void synchronize_stream_no_throw(cudaStream_t stream) noexcept;
}  // namespace detail

/// A non-owning stream handle; 8 bytes, trivially copyable. Handle 0 is the default stream of the translation unit: the
/// legacy one, or the thread's own where CUDA_API_PER_THREAD_DEFAULT_STREAM is defined.
class cuda_stream_view {
  public:
    constexpr cuda_stream_view() noexcept = default;
    constexpr cuda_stream_view(cuda_stream_view const&) noexcept = default;
    constexpr cuda_stream_view(cuda_stream_view&&) noexcept = default;
    constexpr cuda_stream_view& operator=(cuda_stream_view const&) noexcept = default;
    constexpr cuda_stream_view& operator=(cuda_stream_view&&) noexcept = default;
    ~cuda_stream_view() = default;

    // A literal 0 and nullptr are refused: which default stream was meant must be said.
    constexpr cuda_stream_view(int) = delete;
    constexpr cuda_stream_view(std::nullptr_t) = delete;

    constexpr cuda_stream_view(cudaStream_t stream) noexcept : stream_{stream} {}

    [[nodiscard]] constexpr cudaStream_t value() const noexcept { return stream_; }
    constexpr operator cudaStream_t() const noexcept { return stream_; }

#ifdef RMM_WITH_CCCL
    cuda_stream_view(cuda::stream_ref stream) noexcept : stream_{stream.get()} {}
    operator cuda::stream_ref() const noexcept { return cuda::stream_ref{stream_}; }
#endif

    [[nodiscard]] RMM_UNIT_INLINE bool is_per_thread_default() const noexcept {
        return detail::explicit_stream(stream_) == detail::per_thread_stream_handle();
    }
    [[nodiscard]] RMM_UNIT_INLINE bool is_default() const noexcept {
        auto const stream = detail::explicit_stream(stream_);
        return stream == nullptr || stream == detail::legacy_stream_handle();
    }

    /// Blocks until the work queued on the stream is done. Throws rmm::cuda_error.
    RMM_UNIT_INLINE void synchronize() const { detail::synchronize_stream(detail::explicit_stream(stream_)); }
    /// The same; a failure is reported on stderr, and asserted in debug builds of the library.
    RMM_UNIT_INLINE void synchronize_no_throw() const noexcept {
        detail::synchronize_stream_no_throw(detail::explicit_stream(stream_));
    }

  private:
    cudaStream_t stream_{};
};

namespace detail {

/// The same for views.
RMM_UNIT_INLINE cuda_stream_view explicit_stream(cuda_stream_view stream) noexcept {
    return cuda_stream_view{explicit_stream(stream.value())};
}

}  // namespace detail

static constexpr cuda_stream_view cuda_stream_default{};
static const cuda_stream_view cuda_stream_legacy{detail::legacy_stream_handle()};
static const cuda_stream_view cuda_stream_per_thread{detail::per_thread_stream_handle()};

/// Compares handles: the default (0) and the legacy (1) view are unequal, although they may name one stream.
constexpr bool operator==(cuda_stream_view lhs, cuda_stream_view rhs) noexcept { return lhs.value() == rhs.value(); }
constexpr bool operator!=(cuda_stream_view lhs, cuda_stream_view rhs) noexcept { return !(lhs == rhs); }

/// Prints the handle as a pointer.
std::ostream& operator<<(std::ostream& os, cuda_stream_view stream);

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
