// <rmm/error.hpp> and the macros of <rmm/detail/error.hpp> that need no CUDA.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

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

static_assert(std::is_base_of_v<std::logic_error, rmm::logic_error>);
static_assert(std::is_base_of_v<std::runtime_error, rmm::cuda_error>);
static_assert(std::is_base_of_v<std::bad_alloc, rmm::bad_alloc>);
static_assert(std::is_base_of_v<rmm::bad_alloc, rmm::out_of_memory>);
static_assert(std::is_base_of_v<std::out_of_range, rmm::out_of_range>);
static_assert(std::is_nothrow_copy_constructible_v<rmm::out_of_memory>);

TEST(Error, texts_begin_with_the_kind_of_failure) {
    EXPECT_STREQ(rmm::bad_alloc("because").what(), "std::bad_alloc: because");
    EXPECT_STREQ(rmm::bad_alloc(std::string("because")).what(), "std::bad_alloc: because");
    EXPECT_STREQ(rmm::out_of_memory("because").what(), "std::bad_alloc: out_of_memory: because");
    EXPECT_STREQ(rmm::logic_error("because").what(), "because");
    EXPECT_STREQ(rmm::out_of_range("because").what(), "because");
}

TEST(Error, out_of_memory_carries_its_figures_through_a_copy) {
    rmm::memory_shortage shortage;
    shortage.requested_bytes = 7;
    const rmm::out_of_memory original("because", shortage);
    const rmm::out_of_memory copy = original;
    EXPECT_EQ(copy.shortage().requested_bytes, 7u);
    EXPECT_STREQ(copy.what(), original.what());
}

TEST(Error, expects_throws_only_when_the_condition_does_not_hold) {
    EXPECT_NO_THROW(RMM_EXPECTS(true, "no"));
    EXPECT_NO_THROW(RMM_EXPECTS(true, "no", std::runtime_error));
    EXPECT_THROW(RMM_EXPECTS(false, "yes"), rmm::logic_error);
    EXPECT_THROW(RMM_EXPECTS(false, std::string("y") + "es", std::runtime_error), std::runtime_error);
    const std::string text = text_of<rmm::logic_error>([] { RMM_EXPECTS(1 > 2, std::string("a sum ") + "of texts"); });
    EXPECT_EQ(text.find("RMM failure at: "), 0u);
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos);
    EXPECT_NE(text.find(": a sum of texts"), std::string::npos);
}

TEST(Error, fail_always_throws) {
    EXPECT_THROW(RMM_FAIL("yes"), rmm::logic_error);
    EXPECT_THROW(RMM_FAIL("yes", std::runtime_error), std::runtime_error);
    EXPECT_EQ(text_of<rmm::logic_error>([] { RMM_FAIL("yes"); }).find("RMM failure at:/"),
              std::string(__FILE__).front() == '/' ? 0 : std::string::npos);
}

TEST(Error, macros_are_statements_inside_if_and_else) {
    bool reached = false;
    if (reached)
        RMM_EXPECTS(false, "not here");
    else
        reached = true;
    EXPECT_TRUE(reached);
    EXPECT_STREQ(RMM_STRINGIFY(__LINE__), std::to_string(__LINE__).c_str());
}

}  // namespace
