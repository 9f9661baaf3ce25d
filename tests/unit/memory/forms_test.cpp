// Regions across chunks: when a task reads the chunks where they are, when a copy of the region, and what is copied.
#include <gtest/gtest.h>

#include "residency_script.hpp"

namespace {

using namespace kmm::residency_test;
using kmm::graph::BoxTransfer;

/// Arrays of chunks of one unit each, cut along one axis of bytes.
class FormsTest : public ResidencyTest {
  protected:
    std::unique_ptr<Array> make_stack(std::size_t chunks) {
        auto a = make_array(chunks);
        a->rank = 1;
        a->element_bytes = 1;
        a->is_stack = true;
        a->neighbours.resize_for_devices(base_.num_devices());
        for (std::size_t i = 0; i < chunks; i++) a->boxes.push_back(box(i * unit, (i + 1) * unit));
        return a;
    }
    static kmm::detail::Box box(std::size_t begin, std::size_t end) {
        kmm::detail::Box b;
        b.begin[0] = static_cast<std::int64_t>(begin);
        b.end[0] = static_cast<std::int64_t>(end);
        return b;
    }
    /// Reads the bytes from `begin` to `end` of the array in memory `m`.
    Task& read_across(MemoryIndex m, Array& a, std::size_t begin, std::size_t end) {
        temporaries_.push_back(make_array(1, end - begin));
        Array& temporary = *temporaries_.back();
        temporary.is_gathered = temporary.released = true;
        temporary.num_pieces = static_cast<std::uint32_t>((end - 1) / unit - begin / unit + 1);
        return read_across(m, a, begin, end, temporary);
    }
    /// The same with a temporary that other tasks share.
    Task& read_across(MemoryIndex m, Array& a, std::size_t begin, std::size_t end, Array& temporary) {
        Task& t = make_task(m, {{&temporary.chunks[0], false, false}});
        t.accesses[0].gathers = true;
        Across& across = t.across.emplace_back();
        across.first_piece = 1;
        across.num_pieces = temporary.num_pieces;
        across.may_be_in_place = true;
        across.offset_from_first_piece = begin % unit;
        for (std::uint32_t i = 0; i < across.num_pieces; i++) {
            Chunk& c = a.chunks[begin / unit + i];
            Access& piece = t.accesses.emplace_back();
            piece.chunk = &c;
            piece.needs_content = piece.is_piece = true;
            residency_->add_next_use(c, t.number, false);
            a.neighbours[m].chunks.add(c.index);
            BoxTransfer& transfer = t.boxes.emplace_back();
            transfer.source = 1 + i;
            transfer.box = box(std::max(begin, c.index * unit), std::min(end, (c.index + 1) * unit));
            transfer.run_bytes = static_cast<std::size_t>(transfer.box.end[0] - transfer.box.begin[0]);
        }
        return t;
    }
    bool lie_side_by_side(Array& a, std::size_t first, std::size_t last, MemoryIndex m) {
        for (std::size_t i = first; i < last; i++)
            if (a.chunks[i].replicas[m].address + unit != a.chunks[i + 1].replicas[m].address) return false;
        return true;
    }

    std::vector<std::unique_ptr<Array>> temporaries_;
};

TEST_F(FormsTest, chunks_that_lie_side_by_side_are_read_where_they_are) {
    start({64 * unit, 64 * unit});
    auto a = make_stack(3);
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);
    if (!lie_side_by_side(*a, 0, 2, gpu)) GTEST_FAIL() << "what is taken one after the other lies so";
    Task& t = read_across(gpu, *a, unit - 10, 2 * unit + 10);
    run(t);
    EXPECT_EQ(t.across[0].form, Across::Form::in_place);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.addresses[0]), a->chunks[0].replicas[gpu].address + unit - 10);
    EXPECT_TRUE(script_.copies.empty());
    EXPECT_TRUE(script_.gathers.empty());
    EXPECT_EQ(temporaries_[0]->chunks[0].replicas[gpu].address, 0u) << "no memory is taken for a copy";
    EXPECT_EQ(residency_->missing_bytes(t), 0u);
}

TEST_F(FormsTest, chunks_that_lie_elsewhere_are_laid_side_by_side_once_where_there_is_room) {
    start({64 * unit, 64 * unit});
    auto a = make_stack(4), between = make_array(4);
    for (std::size_t i = 0; i < 4; i++) {
        overwrite_on(gpu, a->chunks[i]);
        overwrite_on(gpu, between->chunks[i]);
    }
    ASSERT_FALSE(lie_side_by_side(*a, 0, 3, gpu));
    Task &left = read_across(gpu, *a, 0, unit + 10), &right = read_across(gpu, *a, 3 * unit - 10, 4 * unit);
    run(left);
    EXPECT_EQ(left.across[0].form, Across::Form::in_place);
    EXPECT_TRUE(lie_side_by_side(*a, 0, 3, gpu)) << "all that tasks read across, not only what this one reads";
    ASSERT_EQ(script_.copies.size(), 4u);
    for (const Script::Copy& copy : script_.copies) EXPECT_TRUE(copy.from == gpu && copy.to == gpu);
    run(right);
    EXPECT_EQ(right.across[0].form, Across::Form::in_place);
    for (Chunk& c : a->chunks) write_on(gpu, c);
    run(read_across(gpu, *a, unit - 10, 3 * unit));
    EXPECT_EQ(script_.copies.size(), 4u) << "they stay where they are";
    EXPECT_TRUE(script_.gathers.empty());
}

TEST_F(FormsTest, chunks_of_an_array_that_tasks_will_read_across_are_taken_side_by_side) {
    start({64 * unit, 64 * unit});
    auto a = make_stack(4), b = make_stack(4);
    for (Array* array : {a.get(), b.get()}) array->neighbours[gpu].chunks = {0, 3};
    residency_->given_again(gpu, base_[gpu], 16 * unit, false);
    for (Array* array : {a.get(), b.get()})
        for (const std::size_t i : {2, 0, 3, 1}) overwrite_on(gpu, array->chunks[i]);
    run(read_across(gpu, *a, 10, 4 * unit - 10));
    run(read_across(gpu, *b, 10, 4 * unit - 10));
    EXPECT_TRUE(script_.copies.empty());
    EXPECT_TRUE(script_.gathers.empty());
}

TEST_F(FormsTest, a_region_is_gathered_from_wherever_its_parts_are_where_the_chunks_find_no_room) {
    start({64 * unit, 4 * unit, 64 * unit});
    script_.all_linked = true;
    auto a = make_stack(3), out = make_array(1);
    overwrite_on(host, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);
    overwrite_on(gpu_1, a->chunks[2]);
    overwrite_on(gpu, out->chunks[0]);
    Task& t = read_across(gpu, *a, unit - 10, 2 * unit + 10);
    EXPECT_EQ(residency_->missing_bytes(t), 20u + unit + 20) << "what is on other devices, and the place for all of it";
    run(t);
    EXPECT_EQ(t.across[0].form, Across::Form::gather);
    ASSERT_EQ(script_.gathers.size(), 1u);
    const Script::Gather& g = script_.gathers[0];
    EXPECT_EQ(g.to, &temporaries_[0]->chunks[0]);
    EXPECT_EQ(g.from, (std::vector<std::pair<Chunk*, MemoryIndex>>{
                          {&a->chunks[0], host}, {&a->chunks[1], gpu}, {&a->chunks[2], gpu_1}}));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.addresses[0]), g.to->replicas[gpu].address);
    EXPECT_TRUE(script_.copies.empty()) << "no whole chunk moves";
}

TEST_F(FormsTest, tasks_share_what_was_gathered_and_gather_it_again_once_it_has_left) {
    start({64 * unit, 4 * unit, 64 * unit});
    script_.all_linked = true;
    auto a = make_stack(2), other = make_array(1, 4 * unit);
    for (Chunk& c : a->chunks) overwrite_on(gpu_1, c);
    Task& first = read_across(gpu, *a, unit - 10, unit + 10);
    Array& temporary = *temporaries_[0];
    Task &second = read_across(gpu, *a, unit - 10, unit + 10, temporary),
         &third = read_across(gpu, *a, unit - 10, unit + 10, temporary);
    run(first);
    run(second);
    EXPECT_EQ(second.across[0].form, Across::Form::gathered);
    EXPECT_EQ(script_.gathers.size(), 1u);
    const std::size_t copies = script_.copies.size();
    overwrite_on(gpu, other->chunks[0]);
    EXPECT_EQ(temporary.chunks[0].replicas[gpu].address, 0u);
    EXPECT_EQ(temporary.chunks[0].replicas[host].address, 0u) << "it is dropped, not saved";
    EXPECT_EQ(script_.copies.size(), copies);
    run(third);
    EXPECT_EQ(third.across[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 2u);
}

// The temporary lies in the way of the task's other chunk, so that both have to be placed anew.
TEST_F(FormsTest, what_another_task_gathered_is_gathered_again_where_placing_the_task_drops_it) {
    start({64 * unit, 4 * unit, 64 * unit});
    script_.all_linked = true;
    residency_->given_again(gpu, base_[gpu], 4 * unit, false);
    auto a = make_stack(2), small = make_array(1), large = make_array(1, 3 * unit);
    for (Chunk& c : a->chunks) overwrite_on(gpu_1, c);
    overwrite_on(gpu, small->chunks[0]);
    Task& first = read_across(gpu, *a, unit - 10, unit + 10);
    Task& second = read_across(gpu, *a, unit - 10, unit + 10, *temporaries_[0]);
    second.accesses.emplace_back();
    Access& write = second.accesses.back();
    write.chunk = &large->chunks[0];
    write.writes_chunk = write.replaces_chunk = true;
    residency_->add_next_use(large->chunks[0], second.number, true);
    run(first);
    residency_->free_array(*small);
    run(second);
    EXPECT_EQ(second.across[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 2u);
    EXPECT_NE(large->chunks[0].replicas[gpu].address, 0u);
}

TEST_F(FormsTest, what_was_gathered_from_a_failed_copy_is_gathered_again) {
    start({64 * unit, 64 * unit, 64 * unit});
    script_.all_linked = true;
    auto a = make_stack(2);
    for (Chunk& c : a->chunks) overwrite_on(gpu_1, c);
    read_on(host, a->chunks[0]);
    const std::uint64_t copied_at = a->chunks[0].copied_at;
    Task& first = read_across(gpu, *a, unit - 10, unit + 10);
    Task& second = read_across(gpu, *a, unit - 10, unit + 10, *temporaries_[0]);
    run(first);
    residency_->copy_failed(a->chunks[0], copied_at, std::make_shared<kmm::graph::RootFailure>());
    EXPECT_TRUE(Residency::may_have_taken(first.accesses[1], copied_at));
    run(second);
    EXPECT_EQ(second.across[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 2u);
}

TEST_F(FormsTest, a_task_that_has_no_room_for_the_chunks_beside_its_own_gathers_what_it_reads) {
    start({64 * unit, 3 * unit});
    auto a = make_stack(2), out = make_array(1);
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);
    ASSERT_TRUE(lie_side_by_side(*a, 0, 1, gpu));
    auto large = make_array(1, 2 * unit);
    Task& t = read_across(gpu, *a, unit - 10, unit + 10);
    Access write;
    write.chunk = &large->chunks[0];
    write.writes_chunk = write.replaces_chunk = true;
    write.kind = kmm::detail::AccessKind::overwrite;
    t.accesses.push_back(write);
    residency_->add_next_use(large->chunks[0], t.number, true);
    run(t);
    EXPECT_EQ(t.across[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 1u);
}

}  // namespace
