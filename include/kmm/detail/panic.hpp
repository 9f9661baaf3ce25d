// What a failed assertion and a failed check of a value type do, on the host and in a kernel. Owns nothing. Any thread.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/macros.hpp"
#if KMM_DETAIL_HAS_DEVICE_CODE && !KMM_IS_RTC
#include <cstdio>
#endif

namespace kmm::detail {

#if !KMM_IS_RTC
/// Prints file, line, text and a stack trace to stderr and ends the process; in an emulated kernel it throws
/// DeviceError instead, which fails the task.
[[noreturn]] void panic_on_host(const char* text, const char* file, int line);

[[noreturn]] void throw_overflow(const char* text);                         ///< std::overflow_error
[[noreturn]] void throw_out_of_range(std::size_t index, std::size_t size);  ///< std::out_of_range
[[noreturn]] void throw_invalid_argument(const char* text);                 ///< kmm::InvalidArgument
[[noreturn]] void throw_not_available(const char* text);                    ///< kmm::NotAvailable
/// InvalidArgument: "<what> <value> is not in <first>...<last>: <remedy>"
[[noreturn]] void throw_not_in_range(const char* what, std::int64_t value, std::int64_t first, std::int64_t last,
                                     const char* remedy);
#endif

#if KMM_DETAIL_HAS_DEVICE_CODE
__device__ inline void panic_on_device(const char* text, const char* file, int line) {
    printf("kernel failed in block (%u, %u, %u), thread (%u, %u, %u) at %s:%d: %s\n", unsigned(blockIdx.x),
           unsigned(blockIdx.y), unsigned(blockIdx.z), unsigned(threadIdx.x), unsigned(threadIdx.y),
           unsigned(threadIdx.z), file, line, text);
#if defined(__HIP__) || defined(__HIPCC__)
    __builtin_trap();
#else
    __trap();
#endif
}
#endif

[[noreturn]] KMM_HOST_DEVICE_NOINLINE void panic(const char* text, const char* file, int line) {
#if KMM_IS_DEVICE
    panic_on_device(text, file, line);
    __builtin_unreachable();
#else
    panic_on_host(text, file, line);
#endif
}

/// std::overflow_error on the host, a failed kernel on a device.
[[noreturn]] KMM_HOST_DEVICE_NOINLINE void fail_overflow(const char* text) {
#if KMM_IS_DEVICE
    panic(text, __FILE__, __LINE__);
#else
    throw_overflow(text);
#endif
}

/// std::out_of_range on the host, a failed kernel on a device.
[[noreturn]] KMM_HOST_DEVICE_NOINLINE void fail_out_of_range(std::size_t index, std::size_t size) {
#if KMM_IS_DEVICE
    (void)index;
    (void)size;
    panic("index out of range", __FILE__, __LINE__);
#else
    throw_out_of_range(index, size);
#endif
}

}  // namespace kmm::detail
