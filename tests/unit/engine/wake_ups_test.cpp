// How many threads are woken, and after how many wake-ups they run: kmm/engine/wake_ups.hpp, with threads that are
// numbers and a clock that counts steps.
#include "kmm/engine/wake_ups.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace {

using kmm::engine::WakeUps;

constexpr long for_ever = std::numeric_limits<long>::max() / 2;

/// A queue and its threads, all asleep at first. A thread runs `wake_up` steps after it was woken, and every task
/// takes `length` steps.
class Threads {
  public:
    Threads(std::size_t num_threads, long wake_up) : threads_(num_threads), wake_up_(wake_up) {
        for (std::size_t i = 0; i < num_threads; ++i) wake_ups_.falls_asleep();
    }

    long length = for_ever;  ///< of the tasks that begin from now on

    void push(int num_tasks = 1) {
        for (; num_tasks > 0; --num_tasks) wake(wake_ups_.for_tasks(++queued_));
    }
    void step() {
        ++now_;
        for (Thread& t : threads_)
            if (t.state == State::runs && t.until == now_) end_task(t);
        for (Thread& t : threads_)
            if (t.state == State::on_its_way && t.until == now_) arrive(t);
    }
    /// Something else than a wake-up lets a thread look at the queue: what a condition variable may do at any time.
    void disturb(std::size_t thread) {
        if (threads_[thread].state == State::sleeps) arrive(threads_[thread]);
    }
    void end_task_of(std::size_t thread) {
        if (threads_[thread].state == State::runs) end_task(threads_[thread]);
    }

    std::size_t queued() const { return queued_; }
    std::size_t running() const { return count(State::runs); }
    std::size_t asleep() const { return count(State::sleeps); }
    std::size_t on_their_way() const { return count(State::on_its_way); }
    std::size_t woken() const { return woken_; }
    /// Steps until so many tasks run at once, or a large number.
    long steps_until_running(std::size_t num_tasks) {
        long steps = 0;
        for (; running() < num_tasks && steps < 10'000; ++steps) step();
        return steps;
    }
    void run_empty() {
        for (int steps = 0; queued_ > 0 || running() > 0 || on_their_way() > 0; ++steps) {
            if (steps == 10'000) return ADD_FAILURE() << queued_ << " tasks find no thread";
            step();
        }
    }

  private:
    enum class State { sleeps, on_its_way, runs };
    struct Thread {
        State state = State::sleeps;
        long until = 0;
        std::uint64_t begun = 0;
    };

    std::size_t count(State state) const {
        std::size_t n = 0;
        for (const Thread& t : threads_) n += t.state == state;
        return n;
    }
    void wake(std::size_t num_threads) {
        for (Thread& t : threads_) {
            if (num_threads == 0) return;
            if (t.state != State::sleeps) continue;
            t = {State::on_its_way, now_ + wake_up_};
            ++woken_;
            --num_threads;
        }
        // Else those that would be woken have come by themselves.
        EXPECT_TRUE(disturbed_ || num_threads == 0) << num_threads << " more are woken than sleep";
    }
    void arrive(Thread& thread) {
        disturbed_ |= thread.state == State::sleeps;
        const std::size_t num_woken = wake_ups_.arrives(queued_);
        thread.state = State::runs;  // so that it does not wake itself
        take(thread);
        wake(num_woken);
    }
    void end_task(Thread& thread) {
        wake_ups_.task_ends(thread.begun);
        take(thread);
    }
    void take(Thread& thread) {
        if (queued_ == 0) {
            wake_ups_.falls_asleep();
            thread.state = State::sleeps;
            return;
        }
        --queued_;
        thread = {State::runs, now_ + length, wake_ups_.task_begins()};
        wake(wake_ups_.for_tasks(queued_));
    }

    WakeUps wake_ups_;
    std::vector<Thread> threads_;
    long wake_up_;
    long now_ = 0;
    std::size_t queued_ = 0;
    std::size_t woken_ = 0;
    bool disturbed_ = false;
};

TEST(WakeUps, the_last_of_a_burst_begins_after_as_many_wake_ups_as_the_logarithm_of_the_threads) {
    const auto depth = [](std::size_t num_threads) {
        Threads threads(num_threads, 1);
        threads.push(static_cast<int>(num_threads));
        const long steps = threads.steps_until_running(num_threads);
        EXPECT_EQ(threads.woken(), num_threads);
        return steps;
    };
    EXPECT_EQ(depth(1), 1);
    EXPECT_EQ(depth(2), 1);
    EXPECT_EQ(depth(6), 2);
    EXPECT_EQ(depth(16), 4);
    EXPECT_EQ(depth(32), 5);
    EXPECT_EQ(depth(128), 7);
}

TEST(WakeUps, no_more_threads_are_woken_than_there_are_tasks) {
    for (std::size_t tasks = 1; tasks < 16; ++tasks) {
        Threads threads(16, 1);
        threads.push(static_cast<int>(tasks));
        threads.steps_until_running(tasks);
        threads.step();
        EXPECT_EQ(threads.woken(), tasks);
    }
}

TEST(WakeUps, tasks_that_take_as_long_as_a_wake_up_have_all_threads_soon) {
    Threads threads(16, 10);
    threads.length = 20;
    for (int burst = 0; burst < 3; ++burst) {
        threads.push(64);
        EXPECT_LE(threads.steps_until_running(16), 6 * 10) << burst;
        threads.run_empty();
    }
}

TEST(WakeUps, a_stream_of_tiny_tasks_has_few_threads_however_many_there_are) {
    for (const std::size_t num_threads : {16u, 64u}) {
        Threads threads(num_threads, 30);
        threads.length = 1;
        // One thread is enough while there is a task in every step, but many wait when it comes.
        const auto most_awake = [&threads] {
            std::size_t most = 0;
            for (int i = 0; i < 300; ++i) {
                threads.push();
                threads.step();
                most = std::max(most, threads.running() + threads.on_their_way());
            }
            threads.run_empty();
            return most;
        };
        EXPECT_LE(most_awake(), 6u) << "the first two and whom they wake: nobody knows yet how long the tasks are";
        for (int i = 0; i < 100; ++i) {
            const std::size_t before = threads.woken();
            EXPECT_LE(most_awake(), 3u) << num_threads;
            EXPECT_LE(threads.woken() - before, 300u / 30) << "one in the time of a wake-up";
        }
    }
}

TEST(WakeUps, once_they_are_known_to_be_tiny_a_burst_of_tasks_wakes_two_threads) {
    Threads threads(16, 30);
    threads.length = 1;
    threads.push(100);
    threads.run_empty();
    for (int burst = 0; burst < 100; ++burst) {
        const std::size_t before = threads.woken();
        threads.push(20);
        threads.run_empty();
        EXPECT_LE(threads.woken() - before, 2u) << burst;
    }
}

TEST(WakeUps, long_tasks_after_tiny_ones_need_two_wake_ups_more) {
    Threads threads(16, 30);
    threads.length = 1;
    for (int burst = 0; burst < 10; ++burst) {
        threads.push(50);
        threads.run_empty();
    }
    threads.length = for_ever;
    threads.push(16);
    EXPECT_EQ(threads.steps_until_running(16), (4 + 2) * 30);
}

TEST(WakeUps, one_long_task_among_tiny_ones_does_not_make_them_long) {
    Threads threads(16, 30);
    threads.length = 1;
    threads.push(50);
    threads.run_empty();
    for (int burst = 0; burst < 100; ++burst) {
        const std::size_t before = threads.woken();
        threads.length = 100;
        threads.push(1);
        threads.steps_until_running(1);
        threads.length = 1;
        threads.push(20);  // the next thread comes while the long task runs
        threads.run_empty();
        EXPECT_LE(threads.woken() - before, 3u) << burst;
    }
}

TEST(WakeUps, more_tiny_tasks_than_the_running_threads_can_end_get_more_threads) {
    Threads threads(16, 30);
    threads.length = 1;
    for (int i = 0; i < 3000; ++i) {
        threads.push(8);
        threads.step();
    }
    EXPECT_GE(threads.running(), 8u);
    EXPECT_LE(threads.queued(), 30u * 8);
}

TEST(WakeUps, while_a_task_waits_and_a_thread_sleeps_a_thread_is_on_its_way) {
    std::minstd_rand random(20240917);
    for (int round = 0; round < 300; ++round) {
        const std::size_t num_threads = 1 + random() % 20;
        Threads threads(num_threads, static_cast<long>(1 + random() % 5));
        for (int i = 0; i < 300; ++i) {
            threads.length = random() % 8 == 0 ? for_ever : static_cast<long>(1 + random() % 5);
            switch (random() % 6) {
            case 0: threads.push(static_cast<int>(random() % 10)); break;
            case 1: threads.disturb(random() % num_threads); break;
            case 2: threads.end_task_of(random() % num_threads); break;
            default: threads.step();
            }
            if (threads.queued() > 0 && threads.asleep() > 0) {
                ASSERT_GT(threads.on_their_way(), 0u) << round << " " << i;
            }
        }
    }
}

}  // namespace
