// The tasks of a runtime as the program's threads see them: kmm/runtime/task_books.hpp, with tasks that the test ends.
#include "kmm/runtime/task_books.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kmm/error.hpp"

namespace {

using kmm::EventId;
using kmm::detail::TaskBooks;
using kmm::graph::Failure;
using kmm::graph::RootFailure;
using kmm::graph::Task;
using kmm::graph::TaskNumber;

struct Runtime {
    static constexpr std::uint16_t number = 7;
    TaskBooks books{number};
    std::deque<Task> records;

    TaskNumber submit() {
        const kmm::locks::Guard order(books.order());
        books.begin_taking_places(1);
        const TaskNumber task = books.table().add(&records.emplace_back());
        books.unfinished().add(1);
        return task;
    }
    std::vector<TaskNumber> submit(std::size_t count) {
        std::vector<TaskNumber> numbers;
        for (std::size_t i = 0; i < count; ++i) numbers.push_back(submit());
        return numbers;
    }
    Task& task(TaskNumber n) { return records[n - 1]; }
    void succeed(TaskNumber n) { books.settle(task(n)); }
    void fail(TaskNumber n) {
        auto failure = std::make_shared<Failure>();
        failure->root = std::make_shared<RootFailure>();
        failure->root->number = n;
        failure->root->cause = std::make_exception_ptr(std::runtime_error("bad"));
        task(n).failure = std::move(failure);
        books.settle(task(n));
    }
    /// Because an earlier one has failed.
    void fail_after(TaskNumber n, TaskNumber root) {
        task(n).failure = std::make_shared<Failure>();
        task(n).failure->root = books.failure_of(root)->root;
        books.settle(task(n));
    }
};

std::vector<TaskNumber> numbers_of(const std::vector<std::shared_ptr<RootFailure>>& roots) {
    std::vector<TaskNumber> numbers;
    for (const auto& root : roots) numbers.push_back(root->number);
    return numbers;
}

/// What the runtime says of an event that is not one of its tasks.
std::string refusal(const TaskBooks& books, EventId event) {
    try {
        (void)books.number_of(event);
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
    return "taken";
}

TEST(TaskBooks, an_event_is_a_number_of_this_runtime_and_says_whether_it_is_a_barrier) {
    Runtime rt;
    const TaskNumber task = rt.submit();
    const EventId event = rt.books.event_of(task), barrier = rt.books.barrier_event_of(task);
    EXPECT_EQ(rt.books.number_of(event), task);
    EXPECT_EQ(rt.books.number_of(barrier), task);
    EXPECT_FALSE(TaskBooks::is_barrier(event));
    EXPECT_TRUE(TaskBooks::is_barrier(barrier));
    EXPECT_EQ(rt.books.number_of(EventId()), 0u);
}

TEST(TaskBooks, an_event_that_this_runtime_never_issued_is_refused_with_its_number) {
    Runtime rt;
    rt.submit();
    EXPECT_NE(refusal(rt.books, rt.books.event_of(2)).find("event 2 was never issued by runtime 7 (the latest is 1)"),
              std::string::npos);
    EXPECT_NE(refusal(rt.books, TaskBooks(8).event_of(1)).find("belongs to runtime 8, but was used with runtime 7"),
              std::string::npos);
    EXPECT_NE(refusal(rt.books, EventId(1)).find("no runtime issued event 1"), std::string::npos);
}

TEST(TaskBooks, a_task_is_unfinished_from_its_submit_until_it_settles_in_whatever_order) {
    Runtime rt;
    const auto tasks = rt.submit(3);
    EXPECT_EQ(rt.books.unfinished().count(), 3u);
    rt.succeed(tasks[2]);
    EXPECT_TRUE(rt.books.is_settled(tasks[2]));
    EXPECT_FALSE(rt.books.is_settled(tasks[0]));
    EXPECT_EQ(rt.books.unfinished().count(), 2u);
    rt.succeed(tasks[0]);
    rt.succeed(tasks[1]);
    EXPECT_EQ(rt.books.unfinished().count(), 0u);
}

TEST(TaskBooks, the_end_of_a_task_wakes_who_waits_for_it_with_its_failure) {
    Runtime rt;
    const TaskNumber task = rt.submit();
    auto waiter = std::async(std::launch::async, [&] {
        const bool settled = rt.books.waits().wait(task, nullptr, std::chrono::hours(1), [] { return false; });
        return settled ? rt.books.failure_of(task) : nullptr;
    });
    while (rt.books.waits().num_waiting(rt.task(task)) == 0) std::this_thread::yield();
    rt.fail(task);
    const std::shared_ptr<Failure> failure = waiter.get();
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->root->number, task);
    EXPECT_EQ(rt.books.first_failed(), task);
}

TEST(TaskBooks, a_root_is_delivered_once_by_whoever_asks_first) {
    Runtime rt;
    const auto tasks = rt.submit(4);
    rt.fail(tasks[0]);
    rt.fail_after(tasks[1], tasks[0]);
    rt.fail(tasks[2]);
    rt.succeed(tasks[3]);
    EXPECT_EQ(rt.books.failure_of(tasks[3]), nullptr);
    EXPECT_EQ(rt.books.failure_of(tasks[1])->root->number, tasks[0]) << "asked, and not told";
    EXPECT_EQ(numbers_of(rt.books.deliver_failures_before(tasks[2])), std::vector{tasks[0]});
    EXPECT_TRUE(rt.books.deliver_failures_before(tasks[2]).empty());
    EXPECT_EQ(rt.books.deliver_failure(tasks[1])->root->number, tasks[0]) << "a wait for it tells it again";
    const auto last = rt.books.deliver_all_failures();
    EXPECT_EQ(numbers_of(last), std::vector{tasks[2]});
    rt.books.take_back(last);
    EXPECT_EQ(numbers_of(rt.books.deliver_all_failures()), std::vector{tasks[2]}) << "nobody could be told";
}

TEST(TaskBooks, closed_books_take_no_task_and_still_know_how_tasks_end) {
    Runtime rt;
    const TaskNumber task = rt.submit();
    rt.books.check_open();
    rt.books.close();
    EXPECT_THROW(rt.books.check_open(), kmm::Closed);
    EXPECT_TRUE(rt.books.is_closed());
    rt.fail(task);
    EXPECT_EQ(rt.books.failure_of(task)->root->number, task);
}

TEST(TaskBooks, of_a_lost_runtime_every_question_is_refused_and_every_task_ends_at_once) {
    Runtime rt;
    const auto tasks = rt.submit(4);
    rt.succeed(tasks[0]);
    rt.succeed(tasks[2]);  // behind one that has not settled
    EXPECT_NO_THROW(rt.books.check_usable());
    rt.books.lose();
    EXPECT_TRUE(rt.books.is_lost());
    EXPECT_THROW(rt.books.check_open(), kmm::OutOfMemory);
    EXPECT_THROW(rt.books.check_usable(), kmm::OutOfMemory);
    EXPECT_NO_THROW(rt.books.refuse_after_fork()) << "a wait goes on until nothing runs";
    EXPECT_EQ(rt.books.unfinished().count(), 2u);
    std::thread waiting(
        [&] { EXPECT_TRUE(rt.books.waits().wait(tasks[3], nullptr, std::chrono::hours(1), [] { return true; })); });
    rt.books.end_all();
    waiting.join();
    EXPECT_EQ(rt.books.unfinished().count(), 0u);
    for (const TaskNumber task : tasks) EXPECT_TRUE(rt.books.is_settled(task));
}

TEST(TaskBooks, arrays_are_numbered_from_one) {
    Runtime rt;
    EXPECT_EQ(rt.books.next_array_number(), 1u);
    EXPECT_EQ(rt.books.next_array_number(), 2u);
}

}  // namespace
