// What work on one lane of a device waits for on another: kmm/engine/device_thread.hpp on the scripted driver, by
// copies between lanes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "fake_mailbox.hpp"
#include "kmm/engine/device_thread.hpp"
#include "scripted_driver.hpp"

namespace {

using namespace kmm::engine;
using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;
using kmm::graph::Fence;

constexpr std::uint32_t num_lanes = 3;
constexpr LaneId first{0};
constexpr LaneId second{1};
constexpr LaneId third{2};

/// Within a minute.
template<typename Condition> bool comes_true(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::yield();
    }
    return true;
}

struct NoErrors final : ErrorMaker {
    std::exception_ptr device_error(std::uint32_t, Status, const char* attempted) override {
        ADD_FAILURE() << attempted;
        return {};
    }
};

/// A device's thread whose lanes copy a byte of the host to the device, one for each instruction.
class Machine {
  public:
    explicit Machine(int devices = 1) : driver(ScriptedOptions{.num_devices = devices}) {
        driver.set_automatic(false);
        lanes.make_streams(0);
        EXPECT_TRUE(driver.allocate(0, bytes, &device_memory).ok());
        std::memset(device_memory, 0, bytes);
        chunk.owner = &array;
    }
    ~Machine() {
        driver.set_automatic(true);
        thread.reset();
        EXPECT_TRUE(driver.free(device_memory).ok());
    }

    void copy(LaneId lane, Position position, std::vector<Fence> after = {}) {
        Instruction i;
        i.op = Instruction::Op::transfer;
        i.lane = lane;
        i.position = position;
        i.waits = after;
        i.chunk = &chunk;
        i.to = kmm::memory::MemoryIndex::of_device(0);
        i.source = reinterpret_cast<std::uintptr_t>(host_memory.data() + num_copies);
        i.destination = reinterpret_cast<std::uintptr_t>(device_memory) + num_copies;
        ++num_copies;
        i.bytes = 1;
        instructions.push(i);
    }
    /// Calls `change(instructions)` with all that were made.
    template<typename F> void change_instructions(F&& change) {
        std::vector<Instruction> all;
        instructions.for_each([&](const Instruction& i) { all.push_back(i); });
        change(all);
        instructions.clear();
        for (const Instruction& i : all) instructions.push(i);
    }
    /// Hands the copies out, and returns when all of them and the events behind them are on the device's queues.
    void feed() {
        const std::size_t events = driver.count("record_event") + instructions.size();
        thread->push(instructions);
        EXPECT_TRUE(comes_true([&] { return driver.count("record_event") >= events; }));
    }
    /// As `feed`, for copies of which some are held: so many are handed to the driver.
    void feed_all_but_held(std::size_t copies) {
        thread->push(instructions);
        EXPECT_TRUE(comes_true([&] { return driver.count("copy") >= copies; }));
    }
    /// Until the thread says that the lane is there; fails after a minute.
    void await(LaneId lane, Position position) {
        while (done[kmm::graph::index_of(lane)] < position) {
            const Message message = mailbox.next();
            if (message.what == Message::What::advance) done[kmm::graph::index_of(message.lane)] = message.position;
        }
    }
    bool is_copied(std::size_t copy) const {
        return static_cast<const std::byte*>(device_memory)[copy] == std::byte{1};
    }
    /// The oldest, and the event behind it.
    void run_one_copy() {
        ASSERT_TRUE(driver.step());
        ASSERT_TRUE(driver.step());
    }
    StreamHandle stream(LaneId lane) {
        Status status;
        return lanes.stream(lane, &status);
    }

    static constexpr std::size_t bytes = 256;
    ScriptedDriver driver;
    Lanes lanes{driver, driver.device_count() == 1 ? std::vector{0} : std::vector{0, 1}, num_lanes};
    FailedTasks failed;
    kmm::engine::testing::FakeMailbox mailbox;
    NoErrors errors;
    Position done[num_lanes] = {};  // what the thread has said
    kmm::memory::Array array;
    kmm::memory::Chunk chunk;
    std::vector<std::byte> host_memory = std::vector<std::byte>(bytes, std::byte{1});
    std::size_t num_copies = 0;
    void* device_memory = nullptr;
    kmm::schedule::InstructionList instructions;
    std::unique_ptr<DeviceThread> thread = std::make_unique<DeviceThread>(
        0, 0, lanes, failed, this, mailbox, errors, kmm::trace::nobody_listens, false, false, false);
};

TEST(DeviceThreadFences, a_copy_waits_for_its_fence_and_not_for_what_was_put_behind_it) {
    Machine m;
    m.copy(first, 1);
    m.copy(first, 2);
    m.copy(second, 1, {{first, 1}});
    m.feed();
    m.run_one_copy();
    m.driver.hold(m.stream(first));
    m.driver.run_all();
    m.await(second, 1);  // for ever, if it waits for the second copy
    EXPECT_FALSE(m.lanes.passed({first, 2}));
    m.driver.release_all();
    m.driver.run_all();
    m.await(first, 2);
}

TEST(DeviceThreadFences, a_copy_does_not_begin_before_its_fence) {
    Machine m;
    m.copy(first, 1);
    m.copy(first, 2);
    m.copy(second, 1, {{first, 2}});
    m.feed();
    m.run_one_copy();
    m.driver.hold(m.stream(first));
    m.driver.run_all();
    EXPECT_TRUE(m.is_copied(0));
    EXPECT_FALSE(m.is_copied(2)) << "the second copy of the first lane stands still";
    m.driver.release_all();
    m.driver.run_all();
    m.await(second, 1);
    EXPECT_TRUE(m.is_copied(1) && m.is_copied(2));
}

TEST(DeviceThreadFences, of_many_small_copies_in_a_row_none_waits_for_what_a_later_one_waits_for) {
    Machine m;
    constexpr Position count = 10;
    m.copy(second, 1);
    for (Position p = 1; p <= count; ++p) m.copy(first, p);
    m.copy(first, count + 1, {{second, 1}});
    m.driver.hold(m.stream(second));
    m.thread->push(m.instructions);
    ASSERT_TRUE(comes_true([&] { return m.lanes.enqueued(first) == count + 1; }));
    EXPECT_EQ(m.driver.count("copy_batch"), 1u);
    m.driver.run_all();
    m.await(first, count);
    EXPECT_FALSE(m.is_copied(count + 1)) << "the other lane stands still";
    m.driver.release_all();
    m.driver.run_all();
    m.await(first, count + 1);
}

// Copies of one call are in no order: here they are made from the last to the first.
TEST(DeviceThreadFences, a_small_copy_that_comes_after_another_of_its_lane_is_not_handed_over_with_it) {
    Machine m;
    constexpr Position count = 20, before = 12;
    m.host_memory[0] = std::byte{1};
    for (Position p = 1; p <= count; ++p) m.copy(first, p);
    // One of the first and one of the last to the same place.
    m.host_memory[before] = std::byte{2};
    m.change_instructions([](std::vector<Instruction>& copies) {
        copies[before].destination = copies[0].destination;
        copies[before].after_on_lane = 1;
    });
    m.thread->push(m.instructions);
    ASSERT_TRUE(comes_true([&] { return m.lanes.enqueued(first) == count; }));
    m.driver.run_all();
    m.await(first, count);
    EXPECT_EQ(m.driver.count("copy_batch"), 2u);
    EXPECT_EQ(static_cast<const std::byte*>(m.device_memory)[0], std::byte{2}) << "the later one";
}

TEST(DeviceThreadFences, small_copies_that_extend_each_other_are_one_piece_of_the_call) {
    Machine m;
    constexpr Position count = 20, gap = 12;
    for (Position p = 1; p <= count; ++p) m.copy(first, p);
    // Also the first one, which extends what was handed over before.
    m.change_instructions([](std::vector<Instruction>& copies) {
        for (auto& i : copies) i.extends_previous = i.position != gap;
    });
    m.thread->push(m.instructions);
    ASSERT_TRUE(comes_true([&] { return m.lanes.enqueued(first) == count; }));
    m.driver.run_all();
    m.await(first, count);
    for (std::size_t copy = 0; copy < count; ++copy) EXPECT_TRUE(m.is_copied(copy)) << copy;
    EXPECT_FALSE(m.is_copied(count)) << "what lies behind them";
    for (const kmm::driver::testing::LogEntry& entry : m.driver.log()) {
        if (entry.call != "copy_batch") continue;
        EXPECT_EQ(entry.num_pieces, 2u);
        EXPECT_EQ(entry.bytes, count);
    }
    EXPECT_EQ(m.driver.count("copy_batch"), 1u);
}

TEST(DeviceThreadFences, waiting_records_no_event_where_the_lane_has_one_and_none_is_waited_for_twice) {
    for (const Position n : {Position{8}, Position{16}}) {
        Machine m;
        for (Position p = 1; p <= n; ++p) {
            m.copy(first, p);
            m.copy(second, p, {{first, p}});
            m.copy(third, p, {{first, p}, {second, p}});
        }
        m.driver.clear_log();
        m.feed();
        m.driver.set_automatic(true);
        for (const LaneId lane : {first, second, third}) m.await(lane, n);
        EXPECT_EQ(m.driver.count("record_event"), 3 * n) << "one for each copy";
        // Two of the third lane, one of the second; a watch of each lane's oldest event at times.
        EXPECT_LE(m.driver.count("wait_event"), 3 * n + m.driver.count("host_callback"));
    }
}

/// A lane of the second device, which no thread feeds: the test does.
constexpr LaneId elsewhere{num_lanes};

TEST(DeviceThreadFences, what_waits_for_a_lane_of_another_device_is_held_and_other_lanes_go_on) {
    Machine m(2);
    m.copy(first, 1, {{elsewhere, 1}});
    m.copy(first, 2);
    m.copy(second, 1, {{first, 2}});
    m.copy(third, 1);
    m.feed_all_but_held(1);
    m.driver.run_all();
    m.await(third, 1);
    EXPECT_TRUE(m.is_copied(3));
    EXPECT_EQ(m.lanes.enqueued(first), 0u);
    EXPECT_EQ(m.lanes.enqueued(second), 0u) << "it waits for what is held";
    (void)m.stream(elsewhere);
    m.lanes.enqueued(elsewhere, 1);
    EXPECT_TRUE(comes_true([&] { return m.lanes.enqueued(second) == 1; }));
    m.driver.run_all();
    m.await(second, 1);
    EXPECT_TRUE(m.is_copied(0) && m.is_copied(1) && m.is_copied(2));
}

TEST(DeviceThreadFences, what_is_held_comes_after_the_work_of_the_other_device) {
    Machine m(2);
    m.copy(first, 1, {{elsewhere, 1}});
    m.copy(third, 1);
    m.feed_all_but_held(1);
    m.driver.hold(m.stream(elsewhere));
    EXPECT_TRUE(m.driver.fill(m.device_memory, "x", 1, 1, m.stream(elsewhere)).ok());
    m.lanes.enqueued(elsewhere, 1);
    EXPECT_TRUE(comes_true([&] { return m.driver.count("copy") == 2; }));
    m.driver.run_all();
    EXPECT_FALSE(m.is_copied(0)) << "the other device has not done its work";
    m.driver.release_all();
    m.driver.run_all();
    m.await(first, 1);
    EXPECT_TRUE(m.is_copied(0));
}

TEST(DeviceThreadFences, a_copy_waits_for_the_mark_of_the_other_device_and_not_for_what_was_put_behind_it) {
    Machine m(2);
    const StreamHandle other = m.stream(elsewhere);
    m.driver.hold(other);
    EventHandle event;
    ASSERT_TRUE(m.driver.create_event(1, false, false, &event).ok());
    ASSERT_TRUE(m.driver.fill(m.device_memory, "x", 1, 1, other).ok());
    ASSERT_TRUE(m.driver.record_event(event, other).ok());
    m.lanes.marked(elsewhere, 1, event);
    m.lanes.enqueued(elsewhere, 1);
    ASSERT_TRUE(m.driver.fill(m.device_memory, "y", 1, 1, other).ok());
    m.lanes.enqueued(elsewhere, 2);
    m.copy(first, 1, {{elsewhere, 1}});
    m.copy(second, 1, {{elsewhere, 2}});
    m.feed();
    m.driver.run_all();
    EXPECT_FALSE(m.is_copied(0)) << "the other device has not done its work";
    m.driver.release_all();
    ASSERT_TRUE(m.driver.step() && m.driver.step());  // the fill, and the event behind it
    m.driver.hold(other);
    m.driver.run_all();
    m.await(first, 1);  // for ever, if it waits for the second fill
    EXPECT_FALSE(m.is_copied(1)) << "which has no mark of its own";
    m.driver.release_all();
    m.driver.run_all();
    m.await(second, 1);
    m.lanes.keep_event(event);
}

TEST(DeviceThreadFences, each_of_many_that_are_held_goes_on_as_soon_as_it_can) {
    for (const Position n : {Position{50}, Position{100}}) {
        Machine m(2);
        (void)m.stream(elsewhere);
        for (Position p = 1; p <= n; ++p) m.copy(first, p, {{elsewhere, p}});
        m.thread->push(m.instructions);
        for (Position p = 1; p <= n; ++p) {
            m.lanes.enqueued(elsewhere, p);
            ASSERT_TRUE(comes_true([&] { return m.lanes.enqueued(first) == p; })) << p;
        }
        m.driver.run_all();
        m.await(first, n);
        EXPECT_EQ(m.driver.count("copy"), n);
    }
}

TEST(DeviceThreadFences, a_thread_ends_when_what_it_held_is_done) {
    Machine m(2);
    m.copy(first, 1, {{elsewhere, 1}});
    m.thread->push(m.instructions);
    m.driver.set_automatic(true);
    std::thread end([&] { m.thread.reset(); });
    (void)m.stream(elsewhere);
    m.lanes.enqueued(elsewhere, 1);
    end.join();
    EXPECT_TRUE(m.is_copied(0));
    m.lanes.enqueued(elsewhere, 2);  // there is nobody to be told
}

}  // namespace
