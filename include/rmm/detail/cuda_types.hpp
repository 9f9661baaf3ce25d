// The few type names of CUDA that our interface mentions, declared exactly as CUDA declares them, so that the headers
// need no CUDA on the path and agree with it where it is. Also decides what "stream 0" means in this translation unit.
// Must not know: anything of ours.
#pragma once

#include <rmm/detail/export.hpp>

struct CUstream_st;
struct CUmemPoolHandle_st;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;

#if defined(__GNUC__)
/// For inline functions whose meaning depends on a macro of the translation unit: never merged with another unit's.
#define RMM_UNIT_INLINE __attribute__((always_inline)) inline
#else
#define RMM_UNIT_INLINE __forceinline
#endif

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// The two values that name default streams without being handles.
inline cudaStream_t legacy_stream_handle() noexcept { return reinterpret_cast<cudaStream_t>(1); }
inline cudaStream_t per_thread_stream_handle() noexcept { return reinterpret_cast<cudaStream_t>(2); }

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define RMM_DETAIL_PER_THREAD_DEFAULT_STREAM 1
#else
#define RMM_DETAIL_PER_THREAD_DEFAULT_STREAM 0
#endif

/// What compiled code must be given for `stream`: it was built without CUDA_API_PER_THREAD_DEFAULT_STREAM, so a unit
/// that was built with it names the per-thread stream explicitly.
RMM_UNIT_INLINE cudaStream_t explicit_stream(cudaStream_t stream) noexcept {
#if RMM_DETAIL_PER_THREAD_DEFAULT_STREAM
    return stream == nullptr ? per_thread_stream_handle() : stream;
#else
    return stream;
#endif
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
