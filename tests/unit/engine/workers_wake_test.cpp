// That every task finds a thread though few are woken at a time: kmm/engine/workers.hpp. How few: wake_ups_test.cpp.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "kmm/engine/workers.hpp"

namespace {

using kmm::engine::Workers;
using kmm::graph::Task;

/// Threads for functions, each of which stands for a task.
class Pool final : public Workers {
  public:
    explicit Pool(std::size_t num_threads, bool looks = false) : Workers(looks), functions_(room) {
        start(num_threads, std::chrono::milliseconds(0));
    }
    ~Pool() { end_threads(); }
    /// By one thread, or by functions that run here.
    void push(std::function<void()> function, bool takes_one_itself = false) {
        const std::size_t n = num_pushed_.fetch_add(1);
        functions_[n].run = std::move(function);
        enqueue(functions_[n].task, takes_one_itself ? Caller::takes_one : Caller::goes_on);
    }

    /// So many that do the same, queued at once.
    void push_together(std::size_t count, const std::function<void()>& function, bool takes_one_itself = false) {
        std::vector<Task*> tasks;
        for (std::size_t i = 0; i < count; ++i) {
            Function& f = functions_[num_pushed_.fetch_add(1)];
            f.run = function;
            tasks.push_back(&f.task);
        }
        enqueue(tasks, takes_one_itself ? Caller::takes_one : Caller::goes_on);
    }

  private:
    static constexpr std::size_t room = 1 << 16;
    struct Function {
        Task task;
        std::function<void()> run;
    };
    void run() override {
        while (Task* const task = take()) functions_[static_cast<std::size_t>(index_of(*task))].run();
    }
    std::ptrdiff_t index_of(const Task& task) const {
        return (reinterpret_cast<const std::byte*>(&task) - reinterpret_cast<const std::byte*>(&functions_[0].task)) /
               static_cast<std::ptrdiff_t>(sizeof(Function));
    }

    std::vector<Function> functions_;
    std::atomic<std::size_t> num_pushed_{0};
};

/// So many tasks that wait for each other: for ever, if one finds no thread.
void run_at_the_same_time(Pool& pool, std::ptrdiff_t num_tasks) {
    std::latch all_run(num_tasks);
    std::latch done(num_tasks);
    for (std::ptrdiff_t i = 0; i < num_tasks; ++i)
        pool.push([&] {
            all_run.arrive_and_wait();
            done.count_down();
        });
    done.wait();
}

/// Whether a thread without a task looks for one before it sleeps.
class WorkersWake : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Looks, WorkersWake, testing::Bool(),
                         [](const auto& looks) { return std::string(looks.param ? "looks" : "sleeps"); });

TEST_P(WorkersWake, as_many_tasks_as_threads_run_at_the_same_time) {
    for (const std::ptrdiff_t num_threads : {8, 16, 32}) {
        Pool pool(static_cast<std::size_t>(num_threads), GetParam());
        for (int round = 0; round < 100; ++round) run_at_the_same_time(pool, num_threads);
    }
}

TEST_P(WorkersWake, as_many_tasks_as_threads_run_at_the_same_time_after_very_short_ones) {
    constexpr int num_threads = 16;
    Pool pool(num_threads, GetParam());
    for (int round = 0; round < 50; ++round) {
        constexpr int num_short = 200;
        std::latch done(num_short);
        for (int i = 0; i < num_short; ++i) pool.push([&] { done.count_down(); });
        if (round % 2 == 0) done.wait();
        run_at_the_same_time(pool, num_threads);
        done.wait();
    }
}

TEST_P(WorkersWake, tasks_that_a_task_leaves_find_all_threads_and_its_own) {
    constexpr int num_threads = 16;
    Pool pool(num_threads, GetParam());
    for (int round = 0; round < 100; ++round) {
        std::latch all_run(num_threads);
        std::latch done(num_threads);
        pool.push([&] {
            for (int i = 0; i < num_threads; ++i)
                pool.push(
                    [&] {
                        all_run.arrive_and_wait();
                        done.count_down();
                    },
                    true);
        });
        done.wait();
    }
}

TEST_P(WorkersWake, tasks_that_a_task_pushes_find_threads_while_it_waits_for_them) {
    constexpr int num_threads = 4;
    Pool pool(num_threads, GetParam());
    for (int round = 0; round < 200; ++round) {
        std::latch done(1);
        pool.push([&] {
            std::latch others(num_threads - 1);
            for (int i = 1; i < num_threads; ++i) pool.push([&] { others.count_down(); });
            others.wait();
            done.count_down();
        });
        done.wait();
    }
}

TEST_P(WorkersWake, what_a_task_leaves_to_its_own_thread_runs_though_nobody_is_woken) {
    Pool pool(2, GetParam());
    for (int round = 0; round < 1000; ++round) {
        std::latch done(3);
        pool.push([&] {
            pool.push([&] { done.count_down(); }, true);
            pool.push([&] { done.count_down(); }, true);
            done.count_down();
        });
        done.wait();
    }
}

TEST_P(WorkersWake, tasks_that_are_queued_together_find_all_threads) {
    constexpr int num_threads = 16;
    Pool pool(num_threads, GetParam());
    for (int round = 0; round < 100; ++round) {
        std::latch all_run(num_threads);
        std::latch done(num_threads + 1);
        const auto waits_for_all = [&] {
            all_run.arrive_and_wait();
            done.count_down();
        };
        const bool from_a_task = round % 2 == 1;
        if (from_a_task) {
            pool.push([&] {
                pool.push_together(num_threads, waits_for_all, true);
                done.count_down();
            });
        } else {
            pool.push_together(num_threads, waits_for_all);
            done.count_down();
        }
        done.wait();
    }
}

TEST_P(WorkersWake, very_many_short_tasks_of_several_threads_all_run) {
    Pool pool(8, GetParam());
    constexpr int num_pushers = 3;
    constexpr int each = 10'000;
    std::latch done(num_pushers * each);
    std::vector<std::thread> pushers;
    for (int p = 0; p < num_pushers; ++p)
        pushers.emplace_back([&] {
            for (int i = 0; i < each; ++i) pool.push([&] { done.count_down(); });
        });
    for (std::thread& t : pushers) t.join();
    done.wait();
}

}  // namespace
