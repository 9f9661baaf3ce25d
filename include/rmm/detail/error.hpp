// Macros that check and throw. RMM_EXPECTS and RMM_FAIL work everywhere. The RMM_CUDA_* macros name CUDA's runtime
// where they are used: units of target rmm::rmm get <cuda_runtime_api.h> from here; a unit of rmm::core that uses one
// of them includes that header itself. All of them are statements and safe inside if/else.
#pragma once

#include <cassert>
#include <string>

#include <rmm/error.hpp>

#ifdef RMM_WITH_CCCL
#include <cuda_runtime_api.h>
#include <iostream>
#else
#include <cstdio>
#endif

#define RMM_STRINGIFY_DETAIL(x) #x
/// Expands `x`, then makes a string of it.
#define RMM_STRINGIFY(x) RMM_STRINGIFY_DETAIL(x)

#define RMM_DETAIL_PLACE __FILE__ ":" RMM_STRINGIFY(__LINE__) ": "
#define RMM_DETAIL_PICK_2(a, b, name, ...) name
#define RMM_DETAIL_PICK_3(a, b, c, name, ...) name

/// RMM_EXPECTS(condition, message[, exception type]): throws (default rmm::logic_error) unless the condition holds.
#define RMM_EXPECTS(...) \
    RMM_DETAIL_PICK_3(__VA_ARGS__, RMM_DETAIL_EXPECTS_3, RMM_DETAIL_EXPECTS_2, unused, unused)(__VA_ARGS__)
#define RMM_DETAIL_EXPECTS_2(condition, message) RMM_DETAIL_EXPECTS_3(condition, message, ::rmm::logic_error)
#define RMM_DETAIL_EXPECTS_3(condition, message, exception)                                              \
    do {                                                                                                 \
        if (!(condition)) throw exception{std::string{"RMM failure at: " RMM_DETAIL_PLACE} + (message)}; \
    } while (0)

/// RMM_FAIL(message[, exception type]): throws (default rmm::logic_error).
#define RMM_FAIL(...) RMM_DETAIL_PICK_2(__VA_ARGS__, RMM_DETAIL_FAIL_2, RMM_DETAIL_FAIL_1, unused)(__VA_ARGS__)
#define RMM_DETAIL_FAIL_1(message) RMM_DETAIL_FAIL_2(message, ::rmm::logic_error)
#define RMM_DETAIL_FAIL_2(message, exception)                                         \
    do {                                                                              \
        throw exception{std::string{"RMM failure at:" RMM_DETAIL_PLACE} + (message)}; \
    } while (0)

/// RMM_CUDA_TRY(call[, exception type]): evaluates the call once; on failure clears the last error and throws (default
/// rmm::cuda_error) with the name and the description of the error.
#define RMM_CUDA_TRY(...) \
    RMM_DETAIL_PICK_2(__VA_ARGS__, RMM_DETAIL_CUDA_TRY_2, RMM_DETAIL_CUDA_TRY_1, unused)(__VA_ARGS__)
#define RMM_DETAIL_CUDA_TRY_1(call) RMM_DETAIL_CUDA_TRY_2(call, ::rmm::cuda_error)
#define RMM_DETAIL_CUDA_TRY_2(call, exception)                                                                     \
    do {                                                                                                           \
        cudaError_t const rmm_detail_error = (call);                                                               \
        if (rmm_detail_error != cudaSuccess) {                                                                     \
            (void)cudaGetLastError();                                                                              \
            throw exception{std::string{"CUDA error at: " RMM_DETAIL_PLACE} + cudaGetErrorName(rmm_detail_error) + \
                            " " + cudaGetErrorString(rmm_detail_error)};                                           \
        }                                                                                                          \
    } while (0)

/// RMM_CUDA_TRY_ALLOC(call[, bytes]): as RMM_CUDA_TRY; throws rmm::out_of_memory for cudaErrorMemoryAllocation and
/// rmm::bad_alloc for every other failure.
#define RMM_CUDA_TRY_ALLOC(...) \
    RMM_DETAIL_PICK_2(__VA_ARGS__, RMM_DETAIL_CUDA_TRY_ALLOC_2, RMM_DETAIL_CUDA_TRY_ALLOC_1, unused)(__VA_ARGS__)
#define RMM_DETAIL_CUDA_TRY_ALLOC_1(call) RMM_DETAIL_CUDA_TRY_ALLOC(call, std::string{"CUDA error at: "})
#define RMM_DETAIL_CUDA_TRY_ALLOC_2(call, bytes) \
    RMM_DETAIL_CUDA_TRY_ALLOC(call,              \
                              std::string{"CUDA error (failed to allocate "} + std::to_string(bytes) + " bytes) at: ")
#define RMM_DETAIL_CUDA_TRY_ALLOC(call, prefix)                                                                   \
    do {                                                                                                          \
        cudaError_t const rmm_detail_error = (call);                                                              \
        if (rmm_detail_error != cudaSuccess) {                                                                    \
            (void)cudaGetLastError();                                                                             \
            auto const rmm_detail_text = (prefix) + RMM_DETAIL_PLACE + cudaGetErrorName(rmm_detail_error) + " " + \
                                         cudaGetErrorString(rmm_detail_error);                                    \
            if (rmm_detail_error == cudaErrorMemoryAllocation) throw ::rmm::out_of_memory{rmm_detail_text};       \
            throw ::rmm::bad_alloc{rmm_detail_text};                                                              \
        }                                                                                                         \
    } while (0)

/// RMM_ASSERT_CUDA_SUCCESS(call): evaluates the call; in debug builds a failure is printed and asserted.
#ifdef NDEBUG
#define RMM_ASSERT_CUDA_SUCCESS(call) \
    do {                              \
        (void)(call);                 \
    } while (0)
#else
#ifdef RMM_WITH_CCCL
#define RMM_DETAIL_PRINT_ERROR(name, text) \
    (std::cerr << "CUDA Error detected. " << (name) << " " << (text) << std::endl)
#else
#define RMM_DETAIL_PRINT_ERROR(name, text) (void)std::fprintf(stderr, "CUDA Error detected. %s %s\n", (name), (text))
#endif
#define RMM_ASSERT_CUDA_SUCCESS(call)                                                                         \
    do {                                                                                                      \
        cudaError_t const rmm_detail_error = (call);                                                          \
        if (rmm_detail_error != cudaSuccess)                                                                  \
            RMM_DETAIL_PRINT_ERROR(cudaGetErrorName(rmm_detail_error), cudaGetErrorString(rmm_detail_error)); \
        assert(rmm_detail_error == cudaSuccess);                                                              \
    } while (0)
#endif
