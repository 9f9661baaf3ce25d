// Numbers and records of tasks, as pages of the table come and go.
#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "kmm/graph/task.hpp"

namespace {

using kmm::graph::Task;
using kmm::graph::TaskNumber;
using kmm::graph::TaskTable;

constexpr TaskNumber pages_of_tasks = 6 * 1024;

TEST(TaskTable, numbers_have_room_however_many_of_those_before_have_settled) {
    for (const std::size_t unsettled : {std::size_t{0}, std::size_t{1}, std::size_t{1500}}) {
        TaskTable table;
        std::deque<std::unique_ptr<Task>> open;
        for (TaskNumber n = 1; n <= pages_of_tasks; ++n) {
            if (n % 3 == 0) table.reserve(1 + n % 1100);  // more than a page at times, and most of it for later
            open.push_back(std::make_unique<Task>());
            ASSERT_EQ(table.add(open.back().get()), n);
            ASSERT_EQ(table.find(n), open.back().get());
            while (open.size() > unsettled) {
                const TaskNumber oldest = open.front()->number;
                ASSERT_EQ(table.find(oldest), open.front().get());
                table.remove(oldest);
                ASSERT_EQ(table.find(oldest), nullptr);
                ASSERT_EQ(table.settled_up_to(), oldest);
                open.pop_front();
            }
        }
        for (const auto& task : open) ASSERT_EQ(table.find(task->number), task.get());
    }
}

TEST(TaskTable, a_task_that_does_not_settle_keeps_its_record_while_all_after_it_settle) {
    TaskTable table;
    Task first;
    const TaskNumber number = table.add(&first);
    Task other;
    for (TaskNumber n = number + 1; n <= pages_of_tasks; ++n) {
        table.reserve(2);
        ASSERT_EQ(table.add(&other), n);
        table.remove(n);
    }
    EXPECT_EQ(table.find(number), &first);
    EXPECT_EQ(table.settled_up_to(), number - 1);
    table.remove(number);
    EXPECT_EQ(table.settled_up_to(), table.last());
    EXPECT_EQ(table.add(&other), pages_of_tasks + 1);
    EXPECT_EQ(table.find(pages_of_tasks + 1), &other);
}

}  // namespace
