// What is in a memory is moved together, or changes places with another's: which copies, behind what, and what stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "residency_script.hpp"

namespace {

using namespace kmm::residency_test;

constexpr std::uintptr_t bounce = std::uintptr_t{77} << 40;

bool is_same(Fence a, Fence b) { return a.lane == b.lane && a.position == b.position; }

/// Of a copy that waits for one other.
bool waits_for(const Script::Copy& copy, const Script::Copy& other) {
    return copy.waits.size() == 1 && is_same(copy.waits[0], other.fence);
}

bool comes_after(const Task& task, Fence fence) {
    return std::any_of(task.fences.begin(), task.fences.end(), [&](const Fence& f) { return is_same(f, fence); });
}

class Compaction : public ResidencyTest {
  protected:
    /// The device has `units`, side by side, in as many regions as there are numbers.
    void start_with(const std::vector<std::size_t>& regions, bool sealed = false) {
        start({100 * unit, 100 * unit});
        begin_ = base_[gpu];
        for (const std::size_t units : regions) {
            residency_->space(gpu).grown(base_[gpu], units * unit, sealed);
            base_[gpu] += units * unit;
        }
        // So that nobody asks for more.
        residency_->space(gpu).grown(0, 0);
    }
    /// A chunk of so many units, with content there, in an array of its own.
    Chunk& make(std::size_t units, MemoryIndex m = gpu) {
        arrays_.push_back(make_array(1, units * unit));
        Chunk& chunk = arrays_.back()->chunks[0];
        overwrite_on(m, chunk);
        return chunk;
    }
    void drop(Chunk& chunk) {
        const auto at =
            std::find_if(arrays_.begin(), arrays_.end(), [&](const auto& a) { return a.get() == chunk.owner; });
        residency_->residents().free_chunks(**at);
        arrays_.erase(at);
    }
    /// All that was handed out has been done.
    void all_done() {
        script_.completed = script_.position;
        for (std::uint32_t lane = 0; lane < 200; ++lane) residency_->residents().advanced(static_cast<LaneId>(lane));
        script_.copies.clear();
    }
    /// In units from where the device's memory begins.
    std::size_t place_of(const Chunk& chunk) const { return (chunk.replicas[gpu].address - begin_) / unit; }

    std::uintptr_t begin_ = 0;
    std::vector<std::unique_ptr<Array>> arrays_;
};

TEST_F(Compaction, in_a_device_each_chunk_is_copied_down_behind_the_copy_before_it) {
    start_with({6});
    Chunk& a = make(1);
    Chunk& b = make(1);
    Chunk& c = make(1);
    Chunk& d = make(1);
    Chunk& e = make(2);
    ASSERT_EQ(place_of(e), 4u);
    drop(a);
    drop(c);
    all_done();
    EXPECT_EQ(residency_->compaction().bounce_bytes_to_compact(gpu), 0u);
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    EXPECT_EQ(place_of(b), 0u);
    EXPECT_EQ(place_of(d), 1u);
    EXPECT_EQ(place_of(e), 2u);
    ASSERT_EQ(script_.copies.size(), 3u);
    const Chunk* const order[] = {&b, &d, &e};
    const std::size_t from[] = {1, 3, 4}, to[] = {0, 1, 2};
    for (std::size_t i = 0; i < 3; ++i) {
        const Script::Copy& copy = script_.copies[i];
        EXPECT_EQ(copy.chunk, order[i]);
        EXPECT_TRUE(copy.from == gpu && copy.to == gpu);
        EXPECT_EQ(copy.source, begin_ + from[i] * unit);
        EXPECT_EQ(copy.destination, begin_ + to[i] * unit);
        EXPECT_TRUE(i == 0 ? copy.waits.empty() : waits_for(copy, script_.copies[i - 1]));
    }
    EXPECT_EQ(residency_->space(gpu).heap.largest_free_bytes(), 2 * unit);
    EXPECT_EQ(residency_->space(gpu).heap.num_free_pieces(), 1u);
}

TEST_F(Compaction, who_uses_what_was_moved_or_what_became_free_comes_behind_the_last_copy) {
    start_with({4});
    Chunk& a = make(1);
    Chunk& b = make(1);
    Chunk& c = make(1);
    Chunk& d = make(1);
    drop(a);
    drop(c);
    all_done();
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    ASSERT_EQ(script_.copies.size(), 2u);
    const Fence last = script_.copies.back().fence;
    Task& reader = make_task(gpu, {{&b, false, false}});
    EXPECT_EQ(place(reader), Placement::granted);
    EXPECT_TRUE(comes_after(reader, last));
    EXPECT_EQ(reader.addresses[0], reinterpret_cast<void*>(begin_));
    auto large = make_array(1, 2 * unit);
    Task& writer = make_task(gpu, {{&large->chunks[0], true, true}});
    EXPECT_EQ(place(writer), Placement::granted) << "two pieces of one unit are one";
    EXPECT_TRUE(comes_after(writer, last));
    EXPECT_EQ(place_of(large->chunks[0]), 2u);
    EXPECT_EQ(place_of(d), 1u);
}

TEST_F(Compaction, what_would_overlap_its_old_place_goes_by_way_of_the_bounce_buffer) {
    start_with({6});
    Chunk& a = make(1);
    Chunk& large = make(3);
    Chunk& b = make(1);
    ASSERT_EQ(place_of(b), 4u);
    drop(a);
    all_done();
    EXPECT_EQ(residency_->compaction().bounce_bytes_to_compact(gpu), 3 * unit);
    EXPECT_FALSE(residency_->compaction().compact(gpu)) << "there is none";
    EXPECT_TRUE(script_.copies.empty());
    residency_->compaction().set_bounce(bounce, 3 * unit - 1);
    EXPECT_FALSE(residency_->compaction().compact(gpu)) << "it is too small";
    EXPECT_EQ(place_of(large), 1u);
    residency_->compaction().set_bounce(bounce, 3 * unit);
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    ASSERT_EQ(script_.copies.size(), 3u);
    const auto& [out, in, down] = std::tie(script_.copies[0], script_.copies[1], script_.copies[2]);
    EXPECT_TRUE(out.from == gpu && out.to == host && in.from == host && in.to == gpu);
    EXPECT_EQ(out.source, begin_ + unit);
    EXPECT_EQ(out.destination, bounce);
    EXPECT_EQ(in.source, bounce);
    EXPECT_EQ(in.destination, begin_);
    EXPECT_TRUE(out.waits.empty());
    EXPECT_TRUE(waits_for(in, out));
    EXPECT_EQ(down.chunk, &b);
    EXPECT_TRUE(waits_for(down, in));
    EXPECT_EQ(place_of(large), 0u);
    EXPECT_EQ(place_of(b), 3u);
    EXPECT_EQ(large.replicas.find(host), nullptr) << "the bounce buffer is no place of its own";
    EXPECT_EQ(residency_->space(gpu).heap.largest_free_bytes(), 2 * unit);
}

TEST_F(Compaction, what_is_too_large_for_the_bounce_buffer_stays_and_the_rest_moves_up_to_it) {
    start_with({12});
    Chunk& a = make(1);
    Chunk& large = make(3);
    Chunk& b = make(2);
    Chunk& small = make(1);
    Chunk& c = make(1);
    Chunk& middle = make(2);
    ASSERT_EQ(place_of(middle), 8u);
    drop(a);
    drop(b);
    drop(c);
    all_done();
    residency_->compaction().set_bounce(bounce, 2 * unit);
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    EXPECT_EQ(place_of(large), 1u);
    EXPECT_EQ(place_of(small), 4u);
    EXPECT_EQ(place_of(middle), 5u);
    EXPECT_EQ(residency_->space(gpu).heap.largest_free_bytes(), 5 * unit);
}

TEST_F(Compaction, the_next_user_of_the_bounce_buffer_waits_until_it_is_empty) {
    start_with({6});
    Chunk& a = make(1);
    make(2);
    make(2);
    drop(a);
    all_done();
    residency_->compaction().set_bounce(bounce, 2 * unit);
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    ASSERT_EQ(script_.copies.size(), 4u);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_TRUE(waits_for(script_.copies[i], script_.copies[i - 1]));
}

TEST_F(Compaction, devices_that_are_moved_together_at_the_same_time_take_turns_with_the_bounce_buffer) {
    start({100 * unit, 4 * unit, 4 * unit});
    for (const MemoryIndex m : {gpu, gpu_1}) {
        residency_->space(m).grown(base_[m], 4 * unit);
        Chunk& a = make(1, m);
        Chunk& b = make(2, m);
        ASSERT_EQ(b.replicas[m].address, base_[m] + unit);
        drop(a);
    }
    all_done();
    residency_->compaction().set_bounce(bounce, 2 * unit);
    ASSERT_TRUE(residency_->compaction().compact(gpu));
    ASSERT_TRUE(residency_->compaction().compact(gpu_1));
    ASSERT_EQ(script_.copies.size(), 4u);
    EXPECT_EQ(script_.copies[2].destination, bounce);
    EXPECT_TRUE(waits_for(script_.copies[2], script_.copies[1]));
}

TEST_F(Compaction, regions_that_are_sealed_are_moved_together_each_for_itself) {
    for (const bool sealed : {false, true}) {
        arrays_.clear();
        start_with({2, 2}, sealed);
        Chunk* chunks[4];
        for (Chunk*& c : chunks) c = &make(1);
        std::sort(std::begin(chunks), std::end(chunks),
                  [&](const Chunk* a, const Chunk* b) { return place_of(*a) < place_of(*b); });
        drop(*chunks[0]);
        drop(*chunks[2]);
        all_done();
        ASSERT_TRUE(residency_->compaction().compact(gpu));
        EXPECT_EQ(place_of(*chunks[1]), 0u);
        EXPECT_EQ(place_of(*chunks[3]), sealed ? 2u : 1u);
        EXPECT_EQ(residency_->space(gpu).heap.largest_free_bytes(), sealed ? unit : 2 * unit);
        EXPECT_EQ(script_.copies.size(), 2u);
    }
}

TEST_F(Compaction, what_is_pinned_or_still_in_use_stays_and_what_is_behind_it_moves_up_to_it) {
    for (const bool pins : {false, true}) {
        arrays_.clear();
        start_with({7});
        Chunk& a = make(1);
        Chunk& b = make(1);
        Chunk& c = make(1);
        Chunk& d = make(1);
        Chunk& e = make(1);
        Chunk& f = make(1);
        ASSERT_EQ(place_of(f), 5u);
        drop(a);
        drop(c);
        drop(e);
        all_done();
        Task& user = make_task(gpu, {{&b, false, false}});
        ASSERT_EQ(place(user), Placement::granted);
        if (pins)
            residency_->pin(user);
        else
            residency_->issued(user, {static_cast<LaneId>(1), ++script_.position});
        ASSERT_TRUE(residency_->compaction().compact(gpu));
        EXPECT_EQ(place_of(b), 1u);
        EXPECT_EQ(place_of(d), 2u);
        EXPECT_EQ(place_of(f), 3u);
        EXPECT_EQ(script_.copies.size(), 2u);
        if (pins) residency_->unpin(user, nullptr);
    }
}

TEST_F(Compaction, nothing_is_moved_where_what_is_free_is_one_piece) {
    start_with({4});
    make(1);
    make(1);
    all_done();
    EXPECT_FALSE(residency_->compaction().compact(gpu));
    EXPECT_FALSE(residency_->compaction().compact(host)) << "it has no memory at all";
    EXPECT_TRUE(script_.copies.empty());
}

TEST_F(Compaction, on_the_host_content_is_moved_in_the_order_of_addresses_and_overlaps) {
    start({6 * unit, 6 * unit});
    const std::uintptr_t begin = base_[host];
    residency_->space(host).grown(begin, 6 * unit);
    Chunk& a = make(1, host);
    Chunk& large = make(3, host);
    Chunk& b = make(1, host);
    ASSERT_EQ(b.replicas[host].address, begin + 4 * unit);
    drop(a);
    all_done();
    ASSERT_TRUE(residency_->compaction().compact(host));
    ASSERT_EQ(script_.moves.size(), 2u);
    EXPECT_EQ(script_.moves[0].source, begin + unit);
    EXPECT_EQ(script_.moves[0].destination, begin);
    EXPECT_EQ(script_.moves[0].bytes, 3 * unit);
    EXPECT_EQ(script_.moves[1].source, begin + 4 * unit);
    EXPECT_EQ(script_.moves[1].destination, begin + 3 * unit);
    EXPECT_EQ(large.replicas[host].address, begin);
    EXPECT_EQ(b.replicas[host].address, begin + 3 * unit);
    EXPECT_TRUE(script_.copies.empty());
    EXPECT_EQ(residency_->space(host).heap.largest_free_bytes(), 2 * unit);
    Task& reader = make_task(host, {{&b, false, false}});
    EXPECT_EQ(place(reader), Placement::granted);
    EXPECT_TRUE(reader.fences.empty()) << "it has been moved";
}

TEST_F(Compaction, a_block_without_content_changes_its_place_and_nothing_is_copied) {
    start({6 * unit, 6 * unit});
    const std::uintptr_t begin = base_[host];
    residency_->space(host).grown(begin, 6 * unit);
    Chunk& a = make(1, host);
    Chunk& stale = make(1, host);
    ASSERT_EQ(stale.replicas[host].address, begin + unit);
    write_on(gpu, stale);
    drop(a);
    all_done();
    ASSERT_TRUE(residency_->compaction().compact(host));
    EXPECT_TRUE(script_.moves.empty());
    EXPECT_EQ(stale.replicas[host].address, begin);
    read_on(host, stale);
    ASSERT_EQ(script_.copies.size(), 1u);
    EXPECT_EQ(script_.copies[0].destination, begin);
}

/// Bytes behind addresses, as a device has them.
class Bytes {
  public:
    void fill(std::uintptr_t at, std::size_t bytes, int value) {
        for (std::size_t i = 0; i < bytes; i += 256) values_[at + i] = value;
    }
    bool is_filled(std::uintptr_t at, std::size_t bytes, int value) {
        for (std::size_t i = 0; i < bytes; i += 256)
            if (values_[at + i] != value) return false;
        return true;
    }
    void copy(std::uintptr_t source, std::uintptr_t destination, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; i += 256) values_[destination + i] = values_[source + i];
    }

  private:
    std::map<std::uintptr_t, int> values_;
};

/// Each memory has `chunks` of one unit, and is full of them.
class Swap : public Compaction {
  protected:
    void fill(std::size_t chunks) {
        start({chunks * unit, chunks * unit, chunks * unit});
        for (const MemoryIndex m : {host, gpu, gpu_1}) {
            residency_->space(m).grown(base_[m], chunks * unit);
            for (std::size_t i = 0; i < chunks; ++i) {
                Chunk& chunk = make(1, m);
                chunks_[m].push_back(&chunk);
                note(chunk, m, static_cast<int>(++num_made_));
            }
        }
        all_done();
    }
    void note(Chunk& chunk, MemoryIndex m, int value) {
        values_[&chunk] = value;
        bytes_.fill(chunk.replicas[m].address, chunk.size_bytes, value);
    }
    bool is_right(Chunk& chunk, MemoryIndex m) {
        return chunk.replicas[m].holds_all_of(chunk.version) &&
               bytes_.is_filled(chunk.replicas[m].address, chunk.size_bytes, values_[&chunk]);
    }
    /// What was asked for happens, in that order.
    void run_copies() {
        auto move = script_.moves.begin();
        for (std::size_t i = 0; i <= script_.copies.size(); ++i) {
            for (; move != script_.moves.end() && move->num_copies_before == i; ++move)
                bytes_.copy(move->source, move->destination, move->bytes);
            if (i == script_.copies.size()) break;
            const Script::Copy& c = script_.copies[i];
            bytes_.copy(c.source, c.destination, c.chunk->size_bytes);
        }
        script_.moves.clear();
        all_done();
    }

    PerMemory<std::vector<Chunk*>> chunks_ = PerMemory<std::vector<Chunk*>>::of_devices(2);
    std::map<Chunk*, int> values_;
    std::size_t num_made_ = 0;
    Bytes bytes_;
};

TEST_F(Swap, a_chunk_on_the_host_and_one_of_a_full_device_change_places_by_way_of_the_bounce_buffer) {
    fill(2);
    Chunk& wanted = *chunks_[host][1];
    Chunk& beside = *chunks_[gpu][0];
    Task& task = make_task(gpu, {{&beside, false, false}, {&wanted, true, false}});
    ASSERT_EQ(place(task), Placement::full);
    EXPECT_EQ(residency_->compaction().bounce_bytes_to_swap(task), unit);
    EXPECT_FALSE(residency_->compaction().swap_for(task)) << "there is no buffer";
    residency_->compaction().set_bounce(bounce, unit);
    ASSERT_TRUE(residency_->compaction().swap_for(task));
    ASSERT_EQ(script_.moves.size(), 1u);
    ASSERT_EQ(script_.copies.size(), 2u);
    EXPECT_TRUE(script_.copies[0].from == gpu && script_.copies[0].to == host);
    EXPECT_TRUE(script_.copies[1].from == host && script_.copies[1].to == gpu);
    EXPECT_TRUE(waits_for(script_.copies[1], script_.copies[0]));
    const Fence last = script_.copies[1].fence;
    EXPECT_EQ(place(task), Placement::granted);
    EXPECT_TRUE(comes_after(task, last));
    run_copies();
    Chunk& left = *chunks_[gpu][1];
    EXPECT_TRUE(is_right(left, host) && is_right(wanted, gpu) && is_right(beside, gpu));
    EXPECT_EQ(left.replicas.find(gpu), nullptr);
    EXPECT_EQ(wanted.replicas.find(host), nullptr);
    for (const MemoryIndex m : {host, gpu, gpu_1}) EXPECT_EQ(residency_->space(m).counters.current_bytes, 2 * unit);
    EXPECT_EQ(residency_->space(gpu).counters.evicted_bytes, unit);
}

TEST_F(Swap, the_one_that_leaves_is_needed_last_and_none_of_the_tasks_own) {
    fill(3);
    Task& soon = make_task(gpu, {{chunks_[gpu][1], false, false}});
    Task& task = make_task(gpu, {{chunks_[gpu][0], false, false}, {chunks_[host][0], false, false}});
    ASSERT_EQ(place(task), Placement::full);
    residency_->compaction().set_bounce(bounce, unit);
    ASSERT_TRUE(residency_->compaction().swap_for(task));
    run_copies();
    EXPECT_TRUE(is_right(*chunks_[gpu][2], host));
    EXPECT_EQ(place(soon), Placement::granted);
}

TEST_F(Swap, for_a_task_on_the_host_and_between_two_devices_all_content_stays_right) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        std::mt19937_64 random(seed);
        arrays_.clear();
        chunks_ = PerMemory<std::vector<Chunk*>>::of_devices(2);
        values_.clear();
        fill(3);
        residency_->compaction().set_bounce(bounce, unit);
        for (int i = 0; i < 20; ++i) {
            const auto m = std::array{host, gpu, gpu_1}[random() % 3];
            std::vector<Wanted> uses;
            std::vector<Chunk*> all;
            for (const auto& [chunk, value] : values_) all.push_back(chunk);
            std::shuffle(all.begin(), all.end(), random);
            for (std::size_t k = 0; k < 1 + seed % 3; ++k) uses.push_back({all[k], random() % 2 == 0, false});
            Task& task = make_task(m, uses);
            std::size_t swaps = 0;
            while (place(task) != Placement::granted) {
                ASSERT_TRUE(residency_->compaction().swap_for(task)) << seed;
                run_copies();
                ASSERT_LE(++swaps, 2 * uses.size()) << "each brings a chunk at least as near as the host";
            }
            residency_->issued(task, {static_cast<LaneId>(m.index()), ++script_.position});
            run_copies();
            for (const Wanted& u : uses) EXPECT_TRUE(is_right(*u.chunk, m)) << seed;
        }
    }
}

TEST_F(Swap, the_bounce_buffer_is_not_taken_while_it_is_in_use) {
    fill(3);
    residency_->compaction().set_bounce(bounce, unit);
    Task& task = make_task(gpu, {{chunks_[host][0], false, false}, {chunks_[host][1], false, false}});
    ASSERT_EQ(place(task), Placement::full);
    ASSERT_TRUE(residency_->compaction().swap_for(task));
    EXPECT_FALSE(residency_->compaction().swap_for(task)) << "the copy out of the buffer has not ended";
    run_copies();
    ASSERT_TRUE(residency_->compaction().swap_for(task));
    run_copies();
    EXPECT_EQ(place(task), Placement::granted);
    EXPECT_TRUE(is_right(*chunks_[host][0], gpu) && is_right(*chunks_[host][1], gpu));
    EXPECT_EQ(residency_->space(gpu).counters.evicted_bytes, 2 * unit);
}

TEST_F(Swap, a_chunk_that_comes_back_is_counted_as_fetched_again) {
    fill(2);
    residency_->compaction().set_bounce(bounce, unit);
    Chunk& left = *chunks_[gpu][1];
    Task& task = make_task(gpu, {{chunks_[gpu][0], false, false}, {chunks_[host][0], false, false}});
    ASSERT_EQ(place(task), Placement::full);
    ASSERT_TRUE(residency_->compaction().swap_for(task));
    run_copies();
    EXPECT_EQ(residency_->space(gpu).counters.refetches, 0u);
    ASSERT_EQ(place(task), Placement::granted);
    residency_->issued(task, {static_cast<LaneId>(1), ++script_.position});
    all_done();
    Task& again = make_task(gpu, {{&left, false, false}});
    ASSERT_EQ(place(again), Placement::full);
    ASSERT_TRUE(residency_->compaction().swap_for(again));
    EXPECT_EQ(residency_->space(gpu).counters.refetches, 1u);
    EXPECT_EQ(residency_->space(gpu).counters.refetched_bytes, unit);
}

TEST_F(Swap, nothing_is_exchanged_for_a_task_that_also_makes_more_than_is_free) {
    fill(2);
    residency_->compaction().set_bounce(bounce, unit);
    const auto fresh = make_array(1);
    Task& task = make_task(gpu, {{&fresh->chunks[0], true, true}, {chunks_[host][0], false, false}});
    ASSERT_EQ(place(task), Placement::full);
    EXPECT_EQ(residency_->compaction().bounce_bytes_to_swap(task), 0u);
    EXPECT_FALSE(residency_->compaction().swap_for(task));
}

TEST_F(Swap, a_copy_that_fails_loses_the_content_that_it_was_to_bring_and_no_other) {
    for (const bool up : {true, false}) {
        arrays_.clear();
        chunks_ = PerMemory<std::vector<Chunk*>>::of_devices(2);
        values_.clear();
        fill(2);
        residency_->compaction().set_bounce(bounce, unit);
        Chunk& wanted = *chunks_[host][0];
        Chunk& left = *chunks_[gpu][1];
        Task& task = make_task(gpu, {{chunks_[gpu][0], false, false}, {&wanted, false, false}});
        ASSERT_EQ(place(task), Placement::full);
        ASSERT_TRUE(residency_->compaction().swap_for(task));
        Chunk& failed = up ? wanted : left;
        Chunk& other = up ? left : wanted;
        residency_->copy_failed(failed, failed.copied_at, std::make_shared<kmm::graph::RootFailure>());
        EXPECT_NE(failed.lost, nullptr);
        EXPECT_EQ(other.lost, nullptr);
        EXPECT_EQ(place(task), up ? Placement::lost : Placement::granted);
    }
}

TEST_F(Swap, chunks_of_other_sizes_do_not_take_part) {
    start({2 * unit, 2 * unit});
    for (const MemoryIndex m : {host, gpu}) residency_->space(m).grown(base_[m], 2 * unit);
    Chunk& large = make(2, host);
    make(1);
    make(1);
    all_done();
    Task& task = make_task(gpu, {{&large, false, false}});
    ASSERT_EQ(place(task), Placement::full);
    EXPECT_EQ(residency_->compaction().bounce_bytes_to_swap(task), 0u);
    residency_->compaction().set_bounce(bounce, 2 * unit);
    EXPECT_FALSE(residency_->compaction().swap_for(task));
    EXPECT_TRUE(script_.copies.empty());
}

TEST_F(Compaction, random_content_arrives_at_its_new_place_and_what_is_free_is_one_piece_in_each_region) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        std::mt19937_64 random(seed);
        arrays_.clear();
        const bool on_host = seed % 3 == 0;
        const bool sealed = seed % 2 == 0;
        const MemoryIndex m = on_host ? host : gpu;
        start({200 * unit, 200 * unit});
        const std::uintptr_t begin = base_[m];
        for (int i = 0; i < 2; ++i) {
            residency_->space(m).grown(base_[m], 60 * unit, sealed);
            base_[m] += 60 * unit;
        }
        Bytes memory;
        int last_value = 0;
        std::map<Chunk*, int> values;
        std::size_t most_bytes = 0, num_moved = 0;
        for (int round = 0; round < 4; ++round) {
            for (std::size_t units; residency_->space(m).heap.largest_free_bytes() >= 6 * unit;) {
                units = 1 + random() % 6;
                Chunk& chunk = make(units, m);
                most_bytes = std::max(most_bytes, chunk.size_bytes);
                values[&chunk] = ++last_value;
                memory.fill(chunk.replicas[m].address, chunk.size_bytes, last_value);
            }
            for (auto at = values.begin(); at != values.end();) {
                if (random() % 2 == 0) {
                    drop(*at->first);
                    at = values.erase(at);
                } else {
                    ++at;
                }
            }
            all_done();
            script_.moves.clear();
            residency_->compaction().set_bounce(bounce, most_bytes);
            EXPECT_LE(residency_->compaction().bounce_bytes_to_compact(m), most_bytes);
            residency_->compaction().compact(m);
            for (const Script::Copy& copy : script_.copies) {
                const std::size_t bytes = copy.chunk->size_bytes;
                EXPECT_TRUE(copy.source + bytes <= copy.destination || copy.destination + bytes <= copy.source)
                    << "a copy must not overlap";
                memory.copy(copy.source, copy.destination, bytes);
            }
            for (const Script::Move& move : script_.moves) memory.copy(move.source, move.destination, move.bytes);
            EXPECT_TRUE(on_host ? script_.copies.empty() : script_.moves.empty());
            num_moved += script_.copies.size() + script_.moves.size();
            for (const auto& [chunk, value] : values)
                ASSERT_TRUE(memory.is_filled(chunk->replicas[m].address, chunk->size_bytes, value)) << seed;
            all_done();
            ASSERT_LE(residency_->space(m).heap.num_free_pieces(), sealed ? 2u : 1u) << seed;
        }
        EXPECT_GT(num_moved, 10u);
        while (!arrays_.empty()) drop(arrays_.back()->chunks[0]);
        all_done();
        EXPECT_EQ(residency_->space(m).counters.current_bytes, 0u);
        Chunk& all = make(sealed ? 60 : 120, m);
        const std::uintptr_t address = all.replicas[m].address;
        EXPECT_TRUE(address == begin || (sealed && address == begin + 60 * unit)) << seed << ": the start of a region";
    }
}

}  // namespace
