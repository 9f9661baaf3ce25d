// The scheduler's turns: kmm/runtime/turns.hpp over an engine that notes what it is handed. Most tests begin no thread
// of the scheduler: turns are taken where the test says so.
#include "kmm/runtime/turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "asleep.hpp"
#include "fake_engine.hpp"
#include "kmm/core/config.hpp"
#include "kmm/error.hpp"

namespace kmm::runtime_test {
namespace {

using detail::SchedulerTurns;
using engine::Message;
using What = Message::What;

// A test that waits in vain fails after that instead of hanging: before the scheduler's thread looks by itself, which
// sleeps for at most 30 seconds.
constexpr std::chrono::seconds in_vain{20};
constexpr std::uintptr_t gpu_memory = std::uintptr_t{2} << 40;
constexpr std::uintptr_t host_memory = std::uintptr_t{1} << 40;

/// Counts turns. Under the baton, but of `count`.
class CountedTurns final : public trace::Sink {
  public:
    std::size_t count() const noexcept { return count_.load(); }
    void bound(const trace::Array&) noexcept override {}
    void named(trace::Number, const std::string&) noexcept override {}
    void submitted(trace::Task&&) noexcept override {}
    void note(const trace::Event& event, const graph::FenceSet*) noexcept override {
        if (event.what == trace::What::turn) ++count_;
    }
    void lost(std::uint64_t) noexcept override {}

  private:
    std::atomic<std::size_t> count_{0};
};

class TurnsTest : public ::testing::Test {
  protected:
    TurnsTest() { ground.emitter.listen(&counted); }
    ~TurnsTest() override {
        if (turns.has_started()) turns.end();
    }

    /// Publishes tasks as one submit does, and takes no turn. Returns their numbers.
    std::vector<TaskNumber> publish(std::size_t count, TaskKind kind = TaskKind::host, MemoryIndex memory = host) {
        const locks::Guard guard(ground.books.order());
        std::vector<TaskNumber> numbers;
        Task* first = nullptr;
        Task* last = nullptr;
        for (std::size_t i = 0; i < count; ++i) {
            Task& t = ground.make_numbered(kind, memory);
            numbers.push_back(t.number);
            (last != nullptr ? last->next_published : first) = &t;
            last = &t;
        }
        publish_numbered(*first, count);
        return numbers;
    }
    /// Under the order lock.
    void publish_numbered(Task& first, std::size_t count = 1) {
        ground.books.unfinished().add(count);
        turns.publish(first);
    }
    TaskNumber publish_one(TaskKind kind, MemoryIndex memory, std::initializer_list<TaskNumber> after = {}) {
        const locks::Guard guard(ground.books.order());
        Task& t = ground.make_numbered(kind, memory, after);
        const TaskNumber number = t.number;
        publish_numbered(t);
        return number;
    }
    /// A kernel that makes the first chunk of the array.
    TaskNumber publish_writer(memory::Array& array) {
        const locks::Guard guard(ground.books.order());
        Task& t = ground.make_numbered(TaskKind::kernel, gpu);
        Ground::add_use(t, array.chunks[0]);
        const TaskNumber number = t.number;
        publish_numbered(t);
        return number;
    }
    void post(What what) {
        Message m;
        m.what = what;
        turns.post(std::move(m));
    }
    void post_advance(LaneId lane, Position position) {
        Message m;
        m.what = What::advance;
        m.lane = lane;
        m.position = position;
        turns.post(std::move(m));
    }
    void post_memory(What what, MemoryIndex memory, std::uintptr_t address, std::size_t bytes) {
        Message m;
        m.what = what;
        m.to = memory;
        m.address = address;
        m.bytes = bytes;
        turns.post(std::move(m));
    }
    void post_host_done(Task& task) {
        Message m;
        m.what = What::host_done;
        m.task = &task;
        turns.post(std::move(m));
    }
    /// Every host task ends as soon as it is handed over.
    void end_host_tasks_at_once() {
        ground.engine.on_push_to_host = [this](std::span<Task* const> tasks) {
            for (Task* t : tasks) post_host_done(*t);
        };
    }
    /// Begins the scheduler's thread. When this returns, it has handed over a task, which does not end, and sleeps.
    void start_until_asleep() {
        test::Sleepyhead thread;
        ground.engine.on_push_to_host = [&](auto) { thread.here(); };
        turns.start();
        (void)publish(1);
        turns.leave_turn();
        thread.wait_until_asleep();
        turns.with_baton([&](auto&, auto&) {
            ground.engine.on_push_to_host = [this](auto) { handed_over.set_value(std::this_thread::get_id()); };
        });
    }
    std::uint64_t unfinished() const { return ground.books.unfinished().count(); }
    /// Whether a turn can be taken on this thread now.
    bool baton_is_free() {
        const std::size_t before = counted.count();
        post(What::look);
        turns.help();
        return counted.count() != before;
    }
    /// Whether another thread gets the baton; then `waiters` has one that still waits.
    bool others_get_baton() {
        auto taken_back = std::async(std::launch::async, [this] { return turns.take_back(gpu, nullptr, 0, nullptr); });
        const bool got = taken_back.wait_for(in_vain) == std::future_status::ready;
        waiters.push_back(std::move(taken_back));
        return got;
    }

    Ground ground{2};
    CountedTurns counted;
    // Set by the scheduler's thread, which ends before they do.
    std::promise<std::thread::id> handed_over;
    std::promise<void> stopped;
    SchedulerTurns turns{ground.platform,       ground.books,  ground.words,
                         ground.shortage_words, ground.engine, ground.emitter};
    std::vector<std::future<bool>> waiters;
};

// ------------------------------------------------------------------------------------------- from a submit to a lane

TEST_F(TurnsTest, published_tasks_reach_their_lanes_in_order) {
    const TaskNumber first = publish_one(TaskKind::kernel, gpu);
    const TaskNumber second = publish_one(TaskKind::kernel, gpu, {first});
    const TaskNumber elsewhere = publish_one(TaskKind::kernel, gpu_1);
    const TaskNumber third = publish_one(TaskKind::kernel, gpu, {second});
    const TaskNumber last = publish_one(TaskKind::host, host, {third});
    EXPECT_TRUE(ground.engine.batches.empty());
    turns.schedule_published(true);
    EXPECT_EQ(ground.engine.all_for(0), (std::vector<TaskNumber>{first, second, third}));
    EXPECT_EQ(ground.engine.all_for(1), (std::vector<TaskNumber>{elsewhere}));
    ASSERT_EQ(ground.engine.batches.size(), 2u) << "one list for each device";
    const auto& chain = ground.engine.batches[0].instructions;
    for (std::size_t i = 0; i < chain.size(); ++i) {
        EXPECT_EQ(chain[i].lane, chain[0].lane);
        EXPECT_EQ(chain[i].position, i + 1);
    }
    EXPECT_TRUE(ground.engine.to_host.empty()) << "it runs when the device is done";
    post_advance(chain[0].lane, 2);
    turns.help();
    EXPECT_TRUE(ground.engine.to_host.empty());
    post_advance(chain[0].lane, 3);
    turns.help();
    EXPECT_EQ(ground.engine.all_to_host(), (std::vector<TaskNumber>{last}));
    EXPECT_EQ(ground.engine.times_advanced, 2u) << "the memory service is told";
    EXPECT_EQ(unfinished(), 2u) << "one is on the other device, one on the host";
}

TEST_F(TurnsTest, a_submit_takes_no_turn_where_it_may_not_and_one_at_most_where_it_may) {
    (void)publish(1);
    turns.schedule_published(false);
    EXPECT_EQ(counted.count(), 0u);
    end_host_tasks_at_once();
    turns.schedule_published(true);
    EXPECT_EQ(counted.count(), 1u);
    EXPECT_EQ(unfinished(), 1u) << "its end came during that turn";
    turns.help();
    EXPECT_EQ(unfinished(), 0u);
}

TEST_F(TurnsTest, instructions_of_a_long_submit_go_out_while_it_is_being_scheduled) {
    const auto numbers = publish(40, TaskKind::kernel, gpu);
    turns.help();
    EXPECT_EQ(counted.count(), 1u);
    ASSERT_EQ(ground.engine.batches.size(), 2u);
    EXPECT_EQ(ground.engine.batches[0].instructions.size(), 32u);
    EXPECT_EQ(ground.engine.all_for(0), numbers);
}

TEST_F(TurnsTest, help_ends_when_no_message_is_left_and_help_once_after_one_turn) {
    end_host_tasks_at_once();
    (void)publish(1);
    EXPECT_TRUE(turns.help_once()) << "a message came meanwhile";
    EXPECT_EQ(counted.count(), 1u);
    EXPECT_FALSE(turns.help_once()) << "it was the last";
    EXPECT_EQ(counted.count(), 2u);
    EXPECT_FALSE(turns.help_once());
    EXPECT_EQ(counted.count(), 2u) << "without a message there is no turn";
    (void)publish(1);
    turns.help();
    EXPECT_EQ(counted.count(), 4u);
    EXPECT_EQ(unfinished(), 0u);
}

// --------------------------------------------------------------------------------------------------------- the baton

TEST_F(TurnsTest, threads_that_find_the_baton_taken_leave_their_messages_to_its_holder) {
    constexpr std::size_t num_threads = 4, each = 25;
    turns.with_baton([&](auto&, auto&) {
        std::vector<std::future<void>> threads;
        for (std::size_t t = 0; t < num_threads; ++t)
            threads.push_back(std::async(std::launch::async, [&] {
                for (std::size_t i = 0; i < each; ++i) {
                    (void)publish(1);
                    turns.schedule_published(true);
                }
                turns.help();
                EXPECT_FALSE(turns.help_once());
            }));
        for (auto& t : threads) t.get();
        EXPECT_TRUE(ground.engine.to_host.empty());
    });
    EXPECT_EQ(counted.count(), 0u);
    end_host_tasks_at_once();
    turns.help();
    std::vector<TaskNumber> all = ground.engine.all_to_host();
    EXPECT_TRUE(std::ranges::is_sorted(all)) << "in the order in which they were published";
    EXPECT_EQ(all.size(), num_threads * each);
    EXPECT_EQ(unfinished(), 0u);
}

TEST_F(TurnsTest, a_message_that_comes_while_another_thread_has_the_baton_is_read_by_that_thread) {
    std::vector<TaskNumber> late;
    ground.engine.on_push_to_host = [&](auto) {
        if (!late.empty()) return;
        std::async(std::launch::async, [&] {
            late = publish(1);
            turns.help();
        }).get();
        EXPECT_EQ(ground.engine.to_host.size(), 1u) << "the other thread took no turn";
    };
    (void)publish(1);
    turns.help();
    EXPECT_EQ(ground.engine.to_host.size(), 2u);
    EXPECT_EQ(ground.engine.to_host.back(), late);
}

TEST_F(TurnsTest, every_message_of_many_threads_is_read_exactly_once) {
    constexpr std::size_t num_threads = 4, each = 200;
    end_host_tasks_at_once();
    std::vector<std::future<void>> threads;
    for (std::size_t t = 0; t < num_threads; ++t)
        threads.push_back(std::async(std::launch::async, [&, t] {
            for (std::size_t i = 0; i < each; ++i) {
                (void)publish(1 + i % 3);
                if (t % 2 == 0)
                    turns.help();
                else
                    turns.schedule_published(true);
            }
        }));
    for (auto& t : threads) t.get();
    turns.help();
    std::vector<TaskNumber> all = ground.engine.all_to_host();
    EXPECT_EQ(all.size(), ground.books.table().last());
    EXPECT_TRUE(std::ranges::is_sorted(all));
    EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << "none came twice";
    EXPECT_EQ(unfinished(), 0u);
}

TEST_F(TurnsTest, a_question_with_everything_read_sees_what_was_published_before_it) {
    (void)publish(3);
    const auto count = [](const auto& scheduler, const auto&) { return scheduler.unsettled(); };
    EXPECT_EQ(turns.with_baton(count), 0u);
    EXPECT_EQ(turns.with_everything_read(count), 3u);
    std::async(std::launch::async, [&] { (void)publish(2); }).get();
    EXPECT_EQ(turns.with_everything_read(count), 5u);
    EXPECT_EQ(counted.count(), 2u);
}

TEST_F(TurnsTest, words_of_a_shortage_are_made_once_the_baton_is_free) {
    ground.engine.on_wish = [this](const FakeEngine::Wish& wish) {
        post_memory(wish.what == FakeEngine::Wish::What::await ? What::awaited : What::grown, wish.memory, 0, 0);
    };
    int times_asked = 0;
    bool was_free = true;
    ground.asked_driver->on_memory_info = [&] {
        ++times_asked;
        was_free = was_free && baton_is_free();
    };
    struct NoLog {
        NoLog() {
            set_log_handler([](int, const char*, void*) {}, nullptr);
        }
        ~NoLog() {
            log::flush();
            set_log_handler(nullptr, nullptr);
        }
    } const no_log;
    const TaskNumber number = publish_writer(ground.make_array());
    turns.help();
    EXPECT_TRUE(ground.books.is_settled(number));
    ASSERT_NE(ground.books.failure_of(number), nullptr);
    EXPECT_EQ(times_asked, 1);
    EXPECT_TRUE(was_free);
    EXPECT_TRUE(ground.engine.batches.empty());
}

// ------------------------------------------------------------------------------------------ memory, asked from outside

TEST_F(TurnsTest, memory_that_was_given_a_moment_ago_is_taken_back_once) {
    post_memory(What::given_again, gpu, gpu_memory, mib);
    graph::FenceSet users;
    const auto* const address = reinterpret_cast<const void*>(gpu_memory);
    EXPECT_TRUE(turns.take_back(gpu, address, mib, &users));
    EXPECT_FALSE(turns.take_back(gpu, address, mib, &users));
}

TEST_F(TurnsTest, what_must_be_saved_of_reclaimed_memory_is_on_its_way_when_it_is_told) {
    post_memory(What::given_again, gpu, gpu_memory, mib);
    post_memory(What::given_again, host, host_memory, mib);
    const TaskNumber writer = publish_writer(ground.make_array());
    turns.help();
    ASSERT_EQ(ground.engine.all_for(0), (std::vector<TaskNumber>{writer}));
    const FakeEngine::Given given = ground.engine.batches[0].instructions[0];
    post_advance(given.lane, given.position);
    const memory::Reclaimed reclaimed = turns.reclaim(gpu, {{gpu_memory, mib}}, mib, true);
    ASSERT_EQ(reclaimed.taken.size(), 1u) << "the kernel's end was read before";
    ASSERT_EQ(ground.engine.batches.size(), 2u);
    EXPECT_EQ(ground.engine.batches[1].instructions[0].op, Instruction::Op::transfer);
}

TEST_F(TurnsTest, nothing_is_reclaimed_once_the_threads_of_devices_are_going) {
    post_memory(What::given_again, gpu, gpu_memory, mib);
    post_memory(What::given_again, gpu, gpu_memory + 2 * mib, mib);
    EXPECT_EQ(turns.reclaim(gpu, {{gpu_memory, mib}}, mib, true).taken.size(), 1u);
    turns.hand_over_no_more();
    EXPECT_TRUE(turns.reclaim(gpu, {{gpu_memory + 2 * mib, mib}}, mib, true).taken.empty());
}

TEST_F(TurnsTest, an_array_is_deleted_when_its_release_is_read_and_no_task_uses_it) {
    memory::Array& array = *Ground::make_free_array().release();
    const std::weak_ptr<const plan::Layout> layout = array.layout;
    post_memory(What::given_again, gpu, gpu_memory, mib);
    (void)publish_writer(array);
    turns.release(array);
    turns.help();
    EXPECT_FALSE(layout.expired()) << "a kernel writes it";
    const FakeEngine::Given given = ground.engine.batches[0].instructions[0];
    post_advance(given.lane, given.position);
    EXPECT_FALSE(layout.expired());
    turns.help();
    EXPECT_TRUE(layout.expired());
}

TEST_F(TurnsTest, tasks_that_failed_on_a_device_are_forgotten_when_all_have_settled) {
    const TaskNumber first = publish_one(TaskKind::kernel, gpu);
    turns.help();
    ground.engine.failed_tasks().add(first);
    post(What::look);
    turns.help();
    EXPECT_TRUE(ground.engine.failed_tasks().any());
    const FakeEngine::Given given = ground.engine.batches[0].instructions[0];
    post_advance(given.lane, given.position);
    turns.help();
    EXPECT_FALSE(ground.engine.failed_tasks().any());
}

// -------------------------------------------------------------------------------------------------- a lost runtime

TEST_F(TurnsTest, a_lost_runtime_hands_over_nothing_and_answers_nothing) {
    post_memory(What::given_again, gpu, gpu_memory, mib);
    turns.help();
    (void)publish(1);
    (void)publish(1, TaskKind::kernel, gpu);
    turns.lost();
    turns.help();
    (void)publish(1);
    EXPECT_FALSE(turns.help_once()) << "messages are thrown away";
    EXPECT_TRUE(ground.engine.batches.empty());
    EXPECT_TRUE(ground.engine.to_host.empty());
    EXPECT_EQ(counted.count(), 1u);
    const auto nothing = [](const auto&, const auto&) { ADD_FAILURE() << "the state is not known"; };
    EXPECT_THROW(turns.with_baton(nothing), OutOfMemory);
    EXPECT_THROW(turns.with_everything_read(nothing), OutOfMemory);
    EXPECT_FALSE(turns.take_back(gpu, reinterpret_cast<const void*>(gpu_memory), mib, nullptr));
    EXPECT_TRUE(turns.reclaim(gpu, {{gpu_memory, mib}}, mib, true).taken.empty());
    EXPECT_TRUE(turns.take_back_bounce().empty());
}

TEST_F(TurnsTest, a_turn_that_finds_no_memory_loses_the_runtime_and_lets_go_of_the_baton) {
    (void)publish(1);
    ground.engine.refusals = 1;
    turns.help();
    EXPECT_TRUE(ground.books.is_lost());
    EXPECT_TRUE(others_get_baton());
    turns.help();
    EXPECT_TRUE(ground.engine.to_host.empty());
}

TEST_F(TurnsTest, of_a_lost_runtime_every_task_ends_once_the_engine_has_stopped) {
    ground.engine.on_wait_until_stopped = [this] {
        if (ground.engine.times_awaited_stop != 1) return;
        EXPECT_EQ(ground.engine.times_stopped, 1u);
        EXPECT_NE(unfinished(), 0u) << "functions may still run";
        EXPECT_TRUE(others_get_baton()) << "they may ask";
        stopped.set_value();
    };
    start_until_asleep();
    const std::vector<TaskNumber> numbers = publish(3, TaskKind::kernel, gpu);
    turns.help();
    turns.lost();
    ASSERT_EQ(stopped.get_future().wait_for(in_vain), std::future_status::ready);
    ground.books.unfinished().wait_until_below(1);
    for (const TaskNumber n : numbers) EXPECT_TRUE(ground.books.is_settled(n));
    turns.end();
    EXPECT_EQ(ground.engine.times_stopped, 1u);
    EXPECT_EQ(ground.engine.times_awaited_stop, 1u) << "once";
}

// ---------------------------------------------------------------------------------------------- the scheduler's thread

TEST_F(TurnsTest, a_turn_that_is_left_is_taken_by_the_schedulers_thread) {
    start_until_asleep();
    (void)publish(1);
    turns.leave_turn();
    auto thread = handed_over.get_future();
    ASSERT_EQ(thread.wait_for(in_vain), std::future_status::ready);
    EXPECT_NE(thread.get(), std::this_thread::get_id());
}

TEST_F(TurnsTest, messages_that_come_during_a_question_are_read_by_the_schedulers_thread_afterwards) {
    start_until_asleep();
    turns.with_baton([&](auto&, auto&) {
        (void)publish(1);
        turns.help();
        EXPECT_EQ(ground.engine.to_host.size(), 1u);
    });
    EXPECT_EQ(handed_over.get_future().wait_for(in_vain), std::future_status::ready);
}

TEST_F(TurnsTest, the_release_of_an_array_wakes_the_schedulers_thread) {
    start_until_asleep();
    memory::Array& array = *Ground::make_free_array().release();
    const std::weak_ptr<const plan::Layout> layout = array.layout;
    (void)publish(1);
    turns.release(array);  // wakes it
    ASSERT_EQ(handed_over.get_future().wait_for(in_vain), std::future_status::ready);
    turns.end();
    EXPECT_TRUE(layout.expired());
}

TEST_F(TurnsTest, the_end_reads_every_message_although_another_thread_has_the_baton) {
    turns.start();
    end_host_tasks_at_once();
    memory::Array& array = *Ground::make_free_array().release();
    const std::weak_ptr<const plan::Layout> layout = array.layout;
    std::atomic<bool> begins{false};
    std::future<void> end;
    turns.with_baton([&](auto&, auto&) {
        (void)publish(5);
        turns.release(array);
        end = std::async(std::launch::async, [&] {
            begins = true;
            turns.end();
        });
        while (!begins.load()) std::this_thread::yield();
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // it finds the baton taken
    });
    end.get();
    EXPECT_EQ(ground.engine.all_to_host().size(), 5u);
    EXPECT_EQ(unfinished(), 0u);
    EXPECT_TRUE(layout.expired());
    EXPECT_FALSE(turns.has_started());
}

TEST_F(TurnsTest, a_record_that_is_discarded_is_free_again) {
    Task& task = ground.make_task(TaskKind::host, host);
    ground.books.table().remove(task.number);
    turns.discard(task);
    EXPECT_EQ(task.number, 0u);
}

}  // namespace
}  // namespace kmm::runtime_test
