// Questions about GPUs outside a runtime, and checks of native calls in user code. Any thread.
#pragma once

#include <optional>
#include <type_traits>
#include <vector>

#include "kmm/core/backends.hpp"
#include "kmm/error.hpp"

namespace kmm {

/// Native numbers of the devices of the process's driver (on the host driver: of its virtual devices).
std::vector<GPUdevice_t> get_gpu_devices();
/// The device whose memory `address` lies in; nothing for host memory.
std::optional<GPUdevice_t> get_gpu_device_by_address(const void* address);

namespace detail {

/// "<expression> failed: <name> (<status>), at <file>:<line>" as the matching DeviceError.
[[noreturn]] void throw_gpu_runtime_error(DriverKind driver, int status, const char* name, const char* expression,
                                          const SourceLocation& where);
[[noreturn]] void throw_gpu_driver_error(DriverKind driver, int status, const char* name, const char* expression,
                                         const SourceLocation& where);
[[noreturn]] void throw_blas_error(DriverKind driver, int status, const char* expression, const SourceLocation& where);

#ifdef KMM_USE_CUDA
inline void check_gpu(cudaError_t status, const char* expression, const SourceLocation& where) {
    if (KMM_UNLIKELY(status != cudaSuccess)) {
        (void)cudaGetLastError();  // or the next call of somebody else would report it
        throw_gpu_runtime_error(DriverKind::CUDA, static_cast<int>(status), cudaGetErrorName(status), expression,
                                where);
    }
}
inline void check_gpu(CUresult status, const char* expression, const SourceLocation& where) {
    if (KMM_UNLIKELY(status != CUDA_SUCCESS)) {
        const char* name = "";
        (void)cuGetErrorName(status, &name);
        throw_gpu_driver_error(DriverKind::CUDA, static_cast<int>(status), name, expression, where);
    }
}
#if defined(KMM_DETAIL_HAS_BLAS_HEADER)
inline void check_gpu(cublasStatus_t status, const char* expression, const SourceLocation& where) {
    if (KMM_UNLIKELY(status != CUBLAS_STATUS_SUCCESS)) {
        throw_blas_error(DriverKind::CUDA, static_cast<int>(status), expression, where);
    }
}
#endif
#elif defined(KMM_USE_HIP)
inline void check_gpu(hipError_t status, const char* expression, const SourceLocation& where) {
    if (KMM_UNLIKELY(status != hipSuccess)) {
        (void)hipGetLastError();  // or the next call of somebody else would report it
        throw_gpu_runtime_error(DriverKind::HIP, static_cast<int>(status), hipGetErrorName(status), expression, where);
    }
}
#if defined(KMM_DETAIL_HAS_BLAS_HEADER)
inline void check_gpu(rocblas_status status, const char* expression, const SourceLocation& where) {
    if (KMM_UNLIKELY(status != rocblas_status_success)) {
        throw_blas_error(DriverKind::HIP, static_cast<int>(status), expression, where);
    }
}
#endif
#else
/// In a plain file, which knows no vendor: 0 is the only good status, of whatever enumeration or number.
template<typename Status>
void check_gpu(Status status, const char* expression, const SourceLocation& where) {
    static_assert(std::is_enum_v<Status> || std::is_integral_v<Status>, "KMM_GPU_CHECK needs the status of a call");
    if (KMM_UNLIKELY(static_cast<int>(status) != 0)) {
        throw_gpu_runtime_error(DriverKind::Auto, static_cast<int>(status), "status", expression, where);
    }
}
#endif

}  // namespace detail

#if defined(KMM_USE_CUDA) || defined(KMM_USE_HIP)
/// Makes a device current on this thread while it lives.
class GPUContextGuard {
  public:
    explicit GPUContextGuard(const GPUContextHandle& context) {
        const SourceLocation here = SourceLocation::current();
#ifdef KMM_USE_CUDA
        detail::check_gpu(cudaGetDevice(&previous_), "cudaGetDevice", here);
        detail::check_gpu(cudaSetDevice(context.device()), "cudaSetDevice", here);
#else
        detail::check_gpu(hipGetDevice(&previous_), "hipGetDevice", here);
        detail::check_gpu(hipSetDevice(context.device()), "hipSetDevice", here);
#endif
    }
    ~GPUContextGuard() {
#ifdef KMM_USE_CUDA
        (void)cudaSetDevice(previous_);
#else
        (void)hipSetDevice(previous_);
#endif
    }
    GPUContextGuard(const GPUContextGuard&) = delete;
    GPUContextGuard& operator=(const GPUContextGuard&) = delete;

  private:
    GPUdevice_t previous_ = 0;
};
#endif

}  // namespace kmm

/// Throws GPURuntimeException, GPUDriverException or BlasException if a native call (cudaError_t, CUresult,
/// cublasStatus_t and HIP's equivalents) failed. In plain files, where it knows none of these types, a status other
/// than 0 is a GPURuntimeException. An expression; needs its own semicolon.
#define KMM_GPU_CHECK(...) (::kmm::detail::check_gpu((__VA_ARGS__), #__VA_ARGS__, ::kmm::SourceLocation::current()))
