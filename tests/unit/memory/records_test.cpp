// What the records of chunks and replicas take, at n and 2 n; that it goes back; and that who has no memory for them
// loses nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>

#include "host_allocations.hpp"
#include "residency_script.hpp"

namespace {

using namespace kmm::residency_test;
using kmm::graph::HostReserve;
using kmm::memory::BusyReplica;
using kmm::memory::BusyReplicas;
using kmm::memory::num_user_kinds;
using kmm::memory::RecordSlabs;
using kmm::memory::Replica;
using kmm::memory::SystemMemory;
using kmm::memory::UserKind;

static_assert(sizeof(Replica) <= 96);
static_assert(sizeof(Chunk) <= 128);
static_assert(sizeof(kmm::memory::Victim) <= 72);
static_assert(sizeof(kmm::memory::Demand) <= 40);
static_assert(sizeof(kmm::memory::NextUses) == 8);

std::size_t allocated() { return rmm_test::allocated_bytes.load(); }

// -------------------------------------------------------------------------------------------------------------- slabs

struct Record {
    std::uint64_t value = 0;
    Record* next = nullptr;
    std::uint16_t place_in_slab = 0;
    static Record*& free_link(Record& r) { return r.next; }
    void recycle() noexcept { value = 0; }
};
constexpr std::size_t slab_bytes = 1024;
using Slabs = RecordSlabs<Record, SystemMemory, slab_bytes>;

TEST(RecordSlabs, give_each_user_a_record_of_its_own_that_is_as_new) {
    std::mt19937_64 random(5);
    Slabs slabs;
    std::map<Record*, std::uint64_t> used;
    for (std::uint64_t i = 1; i < 20'000; i++) {
        if (used.empty() || random() % 16 < (i / 2000 % 2 == 0 ? 10u : 6u)) {
            Record& r = slabs.take();
            ASSERT_EQ(r.value, 0u);
            r.value = i;
            ASSERT_TRUE(used.emplace(&r, i).second);
        } else {
            const auto at = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
            ASSERT_EQ(at->first->value, at->second);
            slabs.give(*at->first);
            used.erase(at);
        }
        ASSERT_EQ(slabs.num_used(), used.size());
    }
    std::set<const Record*> found;
    slabs.for_each_made([&](const Record& r) {
        if (r.value != 0) found.insert(&r);
    });
    EXPECT_EQ(found.size(), used.size());
    for (const auto& [record, value] : used) EXPECT_EQ(found.count(record), 1u);
}

TEST(RecordSlabs, go_back_when_nobody_uses_them_but_for_one) {
    const std::size_t before = allocated();
    {
        Slabs slabs;
        std::vector<Record*> used;
        for (int i = 0; i < 5000; i++) used.push_back(&slabs.take());
        EXPECT_GE(slabs.size_bytes(), 5000 * sizeof(Record));
        std::shuffle(used.begin(), used.end(), std::mt19937_64(1));
        for (Record* r : used) slabs.give(*r);
        EXPECT_EQ(slabs.size_bytes(), slab_bytes);
        slabs.trim();
        EXPECT_EQ(slabs.size_bytes(), 0u);
        Record& again = slabs.take();
        slabs.trim();
        EXPECT_EQ(slabs.size_bytes(), slab_bytes) << "it is used";
        slabs.give(again);
    }
    EXPECT_EQ(allocated(), before);
}

TEST(RecordSlabs, with_room_need_no_memory_and_without_it_lose_nothing) {
    Slabs slabs;
    slabs.reserve(100);
    std::vector<Record*> used;
    used.reserve(2000);
    rmm_test::allocations_left = 0;
    for (int i = 0; i < 100; i++) used.push_back(&slabs.take());
    EXPECT_THROW(while (used.size() < 2000) used.push_back(&slabs.take()), std::bad_alloc);
    EXPECT_EQ(slabs.num_used(), used.size());
    for (Record* r : used) slabs.give(*r);
    EXPECT_EQ(slabs.num_used(), 0u);
}

// ---------------------------------------------------------------------------------------------------------- next uses

TEST(NextUses, of_a_chunk_take_little_more_than_8_bytes_for_each) {
    for (const std::size_t count : {28u, 56u, 1000u, 20'000u}) {
        kmm::memory::NextUses::Pool pool;
        kmm::memory::NextUses uses;
        std::uint64_t steps = 0;
        pool.reserve(1);
        const std::size_t before = allocated();
        for (std::uint64_t task = 1; task <= count; ++task) uses.add({task}, pool, &steps);
        // One or two steps of a stencil in three dimensions, but for what the host rounds up; a fourth more; doubled.
        EXPECT_LE(allocated() - before, count < 100 ? count * 8 + 8 : count <= 1000 ? count * 10 : count * 16) << count;
        for (std::uint64_t task = 1; task <= count; ++task) EXPECT_TRUE(uses.remove({task}, pool, &steps));
    }
}

// -------------------------------------------------------------------------------------------------------------- users

using Sets = std::array<FenceSet, num_user_kinds>;

void expect_same(const Replica& replica, const Sets& expected) {
    std::vector<std::pair<UserKind, Fence>> found;
    replica.for_each_user([&](UserKind kind, const Fence& f) { found.emplace_back(kind, f); });
    std::size_t count = 0;
    for (const FenceSet& set : expected) count += set.size();
    ASSERT_EQ(found.size(), count);
    EXPECT_TRUE(
        std::is_sorted(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; }));
    for (std::size_t kind = 0; kind < num_user_kinds; kind++)
        for (const Fence& f : expected[kind])
            EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const auto& entry) {
                return entry.first == static_cast<UserKind>(kind) && entry.second.lane == f.lane &&
                       entry.second.position == f.position;
            }));
}

TEST(ReplicaUsers, are_the_latest_of_each_kind_and_lane_in_the_record_or_beside_it) {
    std::mt19937_64 random(11);
    BusyReplicas parts;
    Replica replica;
    Sets expected;
    std::uint64_t position = 0;
    std::uint64_t completed = 0;
    const auto passed = [&](const Fence& f) { return f.position <= completed; };
    std::size_t times_busy = 0;
    for (int i = 0; i < 20'000; i++) {
        const auto kind = random() % num_user_kinds;
        if (random() % 50 == 0) {
            replica.clear_users();
            for (FenceSet& set : expected) set.clear();
        } else if (random() % 10 == 0) {
            completed = position - std::min<std::uint64_t>(position, random() % 12);
            replica.prune_users(passed);
            for (FenceSet& set : expected) set.prune(passed);
        }
        if (replica.is_busy()) (void)parts.drop_if_idle(replica);
        const Fence fence{static_cast<LaneId>(random() % 5), ++position};
        if (!replica.add(static_cast<UserKind>(kind), fence)) {
            times_busy++;
            parts.make(replica, [](const Fence&) { return false; });
            ASSERT_TRUE(replica.add(static_cast<UserKind>(kind), fence));
        }
        expected[kind].add(fence);
        expect_same(replica, expected);
        if (HasFailure()) return;
    }
    EXPECT_GT(times_busy, 100u);
}

TEST(BusyReplicas, are_no_more_than_what_is_under_way_needs) {
    constexpr std::size_t under_way = 20;
    BusyReplicas parts;
    std::vector<Replica> replicas(5000);
    for (std::size_t i = 0; i < replicas.size(); i++) {
        const auto passed = [&](const Fence& f) { return f.position + under_way <= i; };
        for (std::uint16_t lane = 0; lane < 4; lane++)
            if (!replicas[i].add(UserKind::task_read, {static_cast<LaneId>(lane), i})) {
                parts.make(replicas[i], passed);
                (void)replicas[i].add(UserKind::task_read, {static_cast<LaneId>(lane), i});
            }
        ASSERT_LE(parts.size(), 2 * under_way + 2);
    }
}

// ---------------------------------------------------------------------------------------------------------- residency

bool is_newest(const Replica& r) { return r.holds_all_of(r.chunk->version); }

class Records : public ResidencyTest {
  protected:
    void pass_everything() {
        script_.completed = script_.position;
        for (std::uint32_t lane = 0; lane < 128; lane++) residency_->residents().advanced(static_cast<LaneId>(lane));
    }
    void forget_tasks() {
        decltype(tasks_)().swap(tasks_);
        decltype(script_.copies)().swap(script_.copies);
    }
    /// Written on the host, read on so many devices, from many lanes at once; then all of that is over.
    void touch(Chunk& chunk, std::size_t num_readers, std::size_t num_devices) {
        overwrite_on(host, chunk);
        for (std::size_t i = 0; i < num_readers; i++) {
            const MemoryIndex m = MemoryIndex::of_device(static_cast<std::uint32_t>((chunk.index + i) % num_devices));
            for (std::uint32_t lane = 40; lane < 46; lane++) {
                Task& t = make_task(m, {{&chunk, false, false}});
                ASSERT_EQ(place(t), Placement::granted);
                residency_->issued(t, {static_cast<LaneId>(lane), ++script_.position});
            }
        }
        if (chunk.index % 8 == 7) pass_everything();
        if (chunk.index % 64 == 63) forget_tasks();
    }
    /// Bytes that touched chunks take when they are at rest, beside themselves; `*left`: when their array has ended.
    std::size_t bytes_of(std::size_t n, std::size_t num_devices, std::size_t num_readers, std::size_t* left) {
        std::vector<std::size_t> limits(num_devices + 1, 2 * n * unit);
        start(PerMemory<std::size_t>(limits));
        // Memory of the heap comes in one step, so that its own books are the same for any number of chunks.
        for (const MemoryIndex m : residency_->residents().memories()) {
            residency_->space(m).given_again(base_[m], 2 * n * unit, false);
            base_[m] += 2 * n * unit;
        }
        auto a = make_array(n);
        const std::size_t before = allocated();
        for (Chunk& c : a->chunks) touch(c, num_readers, num_devices);
        pass_everything();
        forget_tasks();
        const std::size_t bytes = allocated() - before;
        for (const Chunk& c : a->chunks) {
            EXPECT_TRUE(c.next_uses.empty() && c.demands.empty());
            std::size_t num_replicas = 0;
            for (const Replica& r : c.replicas) num_replicas += is_newest(r);
            EXPECT_EQ(num_replicas, num_readers + 1);
        }
        residency_->residents().free_chunks(*a);
        *left = allocated() - before;
        return bytes;
    }
};

TEST_F(Records, of_a_touched_chunk_at_rest_take_96_bytes_for_each_memory_where_it_is) {
    // Slabs that are kept, and what a heap keeps ready; parts of what was under way, lists that keep their memory.
    constexpr std::size_t bytes_of_memory = 64 << 10;
    constexpr std::size_t slab = 16384;
    for (const std::size_t num_devices : {1u, 8u})
        for (const std::size_t num_readers : {std::size_t{1}, num_devices}) {
            SCOPED_TRACE(std::to_string(num_readers) + " of " + std::to_string(num_devices) + " devices");
            const std::size_t most_left = bytes_of_memory * (num_devices + 1);
            std::size_t left = 0, left_twice = 0;
            const std::size_t some = bytes_of(4000, num_devices, num_readers, &left);
            const std::size_t twice = bytes_of(8000, num_devices, num_readers, &left_twice);
            EXPECT_LE(twice - some, 4000 * (num_readers + 1) * 97 + slab * (num_devices + 1)) << "a slab may be begun";
            EXPECT_LE(some, 4000 * (num_readers + 1) * 97 + most_left);
            EXPECT_LE(left, most_left);
            EXPECT_LE(left_twice, most_left) << "however many there were";
        }
}

TEST_F(Records, that_nobody_uses_are_given_back_when_it_is_asked_for) {
    start({64 * unit, 64 * unit, 64 * unit});
    for (const MemoryIndex m : residency_->residents().memories())
        residency_->space(m).given_again(base_[m], 64 * unit, false);
    auto a = make_array(8);
    for (Chunk& c : a->chunks) touch(c, 2, 2);
    pass_everything();
    residency_->residents().free_chunks(*a);
    const std::size_t kept = allocated();
    residency_->residents().trim_records();
    EXPECT_LE(allocated() + 3 * 16384, kept) << "a slab of replicas for each memory";
}

TEST_F(Records, of_what_nobody_has_touched_take_nothing) {
    start({8 * unit, 8 * unit});
    auto a = make_array(1000);
    const std::size_t before = allocated();
    residency_->residents().released(*a);
    residency_->residents().free_chunks(*a);
    EXPECT_EQ(allocated(), before);
}

/// Whichever allocation fails, a task for which others must be saved is placed, or placed when it is tried again.
TEST_F(Records, that_cannot_be_had_lose_nothing) {
    HostReserve::prepare();
    constexpr std::size_t n = 6;
    std::size_t num_starved = 0;
    for (int failing = 0; failing < 60; failing++) {
        SCOPED_TRACE("allocation " + std::to_string(failing));
        script_ = {};
        tasks_.clear();
        start({64 * unit, n * unit});
        auto a = make_array(n);
        auto b = make_array(3);
        for (Chunk& c : a->chunks) overwrite_on(gpu, c);
        residency_->space(host).given_again(base_[host], 64 * unit, false);
        Task& t =
            make_task(gpu, {{&b->chunks[0], true, true}, {&b->chunks[1], true, true}, {&b->chunks[2], true, true}});
        rmm_test::has_failed = false;
        rmm_test::allocations_left = failing;
        Placement placement = residency_->place(t);
        rmm_test::allocations_left = -1;
        if (placement != Placement::granted) {
            EXPECT_TRUE(rmm_test::has_failed);
            EXPECT_EQ(placement, Placement::starved);
            num_starved++;
            placement = residency_->place(t);
        }
        ASSERT_EQ(placement, Placement::granted);
        residency_->issued(t, {static_cast<LaneId>(3), ++script_.position});
        for (const Chunk& c : a->chunks) {
            bool somewhere = false;
            for (const Replica& r : c.replicas) somewhere |= is_newest(r);
            EXPECT_TRUE(somewhere) << "chunk " << c.index << " is nowhere";
        }
        residency_->residents().free_chunks(*a);
        residency_->residents().free_chunks(*b);
        EXPECT_EQ(residency_->space(gpu).counters.current_bytes, 0u);
        EXPECT_EQ(residency_->space(host).counters.current_bytes, 0u);
    }
    EXPECT_GE(num_starved, 2u);
}

}  // namespace
