// The vendor's types and functions under common names. In CUDA and HIP files it includes the vendor's runtime header,
// in plain files nothing. KMM_NO_GPU_NAMES, defined before, leaves the names of KMM 0.3 out, most of which are macros
// (gpuMemcpyAsync, GPU_SUCCESS ..): for programs that have names of their own like these. Owns no state.
#pragma once

#include "kmm/utils/macros.hpp"

#ifdef KMM_USE_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>
#if !defined(KMM_NO_BLAS_HEADER) && defined(__has_include)
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define KMM_DETAIL_HAS_BLAS_HEADER 1
#endif
#endif
#elif defined(KMM_USE_HIP)
#include <hip/hip_runtime.h>
#if !defined(KMM_NO_BLAS_HEADER) && defined(__has_include)
#if __has_include(<rocblas/rocblas.h>)
#include <rocblas/rocblas.h>
#define KMM_DETAIL_HAS_BLAS_HEADER 1
#endif
#endif
#else
struct CUstream_st;
#endif

namespace kmm {

#ifdef KMM_USE_CUDA
using GPUstream_t = CUstream_st*;
using GPUdevice_t = int;
using GPUcontext_t = CUcontext;
using GPUresult_t = CUresult;
#elif defined(KMM_USE_HIP)
using GPUstream_t = hipStream_t;
using GPUdevice_t = int;
using GPUcontext_t = hipCtx_t;
using GPUresult_t = hipError_t;
#else
/// The same type as in CUDA files. On the host driver an opaque token that only functions of this library accept.
using GPUstream_t = CUstream_st*;
using GPUdevice_t = int;
using GPUcontext_t = void*;
using GPUresult_t = int;
#endif

#if defined(KMM_USE_CUDA) && defined(KMM_DETAIL_HAS_BLAS_HEADER)
using blasHandle_t = cublasHandle_t;
#elif defined(KMM_USE_HIP) && defined(KMM_DETAIL_HAS_BLAS_HEADER)
using blasHandle_t = rocblas_handle;
#else
using blasHandle_t = void*;
#endif

#if defined(KMM_USE_CUDA) || defined(KMM_USE_HIP)
/// The primary context of a device, which all parts of a process share.
class GPUContextHandle {
  public:
    explicit GPUContextHandle(GPUdevice_t device) noexcept : device_(device) {}
    /// Native number of the device.
    GPUdevice_t device() const noexcept { return device_; }

  private:
    GPUdevice_t device_;
};
#endif

}  // namespace kmm

#ifndef KMM_NO_GPU_NAMES
#include "kmm/detail/gpu_names_cuda.hpp"
#include "kmm/detail/gpu_names_hip.hpp"
#endif
