// Owns: lists of boxes that a driver moves, compared with loops on the host.
#include <algorithm>
#include <random>

#include "driver_test.hpp"

namespace driver_test {
namespace {

using Bytes = std::vector<unsigned char>;

class DriverBoxes : public DriverTest {
  protected:
    static Bytes numbers(std::size_t n, unsigned seed = 1) {
        Bytes result(n);
        for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<unsigned char>((i * 131 + seed * 17) >> 2);
        return result;
    }
    /// Fills both memories, moves the boxes, whose addresses are offsets so far, and compares.
    void check_moves(std::vector<BoxMove> boxes, unsigned char* destination, const unsigned char* source,
                     std::size_t bytes, StreamHandle on, int destination_device = 0);
};

BoxMove rows(std::size_t to, std::size_t from, std::size_t run, std::size_t count, std::size_t to_step,
             std::size_t from_step) {
    BoxMove box;
    box.destination = reinterpret_cast<void*>(to);
    box.source = reinterpret_cast<const void*>(from);
    box.run_bytes = run;
    box.num_axes = 1;
    box.counts[0] = static_cast<std::int64_t>(count);
    box.destination_steps[0] = static_cast<std::int64_t>(to_step);
    box.source_steps[0] = static_cast<std::int64_t>(from_step);
    return box;
}

/// Where runs of a random box lie in a buffer: each step is at least what is nested in it, sometimes more.
std::size_t make_steps(std::mt19937& random, const BoxMove& box, std::int64_t* steps) {
    std::size_t reach = box.run_bytes;
    for (std::uint32_t k = box.num_axes; k-- > 0;) {
        const std::size_t step = reach + (random() % 2 == 0 ? 0 : random() % 9);
        steps[k] = static_cast<std::int64_t>(step);
        reach += step * static_cast<std::size_t>(std::max<std::int64_t>(box.counts[k], 1) - 1);
    }
    return reach;
}

void reference_move(const BoxMove& box, unsigned char* to, const unsigned char* from, std::uint32_t axis = 0) {
    if (axis == box.num_axes) {
        std::copy(from, from + box.run_bytes, to);
        return;
    }
    for (std::int64_t i = 0; i < box.counts[axis]; ++i)
        reference_move(box, to + i * box.destination_steps[axis], from + i * box.source_steps[axis], axis + 1);
}

void DriverBoxes::check_moves(std::vector<BoxMove> boxes, unsigned char* destination, const unsigned char* source,
                              std::size_t bytes, StreamHandle on, int destination_device) {
    const Bytes content = numbers(bytes, 3);
    Bytes expected = numbers(bytes, 1003);
    KMM_OK(driver().copy(const_cast<unsigned char*>(source), content.data(), bytes, stream()));
    KMM_OK(driver().copy(destination, expected.data(), bytes, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    for (BoxMove& box : boxes) {
        const auto to = reinterpret_cast<std::uintptr_t>(box.destination);
        const auto from = reinterpret_cast<std::uintptr_t>(box.source);
        reference_move(box, expected.data() + to, content.data() + from);
        box.destination = destination + to;
        box.source = source + from;
    }
    KMM_OK(driver().move_boxes(boxes.data(), boxes.size(), on));
    std::fill(boxes.begin(), boxes.end(), BoxMove());  // the list was read
    KMM_OK(driver().synchronize_stream(on));
    ASSERT_EQ(read(destination, bytes, destination_device), expected);
}

TEST_P(DriverBoxes, random_lists_of_boxes_move_as_loops_on_the_host_do) {
    std::mt19937 random(11);
    constexpr std::size_t bytes = 60000;
    unsigned char* device_a = device_memory(bytes);
    unsigned char* device_b = device_memory(bytes);
    unsigned char* pinned = pinned_memory(bytes);
    for (int trial = 0; trial < 300; ++trial) {
        const int direction = trial % 3;  // up, across, down
        unsigned char* const source = direction == 0 ? pinned : device_a;
        unsigned char* const destination = direction == 2 ? pinned : device_b;
        const auto content = numbers(bytes, static_cast<unsigned>(trial));
        auto expected = numbers(bytes, static_cast<unsigned>(trial) + 1000);
        KMM_OK(driver().copy(source, content.data(), bytes, stream()));
        KMM_OK(driver().copy(destination, expected.data(), bytes, stream()));
        KMM_OK(driver().synchronize_stream(stream()));
        std::vector<BoxMove> boxes;
        std::size_t to = random() % 17, from = random() % 17;
        for (const std::size_t most = 1 + random() % 12; boxes.size() < most;) {
            BoxMove box;
            box.run_bytes = trial % 4 == 0 ? 16 * (1 + random() % 8) : 1 + random() % 50;
            box.num_axes = static_cast<std::uint32_t>(random() % (BoxMove::max_axes + 1));
            for (std::uint32_t k = 0; k < box.num_axes; ++k)
                box.counts[k] =
                    static_cast<std::int64_t>(random() % 40 == 0 ? 0 : 1 + random() % (box.num_axes > 3 ? 2 : 6));
            const std::size_t to_reach = make_steps(random, box, box.destination_steps);
            const std::size_t from_reach = make_steps(random, box, box.source_steps);
            if (to + to_reach > bytes || from + from_reach > bytes) break;
            box.destination = destination + to;
            box.source = source + from;
            reference_move(box, expected.data() + to, content.data() + from);
            to += to_reach + random() % 3;
            from += from_reach + random() % 3;
            boxes.push_back(box);
        }
        KMM_OK(driver().move_boxes(boxes.data(), boxes.size(), stream()));
        std::fill(boxes.begin(), boxes.end(), BoxMove());  // the list was read
        ASSERT_EQ(read(destination, bytes), expected) << "trial " << trial;
    }
}

TEST_P(DriverBoxes, boxes_move_in_the_order_of_the_stream) {
    constexpr std::size_t n = 1000;
    int* a = device_memory<int>(n);
    int* b = device_memory<int>(n);
    BoxMove box;  // every second row of ten
    box.run_bytes = 40;
    box.num_axes = 1;
    box.counts[0] = 50;
    box.source_steps[0] = box.destination_steps[0] = 80;
    box.source = a;
    box.destination = b;
    for (int i = 0; i < 20; ++i) {
        KMM_OK(fill_ints(a, i, n, stream()));
        KMM_OK(fill_ints(b, -1, n, stream()));
        KMM_OK(driver().move_boxes(&box, 1, stream()));
        KMM_OK(add(b, n, 100, stream()));
    }
    const std::vector<int> result = read(b, n);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(result[i], i / 10 % 2 == 0 ? 119 : 99) << i;
}

TEST_P(DriverBoxes, boxes_of_nothing_move_nothing_and_bad_ones_are_refused_as_a_whole) {
    unsigned char* a = device_memory(100);
    KMM_OK(driver().copy(a, numbers(100, 1).data(), 100, stream()));
    KMM_OK(driver().move_boxes(nullptr, 0, stream()));
    BoxMove boxes[2];
    KMM_OK(driver().move_boxes(boxes, 2, stream()));
    boxes[0].destination = a;
    boxes[0].source = a + 50;
    boxes[0].run_bytes = 10;
    boxes[1] = boxes[0];
    boxes[1].num_axes = 1;
    KMM_OK(driver().move_boxes(boxes + 1, 1, stream()));
    boxes[1].counts[0] = -1;
    KMM_FAILS(driver().move_boxes(boxes, 2, stream()), Code::invalid_argument);
    boxes[1].counts[0] = 1;
    boxes[1].source = nullptr;
    KMM_FAILS(driver().move_boxes(boxes, 2, stream()), Code::invalid_argument);
    boxes[1].num_axes = BoxMove::max_axes + 1;
    KMM_FAILS(driver().move_boxes(boxes, 2, stream()), Code::invalid_argument);
    boxes[1] = boxes[0];
    boxes[1].num_axes = 1;
    boxes[1].counts[0] = 2;
    boxes[1].source_steps[0] = 10;
    boxes[1].destination_steps[0] = 9;  // its runs overlap
    KMM_FAILS(driver().move_boxes(boxes, 2, stream()), Code::invalid_argument);
    boxes[1].destination_steps[0] = boxes[1].source_steps[0] = 10;
    boxes[1].counts[0] = INT64_MAX / 8;  // it reaches beyond every address
    KMM_FAILS(driver().move_boxes(boxes, 2, stream()), Code::invalid_argument);
    EXPECT_EQ(read(a, 100), numbers(100, 1));
}

/// A 3-D box of each kind of alignment, and runs around the sizes that a thread moves at once.
TEST_P(DriverBoxes, boxes_move_whatever_their_alignment) {
    constexpr std::size_t bytes = 40000;
    unsigned char* const a = device_memory(bytes);
    unsigned char* const b = device_memory(bytes);
    unsigned char* const pinned = pinned_memory(bytes);
    for (const std::size_t to : {0u, 1u, 2u, 4u, 8u, 12u})
        for (const std::size_t from : {0u, 1u, 2u, 4u, 8u, 20u})
            for (const std::size_t run : {1u, 2u, 3u, 4u, 8u, 16u, 24u, 31u, 64u, 260u}) {
                BoxMove box = rows(to, from, run, 3, 5000, 6000);
                box.num_axes = 2;
                box.counts[1] = 7;
                box.destination_steps[1] = static_cast<std::int64_t>((run + 15) / 16 * 16 + 16);
                box.source_steps[1] = static_cast<std::int64_t>(run + run % 3);
                check_moves({box}, b, a, bytes, stream());
                if (run % 8 == 0) check_moves({box}, pinned, a, bytes, stream());
                if (run % 8 == 0) check_moves({box}, b, pinned, bytes, stream());
                if (HasFatalFailure()) FAIL() << "to " << to << ", from " << from << ", runs of " << run;
            }
}

TEST_P(DriverBoxes, a_thousand_boxes_of_many_shapes_move_in_one_call) {
    constexpr std::size_t slot = 700, bytes = 1000 * slot;
    std::mt19937 random(21);
    std::vector<BoxMove> boxes;
    for (std::size_t i = 0; i < 1000; ++i) {
        const std::size_t run = 1 + random() % 60;
        boxes.push_back(rows(i * slot, (999 - i) * slot + random() % 4, run, 1 + random() % 8, 64 + random() % 20, 80));
    }
    check_moves(boxes, device_memory(bytes), pinned_memory(bytes), bytes, stream());
    check_moves(boxes, device_memory(bytes), device_memory(bytes), bytes, stream());
    check_moves(boxes, pinned_memory(bytes), device_memory(bytes), bytes, stream());
    // And of one shape.
    for (std::size_t i = 0; i < 1000; ++i) boxes[i] = rows(i * slot, (999 - i) * slot, 16, 5, 64, 128);
    check_moves(boxes, device_memory(bytes), device_memory(bytes), bytes, stream());
}

TEST_P(DriverBoxes, large_boxes_move_many_items_by_each_thread) {
    constexpr std::size_t bytes = 24u << 20;
    unsigned char* const a = device_memory(bytes);
    unsigned char* const b = device_memory(bytes);
    check_moves({rows(0, 0, 4096, 2000, 8192, 12288)}, b, a, bytes, stream());
    check_moves({rows(8, 16, 8, 500000, 24, 40)}, b, a, bytes, stream());
    check_moves({rows(1, 3, 3, 900000, 17, 5)}, b, a, bytes, stream());
    check_moves({rows(0, 0, 48, 100000, 64, 160)}, b, pinned_memory(bytes), bytes, stream());
}

TEST_P(DriverBoxes, long_runs_go_with_short_ones) {
    constexpr std::size_t mib = 1 << 20, bytes = 12 * mib;
    std::vector<BoxMove> boxes = {rows(0, mib, mib + 4, 2, 2 * mib, 3 * mib), rows(5 * mib, 0, 100, 50, 200, 300),
                                  rows(6 * mib, 6 * mib, 4096, 512, 4096, 4096)};
    check_moves(boxes, device_memory(bytes), device_memory(bytes), bytes, stream());
    check_moves(boxes, device_memory(bytes), pinned_memory(bytes), bytes, stream());
    check_moves(boxes, pinned_memory(bytes), device_memory(bytes), bytes, stream());
}

TEST_P(DriverBoxes, boxes_move_from_and_to_pageable_memory) {
    constexpr std::size_t bytes = 30000;
    unsigned char* const a = device_memory(bytes);
    const Bytes content = numbers(bytes, 8);
    Bytes pageable = content, result = numbers(bytes, 9), expected = result;
    BoxMove there = rows(0, 0, 100, 20, 1000, 1100);
    BoxMove back = rows(0, 0, 60, 20, 900, 1000);
    KMM_OK(driver().copy(a, numbers(bytes, 10).data(), bytes, stream()));
    Bytes between = numbers(bytes, 10);
    reference_move(there, between.data(), content.data());
    reference_move(back, expected.data(), between.data());
    there.destination = a;
    there.source = pageable.data();
    KMM_OK(driver().move_boxes(&there, 1, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    back.destination = result.data();
    back.source = a;
    KMM_OK(driver().move_boxes(&back, 1, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    EXPECT_EQ(result, expected);
}

TEST_P(DriverBoxes, boxes_move_between_devices_with_and_without_access) {
    const int last = driver().device_count() - 1;
    if (last == 0) GTEST_SKIP() << "one device: nothing is between two";
    constexpr std::size_t bytes = 100000;
    unsigned char* const here = device_memory(bytes, 0);
    unsigned char* const there = device_memory(bytes, last);
    const std::vector<BoxMove> boxes = {rows(0, 16, 16, 300, 32, 48), rows(20000, 20000, 7, 900, 8, 9),
                                        rows(50000, 50000, 24, 400, 40, 24)};
    const StreamHandle of_last = new_stream(true, last);
    for (const bool enabled : {false, true}) {
        bool can = false;
        if (enabled) {
            KMM_OK(driver().can_access_peer(0, last, &can));
            if (!can) GTEST_SKIP() << "the devices cannot reach each other's memory";
            KMM_OK(driver().enable_peer(0, last));
            KMM_OK(driver().enable_peer(last, 0));
        }
        for (const StreamHandle on : {stream(), of_last}) {  // one gathers, the other one scatters
            check_moves(boxes, there, here, bytes, on, last);
            check_moves(boxes, here, there, bytes, on, 0);
        }
    }
}

TEST_P(DriverBoxes, boxes_move_between_a_device_and_another_ones_pools_with_and_without_access) {
    if (!driver().capabilities().memory_pools) GTEST_SKIP() << "no pools";
    const int last = driver().device_count() - 1;
    if (last == 0) GTEST_SKIP() << "one device: nothing is between two";
    constexpr std::size_t bytes = 100000;
    unsigned char* const here = device_memory(bytes, 0);
    const StreamHandle of_last = new_stream(true, last);
    const std::vector<BoxMove> boxes = {rows(0, 16, 16, 300, 32, 48), rows(20000, 20000, 7, 900, 8, 9)};
    for (const bool enabled : {false, true}) {  // a pool lets those read that may when it is made
        bool can = false;
        KMM_OK(driver().can_access_peer(0, last, &can));
        if (enabled && can) {
            KMM_OK(driver().enable_peer(0, last));
            KMM_OK(driver().enable_peer(last, 0));
        }
        PoolHandle pool;
        KMM_OK(driver().create_pool(last, {}, &pool));
        on_cleanup([this, pool] { EXPECT_TRUE(driver().destroy_pool(pool).ok()); });
        void* p = nullptr;
        KMM_OK(driver().allocate_async(pool, bytes, of_last, &p));
        KMM_OK(driver().synchronize_stream(of_last));
        for (const StreamHandle on : {stream(), of_last}) {
            check_moves(boxes, static_cast<unsigned char*>(p), here, bytes, on, last);
            check_moves(boxes, here, static_cast<unsigned char*>(p), bytes, on, 0);
        }
        KMM_OK(driver().free_async(p, of_last));
        KMM_OK(driver().synchronize_stream(of_last));
    }
}

TEST_P(DriverBoxes, boxes_move_on_the_device_of_their_stream_whatever_is_current) {
    constexpr std::size_t bytes = 20000;
    for (int device = driver().device_count() - 1; device >= 0; --device) {
        KMM_OK(driver().set_current_device(driver().device_count() - 1 - device));
        const StreamHandle on = new_stream(true, device);
        check_moves({rows(3, 5, 40, 100, 120, 90)}, device_memory(bytes, device), pinned_memory(bytes), bytes, on,
                    device);
        int current = -1;
        KMM_OK(driver().current_device(&current));
        EXPECT_EQ(current, driver().device_count() - 1 - device);
    }
    KMM_OK(driver().set_current_device(0));
    for (const StreamHandle on : {StreamHandle{}, legacy_stream(), per_thread_stream()})
        check_moves({rows(3, 5, 40, 100, 120, 90)}, device_memory(bytes), pinned_memory(bytes), bytes, on);
}

TEST_P(DriverBoxes, boxes_move_in_and_between_pieces_of_virtual_memory) {
    if (!driver().capabilities().virtual_memory) GTEST_SKIP() << "no virtual memory";
    const int last = driver().device_count() - 1;
    std::size_t piece = 0;
    KMM_OK(driver().granularity(0, {}, &piece));
    void* base = nullptr;
    KMM_OK(driver().reserve_addresses(3 * piece, &base));
    on_cleanup([this, base, piece] { EXPECT_TRUE(driver().release_addresses(base, 3 * piece).ok()); });
    bool can = true;
    if (last != 0) KMM_OK(driver().can_access_peer(0, last, &can));
    auto* const memory = static_cast<unsigned char*>(base);
    for (const int i : {0, 1, 2}) {  // the last piece is the other device's where it can be reached
        const int device = i == 2 && can ? last : 0;
        PhysicalHandle physical;
        KMM_OK(driver().create_physical(device, piece, {}, &physical));
        unsigned char* const at = memory + static_cast<std::size_t>(i) * piece;
        KMM_OK(driver().map(at, piece, physical));
        KMM_OK(driver().release_physical(physical));
        const int both[] = {device, device == 0 ? last : 0};
        KMM_OK(driver().set_access(at, piece, both, last != 0 && can ? 2 : 1));
        on_cleanup([this, at, piece] { EXPECT_TRUE(driver().unmap(at, piece).ok()); });
    }
    const std::size_t bytes = piece + 30000;
    // Across the first two pieces, then from there into the third.
    check_moves({rows(8, 16, 24, 700, piece / 700 / 8 * 8 + 40, 48)}, memory, device_memory(bytes), bytes, stream());
    check_moves({rows(8, 16, 24, 500, 40, 48)}, memory + 2 * piece, memory, 30000, stream());
}

TEST_P(DriverBoxes, boxes_are_captured_into_graphs) {
    if (!driver().capabilities().stream_capture) GTEST_SKIP() << "no capture";
    constexpr std::size_t n = 4000;
    int* const a = device_memory<int>(n);
    int* const b = device_memory<int>(n);
    BoxMove box = rows(0, 0, 40, 50, 80, 80);
    box.source = a;
    box.destination = b;
    KMM_OK(driver().move_boxes(&box, 1, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(driver().begin_capture(stream(), CaptureMode::thread_local_));
    KMM_OK(driver().move_boxes(&box, 1, stream()));
    GraphHandle graph;
    KMM_OK(driver().end_capture(stream(), &graph));
    GraphExecHandle exec;
    KMM_OK(driver().instantiate(graph, &exec));
    for (const int value : {7, 8}) {
        KMM_OK(fill_ints(a, value, n, stream()));
        KMM_OK(fill_ints(b, -1, n, stream()));
        KMM_OK(driver().launch_graph(exec, stream()));
        const std::vector<int> result = read(b, 1000);
        for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], i / 10 % 2 == 0 ? value : -1) << i;
    }
    KMM_OK(driver().destroy_exec(exec));
    KMM_OK(driver().destroy_graph(graph));
}

TEST_P(DriverBoxes, boxes_move_on_urgent_streams) {
    StreamHandle urgent;
    KMM_OK(driver().create_stream(0, true, most_urgent, &urgent));
    on_cleanup([this, urgent] { EXPECT_TRUE(driver().destroy_stream(urgent).ok()); });
    constexpr std::size_t bytes = 20000;
    check_moves({rows(3, 5, 40, 100, 120, 90)}, device_memory(bytes), pinned_memory(bytes), bytes, urgent);
}

KMM_ON_EVERY_DRIVER(DriverBoxes);

}  // namespace
}  // namespace driver_test
