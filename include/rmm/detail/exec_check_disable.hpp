// One macro for code that nvcc compiles for host and device. Knows nothing else.
#pragma once

#if defined(__CUDACC__) && !defined(__clang__)
#define RMM_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
/// Placed before a host/device template: nvcc does not warn about host-only members that it calls.
#define RMM_EXEC_CHECK_DISABLE
#endif
