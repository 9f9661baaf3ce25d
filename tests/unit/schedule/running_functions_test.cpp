// Which functions of the program have run for long.
#include "kmm/schedule/running_functions.hpp"

#include <gtest/gtest.h>

#include <deque>

namespace {

using kmm::graph::Task;
using kmm::schedule::RunningFunctions;

class RunningFunctionsTest : public ::testing::Test {
  protected:
    /// One whose payload must be destroyed, which the thread that has run it does before it tells of the end.
    Task& make_task() {
        Task& task = tasks_.emplace_back();
        task.kind = kmm::graph::TaskKind::host;
        task.function = {{[](void*, kmm::detail::TaskContext&) {}, [](void*) noexcept {}}, this};
        return task;
    }
    void end(Task& task) {
        task.drop_payload();
        functions_.ended(task);
    }

    std::deque<Task> tasks_;
    RunningFunctions functions_;
};

TEST_F(RunningFunctionsTest, one_that_goes_on_is_seen_though_another_ends) {
    Task& longer = make_task();
    functions_.began(longer);
    (void)functions_.look();
    Task& brief = make_task();
    functions_.began(brief);
    end(brief);
    EXPECT_TRUE(functions_.look());
    EXPECT_TRUE(functions_.has_run_long(longer));
    end(longer);
    EXPECT_EQ(functions_.count(), 0u);
}

TEST_F(RunningFunctionsTest, one_that_has_ended_is_not) {
    (void)functions_.look();
    Task& task = make_task();
    functions_.began(task);
    end(task);
    EXPECT_FALSE(functions_.look());
}

TEST_F(RunningFunctionsTest, one_that_began_after_the_latest_look_has_not_run_long) {
    Task& longer = make_task();
    functions_.began(longer);
    (void)functions_.look();
    EXPECT_TRUE(functions_.look());
    Task& brief = make_task();
    functions_.began(brief);
    brief.drop_payload();
    EXPECT_FALSE(functions_.has_run_long(brief));
    functions_.ended(brief);
    end(longer);
}

}  // namespace
