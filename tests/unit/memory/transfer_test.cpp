// The values that say what is copied, against copying the bytes that they name.
#include "kmm/memory/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kmm/memory/chunk.hpp"

namespace {

using namespace kmm::memory;
using kmm::graph::Across;
using kmm::boxes::Box;
using kmm::graph::ColdPart;
using kmm::graph::Task;
using kmm::graph::Use;
using Element = std::int64_t;

const MemoryIndex host = MemoryIndex::host();
const MemoryIndex gpu = MemoryIndex::of_device(0);
const MemoryIndex gpu_1 = MemoryIndex::of_device(1);
constexpr Element unset = -1;

Box box_of(std::int64_t x0, std::int64_t x1, std::int64_t y0, std::int64_t y1) {
    Box box;
    box.begin[0] = x0, box.end[0] = x1;
    box.begin[1] = y0, box.end[1] = y1;
    return box;
}

template<typename F> void each_index(const Box& box, F&& f) {
    for (std::int64_t x = box.begin[0]; x < box.end[0]; ++x)
        for (std::int64_t y = box.begin[1]; y < box.end[1]; ++y) f(x, y);
}

constexpr Element value_at(std::int64_t x, std::int64_t y) { return 100 * x + y; }

bool contains(const Box& box, std::int64_t x, std::int64_t y) {
    return box.begin[0] <= x && x < box.end[0] && box.begin[1] <= y && y < box.end[1];
}

std::size_t bytes_of(const Box& box) { return static_cast<std::size_t>(kmm::boxes::volume(box)) * sizeof(Element); }

/// An array of 8 x 12 elements in chunks of 4 x 6, with replicas of real memory.
class TransferTest : public ::testing::Test {
  protected:
    TransferTest() {
        const std::int64_t size[] = {4, 6};
        array_.rank = 2;
        array_.element_bytes = sizeof(Element);
        array_.set_layout(std::make_shared<kmm::plan::Layout>(2, box_of(0, 8, 0, 12), size, kmm::plan::ChunkHomes()),
                          2);
        for (std::size_t i = 0; i < 4; ++i) array_.touch(i);
    }
    Chunk& chunk(std::size_t i) { return array_.chunks[i]; }
    Replica& add_replica(Chunk& c, MemoryIndex m, bool has_content) {
        Replica& r = *replicas_.emplace_back(std::make_unique<Replica>());
        r.order = Replica::order_of(m);
        r.chunk = &c;
        std::vector<Element>& elements = content_[&r];
        each_index(c.box(), [&](auto x, auto y) { elements.push_back(has_content ? value_at(x, y) : unset); });
        r.address = reinterpret_cast<std::uintptr_t>(elements.data());
        c.replicas.insert(r);
        return r;
    }
    Replica& fill(Chunk& c, MemoryIndex m) { return add_replica(c, m, true); }
    Replica& make_room(Chunk& c, MemoryIndex m) { return add_replica(c, m, false); }

    static Use& add_use(Task& task, Chunk& c, MemoryIndex m) {
        Use& use = task.uses.emplace_back();
        use.chunk = &c;
        use.memory = m;
        return use;
    }
    /// The task reads the region, from the chunks that it meets, each where its content is.
    void add_region(Task& task, Temporary& temporary, const Box& region) {
        ColdPart& cold = task.cold_part(kmm::graph::UseOfReserve::no);
        Across& across = cold.across.emplace_back();
        across.region = region;
        across.use = static_cast<std::uint32_t>(task.uses.size());
        across.first_part = static_cast<std::uint32_t>(cold.parts.size());
        add_use(task, temporary.chunk, task.memory);
        std::vector<std::size_t> found;
        array_.layout->find_all(region, found);
        across.num_parts = static_cast<std::uint32_t>(found.size());
        for (const std::size_t i : found) {
            cold.parts.push_back(static_cast<std::uint32_t>(task.uses.size()));
            const bool is_here = chunk(i).replicas[task.memory].address != 0;
            add_use(task, chunk(i), is_here ? task.memory : (*chunk(i).replicas.begin()).memory());
        }
    }
    static std::unique_ptr<Temporary> make_temporary(const Box& region) {
        return std::make_unique<Temporary>(region, 2, sizeof(Element), heap_alignment, 4);
    }

    void forget(const Replica& r) { std::ranges::fill(content_[&r], unset); }
    /// As a driver does it.
    static void carry_out(const Transfer& t) {
        for (const BoxMove& move : t.boxes) {
            if (move.source != nullptr)
                move_axis(move, 0, static_cast<const std::byte*>(move.source),
                          static_cast<std::byte*>(move.destination));
        }
    }
    static void move_axis(const BoxMove& move, std::uint32_t axis, const std::byte* from, std::byte* to) {
        if (axis == move.num_axes) {
            std::memcpy(to, from, move.run_bytes);
            return;
        }
        for (std::int64_t i = 0; i < move.counts[axis]; ++i)
            move_axis(move, axis + 1, from + i * move.source_steps[axis], to + i * move.destination_steps[axis]);
    }
    /// The replica holds these boxes, and nothing else.
    void expect_holds(const Replica& r, const std::vector<Box>& boxes) {
        std::size_t at = 0;
        each_index(r.chunk->box(), [&](std::int64_t x, std::int64_t y) {
            const bool any = std::any_of(boxes.begin(), boxes.end(), [&](const Box& b) { return contains(b, x, y); });
            EXPECT_EQ(content_[&r][at++], any ? value_at(x, y) : unset) << x << ", " << y;
        });
    }
    static void expect_over(const Transfer& t, Link link, std::uint64_t copies, std::size_t bytes) {
        EXPECT_EQ(t.over_links.copies[static_cast<std::size_t>(link)], copies);
        EXPECT_EQ(t.over_links.bytes[static_cast<std::size_t>(link)], bytes);
    }
    static std::uint64_t num_over_links(const Transfer& t) {
        return t.over_links.copies[0] + t.over_links.copies[1] + t.over_links.copies[2];
    }

    Array array_;
    Boxes boxes_;

  private:
    std::vector<std::unique_ptr<Replica>> replicas_;
    std::map<const Replica*, std::vector<Element>> content_;
};

TEST_F(TransferTest, a_whole_chunk_goes_over_the_link_of_its_memories_or_over_none_within_one) {
    Task task;
    const std::size_t bytes = bytes_of(chunk(0).box());
    const Transfer up = chunk_transfer(chunk(0), host, gpu, 100, 200, &task);
    EXPECT_EQ(up.what, Transfer::What::chunk);
    EXPECT_EQ(up.bytes, bytes);
    EXPECT_EQ(up.source, 100u);
    EXPECT_EQ(up.destination, 200u);
    EXPECT_EQ(up.task, &task);
    expect_over(up, Link::host_to_device, 1, bytes);
    expect_over(chunk_transfer(chunk(0), gpu_1, host, 0, 0), Link::device_to_host, 1, bytes);
    expect_over(chunk_transfer(chunk(0), gpu_1, gpu, 0, 0), Link::device_to_device, 1, bytes);
    const Transfer within = chunk_transfer(chunk(0), gpu, gpu, 0, 0);
    EXPECT_EQ(within.bytes, bytes);
    EXPECT_EQ(num_over_links(within), 0u);
}

TEST_F(TransferTest, a_ghost_comes_to_the_place_that_it_has_in_the_whole_chunk) {
    Chunk& c = chunk(1);
    const Replica& from = fill(c, gpu_1);
    const Replica& to = make_room(c, gpu);
    Task task;
    for (const Box& box : {box_of(0, 4, 6, 12), box_of(1, 3, 7, 9), box_of(3, 4, 6, 12), box_of(0, 4, 11, 12)}) {
        forget(to);
        const Transfer t = ghost_transfer(c, box, from, to, task, boxes_);
        EXPECT_EQ(t.what, Transfer::What::ghost);
        EXPECT_EQ(t.chunk, &c);
        EXPECT_EQ(t.task, &task);
        EXPECT_EQ(t.from, gpu_1);
        EXPECT_EQ(t.to, gpu);
        EXPECT_EQ(t.bytes, bytes_of(box));
        expect_over(t, Link::device_to_device, 1, bytes_of(box));
        EXPECT_EQ(t.boxes.size(), 1u) << "of this call alone";
        carry_out(t);
        expect_holds(to, {box});
    }
}

TEST_F(TransferTest, parts_are_what_the_readers_read_of_the_chunk_each_box_once) {
    Chunk& c = chunk(0);
    const Replica& from = fill(c, gpu);
    const Replica& to = make_room(c, host);
    fill(chunk(1), gpu);
    fill(chunk(2), gpu);
    const Box right = box_of(0, 4, 4, 8), low = box_of(3, 6, 0, 6), also_right = box_of(0, 4, 4, 9);
    Task first, second, third;
    const auto to_the_right = make_temporary(right);
    const auto below = make_temporary(low);
    const auto also_to_the_right = make_temporary(also_right);
    for (Task* t : {&first, &second, &third}) t->memory = gpu;
    add_region(first, *to_the_right, right);
    add_region(first, *below, low);
    add_region(second, *below, low);
    add_region(third, *also_to_the_right, also_right);
    const Task* const readers[] = {&first, &second, &third};
    const Transfer t = parts_transfer(c, from, to, readers, boxes_);
    const Box a = box_of(0, 4, 4, 6), b = box_of(3, 4, 0, 6);
    EXPECT_EQ(t.what, Transfer::What::parts);
    EXPECT_EQ(t.boxes.size(), 2u);
    EXPECT_EQ(t.bytes, bytes_of(a) + bytes_of(b));
    EXPECT_EQ(t.chunk, &c);
    EXPECT_EQ(t.task, nullptr) << "an eviction";
    EXPECT_EQ(t.from, gpu);
    EXPECT_EQ(t.to, host);
    expect_over(t, Link::device_to_host, 1, t.bytes);
    carry_out(t);
    expect_holds(to, {a, b});
    EXPECT_TRUE(parts_transfer(c, from, to, {}, boxes_).boxes.empty()) << "of this call alone";
}

TEST_F(TransferTest, a_gather_fills_the_temporary_from_all_memories_where_the_parts_are) {
    fill(chunk(0), gpu);
    fill(chunk(1), host);
    fill(chunk(2), gpu_1);
    fill(chunk(3), gpu_1);
    const Box region = box_of(2, 7, 3, 11);
    const auto temporary = make_temporary(region);
    const Replica& to = make_room(temporary->chunk, gpu);
    Task task;
    task.memory = gpu;
    add_use(task, chunk(0), gpu);  // that it uses by itself, too
    add_region(task, *temporary, region);
    const Transfer t = gather_transfer(task, task.across()[0], boxes_);
    EXPECT_EQ(t.what, Transfer::What::gather);
    EXPECT_EQ(t.chunk, &temporary->chunk);
    EXPECT_EQ(t.task, &task);
    EXPECT_EQ(t.boxes.size(), 4u);
    EXPECT_EQ(t.bytes, bytes_of(region));
    EXPECT_EQ(t.to, gpu);
    expect_over(t, Link::host_to_device, 1, bytes_of(box_of(2, 4, 6, 11)));
    expect_over(t, Link::device_to_device, 2, bytes_of(box_of(4, 7, 3, 11)));
    expect_over(t, Link::device_to_host, 0, 0);
    carry_out(t);
    expect_holds(to, {region});
}

TEST_F(TransferTest, of_several_memories_it_comes_from_the_one_whose_link_takes_longest) {
    const MemoryIndex homes[][3] = {{gpu, gpu, gpu}, {gpu, gpu_1, gpu}, {gpu_1, host, gpu}, {host, gpu_1, gpu}};
    const MemoryIndex from[] = {gpu, gpu_1, host, host};
    for (const MemoryIndex m : {host, gpu, gpu_1})
        for (std::size_t i = 1; i < 4; ++i) fill(chunk(i), m);
    make_room(chunk(0), gpu);
    for (std::size_t k = 0; k < 4; ++k) {
        Task task;
        task.memory = gpu;
        add_use(task, chunk(0), gpu);
        for (std::size_t i = 0; i < 3; ++i) add_use(task, chunk(1 + i), homes[k][i]);
        const Transfer t = task_transfer(task, boxes_);
        EXPECT_EQ(t.from, from[k]) << k;
        EXPECT_EQ(t.to, gpu);
    }
}

TEST_F(TransferTest, the_work_of_a_task_fills_what_its_first_chunk_has_in_common_with_the_others) {
    const Box region = box_of(2, 4, 3, 11);
    const auto temporary = make_temporary(region);
    fill(temporary->chunk, gpu);
    const Replica& to = make_room(chunk(1), host);
    Task write_back;
    write_back.memory = host;
    add_use(write_back, chunk(1), host);
    add_use(write_back, temporary->chunk, gpu);
    const Transfer t = task_transfer(write_back, boxes_);
    const Box common = box_of(2, 4, 6, 11);
    EXPECT_EQ(t.what, Transfer::What::task);
    EXPECT_EQ(t.chunk, nullptr);
    EXPECT_EQ(t.task, &write_back);
    EXPECT_EQ(t.from, gpu);
    EXPECT_EQ(t.to, host);
    EXPECT_EQ(t.bytes, bytes_of(common));
    expect_over(t, Link::device_to_host, 1, bytes_of(common));
    carry_out(t);
    expect_holds(to, {common});
}

TEST_F(TransferTest, nothing_is_moved_from_where_nothing_was_ever_written) {
    const Box region = box_of(0, 4, 3, 9);
    const auto temporary = make_temporary(region);
    const Replica& to = make_room(temporary->chunk, gpu);
    fill(chunk(1), gpu);
    Task task;
    task.memory = gpu;
    add_use(task, temporary->chunk, gpu);
    for (std::size_t i = 0; i < 2; ++i) add_use(task, chunk(i), gpu);  // the first has no replica
    const Transfer t = task_transfer(task, boxes_);
    ASSERT_EQ(t.boxes.size(), 2u);
    EXPECT_EQ(t.boxes[0].source, nullptr);
    EXPECT_EQ(num_over_links(t), 0u);
    carry_out(t);
    expect_holds(to, {box_of(0, 4, 6, 9)});
}

}  // namespace
