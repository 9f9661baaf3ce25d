// The thread that feeds the lanes of a device: kmm/engine/device_thread.hpp on the scripted driver, with the test in
// the scheduler's place.
#include "kmm/engine/device_thread.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fake_mailbox.hpp"
#include "kmm/driver/host_kernel.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::Code;
using kmm::driver::Status;
using kmm::driver::StreamHandle;
using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;
using kmm::engine::DeviceThread;
using kmm::engine::ErrorMaker;
using kmm::engine::FailedTasks;
using kmm::engine::Lanes;
using kmm::engine::Link;
using kmm::engine::Message;
using kmm::engine::testing::FakeMailbox;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::Task;
using kmm::memory::Chunk;
using kmm::graph::Fence;
using kmm::graph::TaskNumber;
using kmm::schedule::Instruction;
using kmm::schedule::InstructionList;
using Instructions = std::vector<Instruction>;

constexpr LaneId compute{0};
constexpr LaneId other_compute{1};
constexpr LaneId up{2};
constexpr LaneId launcher{3};
constexpr Position events_every = 16;

/// Says which call failed, and with what.
struct Errors : ErrorMaker {
    std::exception_ptr device_error(std::uint32_t, Status status, const char* attempted) override {
        return std::make_exception_ptr(
            std::runtime_error(std::string(attempted) + ": " + std::to_string(static_cast<int>(status.code))));
    }
    static std::string of(const char* attempted, Code code) {
        return std::string(attempted) + ": " + std::to_string(static_cast<int>(code));
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

/// A kernel whose parameter is a counter that it raises.
void count_one(const kmm::driver::HostKernel&, const kmm::driver::HostLaunchGeometry&, const void* parameters,
               std::uint64_t, std::uint64_t) {
    std::atomic<int>* counter = nullptr;
    std::memcpy(&counter, parameters, sizeof(counter));
    ++*counter;
}
const kmm::driver::HostKernel counting_kernel{&count_one, nullptr, "count"};

/// One device with four lanes, the last of which launchers feed.
struct Fixture {
    ScriptedDriver driver;
    Lanes lanes{driver, {0}, 4};
    FailedTasks failed;
    FakeMailbox mailbox;
    Errors errors;
    int runtime = 0;
    std::atomic<int> num_run{0};
    std::atomic<int> helps{0};
    std::atomic<int> turns_left{0};
    std::atomic<int>* const counter = &num_run;  ///< the parameter of each kernel
    TaskNumber num_kernels = 0;
    std::array<Position, 4> last{};
    Chunk chunk;
    std::array<std::byte, 256> host{};
    std::optional<DeviceThread> thread;

    explicit Fixture(bool automatic = true, bool leaves_turns = false)
        : driver(ScriptedOptions{.automatic = automatic}) {
        mailbox.on_help = [this] { ++helps; };
        mailbox.on_leave_turn = [this] { ++turns_left; };
        thread.emplace(0u, 1u, lanes, failed, &runtime, mailbox, errors, kmm::trace::nobody_listens, false, false,
                       leaves_turns);
    }
    ~Fixture() {
        driver.release_all();
        driver.set_automatic(true);
        thread.reset();
    }
    StreamHandle stream(LaneId lane) {
        Status status;
        return lanes.stream(lane, &status);
    }
    Instruction kernel(LaneId lane) {
        Instruction i;
        i.lane = lane;
        i.position = ++last[kmm::graph::index_of(lane)];
        i.task = ++num_kernels;
        i.function = &counting_kernel;
        i.parameters = std::as_bytes(std::span(&counter, 1));
        return i;
    }
    /// Of the host's memory to the device's, as far as the thread knows.
    Instruction copy(TaskNumber task = 0) {
        Instruction i;
        i.op = Instruction::Op::transfer;
        i.lane = up;
        i.position = ++last[kmm::graph::index_of(up)];
        i.task = task;
        i.chunk = &chunk;
        i.from = kmm::memory::MemoryIndex::host();
        i.to = kmm::memory::MemoryIndex::of_device(0);
        i.source = reinterpret_cast<std::uintptr_t>(host.data());
        i.destination = reinterpret_cast<std::uintptr_t>(host.data() + host.size() / 2);
        i.bytes = host.size() / 2;
        return i;
    }
    void push(Instructions instructions) {
        InstructionList list;
        for (const Instruction& i : instructions) list.push(i);
        thread->push(list);
        EXPECT_TRUE(list.empty());
    }
    void push_kernels(LaneId lane, std::size_t count) {
        Instructions instructions;
        for (std::size_t i = 0; i < count; ++i) instructions.push_back(kernel(lane));
        push(std::move(instructions));
    }
    /// Until the thread has made so many calls of this name.
    void await_calls(const char* call, std::size_t count) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (driver.count(call) < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        EXPECT_EQ(driver.count(call), count) << call;
    }
    void expect_advance(LaneId lane, Position position) {
        const Message m = mailbox.next();
        EXPECT_EQ(m.what, Message::What::advance);
        EXPECT_EQ(m.lane, lane);
        EXPECT_EQ(m.position, position);
        EXPECT_EQ(text_of(m.error), "");
        EXPECT_TRUE(lanes.passed({lane, position}));
        EXPECT_FALSE(lanes.passed({lane, position + 1}));
    }
    /// Takes messages of this lane until it has come so far; each goes on from the one before.
    void await_advance(LaneId lane, Position position) {
        for (Position seen = 0; seen < position;) {
            const Message m = mailbox.next();
            ASSERT_EQ(m.what, Message::What::advance);
            ASSERT_EQ(m.lane, lane);
            ASSERT_GT(m.position, seen);
            seen = m.position;
            ASSERT_LE(seen, position);
        }
    }
};

TEST(DeviceThread, kernels_cost_one_event_for_sixteen_of_them_and_nothing_else_that_grows_with_their_number) {
    struct Costs {
        std::size_t records, events, preparations, launches;
    };
    const auto costs_of = [](std::size_t kernels) {
        Fixture f;
        f.push_kernels(compute, kernels);
        f.await_advance(compute, kernels);
        EXPECT_EQ(f.num_run.load(), static_cast<int>(kernels));
        return Costs{f.driver.count("record_event"), f.driver.count("create_event"), f.driver.count("prepare_kernel"),
                     f.driver.count("launch")};
    };
    constexpr std::size_t n = 10 * events_every;
    const Costs one = costs_of(n);
    const Costs two = costs_of(2 * n);
    EXPECT_EQ(one.launches, n);
    EXPECT_EQ(two.launches, 2 * n);
    EXPECT_EQ(one.records, n / events_every);
    EXPECT_EQ(two.records, 2 * n / events_every);
    EXPECT_EQ(one.events, 1u) << "an event that has passed is used again";
    EXPECT_EQ(two.events, 1u);
    EXPECT_EQ(one.preparations, 1u);
    EXPECT_EQ(two.preparations, 1u);
    EXPECT_EQ(costs_of(n + 1).records, n / events_every + 1) << "and one for what is left at the end";
}

TEST(DeviceThread, a_kernel_for_which_another_lane_will_wait_has_an_event_right_behind_it) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    Instructions instructions{f.kernel(compute), f.kernel(compute), f.kernel(compute), f.kernel(compute)};
    instructions[1].mark = true;
    f.push(std::move(instructions));
    f.await_calls("record_event", 2);
    f.driver.release_all();
    f.await_advance(compute, 4);
    std::vector<std::string> calls;
    for (const auto& entry : f.driver.log())
        if (entry.call == "launch" || entry.call == "record_event") calls.push_back(entry.call);
    EXPECT_EQ(calls,
              (std::vector<std::string>{"launch", "launch", "record_event", "launch", "launch", "record_event"}));
}

TEST(DeviceThread, a_launch_that_is_to_be_measured_is_told_in_the_devices_time) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    Instruction measured = f.kernel(compute);
    measured.measure = true;
    measured.kernel_times = 5;
    f.push({measured, f.kernel(compute)});
    f.await_calls("record_event", 3);
    f.driver.release_all();
    const Message m = f.mailbox.next();
    EXPECT_EQ(m.what, Message::What::measured);
    EXPECT_EQ(m.kernel_times, 5u);
    EXPECT_EQ(m.duration_ns, 2'000'000) << "a kernel and an event take a millisecond each on this driver";
    f.expect_advance(compute, 2);
}

TEST(DeviceThread, what_an_idle_device_waited_for_the_host_is_no_time_of_the_kernel) {
    Fixture f;  // work is done when it is put on the stream
    Instruction measured = f.kernel(compute);
    measured.measure = true;
    f.push({measured});
    const Message m = f.mailbox.next();
    if (m.what != Message::What::measured) return;  // the host took so long that nobody can say
    EXPECT_LT(m.duration_ns, 2'000'000);
    EXPECT_GE(m.duration_ns, 2'000'000 - 20'000);
}

TEST(DeviceThread, a_kernel_that_was_not_launched_is_not_measured) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    f.driver.fail_call("launch", 1, Code::launch_failed);
    Instruction refused = f.kernel(compute);
    refused.measure = true;
    Instruction skipped = f.kernel(compute);
    skipped.measure = true;
    const TaskNumber needed = refused.task;
    skipped.needed_tasks = {&needed, 1};
    Instruction empty = f.kernel(compute);
    empty.measure = true;
    empty.function = nullptr;
    f.push({refused, skipped, empty});
    EXPECT_EQ(f.mailbox.next().what, Message::What::task_failed);
    f.driver.release_all();
    f.expect_advance(compute, 3);
}

TEST(DeviceThread, turns_are_left_to_the_scheduler_while_there_is_more_to_feed) {
    for (const bool leaves_turns : {false, true}) {
        Fixture f(true, leaves_turns);
        f.push_kernels(compute, 10 * events_every);
        f.await_advance(compute, 10 * events_every);
        f.thread.reset();
        EXPECT_EQ(f.turns_left > 0, leaves_turns) << "of what completed while the batch was fed";
        EXPECT_EQ(f.helps + f.turns_left, 10);
    }
    Fixture f(true, true);
    f.push_kernels(compute, 1);
    f.await_advance(compute, 1);
    f.thread.reset();
    EXPECT_EQ(f.helps, 1) << "a thread with nothing else to do makes something of it itself";
    EXPECT_EQ(f.turns_left, 0);
}

TEST(DeviceThread, each_of_few_copies_has_an_event_of_its_own) {
    for (const std::size_t copies : {3u, 6u}) {
        Fixture f;
        Instructions instructions;
        for (std::size_t i = 0; i < copies; ++i) instructions.push_back(f.copy());
        f.push(std::move(instructions));
        f.await_advance(up, copies);
        EXPECT_EQ(f.driver.count("record_event"), copies);
        EXPECT_EQ(f.driver.count("copy"), copies);
    }
}

TEST(DeviceThread, many_small_copies_in_a_row_are_few_calls_with_an_event_each) {
    for (const std::size_t copies : {500u, 1000u}) {
        Fixture f;
        for (std::byte& b : f.host) b = std::byte{0};
        f.host[5] = std::byte{42};
        Instructions instructions;
        for (std::size_t i = 0; i < copies; ++i) instructions.push_back(f.copy());
        f.push(std::move(instructions));
        f.await_advance(up, copies);
        EXPECT_EQ(f.driver.count("copy"), 0u);
        EXPECT_EQ(f.driver.count("copy_batch"), (copies + 255) / 256);
        EXPECT_EQ(f.driver.count("record_event"), f.driver.count("copy_batch"));
        EXPECT_EQ(f.host[f.host.size() / 2 + 5], std::byte{42});
        EXPECT_GT(f.thread->busy_ns(Link::host_to_device), 0);
    }
}

// The first kernel waits for a copy, and a later copy for the second kernel: as one call the copies would wait for each
// other.
TEST(DeviceThread, copies_before_and_behind_other_work_are_not_one_call) {
    Fixture f;
    constexpr Position count = 10;
    Instructions instructions;
    for (Position i = 0; i < count; ++i) instructions.push_back(f.copy());
    const Fence before{up, count}, between{compute, 1};
    instructions.push_back(f.kernel(compute));
    instructions.back().waits = {&before, 1};
    for (Position i = 0; i < count; ++i) instructions.push_back(f.copy());
    instructions[count + 3].waits = {&between, 1};
    f.push(std::move(instructions));
    for (Position up_to = 0, kernels = 0; up_to < 2 * count || kernels < 1;) {
        const Message m = f.mailbox.next();
        ASSERT_EQ(m.what, Message::What::advance);
        (m.lane == up ? up_to : kernels) = m.position;
    }
    EXPECT_EQ(f.driver.count("copy_batch"), 2u);
    EXPECT_EQ(f.num_run.load(), 1);
}

TEST(DeviceThread, copies_that_the_driver_refuses_as_one_call_are_made_one_by_one) {
    Fixture f;
    for (std::byte& b : f.host) b = std::byte{0};
    f.host[5] = std::byte{42};
    f.driver.fail_call("copy_batch", 1, Code::unknown);
    // The fourth copy fails for good.
    for (std::uint64_t attempt = 4; attempt <= 6; ++attempt) f.driver.fail_call("copy", attempt, Code::unknown);
    constexpr Position count = 12;
    Instructions instructions;
    for (Position i = 0; i < count; ++i) instructions.push_back(f.copy());
    f.push(std::move(instructions));
    Position failed = 0, there = 0;
    while (there < count) {
        const Message m = f.mailbox.next();
        if (m.what == Message::What::copy_failed)
            failed = m.position;
        else
            there = m.position;
        EXPECT_TRUE(m.what == Message::What::copy_failed || there < 4 || failed == 4)
            << "told before the lane passes it";
    }
    EXPECT_EQ(failed, 4u);
    EXPECT_EQ(f.driver.count("copy"), count + 2);
    EXPECT_EQ(f.host[f.host.size() / 2 + 5], std::byte{42});
}

TEST(DeviceThread, a_lane_advances_to_the_events_that_have_passed_and_no_further) {
    Fixture f(false);
    const std::size_t kernels = 2 * events_every + 8;
    f.push_kernels(compute, kernels);
    f.await_calls("record_event", 3);
    std::size_t ran = 0;
    for (const Position position : {events_every, 2 * events_every, Position{kernels}}) {
        for (; ran < position; ++ran) ASSERT_TRUE(f.driver.step());
        EXPECT_TRUE(f.mailbox.empty()) << "the event has not passed";
        EXPECT_FALSE(f.lanes.passed({compute, position}));
        ASSERT_TRUE(f.driver.step());
        f.expect_advance(compute, position);
    }
    EXPECT_EQ(f.num_run.load(), static_cast<int>(kernels));
}

TEST(DeviceThread, lanes_advance_independently) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    f.push({f.kernel(compute), f.kernel(other_compute), f.copy()});
    Position seen[2] = {0, 0};
    for (int i = 0; i < 2; ++i) {
        const Message m = f.mailbox.next();
        ASSERT_EQ(m.what, Message::What::advance);
        ASSERT_TRUE(m.lane == other_compute || m.lane == up);
        seen[m.lane == up] = m.position;
    }
    EXPECT_EQ(seen[0], 1u);
    EXPECT_EQ(seen[1], 1u);
    EXPECT_TRUE(f.mailbox.empty());
    f.driver.release_all();
    f.expect_advance(compute, 1);
}

TEST(DeviceThread, work_comes_after_its_fences_on_the_device) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    Instruction second = f.kernel(other_compute);
    const Fence fence{compute, 1};
    second.waits = {&fence, 1};
    f.push({f.kernel(compute), std::move(second)});
    f.await_calls("launch", 2);
    EXPECT_EQ(f.num_run.load(), 0);
    f.driver.release_all();
    const LaneId first = f.mailbox.next().lane;
    EXPECT_NE(f.mailbox.next().lane, first);
    EXPECT_EQ(f.num_run.load(), 2);
}

TEST(DeviceThread, what_a_launcher_put_on_its_lane_is_watched) {
    Fixture f;
    const StreamHandle stream = f.stream(launcher);
    f.driver.hold(stream);
    ASSERT_TRUE(f.driver.host_callback(stream, [](void* n) { ++*static_cast<std::atomic<int>*>(n); }, &f.num_run).ok());
    f.lanes.enqueued(launcher, 7);
    Instruction watch;
    watch.op = Instruction::Op::watch;
    watch.lane = launcher;
    watch.position = 7;
    f.push({watch});
    f.await_calls("record_event", 1);
    EXPECT_TRUE(f.mailbox.empty());
    f.driver.release_all();
    f.expect_advance(launcher, 7);
    EXPECT_EQ(f.num_run.load(), 1);
    EXPECT_EQ(f.driver.count("launch") + f.driver.count("copy"), 0u);
}

TEST(DeviceThread, a_copy_that_the_driver_refuses_is_tried_again) {
    Fixture f;
    for (std::byte& b : f.host) b = std::byte{0};
    f.host[5] = std::byte{42};
    f.driver.fail_call("copy", 1, Code::unknown);
    f.driver.fail_call("copy", 2, Code::unknown);
    f.push({f.copy()});
    f.expect_advance(up, 1);
    EXPECT_EQ(f.driver.count("copy"), 3u);
    EXPECT_EQ(f.host[f.host.size() / 2 + 5], std::byte{42});
    EXPECT_FALSE(f.failed.any());
    EXPECT_GT(f.thread->busy_ns(Link::host_to_device), 0);
    EXPECT_EQ(f.thread->busy_ns(Link::device_to_host), 0);
}

TEST(DeviceThread, a_copy_that_fails_for_good_is_told_before_the_lane_advances_past_it) {
    Fixture f;
    for (std::uint64_t attempt = 1; attempt <= 3; ++attempt) f.driver.fail_call("copy", attempt, Code::unknown);
    f.push({f.copy(9), f.copy()});
    const std::string text = Errors::of("copying a chunk", Code::unknown);
    const Message first = f.mailbox.next();
    EXPECT_EQ(first.what, Message::What::task_failed);
    EXPECT_EQ(first.task_number, 9u);
    EXPECT_EQ(text_of(first.error), text);
    const Message second = f.mailbox.next();
    EXPECT_EQ(second.what, Message::What::copy_failed);
    EXPECT_EQ(second.lane, up);
    EXPECT_EQ(second.position, 1u);
    EXPECT_EQ(text_of(second.error), text);
    f.await_advance(up, 2);
    EXPECT_EQ(f.driver.count("copy"), 4u) << "three attempts, and the copy behind it is not concerned";
    EXPECT_TRUE(f.failed.contains(9));
}

TEST(DeviceThread, a_kernel_that_cannot_be_launched_fails_its_task_and_skips_those_that_need_it) {
    Fixture f;
    f.driver.fail_call("launch", 1, Code::launch_failed);
    Instructions instructions{f.kernel(compute), f.kernel(compute), f.kernel(compute)};
    const TaskNumber needed = 1;
    instructions[1].needed_tasks = {&needed, 1};
    f.push(std::move(instructions));
    const Message m = f.mailbox.next();
    EXPECT_EQ(m.what, Message::What::task_failed);
    EXPECT_EQ(m.task_number, 1u);
    EXPECT_EQ(text_of(m.error), Errors::of("launching the kernel", Code::launch_failed));
    f.expect_advance(compute, 3);
    EXPECT_EQ(f.num_run.load(), 1);
    EXPECT_EQ(f.driver.count("launch"), 2u) << "the second is not even handed to the driver";
    EXPECT_TRUE(f.failed.contains(2)) << "so that those behind it are skipped too";
    EXPECT_FALSE(f.failed.contains(3));
}

TEST(DeviceThread, where_the_driver_gives_no_event_the_lane_is_waited_for) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    f.driver.fail_call("record_event", 1, Code::out_of_memory);
    f.push_kernels(compute, 1);
    f.await_calls("synchronize_stream", 1);
    EXPECT_TRUE(f.mailbox.empty());
    EXPECT_FALSE(f.lanes.passed({compute, 1}));
    f.driver.release_all();
    f.expect_advance(compute, 1);
}

TEST(DeviceThread, an_error_that_stays_is_told_with_all_that_was_put_on_the_lane) {
    Fixture f;
    f.driver.fail_call("query_event", 1, Code::device_lost);
    f.push_kernels(compute, 5);
    const Message m = f.mailbox.next();
    EXPECT_EQ(m.what, Message::What::advance);
    EXPECT_EQ(m.lane, compute);
    EXPECT_EQ(m.position, 5u);
    EXPECT_EQ(text_of(m.error), Errors::of("waiting for work of the device", Code::device_lost));
    EXPECT_TRUE(f.lanes.passed({compute, 5})) << "nobody waits for it";
    f.push_kernels(compute, 1);
    f.expect_advance(compute, 6);
}

TEST(DeviceThread, ends_when_all_that_was_handed_in_is_done) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    f.push_kernels(compute, 100);
    f.push({f.copy()});
    f.await_calls("launch", 100);
    f.await_calls("host_callback", 1);  // it is about to sleep until the device calls, and should not end when woken
    const auto let_others_run = [] {
        for (int i = 0; i < 5000; ++i) std::this_thread::yield();
    };
    let_others_run();
    auto end = std::async(std::launch::async, [&] { f.thread.reset(); });
    let_others_run();
    f.driver.release_all();
    end.get();
    EXPECT_EQ(f.num_run.load(), 100);
    EXPECT_TRUE(f.lanes.passed({compute, 100}));
    EXPECT_TRUE(f.lanes.passed({up, 1}));
    EXPECT_EQ(f.driver.count("destroy_event"), f.driver.count("create_event"));
    EXPECT_EQ(f.mailbox.num_lost(), 0u);
}

TEST(DeviceThread, that_stops_feeding_waits_for_what_the_device_has_and_drops_the_rest) {
    Fixture f;
    f.driver.hold(f.stream(compute));
    f.push_kernels(compute, 1);
    f.await_calls("launch", 1);
    f.thread->stop_feeding();
    f.push_kernels(compute, 3);
    while (f.lanes.enqueued(other_compute) != Lanes::end_of_lane) std::this_thread::yield();
    EXPECT_FALSE(f.lanes.passed({compute, 1})) << "what is on its way is waited for";
    f.driver.release_all();
    f.thread->wait_until_stopped();
    EXPECT_EQ(f.driver.count("launch"), 1u);
    EXPECT_TRUE(f.failed.contains(99)) << "what comes after it is skipped";
    for (const auto lane : {compute, other_compute, up})
        EXPECT_TRUE(f.lanes.passed({lane, 99})) << "no thread waits for it";
    EXPECT_FALSE(f.lanes.passed({launcher, 1})) << "functions that run may still put something there";
}

}  // namespace
