// What is told by many threads comes to the consumers, all of it, in the order of each thread.
#include "kmm/trace/collector.hpp"

#include <gtest/gtest.h>

#include <map>
#include <thread>

namespace {

using kmm::trace::Array;
using kmm::trace::Collector;
using kmm::trace::Consumer;
using kmm::trace::Emitter;
using kmm::trace::Event;
using kmm::trace::Fence;
using kmm::trace::FenceSet;
using kmm::trace::LaneId;
using kmm::trace::Number;
using kmm::trace::Task;
using kmm::trace::What;

struct Heard {
    std::vector<Event> events;
    std::vector<std::vector<Fence>> fences;
    std::vector<std::int64_t> times;
    std::vector<std::uint32_t> threads;
    std::vector<std::string> names;
    std::vector<Number> tasks;
    int finished = 0;
};

class Listener final : public Consumer {
  public:
    explicit Listener(Heard& heard) : heard_(heard) {}
    void bound(const Array& array, std::int64_t) noexcept override { heard_.names.push_back(array.name); }
    void named(Number, const std::string& name, std::int64_t) noexcept override { heard_.names.push_back(name); }
    void submitted(const Task& task, std::int64_t) noexcept override { heard_.tasks.push_back(task.number); }
    void note(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
              std::uint32_t thread) noexcept override {
        heard_.events.push_back(event);
        heard_.fences.emplace_back(fences, fences + num_fences);
        heard_.times.push_back(time_ns);
        heard_.threads.push_back(thread);
    }
    void finish(std::uint64_t) noexcept override { ++heard_.finished; }

  private:
    Heard& heard_;
};

TEST(Collector, nobody_listens_before_there_is_a_consumer_and_after_the_last_has_gone) {
    Emitter emitter;
    Heard heard;
    Collector collector(emitter);
    EXPECT_EQ(emitter.sink(), nullptr);
    auto listener = std::make_unique<Listener>(heard);
    const Consumer* const consumer = listener.get();
    collector.add(std::move(listener));
    EXPECT_EQ(emitter.sink(), &collector);
    collector.remove(consumer);
    EXPECT_EQ(emitter.sink(), nullptr);
    EXPECT_EQ(heard.finished, 1);
    collector.remove(consumer);  // is not there any more
    EXPECT_EQ(heard.finished, 1);
}

TEST(Collector, everything_that_is_told_comes_in_the_order_of_its_thread) {
    Emitter emitter;
    Heard heard;
    {
        Collector collector(emitter);
        collector.add(std::make_unique<Listener>(heard));
        std::vector<std::thread> threads;
        for (Number t = 0; t < 4; ++t)
            threads.emplace_back([&, t] {
                // More than a batch holds, so that batches are handed over meanwhile.
                for (std::size_t i = 0; i < 20'000; ++i)
                    emitter.sink()->note({.what = What::ready, .task = t, .bytes = i}, nullptr);
            });
        for (std::thread& t : threads) t.join();
    }
    ASSERT_EQ(heard.events.size(), 80'000u);
    std::map<Number, std::size_t> next;
    std::map<Number, std::uint32_t> thread_of;
    for (std::size_t i = 0; i < heard.events.size(); ++i) {
        const Event& e = heard.events[i];
        ASSERT_EQ(e.bytes, next[e.task]++);
        ASSERT_EQ(thread_of.emplace(e.task, heard.threads[i]).first->second, heard.threads[i]);
        if (i > 0) {
            ASSERT_GE(heard.times[i], heard.times[i - 1]);
        }
    }
    EXPECT_EQ(heard.finished, 1);
}

TEST(Collector, fences_names_and_tasks_come_with_what_they_belong_to) {
    Emitter emitter;
    Heard heard;
    Collector collector(emitter);
    auto listener = std::make_unique<Listener>(heard);
    const Consumer* const consumer = listener.get();
    collector.add(std::move(listener));
    Array array;
    array.number = 3;
    array.name = "x";
    Task task;
    task.number = 17;
    FenceSet fences;
    for (std::uint16_t lane = 0; lane < 7; ++lane) fences.add({static_cast<LaneId>(lane), lane + 1u});
    emitter.sink()->bound(array);
    emitter.sink()->submitted(std::move(task));
    emitter.sink()->note({.what = What::launch, .task = 17}, &fences);
    emitter.sink()->note({.what = What::settled, .task = 17}, nullptr);
    emitter.sink()->named(3, "renamed");
    collector.remove(consumer);
    EXPECT_EQ(heard.names, (std::vector<std::string>{"x", "renamed"}));
    EXPECT_EQ(heard.tasks, std::vector<Number>{17});
    ASSERT_EQ(heard.fences.size(), 2u);
    ASSERT_EQ(heard.fences[0].size(), 7u);
    EXPECT_EQ(heard.fences[0][6].position, 7u);
    EXPECT_TRUE(heard.fences[1].empty());
}

TEST(Collector, a_consumer_hears_nothing_from_before_it_came_and_all_until_it_goes) {
    Emitter emitter;
    Heard first, second;
    Collector collector(emitter);
    collector.add(std::make_unique<Listener>(first));
    emitter.sink()->note({.what = What::ready, .task = 1}, nullptr);
    auto listener = std::make_unique<Listener>(second);
    const Consumer* const consumer = listener.get();
    collector.add(std::move(listener));
    emitter.sink()->note({.what = What::ready, .task = 2}, nullptr);
    collector.remove(consumer);
    ASSERT_EQ(second.events.size(), 1u);
    EXPECT_EQ(second.events[0].task, 2u);
    EXPECT_EQ(first.events.size(), 2u);
}

}  // namespace
