// Instructions as plain values: kmm/schedule/instruction.hpp.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "../memory/cut_array.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/schedule/instruction.hpp"

namespace {

using kmm::graph::Fence;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::TaskNumber;
using kmm::schedule::Fill;
using kmm::schedule::Instruction;
using kmm::schedule::InstructionList;

/// An instruction whose spans have `n` % 7 entries or so, all of which say `n`; what they point to goes with it.
struct Made {
    explicit Made(std::size_t n)
        : parameters(n % 40, std::byte(n)),
          waits(n % 6, Fence{LaneId{3}, n}),
          needed(n % 5, TaskNumber{n}),
          fills(n % 3) {
        for (Fill& f : fills) f.address = n;
        value.position = n;
        value.parameters = parameters;
        value.waits = waits;
        value.needed_tasks = needed;
        value.fills = fills;
    }
    std::vector<std::byte> parameters;
    std::vector<Fence> waits;
    std::vector<TaskNumber> needed;
    std::vector<Fill> fills;
    Instruction value;
};

void push(InstructionList& list, std::size_t first, std::size_t count) {
    for (std::size_t n = first; n < first + count; ++n) list.push(std::make_unique<Made>(n)->value);
}

void expect(InstructionList& list, std::size_t first, std::size_t count) {
    EXPECT_EQ(list.size(), count);
    std::size_t n = first;
    list.for_each([&](const Instruction& i) {
        const Made must(n);
        EXPECT_EQ(i.position, n);
        EXPECT_TRUE(
            std::equal(i.parameters.begin(), i.parameters.end(), must.parameters.begin(), must.parameters.end()));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(i.parameters.data()) % 16, 0u) << "as a kernel's parameters want it";
        ASSERT_EQ(i.waits.size(), must.waits.size());
        for (const Fence& f : i.waits) EXPECT_EQ(f.position, n);
        EXPECT_TRUE(std::equal(i.needed_tasks.begin(), i.needed_tasks.end(), must.needed.begin(), must.needed.end()));
        ASSERT_EQ(i.fills.size(), must.fills.size());
        for (const Fill& f : i.fills) EXPECT_EQ(f.address, n);
        ++n;
    });
    EXPECT_EQ(n, first + count);
}

TEST(InstructionList, keeps_what_instructions_point_to_and_says_it_twice) {
    InstructionList list;
    push(list, 0, 200);
    expect(list, 0, 200);
    expect(list, 0, 200);
}

TEST(InstructionList, takes_all_of_another_list_behind_its_own) {
    InstructionList list, more;
    push(more, 0, 50);
    list.take(more);
    EXPECT_TRUE(more.empty());
    for (std::size_t first = 50; first < 250; first += 50) {
        push(more, first, 50);
        list.take(more);
        EXPECT_TRUE(more.empty());
    }
    expect(list, 0, 250);
    list.clear();
    EXPECT_TRUE(list.empty());
    push(list, 7, 3);
    expect(list, 7, 3);
}

TEST(InstructionList, is_consumed_up_to_what_cannot_be_done_yet) {
    InstructionList list;
    push(list, 0, 300);
    std::size_t next = 0;
    for (std::size_t limit = 7; next < 300; limit += 13) {
        list.consume([&](const Instruction& i) {
            EXPECT_EQ(i.position, next);
            if (next == limit) return false;
            ++next;
            return true;
        });
        if (next < 300) expect(list, next, 300 - next);
    }
    EXPECT_TRUE(list.empty());
    push(list, 40, 2);
    InstructionList more;
    push(more, 42, 9);
    more.consume([](const Instruction& i) { return i.position < 45; });
    list.consume([](const Instruction&) { return true; });
    list.take(more);
    expect(list, 45, 6);
}

TEST(Fill, is_the_region_of_a_view_or_the_whole_chunk_of_a_use) {
    kmm::memory::Array array;
    array.element_bytes = 4;
    kmm_test::cut(array, 1, 400, 1);
    kmm::graph::Task task;
    std::vector<std::byte> memory(400);
    task.uses.emplace_back().chunk = &array.chunks[0];
    kmm::graph::View& view = task.views.emplace_back();
    view.use = 0;
    view.offset_bytes = 40;
    kmm::graph::Unset unset;
    unset.extents[0] = 5;
    unset.strides[0] = 10;
    unset.address = reinterpret_cast<std::uintptr_t>(memory.data() + 40);
    Fill fill = kmm::schedule::fill_of(task, unset);
    EXPECT_EQ(fill.address, reinterpret_cast<std::uintptr_t>(memory.data() + 40));
    EXPECT_EQ(fill.element_bytes, 4u);
    EXPECT_EQ(fill.extents[0], 5);
    EXPECT_EQ(fill.strides[0], 10);
    unset.whole_chunk = true;
    unset.address = reinterpret_cast<std::uintptr_t>(memory.data());
    fill = kmm::schedule::fill_of(task, unset);
    EXPECT_EQ(fill.address, reinterpret_cast<std::uintptr_t>(memory.data()));
    std::int64_t elements = 1;
    for (const std::int64_t extent : fill.extents) elements *= extent;
    EXPECT_EQ(elements, 100);
}

}  // namespace
