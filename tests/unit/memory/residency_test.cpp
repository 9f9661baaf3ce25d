// Where chunks are, who leaves, and what is copied: residency driven by hand, with copies that are only written down.
#include <gtest/gtest.h>

#include "host_allocations.hpp"
#include "residency_script.hpp"

namespace {

using namespace kmm::residency_test;

TEST_F(ResidencyTest, memory_whose_users_have_passed_is_taken_before_memory_that_a_copy_still_reads) {
    start({64 * unit, 4 * unit, 4 * unit});
    script_.all_linked = true;
    auto a = make_array(4);
    for (std::size_t i = 0; i < 4; i++) overwrite_on(i < 2 ? gpu : gpu_1, a->chunks[i]);
    // Each device has room for what comes beside what goes; which of both lies lower changes with every exchange.
    for (int exchange = 0; exchange < 6; exchange++) {
        script_.completed = script_.position;
        for (std::uint32_t lane = 0; lane < 128; lane++) residency_->residents().advanced(static_cast<LaneId>(lane));
        script_.copies.clear();
        for (std::size_t i = 0; i < 4; i++) write_on((i < 2) == (exchange % 2 == 0) ? gpu_1 : gpu, a->chunks[i]);
        ASSERT_EQ(script_.copies.size(), 4u);
        if (exchange == 0) {  // nothing is free but what the others leave: more is asked for
            ASSERT_TRUE(residency_->space(gpu).is_growing());
            const auto [memory, bytes] = script_.growths.back();
            residency_->space(memory).grown(base_[memory], 2 * bytes);
            base_[memory] += 2 * bytes;
            continue;
        }
        for (const Script::Copy& copy : script_.copies)
            for (const Fence& f : copy.waits) EXPECT_TRUE(script_.passed(f)) << "no copy waits for one the other way";
    }
}

TEST_F(ResidencyTest, pieces_that_another_device_has_read_are_joined_while_fresh_memory_is_there) {
    constexpr std::size_t num_chunks = 5000, under_way = 100;
    start({64 * unit, 2 * num_chunks * unit, 2 * num_chunks * unit});
    script_.all_linked = true;
    for (const MemoryIndex m : {gpu, gpu_1}) {
        residency_->space(m).given_again(base_[m], 2 * num_chunks * unit, false);
        base_[m] += 2 * num_chunks * unit;
    }
    auto a = make_array(num_chunks);
    std::size_t most = 0;
    for (std::size_t i = 0; i < num_chunks; i++) {
        overwrite_on(gpu, a->chunks[i]);
        write_on(gpu_1, a->chunks[i]);  // what the first device has leaves behind the copy
        EXPECT_EQ(a->chunks[i].replicas[gpu].address, 0u);
        script_.completed = script_.position - std::min<std::uint64_t>(script_.position, 3 * under_way);
        for (std::uint32_t lane = 0; lane < 128; lane++) residency_->residents().advanced(static_cast<LaneId>(lane));
        most = std::max(most, residency_->space(gpu).heap.num_free_pieces());
    }
    EXPECT_GT(most, under_way) << "those that are still read are apart";
    EXPECT_LE(most, 256 + 4 * under_way);
}

TEST_F(ResidencyTest, a_gather_does_not_wait_for_those_who_write_other_parts_of_a_chunk) {
    start({64 * unit, 64 * unit});
    auto a = make_array(1), temporary = make_array(1);
    overwrite_on(host, a->chunks[0]);
    Task& writer = make_task(host, {{&a->chunks[0], true, false}});
    ASSERT_EQ(place(writer), Placement::granted);
    residency_->pin(writer);
    Task& gather = make_task(host, {{&temporary->chunks[0], true, true}, {&a->chunks[0], false, false}});
    gather.uses[1].copy_from_anywhere();
    EXPECT_EQ(place(gather), Placement::granted);
    EXPECT_EQ(gather.uses[1].memory, host);
    residency_->pin(gather);
    residency_->unpin(writer, nullptr);
    residency_->unpin(gather, nullptr);
    EXPECT_TRUE(script_.woken.empty());
}

TEST_F(ResidencyTest, a_write_makes_every_other_replica_stale_in_the_same_step) {
    start({64 * unit, 64 * unit, 64 * unit});
    auto a = make_array(1);
    Chunk& c = a->chunks[0];
    overwrite_on(gpu, c);
    read_on(gpu_1, c);
    read_on(host, c);
    ASSERT_EQ(script_.copies.size(), 2u);
    for (const MemoryIndex m : residency_->residents().memories()) EXPECT_TRUE(c.replicas[m].holds_all_of(c.version));
    write_on(gpu, c);
    EXPECT_TRUE(c.replicas[gpu].holds_all_of(c.version));
    EXPECT_FALSE(c.replicas[host].holds_all_of(c.version));
    EXPECT_EQ(c.replicas[gpu_1].address, 0u);
    read_on(gpu_1, c);
    ASSERT_EQ(script_.copies.size(), 3u);
    EXPECT_EQ(script_.copies[2].from, gpu);
}

TEST_F(ResidencyTest, a_copy_comes_after_the_writers_of_its_source_and_the_users_of_its_place) {
    start({64 * unit, 64 * unit});
    auto a = make_array(1);
    Chunk& c = a->chunks[0];
    const Fence writer = overwrite_on(gpu, c);
    read_on(host, c);
    ASSERT_EQ(script_.copies.size(), 1u);
    const auto& waits = script_.copies[0].waits;
    EXPECT_TRUE(std::any_of(waits.begin(), waits.end(),
                            [&](const Fence& f) { return f.lane == writer.lane && f.position >= writer.position; }));
    // A write on the device comes after the copy out of it.
    Task& t = make_task(gpu, {{&c, true, false}});
    ASSERT_EQ(place(t), Placement::granted);
    const Fence out = script_.copies[0].fence;
    EXPECT_TRUE(std::any_of(t.fences.begin(), t.fences.end(),
                            [&](const Fence& f) { return f.lane == out.lane && f.position >= out.position; }));
}

TEST_F(ResidencyTest, what_a_plan_uses_leaves_behind_all_that_it_does_not_and_the_last_used_first) {
    start({64 * unit, 4 * unit});
    auto a = make_array(8);
    for (std::size_t i = 0; i < 4; i++) overwrite_on(gpu, a->chunks[i]);
    std::vector<Task*> readers;
    for (std::size_t i = 0; i < 8; i++) readers.push_back(&make_task(gpu, {{&a->chunks[i], false, false}}));
    // In the order of submission chunk 3 would leave first.
    residency_->residents().plan(*readers[0], 9);
    residency_->residents().plan(*readers[3], 8);
    std::vector<std::size_t> left;
    for (std::size_t i = 4; i < 8; i++) {
        residency_->residents().plan(*readers[i], static_cast<std::uint16_t>(i));
        overwrite_on(gpu, a->chunks[i]);
        for (std::size_t k = 0; k < 4; k++)
            if (a->chunks[k].replicas[gpu].address == 0 && std::count(left.begin(), left.end(), k) == 0)
                left.push_back(k);
    }
    EXPECT_EQ(left, (std::vector<std::size_t>{2, 1, 0, 3}));
    for (Task* t : readers) residency_->residents().unplan(*t);
    for (const Chunk& c : a->chunks) EXPECT_TRUE(residency_->residents().is_victim_in_order(c, gpu));
}

TEST_F(ResidencyTest, the_place_of_an_evicted_chunk_goes_to_the_next_behind_the_fence_of_the_copy) {
    start({64 * unit, unit});
    auto a = make_array(2);
    overwrite_on(gpu, a->chunks[0]);
    Task& t = make_task(gpu, {{&a->chunks[1], true, true}});
    ASSERT_EQ(place(t), Placement::granted);
    ASSERT_EQ(script_.copies.size(), 1u);
    EXPECT_EQ(script_.copies[0].to, host);
    EXPECT_EQ(script_.copies[0].task, nullptr);
    const Fence out = script_.copies[0].fence;
    EXPECT_TRUE(std::any_of(t.fences.begin(), t.fences.end(),
                            [&](const Fence& f) { return f.lane == out.lane && f.position >= out.position; }));
    EXPECT_EQ(residency_->space(gpu).counters.evicted_bytes, unit);
    EXPECT_EQ(residency_->space(gpu).counters.peak_bytes, unit);
}

TEST_F(ResidencyTest, a_clean_chunk_is_dropped_without_a_copy_and_before_a_dirty_one) {
    start({64 * unit, 2 * unit});
    auto a = make_array(3);
    overwrite_on(host, a->chunks[0]);
    read_on(gpu, a->chunks[0]);       // clean: the host has it too
    overwrite_on(gpu, a->chunks[1]);  // dirty
    script_.copies.clear();
    overwrite_on(gpu, a->chunks[2]);
    EXPECT_TRUE(script_.copies.empty());
    EXPECT_EQ(a->chunks[0].replicas[gpu].address, 0u);
    EXPECT_NE(a->chunks[1].replicas[gpu].address, 0u);
    EXPECT_EQ(residency_->space(gpu).counters.dropped_bytes, unit);
}

TEST_F(ResidencyTest, the_chunk_that_is_used_farthest_in_the_future_leaves_first) {
    start({64 * unit, 3 * unit});
    auto a = make_array(4);
    for (int i = 0; i < 3; i++) overwrite_on(gpu, a->chunks[static_cast<std::size_t>(i)]);
    make_task(gpu, {{&a->chunks[1], false, false}});
    make_task(gpu, {{&a->chunks[0], false, false}});
    make_task(gpu, {{&a->chunks[2], false, false}});  // last
    overwrite_on(gpu, a->chunks[3]);
    EXPECT_EQ(a->chunks[2].replicas[gpu].address, 0u);
    EXPECT_NE(a->chunks[0].replicas[gpu].address, 0u);
    EXPECT_NE(a->chunks[1].replicas[gpu].address, 0u);
}

TEST_F(ResidencyTest, what_a_large_chunk_leaves_behind_goes_to_a_large_one_whichever_a_task_names_first) {
    const std::size_t large = unit + unit / 4;
    start({64 * unit, large + 2 * unit});
    residency_->space(host).given_again(base_[host], 64 * unit, false);
    residency_->space(gpu).given_again(base_[gpu], large + 2 * unit, false);
    auto before = make_array(1, large), behind = make_array(1, large);
    auto a = make_array(3);
    overwrite_on(gpu, before->chunks[0]);
    overwrite_on(gpu, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);
    make_task(gpu, {{&a->chunks[0], false, false}});
    make_task(gpu, {{&a->chunks[1], false, false}});
    before->released = true;
    residency_->residents().free_chunks(*before);
    run(make_task(gpu, {{&a->chunks[2], true, true}, {&behind->chunks[0], true, true}}));
    EXPECT_EQ(behind->chunks[0].replicas[gpu].address, std::uintptr_t{2} << 32);
    EXPECT_EQ(a->chunks[1].replicas[gpu].address, 0u) << "for the small one";
    EXPECT_NE(a->chunks[0].replicas[gpu].address, 0u) << "nothing has to leave for the large one";
}

TEST_F(ResidencyTest, what_is_fetched_again_after_an_eviction_is_counted_until_it_is_written) {
    start({64 * unit, unit});
    auto a = make_array(2);
    for (std::size_t c = 0; c < 2; c++) overwrite_on(host, a->chunks[c]);
    read_on(gpu, a->chunks[0]);
    read_on(gpu, a->chunks[1]);
    EXPECT_EQ(residency_->space(gpu).counters.refetches, 0u);
    read_on(gpu, a->chunks[0]);  // thrash: it was here a moment ago
    EXPECT_EQ(residency_->space(gpu).counters.refetches, 1u);
    EXPECT_EQ(residency_->space(gpu).counters.refetched_bytes, unit);
    EXPECT_EQ(residency_->space(host).counters.refetched_bytes, 0u);
    EXPECT_EQ(a->refetched_bytes, unit);
    write_on(host, a->chunks[1]);  // what was evicted is not the newest any more
    read_on(gpu, a->chunks[1]);
    EXPECT_EQ(residency_->space(gpu).counters.refetches, 1u);
}

TEST_F(ResidencyTest, content_that_will_be_replaced_is_not_saved_but_content_that_is_read_before_is) {
    start({64 * unit, unit});
    auto a = make_array(2);
    overwrite_on(gpu, a->chunks[0]);
    make_task(gpu, {{&a->chunks[0], true, true}});
    overwrite_on(gpu, a->chunks[1]);
    EXPECT_TRUE(script_.copies.empty());
    auto b = make_array(2);
    start({64 * unit, unit});
    overwrite_on(gpu, b->chunks[0]);
    make_task(gpu, {{&b->chunks[0], false, false}});
    make_task(gpu, {{&b->chunks[0], true, true}});
    overwrite_on(gpu, b->chunks[1]);
    EXPECT_EQ(script_.copies.size(), 1u);
}

TEST_F(ResidencyTest, all_memory_of_a_task_is_granted_at_once_or_nothing_is_kept) {
    start({64 * unit, 2 * unit});
    auto a = make_array(4);
    Task& pinned = make_task(gpu, {{&a->chunks[0], true, true}});
    ASSERT_EQ(place(pinned), Placement::granted);
    residency_->pin(pinned);
    Task& t = make_task(gpu, {{&a->chunks[1], true, true}, {&a->chunks[2], true, true}});
    EXPECT_EQ(place(t), Placement::wait_pins);
    EXPECT_EQ(residency_->space(gpu).counters.current_bytes, unit);
    EXPECT_EQ(a->chunks[1].replicas[gpu].address, 0u);
    residency_->unpin(pinned, nullptr);
    EXPECT_EQ(place(t), Placement::granted);
    EXPECT_EQ(script_.copies.size(), 1u);
}

TEST_F(ResidencyTest, a_task_waits_for_the_pin_of_a_writer_and_is_woken_when_it_goes) {
    start({64 * unit, 64 * unit});
    auto a = make_array(1);
    Chunk& c = a->chunks[0];
    Task& writer = make_task(host, {{&c, true, true}});
    ASSERT_EQ(place(writer), Placement::granted);
    residency_->pin(writer);
    Task& reader = make_task(gpu, {{&c, false, false}});
    EXPECT_EQ(place(reader), Placement::busy_chunk);
    EXPECT_TRUE(script_.woken.empty());
    residency_->unpin(writer, nullptr);
    ASSERT_EQ(script_.woken.size(), 1u);
    EXPECT_EQ(script_.woken[0], &reader);
    EXPECT_EQ(place(reader), Placement::granted);
}

TEST_F(ResidencyTest, when_nothing_can_leave_any_tier_the_answer_is_full_and_nothing_is_lost) {
    start({unit, unit});
    auto a = make_array(3);
    overwrite_on(gpu, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);  // the first went to the host
    Task& t = make_task(gpu, {{&a->chunks[2], true, true}});
    EXPECT_EQ(place(t), Placement::full);
    EXPECT_TRUE(a->chunks[0].replicas[host].holds_all_of(a->chunks[0].version));
    EXPECT_TRUE(a->chunks[1].replicas[gpu].holds_all_of(a->chunks[1].version));
    residency_->residents().free_chunks(*a);
    auto b = make_array(1);
    overwrite_on(gpu, b->chunks[0]);
}

// Row 108: the search for a place on the host changes the order of victims that is being walked.
/// Device and host hold nothing but what can neither leave nor be saved; `failing` tasks then find that out. Returns
/// how many chunks they looked at.
class FullTiers : public ResidencyTest {
  protected:
    std::uint64_t looked_at(std::size_t n, std::size_t failing) {
        script_ = {};
        tasks_.clear();
        start({n * unit, n * unit});
        auto a = make_array(2 * n + failing);
        for (std::size_t i = 0; i < 2 * n; i++) overwrite_on(gpu, a->chunks[i]);
        const auto tried = [&] {
            return residency_->space(host).counters.victims_tried + residency_->space(gpu).counters.victims_tried;
        };
        const std::uint64_t before = tried();
        for (std::size_t i = 0; i < failing; i++)
            EXPECT_EQ(place(make_task(gpu, {{&a->chunks[2 * n + i], true, true}})), Placement::full);
        for (std::size_t i = 0; i < 2 * n; i++)
            EXPECT_NE(a->chunks[i].replicas[host].address + a->chunks[i].replicas[gpu].address, 0u);
        return tried() - before;
    }
};

TEST_F(FullTiers, a_task_that_finds_both_tiers_full_does_not_look_at_all_that_is_there) {
    const std::uint64_t small = looked_at(500, 20);
    EXPECT_GE(small, 1u);
    EXPECT_LE(small, 40u);
    EXPECT_EQ(looked_at(1000, 20), small);
}

TEST_F(FullTiers, what_becomes_free_on_the_host_is_found_by_the_next_task) {
    start({4 * unit, 2 * unit});
    auto a = make_array(8);
    for (std::size_t i = 0; i < 6; i++) overwrite_on(gpu, a->chunks[i]);
    Task& t = make_task(gpu, {{&a->chunks[6], true, true}});
    EXPECT_EQ(place(t), Placement::full);
    EXPECT_EQ(place(t), Placement::full);
    // What has a copy on the device may lose its place on the host.
    Chunk& saved = a->chunks[0];
    ASSERT_NE(saved.replicas[host].address, 0u);
    auto b = make_array(1);
    write_on(host, saved);
    EXPECT_EQ(place(t), Placement::full);
    EXPECT_EQ(place(make_task(gpu, {{&b->chunks[0], true, true}})), Placement::full);
    residency_->residents().free_chunks(*a);
    EXPECT_EQ(place(t), Placement::granted);
}

TEST_F(FullTiers, smaller_chunks_that_still_find_a_place_are_found_behind_any_number_of_larger_ones) {
    const auto tried_with = [&](std::size_t n) {
        script_ = {};
        tasks_.clear();
        start({6 * unit, 4 * n * unit + unit});
        auto small = make_array(1, unit);
        auto large = make_array(n, 4 * unit);
        for (Chunk& c : large->chunks) overwrite_on(gpu, c);
        overwrite_on(gpu, small->chunks[0]);
        const std::uint64_t before = residency_->space(gpu).counters.victims_tried;
        auto more = make_array(4, 4 * unit);
        for (Chunk& c : more->chunks) (void)place(make_task(gpu, {{&c, true, true}}));
        return residency_->space(gpu).counters.victims_tried - before;
    };
    EXPECT_LE(tried_with(40), 12u);
    EXPECT_LE(tried_with(80), 12u);
}

// The first failure leaves the new memory unnoted, the second one comes where it is to be noted before the next search.
TEST_F(ResidencyTest, memory_that_the_heap_hears_of_late_serves_what_did_not_fit_before) {
    kmm::graph::HostReserve::prepare();
    int num_failed_twice = 0;
    for (int first = 0; first < 8; ++first)
        for (int second = 0; second < 8; ++second) {
            start({8 * unit, 4 * unit});
            auto a = make_array(1, 4 * unit);
            Task& t = make_task(gpu, {{&a->chunks[0], true, true}});
            ASSERT_EQ(residency_->place(t), Placement::wait_growth);
            rmm_test::has_failed = false;
            rmm_test::allocations_left = first;
            residency_->space(gpu).grown(base_[gpu], script_.growths.back().second);
            const bool failed = std::exchange(rmm_test::has_failed, false);
            rmm_test::allocations_left = second;
            Placement now = residency_->place(t);
            rmm_test::allocations_left = -1;
            num_failed_twice += failed && rmm_test::has_failed;
            if (now != Placement::granted) now = residency_->place(t);
            EXPECT_EQ(now, Placement::granted) << "allocations " << first << " and " << second;
        }
    EXPECT_GE(num_failed_twice, 1);
}

TEST_F(ResidencyTest, a_chunk_that_fits_nowhere_on_the_host_does_not_spoil_the_walk_over_victims) {
    start({8 * unit, 19 * unit});
    auto small = make_array(7);
    auto big = make_array(1, 10 * unit);
    auto more = make_array(1, 5 * unit);
    for (Chunk& c : small->chunks) {
        overwrite_on(host, c);
        read_on(gpu, c);
    }
    overwrite_on(gpu, big->chunks[0]);
    for (Chunk& c : small->chunks) make_task(gpu, {{&c, false, false}});
    Task& t = make_task(gpu, {{&more->chunks[0], true, true}});
    EXPECT_EQ(place(t), Placement::granted);
    for (Chunk& c : small->chunks) {
        bool somewhere = false;
        for (const auto& r : c.replicas) somewhere = somewhere || (r.address != 0 && r.holds_all_of(c.version));
        EXPECT_TRUE(somewhere) << "chunk " << c.index << " is nowhere";
    }
    EXPECT_NE(big->chunks[0].replicas[gpu].address, 0u);
}

TEST_F(ResidencyTest, a_dirty_chunk_that_is_too_large_for_the_host_does_not_keep_smaller_ones_from_leaving) {
    start({2 * unit, 6 * unit});
    auto big = make_array(1, 4 * unit);
    auto small = make_array(3);
    overwrite_on(gpu, big->chunks[0]);
    overwrite_on(gpu, small->chunks[0]);
    overwrite_on(gpu, small->chunks[1]);
    overwrite_on(gpu, small->chunks[2]);  // the big one is older, but has nowhere to go
    EXPECT_NE(big->chunks[0].replicas[gpu].address, 0u);
    EXPECT_EQ(script_.copies.size(), 1u);
}

TEST_F(ResidencyTest, a_linked_device_is_preferred_as_a_source_to_the_host) {
    start({64 * unit, 64 * unit, 64 * unit});
    auto a = make_array(1);
    overwrite_on(gpu, a->chunks[0]);
    read_on(host, a->chunks[0]);
    script_.all_linked = true;
    script_.copies.clear();
    read_on(gpu_1, a->chunks[0]);
    ASSERT_EQ(script_.copies.size(), 1u);
    EXPECT_EQ(script_.copies[0].from, gpu);
}

TEST_F(ResidencyTest, a_refused_growth_lowers_the_limit_and_leads_to_eviction) {
    start({64 * unit, 64 * unit});
    auto a = make_array(2);
    overwrite_on(gpu, a->chunks[0]);
    Task& t = make_task(gpu, {{&a->chunks[1], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);  // the host's memory for the write-back
    const auto [memory, bytes] = script_.growths.back();
    EXPECT_EQ(memory, host);
    residency_->space(host).grown(base_[host], bytes);
    EXPECT_EQ(residency_->place(t), Placement::granted);
    EXPECT_EQ(script_.copies.size(), 1u);
}

TEST_F(ResidencyTest, what_the_driver_gives_at_most_is_known_until_it_gives_more) {
    start({64 * unit, 64 * unit});
    auto a = make_array(2), b = make_array(1);
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), 64 * unit);
    overwrite_on(gpu, a->chunks[0]);
    const std::size_t given = residency_->space(gpu).counters.capacity_bytes;
    Task& t = make_task(gpu, {{&a->chunks[1], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), given);
    residency_->residents().free_chunks(*b);  // the driver may be asked again, and has said nothing new
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), given);
    residency_->space(gpu).grown(base_[gpu], 8 * unit);
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), 64 * unit);
}

TEST_F(ResidencyTest, a_failed_write_back_loses_the_chunk_until_it_is_replaced) {
    start({64 * unit, unit});
    auto a = make_array(2);
    overwrite_on(gpu, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);
    ASSERT_EQ(script_.copies.size(), 1u);
    auto cause = std::make_shared<kmm::graph::RootFailure>();
    residency_->copy_failed(a->chunks[0], a->chunks[0].copied_at, cause);
    Task& reader = make_task(host, {{&a->chunks[0], false, false}});
    EXPECT_EQ(place(reader), Placement::lost);
    EXPECT_EQ(residency_->lost_cause(), cause);
    overwrite_on(host, a->chunks[0]);
    EXPECT_EQ(place(reader), Placement::granted);
}

TEST_F(ResidencyTest, a_copy_that_failed_concerns_all_who_took_what_it_never_brought_and_nobody_else) {
    start({64 * unit, 2 * unit, 64 * unit});
    auto a = make_array(3);
    Chunk& c = a->chunks[0];
    overwrite_on(gpu, c);
    Task& before = make_task(gpu, {{&c, false, false}});
    run(before);
    overwrite_on(gpu, a->chunks[1]);
    overwrite_on(gpu, a->chunks[2]);  // `c` is saved, and that copy fails
    ASSERT_EQ(script_.copies.size(), 1u);
    ASSERT_EQ(script_.copies[0].chunk, &c);
    const std::uint64_t copied_at = c.copied_at;
    Task& fetched_again = make_task(gpu, {{&c, false, false}});
    run(fetched_again);
    Task& elsewhere = make_task(gpu_1, {{&c, false, false}});
    run(elsewhere);
    Task& replaces = make_task(host, {{&c, true, true}});
    run(replaces);
    Task& after = make_task(gpu_1, {{&c, false, false}});
    run(after);
    residency_->copy_failed(c, copied_at, std::make_shared<kmm::graph::RootFailure>());
    EXPECT_EQ(c.lost, nullptr) << "it was replaced since";
    EXPECT_FALSE(kmm::memory::may_have_taken(before.uses[0], copied_at));
    EXPECT_TRUE(kmm::memory::may_have_taken(fetched_again.uses[0], copied_at)) << "where the copy came from";
    EXPECT_TRUE(kmm::memory::may_have_taken(elsewhere.uses[0], copied_at));
    EXPECT_FALSE(kmm::memory::may_have_taken(after.uses[0], copied_at));
}

TEST_F(ResidencyTest, what_became_of_a_replica_after_a_task_was_placed_does_not_fail_it) {
    start({64 * unit, 64 * unit, 64 * unit});
    auto a = make_array(1);
    Chunk& c = a->chunks[0];
    overwrite_on(gpu, c);
    read_on(gpu_1, c);  // its copy fails
    const std::uint64_t copied_at = c.copied_at;
    Task& in_place = make_task(gpu, {{&c, false, false}});
    run(in_place);
    overwrite_on(gpu_1, c);
    Task& of_the_new = make_task(gpu, {{&c, false, false}});
    run(of_the_new);
    overwrite_on(host, c);
    residency_->copy_failed(c, copied_at, std::make_shared<kmm::graph::RootFailure>());
    EXPECT_FALSE(kmm::memory::may_have_taken(in_place.uses[0], copied_at)) << "its replica was filled again since";
    EXPECT_FALSE(kmm::memory::may_have_taken(of_the_new.uses[0], copied_at)) << "the chunk was replaced once more";
}

TEST_F(ResidencyTest, content_that_does_not_go_back_to_a_failed_copy_is_kept_wherever_it_is) {
    start({64 * unit, 64 * unit, 64 * unit});
    auto a = make_array(1);
    Chunk& c = a->chunks[0];
    overwrite_on(gpu, c);
    read_on(host, c);
    read_on(gpu_1, c);
    const std::uint64_t copied_at = c.copied_at;
    write_on(gpu, c);  // in place, on what it had
    residency_->copy_failed(c, copied_at, std::make_shared<kmm::graph::RootFailure>());
    EXPECT_EQ(c.lost, nullptr);
    const std::size_t copies = script_.copies.size();
    read_on(gpu_1, c);
    ASSERT_EQ(script_.copies.size(), copies + 1);
    EXPECT_EQ(script_.copies.back().from, gpu);
}

TEST_F(ResidencyTest, lost_content_is_not_saved_and_leaves_every_memory) {
    start({unit, 2 * unit});
    auto a = make_array(4);
    overwrite_on(gpu, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);
    overwrite_on(gpu, a->chunks[2]);  // the first is saved
    ASSERT_EQ(script_.copies.size(), 1u);
    auto cause = std::make_shared<kmm::graph::RootFailure>();
    residency_->copy_failed(a->chunks[0], a->chunks[0].copied_at, cause);
    overwrite_on(gpu, a->chunks[3]);  // the second is saved in the place of what was lost
    ASSERT_EQ(script_.copies.size(), 2u);
    EXPECT_EQ(script_.copies.back().chunk, &a->chunks[1]);
    residency_->copy_failed(a->chunks[1], a->chunks[1].copied_at, cause);
    overwrite_on(host, a->chunks[0]);
    EXPECT_EQ(script_.copies.size(), 2u) << "what was lost was saved";
}

TEST_F(ResidencyTest, steps_that_cannot_be_used_as_one_are_exchanged_for_a_step_that_holds_the_whole_task) {
    start({100 * unit, 4 * unit});
    script_.can_exchange = true;
    auto small = make_array(4);
    auto large = make_array(1, 3 * unit);
    // Four steps, side by side and sealed.
    for (std::size_t i = 0; i < 4; i++) residency_->space(gpu).grown(base_[gpu] + i * unit, unit, true);
    for (Chunk& c : small->chunks) overwrite_on(gpu, c);
    Task& t = make_task(gpu, {{&large->chunks[0], true, true}, {&small->chunks[0], false, false}});
    residency_->space(host).grown(base_[host], 50 * unit);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    ASSERT_EQ(script_.exchanges.size(), 1u);
    EXPECT_EQ(script_.exchanges[0], (std::pair<MemoryIndex, std::size_t>{gpu, 4 * unit}));
    EXPECT_EQ(residency_->place(t), Placement::wait_growth) << "while the answer is awaited";
    EXPECT_EQ(script_.exchanges.size(), 1u);
    // All of it is free; what still leaves is handed to whoever takes it.
    FenceSet users;
    for (int i = 0; i < 4; i++) {
        EXPECT_FALSE(residency_->space(gpu).take_back(base_[gpu] + static_cast<std::size_t>(i) * unit, unit));
        EXPECT_TRUE(residency_->space(gpu).take_back(base_[gpu] + static_cast<std::size_t>(i) * unit, unit, &users));
    }
    EXPECT_NE(users.begin(), users.end());
    residency_->space(gpu).grown(std::uintptr_t{9} << 40, 4 * unit, true);
    EXPECT_EQ(residency_->place(t), Placement::granted);
    EXPECT_EQ(residency_->space(gpu).counters.capacity_bytes, 4 * unit);
}

TEST_F(ResidencyTest, an_exchange_that_was_refused_is_not_asked_for_again_until_something_changes) {
    start({100 * unit, 2 * unit});
    script_.can_exchange = true;
    residency_->space(host).grown(base_[host], 50 * unit);
    for (std::size_t i = 0; i < 2; i++) residency_->space(gpu).grown(base_[gpu] + i * unit, unit, true);
    auto large = make_array(1, 2 * unit);
    Task& t = make_task(gpu, {{&large->chunks[0], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    EXPECT_TRUE(residency_->space(gpu).take_back(base_[gpu], unit));
    residency_->space(gpu).given_again(base_[gpu], unit, true);
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::full);
    EXPECT_EQ(script_.exchanges.size(), 1u);
    auto other = make_array(1);
    residency_->residents().free_chunks(*other);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    EXPECT_EQ(script_.exchanges.size(), 2u);
}

TEST_F(ResidencyTest, an_exchange_that_cost_memory_is_not_asked_for_again_when_that_much_has_come_back) {
    start({100 * unit, 2 * unit});
    script_.can_exchange = true;
    residency_->space(host).grown(base_[host], 50 * unit);
    for (std::size_t i = 0; i < 2; i++) residency_->space(gpu).grown(base_[gpu] + i * unit, unit, true);
    auto large = make_array(1, 2 * unit);
    Task& t = make_task(gpu, {{&large->chunks[0], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    ASSERT_EQ(script_.exchanges.size(), 1u);
    EXPECT_TRUE(residency_->space(gpu).take_back(base_[gpu], unit));
    residency_->space(gpu).grown(0, 0);  // and the driver has given what it took to others
    EXPECT_EQ(residency_->place(t), Placement::wait_growth) << "there is less than the limit: more is asked for";
    ASSERT_EQ(script_.exchanges.size(), 1u);
    residency_->space(gpu).grown(base_[gpu], unit, true);
    EXPECT_EQ(residency_->place(t), Placement::full) << "it would cost the same memory again, and so on for ever";
    EXPECT_EQ(script_.exchanges.size(), 1u);
}

TEST_F(ResidencyTest, an_exchange_that_another_task_got_in_the_way_of_is_asked_for_again_when_its_chunk_has_left) {
    start({100 * unit, 2 * unit});
    script_.can_exchange = true;
    residency_->space(host).grown(base_[host], 50 * unit);
    for (std::size_t i = 0; i < 2; i++) residency_->space(gpu).grown(base_[gpu] + i * unit, unit, true);
    auto large = make_array(1, 2 * unit);
    auto small = make_array(1);
    Task& t = make_task(gpu, {{&large->chunks[0], true, true}});
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    overwrite_on(gpu, small->chunks[0]);  // before anybody has taken the memory back
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    EXPECT_EQ(script_.exchanges.size(), 2u);
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::full) << "with nothing in the way the answer holds";
    EXPECT_EQ(script_.exchanges.size(), 2u);
}

TEST_F(ResidencyTest, memory_that_may_be_used_as_one_is_never_exchanged) {
    start({100 * unit, 4 * unit});
    script_.can_exchange = true;
    residency_->space(host).grown(base_[host], 50 * unit);
    auto small = make_array(4);
    auto large = make_array(1, 3 * unit);
    for (int i = 0; i < 4; i++) residency_->space(gpu).grown(base_[gpu] + static_cast<std::size_t>(i) * unit, unit);
    for (int round = 0; round < 3; round++) {
        for (Chunk& c : small->chunks) write_on(gpu, c);
        run(make_task(gpu, {{&large->chunks[0], true, false}, {&small->chunks[2], true, false}}));
    }
    EXPECT_TRUE(script_.exchanges.empty());
}

// ---------------------------------------------------------------------------------------------------- for others

using kmm::memory::Reclaimed;
using kmm::memory::AddressRange;

TEST_F(ResidencyTest, what_others_need_is_taken_where_it_costs_least) {
    start({100 * unit, 4 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    std::vector<AddressRange> regions;
    for (std::size_t i = 0; i < 4; i++) {
        regions.push_back({base_[gpu] + i * unit, unit});
        residency_->space(gpu).grown(regions[i].address, unit, true);
    }
    auto a = make_array(3);
    for (Chunk& c : a->chunks) overwrite_on(gpu, c);  // the fourth region is free
    make_task(gpu, {{&a->chunks[0], false, false}});  // will be used again
    const Reclaimed first = residency_->blocks().reclaim(gpu, regions, unit, false);
    ASSERT_EQ(first.taken.size(), 1u);
    const std::size_t free_one = first.taken[0].region;
    for (const Chunk& c : a->chunks)
        EXPECT_NE(c.replicas[gpu].address, regions[free_one].address) << "free memory goes first";
    EXPECT_TRUE(script_.copies.empty());
    regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(free_one));

    script_.completed = script_.position;
    const Reclaimed second = residency_->blocks().reclaim(gpu, regions, 2 * unit, false);
    ASSERT_EQ(second.taken.size(), 2u);
    for (const Reclaimed::Taken& t : second.taken)
        EXPECT_NE(t.users.begin(), t.users.end()) << "the copies down are still on their way";
    EXPECT_EQ(script_.copies.size(), 2u);
    EXPECT_NE(a->chunks[0].replicas[gpu].address, 0u) << "what is used next stays";
    EXPECT_EQ(residency_->space(gpu).counters.capacity_bytes, unit);
    // The driver is left alone while the runtime gets on with what it has.
    const std::size_t growths = script_.growths.size();
    read_on(gpu, a->chunks[1]);
    EXPECT_EQ(script_.growths.size(), growths);
    EXPECT_TRUE(residency_->space(gpu).is_refused());
}

TEST_F(ResidencyTest, what_others_took_counts_as_lost_although_the_driver_is_being_asked_for_more) {
    start({100 * unit, 8 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    const std::vector<AddressRange> regions{{base_[gpu], 4 * unit}};
    residency_->space(gpu).grown(base_[gpu], 4 * unit);
    const auto large = make_array(1, 6 * unit), small = make_array(1, 5 * unit);
    for (Array* const a : {large.get(), small.get()}) {
        EXPECT_FALSE(residency_->space(gpu).is_growing());
        residency_->place(make_task(gpu, {{&a->chunks[0], true, true}}));
        ASSERT_TRUE(residency_->space(gpu).is_growing()) << "less than was refused may be there";
        if (a == large.get()) residency_->space(gpu).grown(0, 0);
    }
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), 4 * unit);
    EXPECT_EQ(residency_->blocks().reclaim(gpu, regions, unit, false).taken.size(), 1u);
    EXPECT_EQ(residency_->space(gpu).usable_bytes(), 0u);
}

TEST_F(ResidencyTest, what_a_device_is_at_work_on_is_taken_last_and_never_at_once) {
    start({100 * unit, 3 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    std::vector<AddressRange> regions;
    for (std::size_t i = 0; i < 3; i++) {
        regions.push_back({base_[gpu] + i * unit, unit});
        residency_->space(gpu).grown(regions[i].address, unit, true);
    }
    auto a = make_array(3);
    overwrite_on(gpu, a->chunks[0]);
    overwrite_on(gpu, a->chunks[1]);
    script_.completed = script_.position;
    overwrite_on(gpu, a->chunks[2]);
    read_on(gpu, a->chunks[0]);  // the least recently used one is busy too
    const Reclaimed r = residency_->blocks().reclaim(gpu, regions, 3 * unit, true);
    ASSERT_EQ(r.taken.size(), 1u);
    EXPECT_EQ(a->chunks[1].replicas[gpu].address, 0u);
    regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(r.taken[0].region));
    EXPECT_EQ(residency_->blocks().reclaim(gpu, regions, 3 * unit, false).taken.size(), 2u);
}

TEST_F(ResidencyTest, a_region_with_a_pinned_chunk_stays_whoever_asks) {
    start({100 * unit, 2 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    const std::vector<AddressRange> regions{{base_[gpu], 2 * unit}};
    residency_->space(gpu).grown(base_[gpu], 2 * unit);
    auto a = make_array(2);
    overwrite_on(gpu, a->chunks[0]);
    Task& running = make_task(gpu, {{&a->chunks[1], true, true}});
    ASSERT_EQ(place(running), Placement::granted);
    residency_->pin(running);
    EXPECT_TRUE(residency_->blocks().reclaim(gpu, regions, unit, false).taken.empty());
    EXPECT_NE(a->chunks[0].replicas[gpu].address, 0u) << "and nothing leaves in vain";
    residency_->unpin(running, nullptr);
    EXPECT_EQ(residency_->blocks().reclaim(gpu, regions, unit, false).taken.size(), 1u);
}

TEST_F(ResidencyTest, a_chunk_across_two_regions_leaves_with_either) {
    start({100 * unit, 3 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    const std::vector<AddressRange> regions{{base_[gpu], 3 * unit / 2}, {base_[gpu] + 3 * unit / 2, 3 * unit / 2}};
    for (const AddressRange& r : regions) residency_->space(gpu).grown(r.address, r.bytes);
    auto a = make_array(1, 3 * unit);
    overwrite_on(gpu, a->chunks[0]);
    EXPECT_EQ(residency_->blocks().reclaim(gpu, regions, unit, false).taken.size(), 1u);
    EXPECT_EQ(a->chunks[0].replicas[gpu].address, 0u);
    EXPECT_EQ(script_.copies.size(), 1u);
}

TEST_F(ResidencyTest, what_cannot_be_saved_yet_says_that_the_host_grows) {
    start({100 * unit, unit});
    residency_->space(gpu).grown(base_[gpu], unit);
    auto a = make_array(1);
    overwrite_on(gpu, a->chunks[0]);
    const std::vector<AddressRange> regions{{base_[gpu], unit}};
    const Reclaimed r = residency_->blocks().reclaim(gpu, regions, unit, false);
    EXPECT_TRUE(r.taken.empty());
    EXPECT_TRUE(r.host_growing);
    residency_->space(host).grown(base_[host], 10 * unit);
    EXPECT_EQ(residency_->blocks().reclaim(gpu, regions, unit, false).taken.size(), 1u);
}

TEST_F(ResidencyTest, a_task_that_needs_more_than_the_driver_gives_says_how_much_it_lacks_and_drives_nobody_out) {
    start({100 * unit, 8 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    residency_->space(gpu).grown(base_[gpu], 2 * unit);
    auto a = make_array(6);
    std::vector<Wanted> uses;
    for (Chunk& c : a->chunks) uses.push_back({&c, true, true});
    Task& t = make_task(gpu, uses);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth) << "asked once more";
    residency_->space(gpu).grown(0, 0);
    EXPECT_EQ(residency_->place(t), Placement::lacks);
    EXPECT_EQ(residency_->lacking().bytes, 4 * unit);
    EXPECT_EQ(residency_->lacking().least_bytes, 4 * unit);

    auto other = make_array(2);
    for (Chunk& c : other->chunks) overwrite_on(gpu, c);
    EXPECT_EQ(residency_->place(t), Placement::lacks);
    for (const Chunk& c : other->chunks) EXPECT_NE(c.replicas[gpu].address, 0u);

    auto small = make_array(1, unit / 2);
    Task& modest = make_task(
        gpu, {{&other->chunks[0], false, false}, {&other->chunks[1], false, false}, {&small->chunks[0], true, true}});
    EXPECT_EQ(residency_->place(modest), Placement::wait_growth) << "less may still be had";
    EXPECT_EQ(script_.growths.back(), (std::pair<MemoryIndex, std::size_t>{gpu, unit / 2}));
    residency_->space(gpu).grown(0, 0);
    residency_->space(gpu).given_again(base_[gpu] + 2 * unit, 4 * unit, false);
    EXPECT_EQ(residency_->place(t), Placement::granted);
}

TEST_F(ResidencyTest, with_the_least_that_a_task_lacks_all_that_there_is_then_is_exchanged_for_one_step) {
    start({100 * unit, 8 * unit});
    residency_->space(host).grown(base_[host], 50 * unit);
    residency_->space(gpu).grown(base_[gpu], 3 * unit, true);
    auto a = make_array(2, 2 * unit);
    Task& t = make_task(gpu, {{&a->chunks[0], true, true}, {&a->chunks[1], true, true}});
    for (int refusal = 0; refusal < 2; refusal++) {
        EXPECT_EQ(residency_->place(t), Placement::wait_growth);
        residency_->space(gpu).grown(0, 0);
    }
    EXPECT_EQ(residency_->place(t), Placement::lacks);
    EXPECT_EQ(residency_->lacking().bytes, 2 * unit) << "the second chunk fits into that";
    EXPECT_EQ(residency_->lacking().least_bytes, unit);
    script_.can_exchange = true;
    residency_->space(gpu).given_again(base_[gpu] + 100 * unit, unit, true);
    EXPECT_EQ(residency_->place(t), Placement::wait_growth);
    ASSERT_EQ(script_.exchanges.size(), 1u);
    EXPECT_EQ(script_.exchanges[0], (std::pair<MemoryIndex, std::size_t>{gpu, 4 * unit}));
}

}  // namespace
