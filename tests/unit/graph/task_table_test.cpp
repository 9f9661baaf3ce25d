// Numbers and records of tasks, as pages of the table come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kmm/graph/task_table.hpp"

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

TEST(TaskTable, numbers_of_a_list_follow_each_other_and_helpers_have_a_series_of_their_own) {
    TaskTable table;
    std::deque<Task> records(3 * 1024);
    TaskNumber next = 1, next_helper = kmm::graph::first_helper + 1;
    for (std::size_t at = 0; at < records.size();) {
        kmm::graph::TaskList list;
        for (std::size_t i = 0; i < 1 + at % 7 && at < records.size(); ++i) list.push_back(&records[at++]);
        table.reserve(list.size());
        EXPECT_EQ(table.add(list), next);
        for (Task* const t : list) {
            EXPECT_EQ(t->number, next);
            EXPECT_EQ(table.find(next++), t);
        }
        if (at == records.size()) break;
        Task* const helper = &records[at++];
        EXPECT_EQ(table.add_helper(helper), next_helper);
        EXPECT_EQ(helper->number, next_helper);
        EXPECT_EQ(table.find(next_helper++), helper);
    }
    EXPECT_EQ(table.last(), next - 1);
    EXPECT_EQ(table.last_helper(), next_helper - 1);
    EXPECT_EQ(table.find(next), nullptr);
    EXPECT_EQ(table.find(next_helper), nullptr);
    for (TaskNumber n = 1; n < next; ++n) table.remove(n);
    EXPECT_EQ(table.settled_up_to(), table.last()) << "whatever helpers there still are";
    EXPECT_EQ(table.helpers_settled_up_to(), kmm::graph::first_helper);
    for (TaskNumber n = kmm::graph::first_helper + 1; n < next_helper; ++n) {
        ASSERT_NE(table.find(n), nullptr);
        table.remove(n);
        ASSERT_EQ(table.find(n), nullptr);
        ASSERT_EQ(table.helpers_settled_up_to(), n);
    }
}

// One thread adds, one settles, others look. A task that does not settle keeps more and more pages, until it does and
// another one takes its part.
TEST(TaskTable, who_adds_who_settles_and_who_looks_do_not_disturb_each_other) {
    constexpr TaskNumber num_tasks = 60 * 1024, kept_for = 9 * 1024, first_kept = 100;
    TaskTable table;
    std::deque<Task> records(num_tasks);
    std::atomic<bool> stop{false};
    std::atomic<TaskNumber> kept{0};
    std::vector<std::future<void>> looking;
    for (int t = 0; t < 2; ++t)
        looking.push_back(std::async(std::launch::async, [&, t] {
            std::mt19937_64 random(static_cast<std::uint64_t>(t));
            while (!stop.load()) {
                const TaskNumber last = table.last(), settled = table.settled_up_to();
                if (last == settled) continue;
                const TaskNumber number = settled + 1 + random() % (last - settled);
                const Task* const found = table.look_for(number);
                ASSERT_TRUE(found == nullptr || found == &records[number - 1]) << number;
                ASSERT_TRUE(settled == 0 || table.look_for(1 + random() % settled) == nullptr);
                const TaskNumber one_kept = kept.load();
                const Task* const record = table.look_for(one_kept);
                ASSERT_TRUE(one_kept == 0 || kept.load() != one_kept || record == &records[one_kept - 1]);
            }
        }));
    auto settling = std::async(std::launch::async, [&] {
        for (TaskNumber n = 1; n <= num_tasks; ++n) {
            // Every other one is settled before the one in front of it.
            const TaskNumber number = n % 2 == 0 ? n - 1 : n < num_tasks ? n + 1 : n;
            while (table.last() < number) std::this_thread::yield();
            ASSERT_EQ(table.find(number), &records[number - 1]);
            if (number % kept_for != first_kept) {
                table.remove(number);
                continue;
            }
            if (const TaskNumber before = kept.exchange(number); before != 0) table.remove(before);
        }
        table.remove(kept.exchange(0));
    });
    for (Task& t : records) table.add(&t);
    settling.get();
    stop = true;
    for (auto& l : looking) l.get();
    EXPECT_EQ(table.settled_up_to(), num_tasks);
    EXPECT_EQ(table.num_settled(), num_tasks);
    table.for_each([](Task& t) { ADD_FAILURE() << t.number; });
}

TEST(TaskTable, of_all_tasks_those_are_listed_that_have_not_settled) {
    TaskTable table;
    std::deque<Task> records(3000);
    for (Task& t : records) (void)(&t == &records.back() ? table.add_helper(&t) : table.add(&t));
    for (TaskNumber n = 1; n < records.size(); ++n)
        if (n % 1000 != 7) table.remove(n);
    std::vector<TaskNumber> listed;
    table.for_each([&](Task& t) { listed.push_back(t.number); });
    EXPECT_EQ(listed, (std::vector<TaskNumber>{7, 1007, 2007, kmm::graph::first_helper + 1}));
}

TEST(TaskTable, tasks_that_took_their_numbers_later_can_be_left_out_of_a_list) {
    TaskTable table;
    std::deque<Task> records(6);
    auto add = [&, next = records.begin()]() mutable {
        (void)table.add(&*next++);
        (void)table.add_helper(&*next++);
    };
    add();
    add();
    const TaskNumber last = table.last(), last_helper = table.last_helper();
    add();
    table.remove(1);
    std::vector<TaskNumber> listed;
    table.for_each_up_to(last, last_helper, [&](Task& t) { listed.push_back(t.number); });
    EXPECT_EQ(listed, (std::vector<TaskNumber>{2, kmm::graph::first_helper + 1, kmm::graph::first_helper + 2}));
}

}  // namespace
