// Threads that run tasks of one queue: kmm/engine/workers.hpp with threads of the test's, and what host pool and
// launchers (kmm/engine/host_pool.hpp) do with a task and tell.
#include "kmm/engine/workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_mailbox.hpp"
#include "kmm/engine/host_pool.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::engine::HostPool;
using kmm::engine::Lanes;
using kmm::engine::LauncherThreads;
using kmm::engine::Message;
using kmm::engine::Workers;
using kmm::engine::testing::FakeMailbox;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::Task;

/// Threads wait until it is opened; for a minute at most, so that a test fails instead of hanging.
class Gate {
  public:
    void open() {
        {
            const std::lock_guard guard(mutex_);
            open_ = true;
        }
        opened_.notify_all();
    }
    bool wait() {
        std::unique_lock lock(mutex_);
        return opened_.wait_for(lock, std::chrono::minutes(1), [&] { return open_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = false;
};

class TestWorkers final : public Workers {
  public:
    using Function = std::function<void(TestWorkers&, Task&)>;
    TestWorkers(std::size_t num_threads, Function function, std::chrono::milliseconds patience = {})
        : function_(std::move(function)) {
        start(num_threads, patience);
    }
    ~TestWorkers() { end_threads(); }
    void push(Task& task) { enqueue(task, Caller::goes_on); }
    /// Threads that ran and have no more to do.
    std::size_t threads_ended() const noexcept { return ended_.load(); }

  private:
    void run() override {
        while (Task* const task = take()) {
            const UserCode user_code(this);
            function_(*this, *task);
        }
        ++ended_;
    }
    const Function function_;
    std::atomic<std::size_t> ended_{0};
};

/// Numbered from 1.
struct Tasks {
    std::deque<Task> records;
    explicit Tasks(std::size_t count) : records(count) {
        for (std::size_t i = 0; i < count; ++i) records[i].number = i + 1;
    }
    void push_to(auto& threads) {
        for (Task& t : records) threads.push(t);
    }
};

TEST(Workers, whose_queue_is_dropped_run_nothing_more_and_what_runs_is_waited_for) {
    Gate begun, goes_on;
    std::atomic<int> num_run{0};
    std::atomic<bool> none_runs{false};
    TestWorkers threads(1, [&](TestWorkers&, Task&) {
        begun.open();
        EXPECT_TRUE(goes_on.wait());
        EXPECT_FALSE(none_runs.load());
        ++num_run;
    });
    Tasks tasks(3);
    threads.push(tasks.records[0]);
    threads.push(tasks.records[1]);
    ASSERT_TRUE(begun.wait());
    threads.drop_queue();
    threads.push(tasks.records[2]);
    std::thread waiting([&] {
        threads.wait_until_none_runs();
        none_runs.store(true);
    });
    goes_on.open();
    waiting.join();
    EXPECT_EQ(num_run.load(), 1);
}

TEST(Workers, one_thread_runs_tasks_in_the_order_of_queueing) {
    Tasks tasks(500);
    std::vector<kmm::graph::TaskNumber> ran;
    {
        TestWorkers workers(1, [&](TestWorkers&, const Task& t) { ran.push_back(t.number); });
        tasks.push_to(workers);
        EXPECT_EQ(workers.size(), 1u);
    }
    ASSERT_EQ(ran.size(), 500u) << "what is queued at the end is run";
    for (std::size_t i = 0; i < ran.size(); ++i) EXPECT_EQ(ran[i], i + 1);
}

TEST(Workers, what_a_task_queues_while_the_threads_end_is_still_run) {
    Tasks tasks(11);
    std::atomic<int> ran{0};
    Gate begun;
    bool other_ended = false;
    {
        TestWorkers workers(2, [&](TestWorkers& self, const Task& t) {
            ++ran;
            if (t.number != 1) return;
            begun.open();
            // The other thread finds an empty queue and ends, so that the end has certainly begun.
            const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
            while (self.threads_ended() == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
            other_ended = self.threads_ended() == 1;
            for (std::size_t i = 1; i < tasks.records.size(); ++i) self.push(tasks.records[i]);
        });
        workers.push(tasks.records[0]);
        ASSERT_TRUE(begun.wait());
    }
    EXPECT_TRUE(other_ended);
    EXPECT_EQ(ran.load(), 11);
}

TEST(Workers, a_task_that_waits_gives_its_place_to_a_thread_that_ends_afterwards) {
    Tasks tasks(20);
    std::vector<Gate> gates(10);
    std::atomic<int> gave_up{0};
    TestWorkers workers(1, [&](TestWorkers&, const Task& t) {
        Gate& gate = gates[(t.number - 1) / 2];
        if (t.number % 2 == 0) return gate.open();
        const Workers::Wait wait;
        if (wait.refused() || !gate.wait()) ++gave_up;
    });
    EXPECT_EQ(Workers::of_this_thread(), nullptr);
    const Workers::Wait nobody_minds;
    EXPECT_FALSE(nobody_minds.refused()) << "the program's own threads have no place to give";
    for (std::size_t pair = 0; pair < gates.size(); ++pair) {
        workers.push(tasks.records[2 * pair]);
        workers.push(tasks.records[2 * pair + 1]);
        ASSERT_TRUE(gates[pair].wait()) << pair;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (workers.threads_ended() + 1 < workers.threads_started() && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
    EXPECT_EQ(workers.threads_ended() + 1, workers.threads_started()) << "as many are left as there were";
    EXPECT_GE(workers.threads_started(), 2u);
    EXPECT_LE(workers.threads_started(), 11u);
    EXPECT_EQ(gave_up.load(), 0);
}

TEST(Workers, so_many_may_wait_and_the_next_is_refused_until_one_goes_on) {
    constexpr std::size_t most = Workers::most_waiting;
    Tasks tasks(most + 3);
    Gate all_there;
    Gate one_was_refused;
    std::atomic<std::size_t> refused{0};
    std::atomic<std::size_t> waited{0};
    {
        TestWorkers workers(1, [&](TestWorkers&, const Task& t) {
            const Workers::Wait wait;
            refused += wait.refused();
            if (t.number == most + 1) return one_was_refused.open();
            if (t.number <= most) {
                EXPECT_TRUE(one_was_refused.wait());
            }
            if (++waited == most) all_there.open();
        });
        for (std::size_t i = 0; i <= most; ++i) workers.push(tasks.records[i]);
        ASSERT_TRUE(all_there.wait());
        EXPECT_EQ(workers.threads_started(), most + 1);
        // Those that were refused no more have gone on, or are about to.
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (workers.threads_ended() != most && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        workers.push(tasks.records[most + 1]);
        workers.push(tasks.records[most + 2]);
    }
    EXPECT_EQ(refused.load(), 1u);
    EXPECT_EQ(waited.load(), most + 2);
}

TEST(Workers, more_threads_come_where_all_wait_for_what_the_library_does_not_see) {
    constexpr std::size_t deep = 6;
    Tasks tasks(deep);
    std::vector<Gate> gates(deep);
    std::atomic<int> gave_up{0};
    {
        TestWorkers workers(
            1,
            [&](TestWorkers&, const Task& t) {
                gates[t.number - 1].open();
                if (t.number < deep && !gates[t.number].wait()) ++gave_up;
            },
            std::chrono::milliseconds(1));
        tasks.push_to(workers);
        EXPECT_TRUE(gates[deep - 1].wait());
    }
    EXPECT_EQ(gave_up.load(), 0);
}

// ---- the host pool

/// A task with a function that is destroyed when it has run.
struct HostTask {
    Task record;
    bool destroyed = false;
    std::function<void()> function;

    explicit HostTask(std::function<void()> f = [] {}) : function(std::move(f)) {
        record.kind = kmm::graph::TaskKind::host;
        record.function.payload = this;
        record.function.body.run = [](void* self, kmm::detail::TaskContext&) {
            static_cast<HostTask*>(self)->function();
        };
        record.function.body.destroy = [](void* self) noexcept { static_cast<HostTask*>(self)->destroyed = true; };
    }
};

std::string text_of(const std::exception_ptr& error) {
    try {
        if (error != nullptr) std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

TEST(HostPool, runs_functions_in_order_and_tells_of_each_when_what_it_captured_is_gone) {
    FakeMailbox mailbox;
    int runtime = 0;
    std::deque<HostTask> tasks;
    std::vector<std::size_t> ran;
    bool in_task = true;
    for (std::size_t i = 0; i < 100; ++i)
        tasks.emplace_back([&, i] {
            ran.push_back(i);
            in_task &= kmm::engine::TaskScope::current() == &runtime && Workers::of_this_thread() != nullptr;
            if (i % 10 == 3) throw std::runtime_error("task " + std::to_string(i));
        });
    std::atomic<std::size_t> helps{0};
    mailbox.on_help = [&] { ++helps; };
    {
        HostPool pool(1, &runtime, false, mailbox, kmm::trace::nobody_listens, false, false);
        std::vector<Task*> records;
        for (HostTask& t : tasks) records.push_back(&t.record);
        const std::span<Task* const> all(records);
        pool.push(all.first(1));
        pool.push(all.subspan(1));
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            const Message m = mailbox.next();
            EXPECT_EQ(m.what, Message::What::host_done);
            ASSERT_EQ(m.task, &tasks[i].record);
            EXPECT_EQ(text_of(m.error), i % 10 == 3 ? "task " + std::to_string(i) : "");
            EXPECT_TRUE(tasks[i].destroyed);
            EXPECT_FALSE(tasks[i].record.in_user_code.load());
        }
    }
    ASSERT_EQ(ran.size(), 100u);
    for (std::size_t i = 0; i < ran.size(); ++i) EXPECT_EQ(ran[i], i);
    EXPECT_TRUE(in_task);
    EXPECT_EQ(helps.load(), 100u) << "who has told of something helps the scheduler";
    EXPECT_TRUE(mailbox.empty());
}

TEST(HostPool, threads_leave_turns_to_the_scheduler_while_tasks_are_queued) {
    constexpr std::size_t num_tasks = 10;
    FakeMailbox mailbox;
    int runtime = 0;
    std::deque<HostTask> tasks;
    std::vector<std::string> happened;
    for (std::size_t i = 0; i < num_tasks; ++i) tasks.emplace_back([&] { happened.emplace_back("ran"); });
    mailbox.on_leave_turn = [&] { happened.emplace_back("left"); };
    mailbox.on_help = [&] { happened.emplace_back("helped"); };
    {
        HostPool pool(1, &runtime, false, mailbox, kmm::trace::nobody_listens, false, true);
        std::vector<Task*> records;
        for (HostTask& t : tasks) records.push_back(&t.record);
        pool.push(records);
    }
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < num_tasks; ++i) {
        if (i != 0) expected.emplace_back("left");
        expected.emplace_back("ran");
    }
    expected.emplace_back("helped");
    EXPECT_EQ(happened, expected) << "of what the last one has told, the thread makes something itself";
}

TEST(HostPool, a_thread_runs_what_it_was_handed_before_it_helps_again) {
    FakeMailbox mailbox;
    int runtime = 0;
    std::vector<std::string> happened;
    HostTask first([&] { happened.emplace_back("first"); });
    HostTask second([&] { happened.emplace_back("second"); });
    HostPool* pool_to_push = nullptr;
    mailbox.on_leave_turn = [&] { happened.emplace_back("left"); };
    mailbox.on_help_once = [&] {
        happened.emplace_back("helped");
        const bool before = happened.size() == 2;
        if (happened.size() == 3) {  // the second time
            Task* const record = &second.record;
            pool_to_push->push({&record, 1});
        }
        return before || happened.size() == 3;  // somebody has posted meanwhile
    };
    {
        HostPool pool(1, &runtime, false, mailbox, kmm::trace::nobody_listens, false, false);
        pool_to_push = &pool;
        Task* const record = &first.record;
        pool.push({&record, 1});
    }
    EXPECT_EQ(happened, (std::vector<std::string>{"first", "helped", "helped", "left", "second", "helped"}));
}

TEST(HostPool, what_is_handed_out_runs_behind_what_was_queued_before) {
    FakeMailbox mailbox;
    int runtime = 0;
    std::vector<std::string> happened;
    HostTask first([&] { happened.emplace_back("first"); }), queued([&] { happened.emplace_back("queued"); });
    HostTask handed_out([&] { happened.emplace_back("handed out"); });
    HostPool* pool_to_push = nullptr;
    mailbox.on_help_once = [&] {
        Task* const record = &handed_out.record;
        if (happened.size() == 1) pool_to_push->push({&record, 1});
        return false;
    };
    {
        HostPool pool(1, &runtime, false, mailbox, kmm::trace::nobody_listens, false, false);
        pool_to_push = &pool;
        Task* const records[] = {&first.record, &queued.record};
        pool.push(records);
    }
    EXPECT_EQ(happened, (std::vector<std::string>{"first", "queued", "handed out"}));
}

TEST(HostPool, in_a_turn_that_hands_out_more_others_run_what_was_kept) {
    FakeMailbox mailbox;
    int runtime = 0;
    Gate all_ran;
    std::atomic<int> left{2};
    const auto runs = [&] {
        if (--left == 0) all_ran.open();
    };
    HostTask first, second(runs), third(runs);
    std::atomic<bool> is_first_turn{true};
    bool went_on = true;
    HostPool* pool_to_push = nullptr;
    mailbox.on_help_once = [&] {
        if (!is_first_turn.exchange(false)) return false;
        for (HostTask* const t : {&second, &third}) {
            Task* const record = &t->record;
            pool_to_push->push({&record, 1});
        }
        went_on = all_ran.wait();  // the turn is as long as that
        return false;
    };
    {
        HostPool pool(2, &runtime, false, mailbox, kmm::trace::nobody_listens, false, false);
        pool_to_push = &pool;
        Task* const record = &first.record;
        pool.push({&record, 1});
        for (int i = 0; i < 3; ++i) (void)mailbox.next();
    }
    EXPECT_TRUE(went_on);
}

TEST(HostPool, of_a_task_that_was_cancelled_only_what_it_captured_is_destroyed) {
    FakeMailbox mailbox;
    int runtime = 0;
    bool ran = false;
    HostTask task([&] { ran = true; });
    task.record.state = kmm::graph::TaskState::settled;
    {
        HostPool pool(1, &runtime, false, mailbox, kmm::trace::nobody_listens, false, false);
        Task* const record = &task.record;
        pool.push({&record, 1});
    }
    EXPECT_FALSE(ran);
    EXPECT_TRUE(task.destroyed);
    EXPECT_TRUE(mailbox.empty());
    EXPECT_EQ(mailbox.discarded(), std::vector<Task*>{&task.record});
}

// ---- launchers

struct LauncherFixture : LauncherThreads::Runner {
    kmm::driver::testing::ScriptedDriver driver;
    Lanes lanes{driver, {0}, 3};  // the first is somebody else's
    kmm::engine::FailedTasks failed;
    FakeMailbox mailbox;
    int runtime = 0;
    std::function<void(Task&, kmm::driver::StreamHandle)> function = [](Task&, kmm::driver::StreamHandle) {};
    std::optional<LauncherThreads> threads;

    void start(std::vector<LaneId> own, bool device_views = false) {
        threads.emplace(0, own, lanes, failed, &runtime, device_views, *this, mailbox, kmm::trace::nobody_listens,
                        false);
    }
    void run_device_function(Task& task, std::uint32_t, kmm::driver::StreamHandle stream) override {
        function(task, stream);
    }
};

TEST(LauncherThreads, each_function_has_the_next_position_of_its_lane_and_is_told_in_this_order) {
    LauncherFixture f;
    Tasks tasks(40);
    f.function = [](const Task& t, kmm::driver::StreamHandle) {
        if (t.number == 5) throw std::runtime_error("the fifth");
    };
    f.start({LaneId{1}, LaneId{2}});
    tasks.push_to(*f.threads);
    Position last[3] = {0, 0, 0};
    for (std::size_t i = 0; i < tasks.records.size(); ++i) {
        const Message m = f.mailbox.next();
        ASSERT_EQ(m.what, Message::What::launched);
        ASSERT_TRUE(m.lane == LaneId{1} || m.lane == LaneId{2});
        Position& position = last[kmm::graph::index_of(m.lane)];
        EXPECT_EQ(m.position, ++position);
        EXPECT_GE(f.lanes.enqueued(m.lane), m.position);
        EXPECT_FALSE(m.finished) << "on a GPU only the lane's event says so";
        EXPECT_EQ(text_of(m.error), m.task->number == 5 ? "the fifth" : "");
    }
    EXPECT_EQ(last[1] + last[2], 40u);
    EXPECT_TRUE(f.failed.contains(5));
    EXPECT_FALSE(f.failed.contains(6));
}

TEST(LauncherThreads, a_function_comes_after_its_inputs_and_is_not_called_behind_a_failure) {
    LauncherFixture f;
    Tasks tasks(2);
    Task& first = tasks.records[0];
    Task& second = tasks.records[1];
    kmm::driver::Status status;
    const kmm::driver::StreamHandle input = f.lanes.stream(LaneId{0}, &status);
    f.driver.hold(input);
    std::string ran;
    f.function = [&](Task&, kmm::driver::StreamHandle stream) {
        (void)f.driver.host_callback(stream, [](void* s) { *static_cast<std::string*>(s) += 'f'; }, &ran);
    };
    (void)f.driver.host_callback(input, [](void* s) { *static_cast<std::string*>(s) += 'i'; }, &ran);
    f.lanes.enqueued(LaneId{0}, 1);
    first.fences.add({LaneId{0}, 1});
    second.cold_part(kmm::graph::UseOfReserve::no).open_data_predecessors = {77};
    f.failed.add(77);
    f.start({LaneId{1}}, true);
    tasks.push_to(*f.threads);
    EXPECT_FALSE(f.mailbox.next().finished) << "its work waits on the device";
    EXPECT_EQ(f.mailbox.next().error, nullptr) << "the cause is told by the task that failed";
    EXPECT_EQ(ran, "");
    EXPECT_TRUE(f.failed.contains(second.number));
    f.driver.release_all();
    EXPECT_EQ(ran, "if");
    f.function = [](Task&, kmm::driver::StreamHandle) {};
    f.threads->push(first);
    const Message last = f.mailbox.next();
    EXPECT_TRUE(last.finished) << "nothing is left on the stream";
    EXPECT_TRUE(f.lanes.passed({LaneId{1}, last.position}));
}

}  // namespace
