// <rmm/detail/stack_trace.hpp>.
#include "rmm/detail/stack_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace rmm_test {

// Not in an anonymous namespace, so that their names are known when the program runs.
__attribute__((noinline)) rmm::detail::stack_trace traced_function() {
    rmm::detail::stack_trace trace;
    return trace;
}
// Called through a variable, that no compiler makes a loop of it.
int traced_recursion(int depth, rmm::detail::stack_trace* trace);
int (*volatile next_call)(int, rmm::detail::stack_trace*) = &traced_recursion;
int traced_recursion(int depth, rmm::detail::stack_trace* trace) {
    if (depth == 0) {
        *trace = rmm::detail::stack_trace();
        return 0;
    }
    return 1 + next_call(depth - 1, trace);
}

}  // namespace rmm_test

namespace {

std::string text_of(const rmm::detail::stack_trace& trace) {
    std::ostringstream out;
    out << trace;
    return out.str();
}

TEST(StackTrace, names_the_innermost_function_first) {
    const std::string text = text_of(rmm_test::traced_function());
    EXPECT_EQ(text.find("#0 in rmm_test::traced_function() from "), 0u) << text;
    EXPECT_NE(text.find("\n#1 in "), std::string::npos) << text;
    EXPECT_NE(text.find(" in main from "), std::string::npos) << text;
    EXPECT_EQ(text.back(), '\n');
}

TEST(StackTrace, a_copy_prints_the_same) {
    const auto trace = rmm_test::traced_function();
    const auto copy = trace;
    EXPECT_EQ(text_of(copy), text_of(trace));
}

TEST(StackTrace, has_at_most_64_frames) {
    rmm::detail::stack_trace trace;
    EXPECT_EQ(rmm_test::traced_recursion(200, &trace), 200);
    const std::string text = text_of(trace);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 64) << text;
}

}  // namespace
