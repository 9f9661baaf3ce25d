// Which memories hold what of a chunk, and what a region across chunks finds there: records alone, without Residency.
#include "kmm/memory/content.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "cut_array.hpp"
#include "kmm/memory/ghosts.hpp"
#include "kmm/memory/regions.hpp"

namespace {

using namespace kmm::memory;
using kmm::graph::Across;
using kmm::graph::Task;
using kmm::graph::Use;

const MemoryIndex host = MemoryIndex::host();
const MemoryIndex gpu = MemoryIndex::of_device(0);
const MemoryIndex gpu_1 = MemoryIndex::of_device(1);
constexpr std::size_t unit = 1000;

/// Three chunks of 1000 bytes side by side, and replicas that the test links to them.
class ContentTest : public ::testing::Test {
  protected:
    ContentTest() {
        kmm_test::cut(array_, 3, unit, 2);
        for (Chunk& c : array_.chunks) c.version = 5;
    }
    ~ContentTest() override {
        for (Chunk& c : array_.chunks) c.ghosts = nullptr;
    }
    Chunk& chunk(std::size_t i) { return array_.chunks[i]; }
    Replica& add(Chunk& c, MemoryIndex m, std::uint64_t version, Holds holds = Holds::all) {
        Replica& r = replicas_.at(num_replicas_++);
        r.order = Replica::order_of(m);
        r.address = 4096 * num_replicas_;
        r.version = version;
        r.holds = holds;
        r.chunk = &c;
        c.replicas.insert(r);
        return r;
    }
    void add_ghosts(Chunk& c, MemoryIndex m, std::uint64_t version, const kmm::boxes::Box& box) {
        Ghosts& ghosts = ghosts_.at(num_ghosts_++);
        ghosts.link_to(add(c, m, version));
        ghosts.add(box);
    }
    static kmm::boxes::Box box(std::int64_t begin, std::int64_t end) {
        kmm::boxes::Box b;
        b.begin[0] = begin;
        b.end[0] = end;
        return b;
    }
    /// A task on the first device that reads the bytes from `begin` to `end`, which all chunks hold a part of.
    void make_task(std::int64_t begin, std::int64_t end) {
        task_.memory = gpu;
        temporary_ = std::make_unique<Temporary>(box(begin, end), 1, 1, heap_alignment, 3);
        task_.uses.emplace_back().chunk = &temporary_->chunk;
        task_.uses[0].role = Use::Role::region;
        kmm::graph::ColdPart& cold = task_.cold_part(kmm::graph::UseOfReserve::no);
        Across& across = cold.across.emplace_back();
        across.region = box(begin, end);
        across.num_parts = 3;
        for (std::uint32_t i = 0; i < 3; ++i) {
            cold.parts.emplace_back() = 1 + i;
            Use& part = task_.uses.emplace_back();
            part.chunk = &chunk(i);
            part.role = Use::Role::part;
        }
    }
    Across& across() { return task_.across()[0]; }

    Array array_;
    std::array<Replica, 8> replicas_;
    std::size_t num_replicas_ = 0;
    std::array<Ghosts, 4> ghosts_;
    std::size_t num_ghosts_ = 0;
    std::unique_ptr<Temporary> temporary_;
    Task task_;
};

TEST_F(ContentTest, is_where_a_replica_holds_all_of_the_version) {
    Chunk& c = chunk(0);
    add(c, host, 5);
    add(c, gpu, 4);
    EXPECT_TRUE(is_valid(c, host) && is_here(c, host) && !needs_copy(c, host));
    EXPECT_FALSE(is_valid(c, gpu) || is_here(c, gpu));
    EXPECT_TRUE(needs_copy(c, gpu) && needs_copy(c, gpu_1));
    EXPECT_TRUE(valid_elsewhere(c, gpu));
    EXPECT_FALSE(valid_elsewhere(c, host));
    c.version = 0;
    EXPECT_FALSE(is_valid(c, gpu_1)) << "nothing was written";
    EXPECT_TRUE(is_here(c, gpu_1)) << "a task that reads it lacks nothing";
}

TEST_F(ContentTest, of_one_replica_alone_must_be_saved) {
    Chunk& c = chunk(0);
    add(c, gpu, 5);
    EXPECT_TRUE(must_be_saved(c, gpu));
    EXPECT_FALSE(must_be_saved(c, host)) << "it has none";
    add(c, host, 5, Holds::last_parts);
    EXPECT_TRUE(must_be_saved(c, gpu)) << "the host has parts alone";
    add(c, gpu_1, 5);
    EXPECT_FALSE(must_be_saved(c, gpu));
    EXPECT_TRUE(is_clean(c, gpu));
    array_.is_gathered = true;
    EXPECT_TRUE(is_clean(chunk(1), gpu)) << "it can be gathered again";
}

TEST_F(ContentTest, has_its_home_where_kernels_write_it) {
    EXPECT_FALSE(has_home_elsewhere(chunk(1), gpu));
    array_.written_by[gpu_1].add(1);
    EXPECT_TRUE(has_home_elsewhere(chunk(1), gpu));
    EXPECT_FALSE(has_home_elsewhere(chunk(1), gpu_1));
    EXPECT_FALSE(has_home_elsewhere(chunk(2), gpu));
    array_.written_by[gpu].add(1);
    EXPECT_FALSE(has_home_elsewhere(chunk(1), gpu)) << "both write it";
}

TEST_F(ContentTest, of_a_region_is_here_in_parts_and_in_whole_chunks) {
    make_task(900, 2100);
    add(chunk(0), gpu, 5);
    add_ghosts(chunk(2), gpu, 5, box(2000, 2100));
    EXPECT_TRUE(holds_part(chunk(0), gpu, across()));
    EXPECT_FALSE(holds_part(chunk(1), gpu, across()));
    EXPECT_TRUE(holds_part(chunk(2), gpu, across()));
    EXPECT_FALSE(lacks_part(task_, task_.uses[1]));
    EXPECT_TRUE(lacks_part(task_, task_.uses[2]));
    EXPECT_FALSE(lacks_part(task_, task_.uses[3]));
    chunk(2).version = 6;
    EXPECT_TRUE(lacks_part(task_, task_.uses[3])) << "ghosts of the version before";
}

TEST_F(ContentTest, comes_beside_ghosts_that_it_does_not_touch) {
    make_task(900, 2100);
    EXPECT_FALSE(part_comes_beside(task_, task_.uses[1])) << "there is no place";
    add_ghosts(chunk(0), gpu, 5, box(0, 100));
    EXPECT_TRUE(part_comes_beside(task_, task_.uses[1]));
    Ghosts::of(chunk(0).replicas.at(gpu)).add(box(850, 910));
    EXPECT_FALSE(part_comes_beside(task_, task_.uses[1])) << "tasks may read what it would be written over";
}

TEST_F(ContentTest, of_a_temporary_is_good_while_no_copy_failed_that_it_may_have_come_from) {
    make_task(900, 2100);
    EXPECT_FALSE(holds_region(task_, across()));
    temporary_->chunk.version = 1;
    add(temporary_->chunk, gpu, 1).content_at = 10;
    EXPECT_TRUE(holds_region(task_, across()));
    note_gathered(task_);
    for (std::uint32_t i = 1; i < 4; ++i) EXPECT_EQ(task_.uses[i].content_at, 10u);
    chunk(1).spoiled_at = 9;
    EXPECT_TRUE(holds_region(task_, across()));
    chunk(1).spoiled_at = 11;
    EXPECT_FALSE(holds_region(task_, across()));
}

TEST_F(ContentTest, is_used_in_the_places_that_forms_need) {
    make_task(900, 2100);
    across().form = Across::Form::gather;
    set_places(task_);
    EXPECT_EQ(task_.uses[0].place, Use::Place::here);
    for (std::uint32_t i = 1; i < 4; ++i) EXPECT_EQ(task_.uses[i].place, Use::Place::anywhere);
    across().form = Across::Form::in_place;
    across().ghosts = 1;
    set_places(task_);
    EXPECT_EQ(task_.uses[0].place, Use::Place::none);
    EXPECT_EQ(task_.uses[1].place, Use::Place::ghost);
    EXPECT_EQ(task_.uses[2].place, Use::Place::here);
    EXPECT_FALSE(ghosts_have_places(task_, across()));
    add_ghosts(chunk(0), gpu, 4, box(900, 1000));
    EXPECT_TRUE(ghosts_have_places(task_, across()));
    across().form = Across::Form::gathered;
    set_places(task_);
    EXPECT_EQ(task_.uses[0].place, Use::Place::here);
    for (std::uint32_t i = 1; i < 4; ++i) EXPECT_EQ(task_.uses[i].place, Use::Place::none);
}

}  // namespace
