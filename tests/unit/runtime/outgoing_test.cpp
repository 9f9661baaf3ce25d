// What a turn has decided: kmm/runtime/outgoing.hpp over an engine that notes what it is handed.
#include "kmm/runtime/outgoing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_engine.hpp"
#include "kmm/base/text.hpp"

namespace kmm::runtime_test {
namespace {

using detail::Outgoing;
using Wish = FakeEngine::Wish;

constexpr std::int64_t an_hour_ns = 3'600'000'000'000;

class OutgoingTest : public ::testing::Test {
  protected:
    OutgoingTest() { outgoing.connect(scheduler); }
    static Instruction kernel(TaskNumber task, Position position) {
        Instruction i;
        i.lane = LaneId{0};
        i.position = position;
        i.task = task;
        return i;
    }
    Task& make_task(TaskKind kind = TaskKind::host, MemoryIndex memory = host) {
        return ground.make_task(kind, memory);
    }
    /// A kernel that would make a chunk of this size.
    Task& make_hungry(std::size_t bytes = mib) {
        Task& t = make_task(TaskKind::kernel, gpu);
        Ground::add_use(t, ground.make_array(bytes).chunks[0]);
        return t;
    }
    /// It found no memory, and is told so. Returns its failure.
    std::shared_ptr<graph::Failure> fail_for_memory(Task& task) {
        outgoing.out_of_memory(task);
        return task.failure = outgoing.make_failure(task, task.thrown, nullptr);
    }
    std::string text(const graph::Failure& failure) const {
        return detail::text_of(ground.words.cause_of(*failure.root));
    }

    Ground ground{2};
    schedule::SchedulerOptions options = two_devices();
    Outgoing outgoing{ground.platform, ground.books, ground.words, ground.shortage_words, ground.engine};
    schedule::Scheduler scheduler{outgoing, ground.books.table(), options, ground.platform.limits_bytes()};

  private:
    static schedule::SchedulerOptions two_devices() {
        schedule::SchedulerOptions options;
        options.num_devices = 2;
        return options;
    }
};

// ------------------------------------------------------------------------------------------------------ handing over

TEST_F(OutgoingTest, instructions_stay_until_the_flush_and_reach_their_device_in_order) {
    outgoing.instruct(0, kernel(11, 1));
    outgoing.instruct(1, kernel(12, 1));
    outgoing.instruct(0, kernel(13, 2));
    EXPECT_TRUE(ground.engine.batches.empty());
    outgoing.flush();
    EXPECT_EQ(ground.engine.batches.size(), 2u) << "one list for each device";
    EXPECT_EQ(ground.engine.all_for(0), (std::vector<TaskNumber>{11, 13}));
    EXPECT_EQ(ground.engine.all_for(1), (std::vector<TaskNumber>{12}));
    outgoing.flush();
    EXPECT_EQ(ground.engine.batches.size(), 2u) << "nothing is handed over twice, and no list is empty";
}

TEST_F(OutgoingTest, host_tasks_stay_until_the_flush_and_reach_the_pool_in_one_call) {
    Task& first = make_task();
    Task& second = make_task();
    outgoing.run_on_host(first);
    outgoing.run_on_host(second);
    EXPECT_TRUE(ground.engine.to_host.empty());
    outgoing.flush();
    outgoing.flush();
    EXPECT_EQ(ground.engine.to_host, (std::vector<std::vector<TaskNumber>>{{first.number, second.number}}));
}

TEST_F(OutgoingTest, what_the_engine_had_no_memory_for_is_handed_over_by_the_next_flush) {
    Task& on_host = make_task();
    outgoing.instruct(0, kernel(11, 1));
    outgoing.instruct(1, kernel(12, 1));
    outgoing.run_on_host(on_host);
    ground.engine.refusals = 1;
    EXPECT_THROW(outgoing.flush(), std::bad_alloc);
    EXPECT_TRUE(ground.engine.batches.empty());
    EXPECT_TRUE(ground.engine.to_host.empty());
    outgoing.flush();
    EXPECT_EQ(ground.engine.all_for(0), (std::vector<TaskNumber>{11}));
    EXPECT_EQ(ground.engine.all_for(1), (std::vector<TaskNumber>{12}));
    EXPECT_EQ(ground.engine.all_to_host(), (std::vector<TaskNumber>{on_host.number}));
    // The pool alone had none: what the devices have they do not get again.
    outgoing.run_on_host(on_host);
    ground.engine.refusals = 1;
    EXPECT_THROW(outgoing.flush(), std::bad_alloc);
    outgoing.flush();
    EXPECT_EQ(ground.engine.all_to_host(), (std::vector<TaskNumber>{on_host.number, on_host.number}));
    EXPECT_EQ(ground.engine.batches.size(), 2u);
}

TEST_F(OutgoingTest, a_device_function_goes_to_the_launchers_of_its_device_at_once) {
    Task& task = make_task(TaskKind::device_function, gpu_1);
    outgoing.launch(1, task);
    using Launched = std::vector<std::pair<std::uint32_t, TaskNumber>>;
    EXPECT_EQ(ground.engine.launched, (Launched{{1, task.number}}));
}

TEST_F(OutgoingTest, wishes_for_memory_reach_the_memory_service_as_they_are) {
    outgoing.grow(gpu_1, 1000);
    EXPECT_TRUE(outgoing.exchange(gpu, 2000));
    EXPECT_TRUE(outgoing.await_memory(gpu, {3000, 500}, true));
    EXPECT_TRUE(outgoing.await_memory(gpu_1, {4000, 500}, false));
    EXPECT_TRUE(outgoing.ask_for_bounce(5000));
    EXPECT_EQ(ground.engine.wishes, (std::vector<Wish>{{Wish::What::grow, gpu_1, 1000},
                                                       {Wish::What::exchange, gpu, 2000},
                                                       {Wish::What::await, gpu, 3000, true},
                                                       {Wish::What::await, gpu_1, 4000, false},
                                                       {Wish::What::bounce, {}, 5000}}));
}

TEST_F(OutgoingTest, a_move_on_the_host_is_done_when_it_returns_although_the_places_overlap) {
    char text[] = "0123456789";
    outgoing.move_on_host(reinterpret_cast<std::uintptr_t>(text + 2), reinterpret_cast<std::uintptr_t>(text), 8);
    EXPECT_STREQ(text, "0101234567");
}

TEST_F(OutgoingTest, devices_that_reach_each_other_are_linked_and_the_host_is_linked_to_none) {
    EXPECT_TRUE(outgoing.linked(gpu, gpu_1));
    EXPECT_FALSE(outgoing.linked(host, gpu));
    EXPECT_FALSE(outgoing.linked(gpu, host));
    EXPECT_FALSE(outgoing.linked(gpu, gpu));
}

// -------------------------------------------------------------------------------------------------- waits for memory

TEST_F(OutgoingTest, a_wait_for_memory_counts_once_it_has_ended_and_with_its_time) {
    Task& longer = make_hungry();
    Task& shorter = make_hungry();
    for (Task* t : {&longer, &shorter}) {
        const std::int64_t before = engine::now_ns();
        outgoing.memory_wait_begins(*t);
        EXPECT_GE(t->cold->waits_for_memory_ns, before);
        EXPECT_LE(t->cold->waits_for_memory_ns, engine::now_ns());
    }
    EXPECT_EQ(outgoing.memory_waits().count, 0u);
    EXPECT_EQ(outgoing.memory_waits().sum_ns, 0);
    // Instead of waiting.
    longer.cold->waits_for_memory_ns -= 2 * an_hour_ns;
    shorter.cold->waits_for_memory_ns -= an_hour_ns;
    outgoing.memory_wait_ends(longer);
    EXPECT_EQ(outgoing.memory_waits().count, 1u);
    EXPECT_GE(outgoing.memory_waits().sum_ns, 2 * an_hour_ns);
    EXPECT_EQ(outgoing.memory_waits().longest_ns, outgoing.memory_waits().sum_ns);
    const std::int64_t longest = outgoing.memory_waits().longest_ns;
    outgoing.memory_wait_ends(shorter);
    EXPECT_EQ(outgoing.memory_waits().count, 2u);
    EXPECT_GE(outgoing.memory_waits().sum_ns, longest + an_hour_ns);
    EXPECT_EQ(outgoing.memory_waits().longest_ns, longest) << "the second was shorter";
}

TEST_F(OutgoingTest, a_task_that_the_schedule_tries_often_waits_once_from_the_first_time_to_the_last) {
    Task& task = make_hungry();
    scheduler.submit(task);
    scheduler.dispatch();
    ASSERT_EQ(ground.engine.wishes.size(), 1u);
    EXPECT_TRUE(task.waited_for_memory);
    const std::int64_t since = task.cold->waits_for_memory_ns -= an_hour_ns;
    scheduler.awaited(host, std::uintptr_t{1} << 40, mib, false);  // of no use to it
    scheduler.dispatch();
    EXPECT_EQ(task.cold->waits_for_memory_ns, since) << "it has waited all the time";
    EXPECT_EQ(outgoing.memory_waits().count, 0u);
    scheduler.grown(gpu, std::uintptr_t{2} << 40, 2 * mib);
    scheduler.dispatch();
    EXPECT_EQ(outgoing.memory_waits().count, 1u);
    EXPECT_GE(outgoing.memory_waits().sum_ns, an_hour_ns);
    outgoing.flush();
    EXPECT_EQ(ground.engine.all_for(0), (std::vector<TaskNumber>{task.number}));
}

TEST_F(OutgoingTest, after_a_refusal_that_memory_alone_is_not_asked_again_for_a_second) {
    EXPECT_TRUE(outgoing.may_ask_again(gpu)) << "none was refused";
    const std::int64_t before = engine::now_ns();
    outgoing.refused(gpu);
    const bool may_ask = outgoing.may_ask_again(gpu);
    constexpr std::int64_t second_ns = 1'000'000'000;
    EXPECT_TRUE(!may_ask || engine::now_ns() - before > second_ns);
    EXPECT_TRUE(outgoing.may_ask_again(gpu_1));
    EXPECT_TRUE(outgoing.may_ask_again(host));
}

// --------------------------------------------------------------------------------------------------------- shortages

TEST_F(OutgoingTest, a_shortage_is_told_once_and_shared_while_nothing_is_freed) {
    const auto first = fail_for_memory(make_hungry(3 * mib));
    const auto second = fail_for_memory(make_hungry(2 * mib));
    const auto elsewhere = [&] {
        Task& task = make_hungry();
        task.memory = gpu_1;
        return fail_for_memory(task);
    }();
    Outgoing::News news = outgoing.take_news();
    ASSERT_EQ(news.roots.size(), 2u) << "one for each memory";
    EXPECT_EQ(news.roots[0], first->root);
    EXPECT_EQ(news.roots[1], elsewhere->root);
    EXPECT_EQ(news.more, 0u);
    EXPECT_TRUE(first->root->unworded->is_logged());
    EXPECT_FALSE(second->root->unworded->is_logged());
    EXPECT_NE(text(*first).find("limit"), std::string::npos) << "the whole report";
    EXPECT_NE(text(*second).find("2.00 MiB"), std::string::npos) << text(*second);
    EXPECT_LT(text(*second).size(), text(*first).size()) << "it refers to the first";
    EXPECT_TRUE(outgoing.take_news().roots.empty()) << "news are told once";
}

TEST_F(OutgoingTest, a_shortage_is_told_anew_once_memory_was_freed) {
    (void)fail_for_memory(make_hungry());
    ++scheduler.residency().space(gpu).counters.frees;
    const auto anew = fail_for_memory(make_hungry());
    EXPECT_TRUE(anew->root->unworded->is_logged());
    EXPECT_EQ(outgoing.take_news().roots.size(), 2u);
}

TEST_F(OutgoingTest, of_very_many_failures_a_few_are_told_and_the_others_counted) {
    // Words of its own for each, as if memory had been freed between two of them.
    class Told final : public graph::Unworded {
        std::exception_ptr words() const override { return nullptr; }
        bool is_logged() const noexcept override { return true; }
    };
    for (int i = 0; i < 20; ++i) {
        Task& task = make_hungry();
        task.cold_part(graph::UseOfReserve::yes).unworded = std::make_shared<Told>();
        (void)outgoing.make_failure(task, nullptr, nullptr);
    }
    Outgoing::News news = outgoing.take_news();
    EXPECT_EQ(news.roots.size(), 16u);
    EXPECT_EQ(news.more, 4u);
    news = outgoing.take_news();
    EXPECT_TRUE(news.roots.empty());
    EXPECT_EQ(news.more, 0u);
}

// ------------------------------------------------------------------------------------------------ how tasks have ended

TEST_F(OutgoingTest, a_failure_of_its_own_is_no_news_and_those_that_it_cancels_share_its_root) {
    Task& failed = make_task();
    const auto thrown = std::make_exception_ptr(std::runtime_error("no such file"));
    const auto own = outgoing.make_failure(failed, thrown, nullptr);
    EXPECT_EQ(own->root->number, failed.number);
    EXPECT_EQ(own->root->cause, thrown);
    Task& reader = make_task();
    reader.views.emplace_back().kind = graph::AccessKind::read;
    Task& writer = make_task();
    writer.views.emplace_back().kind = graph::AccessKind::write;
    const auto cancelled_reader = outgoing.make_failure(reader, nullptr, own->root);
    const auto cancelled_writer = outgoing.make_failure(writer, nullptr, own->root);
    EXPECT_EQ(cancelled_reader->root, own->root);
    EXPECT_EQ(cancelled_reader->task.number, reader.number);
    EXPECT_FALSE(cancelled_reader->keeps_content);
    EXPECT_TRUE(cancelled_writer->keeps_content);
    EXPECT_TRUE(outgoing.take_news().roots.empty());
}

TEST_F(OutgoingTest, a_settled_task_has_left_the_table_and_its_failure_is_found) {
    Task& well = make_task();
    Task& ill = make_task();
    const TaskNumber well_number = well.number, ill_number = ill.number;
    ground.books.unfinished().add(2);
    ill.failure = outgoing.make_failure(ill, std::make_exception_ptr(std::runtime_error("no such file")), nullptr);
    const auto failure = ill.failure;
    outgoing.settled(well);
    EXPECT_EQ(ground.books.unfinished().count(), 1u);
    EXPECT_FALSE(ground.books.is_settled(ill_number));
    outgoing.settled(ill);
    EXPECT_TRUE(ground.books.is_settled(well_number));
    EXPECT_TRUE(ground.books.is_settled(ill_number));
    EXPECT_EQ(outgoing.find_failure(well_number), nullptr);
    EXPECT_EQ(outgoing.find_failure(ill_number), failure);
}

TEST_F(OutgoingTest, a_record_is_free_again_unless_what_the_program_left_in_it_must_end_on_the_pool) {
    Task& plain = make_task();
    Task& with_payload = make_task();
    Task& with_error = make_task();
    with_payload.function.body.destroy = [](void*) noexcept {};
    with_payload.function.payload = &with_payload;
    with_error.thrown = std::make_exception_ptr(std::runtime_error("no such file"));
    const TaskNumber payload_number = with_payload.number, error_number = with_error.number;
    for (Task* t : {&plain, &with_payload, &with_error}) {
        ground.books.table().remove(t->number);
        outgoing.recycle(*t);
    }
    EXPECT_EQ(plain.number, 0u) << "it is as new";
    outgoing.flush();
    EXPECT_EQ(ground.engine.all_to_host(), (std::vector<TaskNumber>{payload_number, error_number}));
}

}  // namespace
}  // namespace kmm::runtime_test
