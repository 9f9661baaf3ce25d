// The macros of <rmm/detail/error.hpp> around the CUDA runtime, with error values: no GPU is needed.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <string>

#include "rmm/detail/error.hpp"

namespace {

template<typename E, typename F>
std::string text_of(F&& f) {
    try {
        f();
    } catch (const E& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST(ErrorMacros, success_does_nothing_and_the_call_is_made_once) {
    int num_calls = 0;
    const auto call = [&] {
        ++num_calls;
        return cudaSuccess;
    };
    EXPECT_NO_THROW(RMM_CUDA_TRY(call()));
    EXPECT_NO_THROW(RMM_CUDA_TRY(call(), std::runtime_error));
    EXPECT_NO_THROW(RMM_CUDA_TRY_ALLOC(call()));
    EXPECT_NO_THROW(RMM_CUDA_TRY_ALLOC(call(), 1024));
    RMM_ASSERT_CUDA_SUCCESS(call());
    EXPECT_EQ(num_calls, 5);
}

TEST(ErrorMacros, a_failure_throws_the_chosen_type_with_name_and_description) {
    EXPECT_THROW(RMM_CUDA_TRY(cudaErrorInvalidValue), rmm::cuda_error);
    EXPECT_THROW(RMM_CUDA_TRY(cudaErrorInvalidValue, std::runtime_error), std::runtime_error);
    const std::string text = text_of<rmm::cuda_error>([] { RMM_CUDA_TRY(cudaErrorInvalidValue); });
    EXPECT_EQ(text.find("CUDA error at: "), 0u) << text;
    EXPECT_NE(text.find("cudaErrorInvalidValue invalid argument"), std::string::npos) << text;
}

TEST(ErrorMacros, a_failed_allocation_says_how_much) {
    EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue), rmm::bad_alloc);
    EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation), rmm::out_of_memory);
    EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation, 10), rmm::out_of_memory);
    const std::string bad = text_of<rmm::bad_alloc>([] { RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue, 1024); });
    EXPECT_NE(bad.find("CUDA error (failed to allocate 1024 bytes) at: "), std::string::npos) << bad;
    const std::string out = text_of<rmm::out_of_memory>([] { RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation, 2048); });
    EXPECT_NE(out.find("out_of_memory"), std::string::npos) << out;
    EXPECT_NE(out.find("failed to allocate 2048 bytes"), std::string::npos) << out;
    EXPECT_NE(out.find("out of memory"), std::string::npos) << out;
}

TEST(ErrorMacrosDeathTest, a_failure_that_is_only_asserted_ends_a_debug_build) {
    int num_calls = 0;
    const auto fail = [&] {
        ++num_calls;
        return cudaErrorInvalidValue;
    };
#ifdef NDEBUG
    testing::internal::CaptureStderr();
    RMM_ASSERT_CUDA_SUCCESS(fail());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(num_calls, 1);
#else
    EXPECT_DEATH(RMM_ASSERT_CUDA_SUCCESS(fail()), "CUDA Error detected. cudaErrorInvalidValue invalid argument");
    EXPECT_EQ(num_calls, 0);
#endif
}

TEST(ErrorMacros, macros_are_statements_inside_if_and_else) {
    bool reached = false;
    if (reached)
        RMM_CUDA_TRY(cudaErrorInvalidValue);
    else if (!reached)
        RMM_ASSERT_CUDA_SUCCESS(cudaSuccess);
    else
        RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue, 5);
    reached = true;
    EXPECT_TRUE(reached);
}

}  // namespace
