// What threads tell the scheduler: the queue of kmm/engine/mailbox.hpp.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <vector>

#include "kmm/engine/mailbox.hpp"

namespace {

using kmm::engine::Message;
using kmm::engine::MessageQueue;
using kmm::graph::LaneId;
using kmm::graph::Task;
using Messages = kmm::graph::Vector<Message>;

Message at(std::uint16_t lane, std::uint64_t position) {
    Message m;
    m.what = Message::What::advance;
    m.lane = static_cast<LaneId>(lane);
    m.position = position;
    return m;
}

TEST(MessageQueue, gives_everything_in_the_order_in_which_it_came_and_is_empty_then) {
    MessageQueue queue;
    EXPECT_TRUE(queue.empty());
    for (std::uint64_t i = 1; i <= 100; ++i) queue.push(at(0, i));
    EXPECT_FALSE(queue.empty());
    Messages taken;
    queue.take(taken);
    ASSERT_EQ(taken.size(), 100u);
    for (std::uint64_t i = 1; i <= 100; ++i) EXPECT_EQ(taken[i - 1].position, i);
    EXPECT_TRUE(queue.empty());
    taken.clear();
    queue.take(taken);
    EXPECT_TRUE(taken.empty()) << "what was taken does not come again";
}

TEST(MessageQueue, goes_on_in_the_memory_of_what_it_is_emptied_into_so_that_it_stops_allocating) {
    MessageQueue queue;
    Messages taken;
    for (std::uint64_t i = 1; i <= 100; ++i) queue.push(at(0, i));
    queue.take(taken);
    const Message* const memory = taken.data();
    taken.clear();
    queue.take(taken);
    queue.push(at(0, 1));
    Messages others;
    queue.take(others);
    EXPECT_EQ(others.data(), memory);
}

TEST(MessageQueue, the_tasks_of_a_submit_are_one_message) {
    MessageQueue queue;
    std::deque<Task> tasks(6);
    for (std::size_t i = 0; i + 1 < tasks.size(); ++i) tasks[i].next_published = &tasks[i + 1];
    queue.push(tasks[0]);
    Messages taken;
    queue.take(taken);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].what, Message::What::submit);
    const Task* next = taken[0].task;
    for (const Task& t : tasks) {
        ASSERT_EQ(next, &t);
        next = next->next_published;
    }
    EXPECT_EQ(next, nullptr);
}

TEST(MessageQueue, many_producers_lose_nothing_and_each_keeps_its_order) {
    constexpr std::uint16_t producers = 4;
    constexpr std::uint64_t each = 5000;
    MessageQueue queue;
    std::atomic<int> running{producers};
    std::vector<std::future<void>> threads;
    for (std::uint16_t p = 0; p < producers; ++p)
        threads.push_back(std::async(std::launch::async, [&queue, &running, p] {
            for (std::uint64_t i = 1; i <= each; ++i) queue.push(at(p, i));
            --running;
        }));
    std::vector<std::uint64_t> last(producers, 0);
    Messages taken;
    for (bool over = false; !over;) {
        over = running.load() == 0;  // before the look: what came before it is seen now
        if (queue.empty()) continue;
        taken.clear();
        queue.take(taken);
        for (const Message& m : taken) {
            std::uint64_t& seen = last[kmm::graph::index_of(m.lane)];
            ASSERT_EQ(m.position, seen + 1);
            seen = m.position;
        }
    }
    for (const std::uint64_t seen : last) EXPECT_EQ(seen, each);
}

}  // namespace
