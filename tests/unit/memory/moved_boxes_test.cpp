// The boxes that transfers move, against copying each element by its index.
#include "kmm/memory/moved_boxes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace {

using kmm::boxes::Box;
using kmm::graph::BoxTransfer;
using kmm::graph::Task;
using kmm::graph::Use;
using kmm::memory::Array;
using kmm::memory::Chunk;
using kmm::memory::MovedBoxes;
using kmm::memory::Temporary;
using Element = std::int64_t;

constexpr std::size_t rank = 3;

std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

template<typename F> void each_index(const Box& box, F&& f) {
    for (std::int64_t x = box.begin[0]; x < box.end[0]; ++x)
        for (std::int64_t y = box.begin[1]; y < box.end[1]; ++y)
            for (std::int64_t z = box.begin[2]; z < box.end[2]; ++z) f((x * 100 + y) * 100 + z);
}

/// An array, the content of its chunks, and one region of it in a temporary.
class MovedBoxesTest : public ::testing::Test {
  protected:
    void make(std::mt19937& random) {
        Box whole;
        std::int64_t size[rank];
        for (std::size_t k = 0; k < rank; ++k) {
            whole.end[k] = pick(random, 2, 9);
            size[k] = pick(random, 1, whole.end[k]);
            region_.begin[k] = pick(random, 0, whole.end[k] - 1);
            region_.end[k] = pick(random, region_.begin[k] + 1, whole.end[k]);
        }
        array_ = std::make_unique<Array>();
        array_->rank = rank;
        array_->element_bytes = sizeof(Element);
        array_->set_layout(std::make_shared<kmm::plan::Layout>(rank, whole, size, kmm::plan::ChunkHomes()), 1);
        Box box = region_;
        if (pick(random, 0, 1) == 0)  // as for a region that may be read in place
            for (std::size_t k = 1; k < rank; ++k) box.begin[k] = 0, box.end[k] = whole.end[k];
        content_.clear();
        std::vector<std::size_t> found;
        array_->layout->find_all(region_, found);
        chunks_.clear();
        for (const std::size_t i : found) {
            chunks_.push_back(&array_->touch(i));
            fill(*chunks_.back());
        }
        temporary_ = std::make_unique<Temporary>(box, rank, sizeof(Element), kmm::memory::heap_alignment,
                                                 static_cast<std::uint32_t>(found.size()));
        content_[&temporary_->chunk].assign(temporary_->chunk.size_bytes / sizeof(Element), -1);
    }
    void fill(const Chunk& chunk) {
        each_index(chunk.box(), [&](Element index) { content_[&chunk].push_back(index); });
    }
    void move(const Task& task, const MovedBoxes& boxes) {
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            const BoxTransfer box = boxes[i];
            EXPECT_EQ(&boxes.source(i), &task.uses[box.source]);
            EXPECT_EQ(&boxes.destination(), &task.uses[box.destination]);
            const auto* from = reinterpret_cast<const std::byte*>(content_[task.uses[box.source].chunk].data());
            auto* to = reinterpret_cast<std::byte*>(content_[task.uses[box.destination].chunk].data());
            move_axis(box, 0, from + box.source_offset_bytes, to + box.destination_offset_bytes);
        }
    }
    static void move_axis(const BoxTransfer& box, std::uint32_t axis, const std::byte* from, std::byte* to) {
        if (axis == box.num_axes) {
            std::memcpy(to, from, box.run_bytes);
            return;
        }
        for (std::int64_t i = 0; i < box.counts[axis]; ++i)
            move_axis(box, axis + 1, from + i * box.source_steps[axis], to + i * box.destination_steps[axis]);
    }
    /// Those of the region hold their indices, the others nothing.
    void check_temporary() {
        std::map<Element, bool> is_inside;
        each_index(region_, [&](Element index) { is_inside[index] = true; });
        std::size_t at = 0;
        each_index(temporary_->region, [&](Element index) {
            EXPECT_EQ(content_[&temporary_->chunk][at++], is_inside[index] ? index : -1);
        });
    }
    static Use& add_use(Task& task, Chunk& chunk) {
        Use& use = task.uses.emplace_back();
        use.chunk = &chunk;
        return use;
    }

    Box region_;
    std::unique_ptr<Array> array_;
    std::unique_ptr<Temporary> temporary_;
    std::vector<Chunk*> chunks_;  ///< that the region meets
    std::map<const Chunk*, std::vector<Element>> content_;
};

TEST_F(MovedBoxesTest, parts_of_a_region_are_what_it_has_of_each_chunk_whatever_box_the_temporary_has) {
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
        make(random);
        Task task;
        add_use(task, temporary_->chunk);
        kmm::graph::ColdPart& cold = task.cold_part(kmm::graph::UseOfReserve::no);
        kmm::graph::Across& across = cold.across.emplace_back();
        across.region = region_;
        across.num_parts = static_cast<std::uint32_t>(chunks_.size());
        std::size_t bytes = 0;
        for (Chunk* const c : chunks_) {
            cold.parts.emplace_back() = static_cast<std::uint32_t>(task.uses.size());
            add_use(task, *c);
            bytes += kmm::memory::part_bytes(across, *c);
        }
        EXPECT_EQ(bytes, static_cast<std::size_t>(kmm::boxes::volume(region_)) * sizeof(Element));
        move(task, MovedBoxes(task, across));
        check_temporary();
    }
}

TEST_F(MovedBoxesTest, a_transfer_moves_what_its_first_chunk_has_in_common_with_each_other_one) {
    std::mt19937 random(8);
    for (int i = 0; i < 300; ++i) {
        make(random);
        temporary_ = std::make_unique<Temporary>(region_, rank, sizeof(Element), kmm::memory::heap_alignment, 1);
        content_[&temporary_->chunk].assign(temporary_->chunk.size_bytes / sizeof(Element), -1);
        Task gather;
        add_use(gather, temporary_->chunk);
        for (Chunk* const c : chunks_) add_use(gather, *c);
        move(gather, MovedBoxes(gather));
        check_temporary();
        // And back, over chunks that have lost it.
        for (Chunk* const c : chunks_) {
            std::vector<Element> before;
            before.swap(content_[c]);
            content_[c].assign(before.size(), -1);
            Task write_back;
            add_use(write_back, *c);
            add_use(write_back, temporary_->chunk);
            move(write_back, MovedBoxes(write_back));
            const Box part = kmm::boxes::intersection(region_, c->box());
            std::map<Element, bool> is_inside;
            each_index(part, [&](Element index) { is_inside[index] = true; });
            for (std::size_t k = 0; k < before.size(); ++k)
                EXPECT_EQ(content_[c][k], is_inside[before[k]] ? before[k] : -1);
        }
    }
}

TEST_F(MovedBoxesTest, a_box_in_a_chunk_has_the_same_place_in_each_replica_and_no_run_is_cut) {
    std::mt19937 random(9);
    for (int i = 0; i < 300; ++i) {
        make(random);
        for (const Chunk* const c : chunks_) {
            const Box box = kmm::boxes::intersection(region_, c->box());
            const BoxTransfer made = kmm::memory::box_in(*c, box);
            EXPECT_EQ(made.source_offset_bytes, made.destination_offset_bytes);
            EXPECT_EQ(made.size_bytes(), static_cast<std::size_t>(kmm::boxes::volume(box)) * sizeof(Element));
            if (kmm::boxes::equal(box, c->box())) {
                EXPECT_EQ(made.num_axes, 0u);
            }
            std::vector<Element> moved(content_[c].size(), -1);
            move_axis(made, 0, reinterpret_cast<const std::byte*>(content_[c].data()) + made.source_offset_bytes,
                      reinterpret_cast<std::byte*>(moved.data()) + made.destination_offset_bytes);
            std::size_t count = 0;
            for (std::size_t k = 0; k < moved.size(); ++k) {
                if (moved[k] == -1) continue;
                EXPECT_EQ(moved[k], content_[c][k]);
                ++count;
            }
            EXPECT_EQ(count, static_cast<std::size_t>(kmm::boxes::volume(box)));
        }
    }
}

}  // namespace
