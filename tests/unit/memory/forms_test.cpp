// Regions across chunks: when a task reads the chunks where they are, when a copy of the region, and what is copied.
#include <gtest/gtest.h>

#include "across_script.hpp"

namespace {

using namespace kmm::residency_test;

using FormsTest = AcrossTest;

TEST_F(FormsTest, chunks_that_lie_side_by_side_are_read_where_they_are) {
    start({64 * unit, 64 * unit});
    auto a = make_stack(3);
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);
    if (!lie_side_by_side(*a, 0, 2, gpu)) GTEST_FAIL() << "what is taken one after the other lies so";
    Task& t = read_across(gpu, *a, unit - 10, 2 * unit + 10);
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::in_place);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.addresses[0]), a->chunks[0].replicas[gpu].address + unit - 10);
    EXPECT_TRUE(script_.copies.empty());
    EXPECT_TRUE(script_.gathers.empty());
    EXPECT_EQ(temporaries_[0]->chunk.replicas[gpu].address, 0u) << "no memory is taken for a copy";
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
    EXPECT_EQ(left.across()[0].form, Across::Form::in_place);
    EXPECT_TRUE(lie_side_by_side(*a, 0, 3, gpu)) << "all that tasks read across, not only what this one reads";
    ASSERT_EQ(script_.copies.size(), 4u);
    for (const Script::Copy& copy : script_.copies) EXPECT_TRUE(copy.from == gpu && copy.to == gpu);
    run(right);
    EXPECT_EQ(right.across()[0].form, Across::Form::in_place);
    for (Chunk& c : a->chunks) write_on(gpu, c);
    run(read_across(gpu, *a, unit - 10, 3 * unit));
    EXPECT_EQ(script_.copies.size(), 4u) << "they stay where they are";
    EXPECT_TRUE(script_.gathers.empty());
}

TEST_F(FormsTest, chunks_of_an_array_that_tasks_will_read_across_are_taken_side_by_side) {
    start({64 * unit, 64 * unit});
    auto a = make_stack(4), b = make_stack(4);
    for (Array* array : {a.get(), b.get()}) array->neighbours[gpu].chunks = {0, 3};
    residency_->space(gpu).given_again(base_[gpu], 16 * unit, false);
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
    EXPECT_EQ(t.across()[0].form, Across::Form::gather);
    ASSERT_EQ(script_.gathers.size(), 1u);
    const Script::Gather& g = script_.gathers[0];
    EXPECT_EQ(g.to, &temporaries_[0]->chunk);
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
    Temporary& temporary = *temporaries_[0];
    Task &second = read_across(gpu, *a, unit - 10, unit + 10, temporary),
         &third = read_across(gpu, *a, unit - 10, unit + 10, temporary);
    run(first);
    run(second);
    EXPECT_EQ(second.across()[0].form, Across::Form::gathered);
    EXPECT_EQ(script_.gathers.size(), 1u);
    const std::size_t copies = script_.copies.size();
    overwrite_on(gpu, other->chunks[0]);
    EXPECT_EQ(temporary.chunk.replicas[gpu].address, 0u);
    EXPECT_EQ(temporary.chunk.replicas[host].address, 0u) << "it is dropped, not saved";
    EXPECT_EQ(script_.copies.size(), copies);
    run(third);
    EXPECT_EQ(third.across()[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 2u);
}

// The temporary lies in the way of the task's other chunk, so that both have to be placed anew.
TEST_F(FormsTest, what_another_task_gathered_is_gathered_again_where_placing_the_task_drops_it) {
    start({64 * unit, 4 * unit, 64 * unit});
    script_.all_linked = true;
    residency_->space(gpu).given_again(base_[gpu], 4 * unit, false);
    auto a = make_stack(2), small = make_array(1), large = make_array(1, 3 * unit);
    for (Chunk& c : a->chunks) overwrite_on(gpu_1, c);
    overwrite_on(gpu, small->chunks[0]);
    Task& first = read_across(gpu, *a, unit - 10, unit + 10);
    Task& second = read_across(gpu, *a, unit - 10, unit + 10, *temporaries_[0]);
    add_overwrite(second, large->chunks[0]);
    run(first);
    residency_->residents().free_chunks(*small);
    run(second);
    EXPECT_EQ(second.across()[0].form, Across::Form::gather);
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
    EXPECT_TRUE(kmm::memory::may_have_taken(first.uses[1], copied_at));
    run(second);
    EXPECT_EQ(second.across()[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 2u);
}

TEST_F(FormsTest, a_task_that_has_no_room_for_the_chunks_beside_its_own_gathers_what_it_reads) {
    start({64 * unit, 3 * unit});
    auto a = make_stack(2), out = make_array(1);
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);
    ASSERT_TRUE(lie_side_by_side(*a, 0, 1, gpu));
    auto large = make_array(1, 2 * unit);
    Task& t = read_across(gpu, *a, unit - 10, unit + 10);
    add_overwrite(t, large->chunks[0]);
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::gather);
    EXPECT_EQ(script_.gathers.size(), 1u);
}

TEST_F(FormsTest, no_chunk_lies_across_two_allocations_of_a_driver_for_the_sake_of_its_neighbour) {
    start({64 * unit, 64 * unit});
    residency_->space(gpu).given_again(base_[gpu], 3 * unit, true);
    residency_->space(gpu).given_again(base_[gpu] + 3 * unit, 3 * unit, true);
    auto a = make_array(2, 2 * unit);
    a->is_stack = true;
    a->neighbours.resize_for_devices(base_.num_devices());
    a->neighbours[gpu].chunks = {0, 1};
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);
    const std::uintptr_t second = a->chunks[1].replicas[gpu].address;
    EXPECT_TRUE(second + 2 * unit <= base_[gpu] + 3 * unit || second >= base_[gpu] + 3 * unit);
    residency_->residents().free_chunks(*a);  // had thrown: so much was not allocated at one place
}

TEST_F(FormsTest, room_for_neighbours_is_left_only_where_the_task_itself_has_enough) {
    start({64 * unit, 12 * unit});
    script_.can_exchange = true;
    residency_->space(gpu).given_again(base_[gpu], 12 * unit, false);
    auto a = make_array(3, 3 * unit), large = make_array(1, 7 * unit);
    a->is_stack = true;
    a->neighbours.resize_for_devices(base_.num_devices());
    a->neighbours[gpu].chunks = {0, 2};
    // In the middle of the place for three chunks, the second one leaves six units on its right.
    Task& t = make_task(gpu, {{&a->chunks[1], true, true}, {&large->chunks[0], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::granted);
    EXPECT_TRUE(script_.exchanges.empty()) << "new memory in one piece would be cut in the same way, again and again";
}

TEST_F(FormsTest, a_place_that_a_task_takes_and_loses_at_each_try_is_no_reason_for_another_exchange) {
    start({256, 6 * unit, 64 * unit});  // the host has no room for anything
    script_.can_exchange = true;
    residency_->space(gpu).given_again(base_[gpu], 4 * unit, false);
    residency_->space(gpu_1).given_again(base_[gpu_1], 8 * unit, false);
    for (int i = 0; i < 2; i++) residency_->space(gpu).grown(0, 0);
    auto a = make_stack(2), stays = make_array(1, unit + unit / 2), large = make_array(1, 2 * unit + unit / 2);
    a->neighbours[gpu].chunks = {0, 1};
    overwrite_on(gpu, stays->chunks[0]);
    overwrite_on(gpu, a->chunks[0]);  // with room for the other one beside it
    overwrite_on(gpu_1, a->chunks[1]);
    // Side by side the chunks and the large one are more than there is. A gather is not, but nothing can leave.
    Task& t = read_across(gpu, *a, unit - 10, 2 * unit);
    add_overwrite(t, large->chunks[0]);
    Placement placement = Placement::wait_growth;
    for (int tries = 0; tries < 20 && placement == Placement::wait_growth; tries++) {
        placement = residency_->place(t);
        if (placement == Placement::wait_growth) residency_->space(gpu).grown(0, 0);
    }
    EXPECT_NE(placement, Placement::wait_growth);
    EXPECT_EQ(script_.exchanges.size(), 1u);
}

TEST_F(FormsTest, neighbours_that_nobody_has_used_are_nowhere_and_get_room_all_the_same) {
    start({64 * unit, 64 * unit});
    residency_->space(gpu).given_again(base_[gpu], 64 * unit, false);
    Array a;
    a.element_bytes = 1;
    const std::int64_t size[] = {unit};
    a.set_layout(std::make_shared<kmm::plan::Layout>(1, box(0, 1000 * unit), size, kmm::plan::ChunkHomes()),
                 base_.num_devices());
    ASSERT_TRUE(a.is_stack);
    a.neighbours[gpu].chunks = {8, 14};
    const auto other = make_array(1);
    overwrite_on(gpu, a.touch(11));
    overwrite_on(gpu, other->chunks[0]);
    EXPECT_EQ(a.chunks.find(10), nullptr);
    overwrite_on(gpu, a.touch(10));
    overwrite_on(gpu, a.touch(12));
    EXPECT_TRUE(lie_side_by_side(a, 10, 12, gpu));
    overwrite_on(gpu, a.touch(900));  // far from what tasks read as one
    EXPECT_EQ(place(read_across(gpu, a, 11 * unit - 5, 12 * unit + 5)), Placement::granted);
    EXPECT_TRUE(script_.gathers.empty());
    EXPECT_EQ(std::distance(a.chunks.begin(), a.chunks.end()), 4);
    residency_->residents().free_chunks(a);
}

/// Of a chunk of which tasks read no more than its edges before it is replaced.
class PartsTest : public AcrossTest {
  protected:
    /// Two chunks that were written on the device; the next task there reads the edge of the first, and what comes
    /// after that replaces it. `other` is a dirty chunk that nobody will use.
    void start_with_parts(std::size_t device_units, std::size_t host_units = 64) {
        start({host_units * unit, device_units * unit});
        residency_->space(gpu).given_again(base_[gpu], device_units * unit, false);
        other_ = make_array(1);
        a_ = make_stack(2);
        overwrite_on(gpu, other_->chunks[0]);
        for (Chunk& c : a_->chunks) overwrite_on(gpu, c);
        reader_ = &read_across(gpu, *a_, unit - 10, 2 * unit);
        writer_ = &make_task(gpu, {{&a_->chunks[0], true, true}});
    }
    Array& make_array_to_keep() { return *kept_.emplace_back(make_array(1)); }
    std::unique_ptr<Array> other_, a_;
    Task* reader_ = nullptr;
    Task* writer_ = nullptr;
};

TEST_F(PartsTest, no_more_than_these_is_saved_and_that_before_anything_is_saved_as_a_whole) {
    start_with_parts(4);
    auto more = make_array(2);
    for (Chunk& c : more->chunks) overwrite_on(gpu, c);
    ASSERT_EQ(script_.parts.size(), 1u);
    EXPECT_EQ(script_.parts[0].chunk, &a_->chunks[0]);
    EXPECT_EQ(script_.parts[0].readers, std::vector<kmm::graph::TaskNumber>{reader_->number});
    EXPECT_TRUE(script_.parts[0].to == host);
    EXPECT_TRUE(script_.copies.empty()) << "dirty chunks stay while anything cheaper can leave";
    EXPECT_EQ(residency_->space(gpu).counters.evicted_bytes, 10u) << "what was copied, not the chunk";
    EXPECT_EQ(a_->chunks[0].replicas[gpu].address, 0u);
}

TEST_F(PartsTest, are_gathered_from_the_host_until_the_chunk_is_replaced) {
    start_with_parts(4);
    auto more = make_array(2);
    for (Chunk& c : more->chunks) overwrite_on(gpu, c);
    ASSERT_EQ(script_.parts.size(), 1u);
    run(*reader_);
    EXPECT_EQ(reader_->across()[0].form, Across::Form::gather) << "there is no whole chunk to lie beside the other";
    ASSERT_EQ(script_.gathers.size(), 1u);
    ASSERT_EQ(script_.gathers[0].from.size(), 2u);
    EXPECT_TRUE(script_.gathers[0].from[0] == std::pair(&a_->chunks[0], host));
    const std::vector<Fence>& waits = script_.gathers[0].waits;
    const Fence saved = script_.parts[0].fence;
    EXPECT_TRUE(std::any_of(waits.begin(), waits.end(), [saved](Fence f) {
        return f.lane == saved.lane && f.position >= saved.position;
    })) << "until it is saved";
    run(*writer_);
    EXPECT_FALSE(a_->chunks[0].is_in_parts());
    EXPECT_NE(a_->chunks[0].replicas[gpu].address, 0u);
    read_on(host, a_->chunks[0]);
    EXPECT_TRUE(script_.copies.back().chunk == &a_->chunks[0] && script_.copies.back().from == gpu);
}

TEST_F(PartsTest, keep_their_place_on_the_host_no_longer_than_somebody_will_read_them) {
    start_with_parts(6, 4);
    auto more = make_array(4);
    for (Chunk& c : more->chunks) overwrite_on(gpu, c);
    ASSERT_EQ(script_.parts.size(), 1u);
    run(*reader_);  // takes two units that lie side by side, for which three chunks leave: the host is full
    ASSERT_EQ(script_.copies.size(), 3u);
    EXPECT_NE(a_->chunks[0].replicas[host].address, 0u);
    for (int i = 0; i < 4; i++) overwrite_on(gpu, make_array_to_keep().chunks[0]);
    EXPECT_EQ(a_->chunks[0].replicas[host].address, 0u) << "another chunk is saved in its place";
}

TEST_F(PartsTest, of_a_chunk_that_nobody_replaces_are_not_enough) {
    start({64 * unit, 3 * unit});
    residency_->space(gpu).given_again(base_[gpu], 3 * unit, false);
    a_ = make_stack(2);
    for (Chunk& c : a_->chunks) overwrite_on(gpu, c);
    read_across(gpu, *a_, unit - 10, 2 * unit);
    auto more = make_array(3);
    for (Chunk& c : more->chunks) overwrite_on(gpu, c);
    EXPECT_TRUE(script_.parts.empty());
    EXPECT_FALSE(script_.copies.empty());
}

TEST_F(PartsTest, that_are_read_soon_do_not_keep_a_chunk_of_which_more_is_read_late) {
    start({64 * unit, 4 * unit});
    residency_->space(gpu).given_again(base_[gpu], 4 * unit, false);
    auto soon = make_array(1), later = make_array(1), more = make_array(2);
    a_ = make_stack(2);
    for (Chunk& c : a_->chunks) overwrite_on(gpu, c);
    overwrite_on(gpu, soon->chunks[0]);
    overwrite_on(gpu, later->chunks[0]);
    reader_ = &read_across(gpu, *a_, unit - 10, 2 * unit);
    make_task(gpu,
              {{&soon->chunks[0], false, false}, {&more->chunks[0], false, false}, {&more->chunks[1], false, false}});
    Task& last = make_task(gpu, {{&a_->chunks[0], true, false}});
    Task& first = make_task(gpu, {{&later->chunks[0], false, false}});
    overwrite_on(gpu, more->chunks[0]);
    EXPECT_EQ(later->chunks[0].replicas[gpu].address, 0u) << "it is needed after the chunk";
    overwrite_on(gpu, more->chunks[1]);
    EXPECT_TRUE(script_.parts.empty()) << "all of it is saved";
    EXPECT_EQ(a_->chunks[0].replicas[gpu].address, 0u) << "the first of its readers reads no more than an edge";
    EXPECT_NE(a_->chunks[1].replicas[gpu].address, 0u);
    EXPECT_NE(soon->chunks[0].replicas[gpu].address, 0u);
    run(*reader_);
    ASSERT_EQ(script_.gathers.size(), 1u);
    EXPECT_TRUE(script_.gathers[0].from[0] == std::pair(&a_->chunks[0], host));
    run(last);
    run(first);
}

TEST_F(PartsTest, that_are_lost_on_their_way_cost_their_readers_what_they_need) {
    start_with_parts(4);
    auto more = make_array(2);
    for (Chunk& c : more->chunks) overwrite_on(gpu, c);
    ASSERT_EQ(script_.parts.size(), 1u);
    residency_->copy_failed(a_->chunks[0], a_->chunks[0].copied_at, std::make_shared<kmm::graph::RootFailure>());
    EXPECT_EQ(place(*reader_), Placement::lost);
    run(*writer_);
    EXPECT_EQ(a_->chunks[0].lost, nullptr) << "it is replaced";
}

}  // namespace
