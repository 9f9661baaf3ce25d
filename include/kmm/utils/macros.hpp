// The macros of the public headers. Owns no state; knows no other header of the library. Any compiler, host or device.
#pragma once

/// KMM_USE_HIP: 1 in files compiled as HIP, whose kernels run on the hip driver. KMM_USE_CUDA: 1 in files whose kernels
/// run on the cuda driver: those that a CUDA compiler translates as CUDA. nvcc hands plain .cpp files to the C++
/// compiler (and defines __NVCC__ there): their kernels are emulated. -DKMM_USE_CUDA=0 asks for emulation in a CUDA
/// file too, but not of NVRTC, which has no host. Where one is not 1 it is not defined: programs ask with #ifdef as
/// well as with #if.
#if defined(KMM_USE_HIP) && !(KMM_USE_HIP + 0)
#undef KMM_USE_HIP
#endif
#if defined(__CUDACC_RTC__)
#undef KMM_USE_CUDA
#define KMM_USE_CUDA 1
#elif defined(KMM_USE_CUDA) && !(KMM_USE_CUDA + 0)
#undef KMM_USE_CUDA
#elif !defined(KMM_USE_CUDA) && defined(__CUDACC__) && !defined(KMM_USE_HIP)
#define KMM_USE_CUDA 1
#endif

/// 1 in run-time compilation (NVRTC, hipRTC), else 0.
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define KMM_IS_RTC 1
#else
#define KMM_IS_RTC 0
#endif

// Whether this compiler knows __host__ and __device__ (nvcc, clang in CUDA or HIP mode, hipcc) and is to see them: not
// where the kernels of a CUDA file are emulated.
#if (defined(KMM_USE_CUDA) && (defined(__CUDACC__) || defined(__CUDA__))) || defined(__HIP__) || defined(__HIPCC__)
#define KMM_DETAIL_HAS_DEVICE_CODE 1
#else
#define KMM_DETAIL_HAS_DEVICE_CODE 0
#endif

/// 1 while the compiler translates code for a device, else 0. An emulated kernel is host code: 0.
#if KMM_DETAIL_HAS_DEVICE_CODE && \
    (defined(__CUDA_ARCH__) || (defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__))
#define KMM_IS_DEVICE 1
#else
#define KMM_IS_DEVICE 0
#endif

// What differs between files of one program stands in an inline namespace of this name: templates made of it have other
// symbols in other files, or the linker would keep one form for all.
#ifdef KMM_USE_CUDA
#define KMM_DETAIL_FILE_KIND cuda_file
#elif defined(KMM_USE_HIP)
#define KMM_DETAIL_FILE_KIND hip_file
#elif defined(KMM_NO_EMULATION)
#define KMM_DETAIL_FILE_KIND plain_file
#else
#define KMM_DETAIL_FILE_KIND emulated_file
#endif

#define KMM_INLINE inline __attribute__((always_inline))
#define KMM_NOINLINE __attribute__((noinline))

/// `KMM_HOST_DEVICE`, `KMM_DEVICE` make a function callable from kernels, and inline. The `_NOINLINE` forms do not
/// inline it (recursion, rare paths). A lambda takes `__host__ __device__` instead.
#if KMM_DETAIL_HAS_DEVICE_CODE
#define KMM_HOST_DEVICE __host__ __device__ inline __attribute__((always_inline))
#define KMM_DEVICE __device__ inline __attribute__((always_inline))
#define KMM_HOST_DEVICE_NOINLINE __host__ __device__ inline
#define KMM_DEVICE_NOINLINE __device__ inline
#else
#define KMM_HOST_DEVICE inline
#define KMM_DEVICE inline
#define KMM_HOST_DEVICE_NOINLINE inline
#define KMM_DEVICE_NOINLINE inline
#endif

#define KMM_LIKELY(e) (__builtin_expect(!!(e), 1))
#define KMM_UNLIKELY(e) (__builtin_expect(!!(e), 0))

/// Tells the optimiser that `e` holds. Undefined behaviour if it does not. `e` may be evaluated.
#define KMM_ASSUME(e) ((e) ? static_cast<void>(0) : __builtin_unreachable())

#define KMM_DETAIL_CONCAT(a, b) a##b
#define KMM_CONCAT(a, b) KMM_DETAIL_CONCAT(a, b)

// Of a class with constant members clang says that it cannot be assigned after all.
#ifdef __clang__
#define KMM_DETAIL_DEFAULTED(...)                                                                         \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wdefaulted-function-deleted\"") \
        __VA_ARGS__ _Pragma("clang diagnostic pop")
#else
#define KMM_DETAIL_DEFAULTED(...) __VA_ARGS__
#endif
/// In the class T, and private after it. `KMM_NOT_COPYABLE`: an object can still be moved.
#define KMM_DETAIL_COPIES_AND_MOVES(T, COPIES, MOVES)                 \
  public:                                                             \
    T(const T&) = COPIES;                                             \
    T& operator=(const T&) = COPIES;                                  \
    KMM_DETAIL_DEFAULTED(T(T&&) = MOVES; T & operator=(T&&) = MOVES;) \
                                                                      \
  private:
#define KMM_NOT_COPYABLE(T) KMM_DETAIL_COPIES_AND_MOVES(T, delete, default)
#define KMM_NOT_COPYABLE_OR_MOVABLE(T) KMM_DETAIL_COPIES_AND_MOVES(T, delete, delete)

/// 1: every element access through a view is checked. It must have one value in all files of a program.
#ifndef KMM_BOUNDS_CHECK
#define KMM_BOUNDS_CHECK 0
#endif
