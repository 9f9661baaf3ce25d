// How threads wait for tasks: kmm/runtime/waiting.hpp over a table of tasks that nobody runs.
#include "kmm/runtime/waiting.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using kmm::detail::SettledWaits;
using kmm::detail::UnfinishedTasks;
using kmm::graph::Task;
using kmm::graph::TaskNumber;
using kmm::graph::TaskTable;
using clock_type = SettledWaits::clock;

constexpr auto no_patience = std::chrono::hours(1);
const auto never_asked = [] { return false; };

struct Tasks {
    TaskTable table;
    SettledWaits waits{table};
    std::deque<Task> records;

    TaskNumber add() {
        table.reserve(1);
        return table.add(&records.emplace_back());
    }
    void settle(TaskNumber number) {
        Task& task = records[number - 1];
        table.remove(number);
        waits.settled(number, task);
        task.recycle();  // it may be another task's from here on
    }
    std::uint32_t waiters_of(TaskNumber number) { return waits.num_waiting(records[number - 1]); }
    /// Until so many threads wait for the task.
    void await_waiters(TaskNumber number, std::uint32_t count) {
        while (waiters_of(number) != count) std::this_thread::yield();
    }
};

TEST(SettledWaits, a_settled_task_is_not_waited_for) {
    Tasks tasks;
    const TaskNumber number = tasks.add();
    tasks.settle(number);
    EXPECT_TRUE(tasks.waits.wait(number, nullptr, no_patience, never_asked));
}

TEST(SettledWaits, every_waiter_of_a_task_goes_on_when_it_settles_and_no_other) {
    Tasks tasks;
    // The first and the last share a lock; so do 32 tasks each of those between.
    std::vector<TaskNumber> numbers;
    for (int i = 0; i < 33; ++i) numbers.push_back(tasks.add());
    std::vector<std::future<bool>> waiters;
    for (const TaskNumber n : numbers)
        for (int twice = 0; twice < 2; ++twice)
            waiters.push_back(std::async(
                std::launch::async, [&tasks, n] { return tasks.waits.wait(n, nullptr, no_patience, never_asked); }));
    for (const TaskNumber n : numbers) tasks.await_waiters(n, 2);
    for (std::size_t i = numbers.size(); i-- > 0;) {
        tasks.settle(numbers[i]);
        EXPECT_TRUE(waiters[2 * i].get());
        EXPECT_TRUE(waiters[2 * i + 1].get());
        if (i > 0) {
            EXPECT_EQ(tasks.waiters_of(numbers[i - 1]), 2u);
        }
    }
}

TEST(SettledWaits, a_deadline_ends_the_wait_and_leaves_no_waiter_behind) {
    Tasks tasks;
    const TaskNumber number = tasks.add();
    const auto past = clock_type::now() - std::chrono::seconds(1);
    EXPECT_FALSE(tasks.waits.wait(number, &past, no_patience, never_asked));
    const auto soon = clock_type::now() + std::chrono::milliseconds(5);
    EXPECT_FALSE(tasks.waits.wait(number, &soon, no_patience, never_asked));
    EXPECT_GE(clock_type::now(), soon);
    EXPECT_EQ(tasks.waiters_of(number), 0u);
}

TEST(SettledWaits, one_who_loses_patience_looks_until_it_has_seen_enough_and_waits_on) {
    Tasks tasks;
    const TaskNumber number = tasks.add();
    int looks = 0;
    // Long enough for dozens of looks.
    const auto deadline = clock_type::now() + std::chrono::milliseconds(50);
    EXPECT_FALSE(tasks.waits.wait(number, &deadline, std::chrono::milliseconds(1), [&] { return ++looks < 3; }));
    EXPECT_EQ(looks, 3) << "once it has seen enough it is not asked again";
}

TEST(SettledWaits, a_look_holds_no_lock_so_that_the_task_may_settle_in_it) {
    Tasks tasks;
    const TaskNumber number = tasks.add();
    int looks = 0;
    EXPECT_TRUE(tasks.waits.wait(number, nullptr, std::chrono::milliseconds(1), [&] {
        ++looks;
        tasks.settle(number);
        return true;
    }));
    EXPECT_EQ(looks, 1);
}

TEST(SettledWaits, no_end_of_a_task_is_missed_however_late_its_waiter_comes) {
    Tasks tasks;
    constexpr int rounds = 2000;
    for (int i = 0; i < rounds; ++i) (void)tasks.add();
    std::atomic<TaskNumber> awaited{0};
    auto settler = std::async(std::launch::async, [&] {
        for (TaskNumber n = 1; n <= rounds; ++n) {
            while (awaited.load() < n) std::this_thread::yield();
            tasks.settle(n);
        }
    });
    for (TaskNumber n = 1; n <= rounds; ++n) {
        awaited.store(n);
        ASSERT_TRUE(tasks.waits.wait(n, nullptr, no_patience, never_asked));
    }
    settler.get();
}

/// Tasks that end in the order in which they were published.
struct Published {
    TaskTable table;
    UnfinishedTasks unfinished{table};
    std::deque<Task> records;
    TaskNumber num_ended = 0;

    std::uint64_t add(int count) {
        for (int i = 0; i < count; ++i) (void)table.add(&records.emplace_back());
        return unfinished.add(static_cast<std::uint64_t>(count));
    }
    void end_one() {
        table.remove(++num_ended);
        unfinished.one_ended();
    }
};

TEST(SettledWaits, whoever_gives_up_waiting_touches_no_record_of_a_settled_task) {
    Tasks tasks;
    constexpr int rounds = 2000;
    for (int i = 0; i < rounds; ++i) (void)tasks.add();
    std::atomic<bool> stop{false};
    std::vector<std::future<void>> waiters;
    for (int t = 0; t < 2; ++t)
        waiters.push_back(std::async(std::launch::async, [&] {
            while (!stop.load()) {
                const TaskNumber number = tasks.table.settled_up_to() + 1;
                const auto soon = clock_type::now() + std::chrono::microseconds(number % 50);
                const bool settled = tasks.waits.wait(number, &soon, no_patience, never_asked);
                EXPECT_TRUE(!settled || tasks.table.is_settled(number));
            }
        }));
    for (TaskNumber n = 1; n <= rounds; ++n) {
        tasks.settle(n);
        if (n % 4 == 0) std::this_thread::yield();
    }
    stop = true;
    for (auto& w : waiters) w.get();
    for (const Task& t : tasks.records) EXPECT_EQ(t.waiters, nullptr);
}

/// How often threads wake up while so many wait for one task, and 160 others are awaited and settle one by one.
std::uint64_t wake_ups_beside(int num_waiting) {
    Tasks tasks;
    const TaskNumber last = tasks.add();
    std::vector<std::future<bool>> waiters;
    for (int i = 0; i < num_waiting; ++i)
        waiters.push_back(
            std::async(std::launch::async, [&] { return tasks.waits.wait(last, nullptr, no_patience, never_asked); }));
    tasks.await_waiters(last, static_cast<std::uint32_t>(num_waiting));
    const std::uint64_t before = tasks.waits.num_wake_ups();
    for (int i = 0; i < 160; ++i) {
        const TaskNumber number = tasks.add();
        auto waiter =
            std::async(std::launch::async, [&] { return tasks.waits.wait(number, nullptr, no_patience, never_asked); });
        tasks.await_waiters(number, 1);
        tasks.settle(number);
        EXPECT_TRUE(waiter.get());
    }
    const std::uint64_t wake_ups = tasks.waits.num_wake_ups() - before;
    tasks.settle(last);
    for (auto& w : waiters) EXPECT_TRUE(w.get());
    return wake_ups;
}

TEST(SettledWaits, a_task_that_settles_wakes_nobody_who_waits_for_another) {
    EXPECT_EQ(wake_ups_beside(8), wake_ups_beside(0));
    EXPECT_GE(wake_ups_beside(0), 160u) << "they were counted";
}

TEST(UnfinishedTasks, one_that_ends_wakes_one_thread_and_that_one_the_next_only_while_there_are_few) {
    Published tasks;
    std::mutex adding;
    constexpr std::uint64_t most = 20;
    constexpr int num_threads = 16;
    tasks.add(most);
    std::vector<std::future<void>> threads;
    for (int t = 0; t < num_threads; ++t)
        threads.push_back(std::async(std::launch::async, [&] {
            tasks.unfinished.wait_until_below(most);
            const std::scoped_lock lock(adding);
            tasks.add(1);
        }));
    while (tasks.unfinished.num_waiting() != num_threads) std::this_thread::yield();
    EXPECT_EQ(tasks.unfinished.num_wake_ups(), 0u);
    for (int t = 0; t < num_threads; ++t) {
        tasks.end_one();
        while (tasks.unfinished.num_waiting() + static_cast<std::uint32_t>(t) + 1 > num_threads)
            std::this_thread::yield();
        // Those that the thread before it woke in vain sleep again, unless they went on.
        if (tasks.unfinished.num_waiting() == 0) break;
    }
    for (auto& t : threads) t.get();
    EXPECT_LE(tasks.unfinished.num_wake_ups(), 3u * num_threads) << "not all of them for each";
}

TEST(UnfinishedTasks, all_who_wait_go_on_when_enough_have_ended_and_nobody_adds_any) {
    Published tasks;
    constexpr std::uint64_t most = 5;
    tasks.add(most + 3);
    std::vector<std::future<void>> threads;
    for (int t = 0; t < 8; ++t)
        threads.push_back(std::async(std::launch::async, [&] { tasks.unfinished.wait_until_below(most); }));
    while (tasks.unfinished.num_waiting() != 8) std::this_thread::yield();
    for (int i = 0; i < 3; ++i) tasks.end_one();
    EXPECT_EQ(tasks.unfinished.num_wake_ups(), 0u) << "as many as are allowed is not fewer";
    tasks.end_one();
    for (auto& t : threads) t.get();
    EXPECT_LE(tasks.unfinished.num_wake_ups(), 16u);
}

TEST(UnfinishedTasks, tell_how_many_there_were_before_and_count_down) {
    Published tasks;
    EXPECT_EQ(tasks.add(3), 0u);
    EXPECT_EQ(tasks.add(1), 3u);
    for (int i = 0; i < 4; ++i) tasks.end_one();
    EXPECT_EQ(tasks.unfinished.count(), 0u);
    tasks.unfinished.wait_until_below(1);
}

TEST(UnfinishedTasks, a_thread_goes_on_when_there_are_fewer_than_it_waits_for) {
    Published tasks;
    UnfinishedTasks& unfinished = tasks.unfinished;
    constexpr std::uint64_t most = 5;
    tasks.add(most + 2);
    std::atomic<bool> went_on{false};
    auto waiter = std::async(std::launch::async, [&] {
        unfinished.wait_until_below(most);
        went_on = true;
        return unfinished.count();
    });
    while (unfinished.num_waiting() == 0) std::this_thread::yield();
    tasks.end_one();
    tasks.end_one();
    // It has been woken twice, and has had time to go on if it were to.
    EXPECT_EQ(waiter.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout)
        << "as many as are allowed is not fewer";
    EXPECT_FALSE(went_on.load());
    tasks.end_one();
    EXPECT_LT(waiter.get(), most);
}

TEST(UnfinishedTasks, many_threads_add_and_end_and_wait_for_each_other) {
    Published tasks;
    std::mutex adding, ending;  // as the order lock and the baton
    constexpr std::uint64_t most = 3;
    constexpr int rounds = 500;
    std::vector<std::future<void>> threads;
    for (int t = 0; t < 4; ++t)
        threads.push_back(std::async(std::launch::async, [&] {
            for (int i = 0; i < rounds; ++i) {
                tasks.unfinished.wait_until_below(most);
                {
                    const std::scoped_lock lock(adding);
                    tasks.add(1);
                }
                const std::scoped_lock lock(ending);
                tasks.end_one();
            }
        }));
    for (auto& t : threads) t.get();
    EXPECT_EQ(tasks.unfinished.count(), 0u);
}

}  // namespace
