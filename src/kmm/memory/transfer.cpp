#include "kmm/memory/transfer.hpp"

#include <algorithm>

#include "kmm/graph/room.hpp"
#include "kmm/memory/places.hpp"

namespace kmm::memory {

namespace {

void set_shape(BoxMove& move, const graph::BoxTransfer& box, const std::int64_t* destination_steps) noexcept {
    move.run_bytes = box.run_bytes;
    move.num_axes = box.num_axes;
    std::copy_n(box.counts, box.num_axes, move.counts);
    std::copy_n(box.source_steps, box.num_axes, move.source_steps);
    std::copy_n(destination_steps, box.num_axes, move.destination_steps);
}

/// The part of a chunk that the box reads, to its place in another replica of the chunk.
BoxMove move_between(const graph::BoxTransfer& box, const Replica& from, const Replica& to) noexcept {
    BoxMove move;
    move.source = reinterpret_cast<const std::byte*>(from.address) + box.source_offset_bytes;
    move.destination = reinterpret_cast<std::byte*>(to.address) + box.source_offset_bytes;
    set_shape(move, box, box.source_steps);
    return move;
}

bool is_same(const BoxMove& a, const BoxMove& b) noexcept {
    return a.source == b.source && a.run_bytes == b.run_bytes && a.num_axes == b.num_axes &&
           std::equal(a.counts, a.counts + a.num_axes, b.counts) &&
           std::equal(a.source_steps, a.source_steps + a.num_axes, b.source_steps);
}

Transfer between_replicas(Transfer::What what, Chunk& chunk, const Replica& from, const Replica& to) noexcept {
    return {.what = what, .from = from.memory(), .to = to.memory(), .chunk = &chunk};
}

Transfer between_uses(Transfer::What what, graph::Task& task, const MovedBoxes& moved, Boxes& boxes) {
    Transfer t{.what = what, .from = task.memory, .to = task.memory, .task = &task};
    graph::clear_and_keep_few(boxes);
    for (std::size_t i = 0; i < moved.size(); ++i) {
        const graph::BoxTransfer box = moved[i];
        const graph::Use& source = moved.source(i);
        boxes.push_back(move_of(box, address_of(source), address_of(moved.destination())));
        const std::size_t bytes = box.size_bytes();
        t.bytes += bytes;
        t.over_links.add(source.memory, t.to, bytes);
        if (t.from == t.to || Tiers::below(t.to) == source.memory) t.from = source.memory;
    }
    t.boxes = boxes;
    return t;
}

}  // namespace

BoxMove move_of(const graph::BoxTransfer& box, const void* source, void* destination) noexcept {
    BoxMove move;
    if (source == nullptr) return move;
    move.source = static_cast<const std::byte*>(source) + box.source_offset_bytes;
    move.destination = static_cast<std::byte*>(destination) + box.destination_offset_bytes;
    set_shape(move, box, box.destination_steps);
    return move;
}

Transfer ghost_transfer(Chunk& chunk, const boxes::Box& box, const Replica& from, const Replica& to, graph::Task& task,
                        Boxes& boxes) {
    Transfer t = between_replicas(Transfer::What::ghost, chunk, from, to);
    const graph::BoxTransfer moved = box_in(chunk, box);
    boxes.assign(1, move_between(moved, from, to));
    t.task = &task;
    t.boxes = boxes;
    t.bytes = moved.size_bytes();
    t.over_links.add(t.from, t.to, t.bytes);
    return t;
}

Transfer parts_transfer(Chunk& chunk, const Replica& from, const Replica& to,
                        std::span<const graph::Task* const> readers, Boxes& boxes) {
    Transfer t = between_replicas(Transfer::What::parts, chunk, from, to);
    graph::clear_and_keep_few(boxes);
    for (const graph::Task* const task : readers) {
        for (const graph::Across& across : task->across()) {
            const MovedBoxes moved(*task, across);
            for (std::size_t i = 0; i < moved.size(); ++i) {
                if (moved.source(i).chunk != &chunk) continue;
                const graph::BoxTransfer box = moved[i];
                const BoxMove move = move_between(box, from, to);
                if (std::ranges::any_of(boxes, [&](const BoxMove& other) { return is_same(other, move); })) continue;
                boxes.push_back(move);
                t.bytes += box.size_bytes();
            }
        }
    }
    t.boxes = boxes;
    t.over_links.add(t.from, t.to, t.bytes);
    return t;
}

Transfer gather_transfer(graph::Task& task, const graph::Across& across, Boxes& boxes) {
    Transfer t = between_uses(Transfer::What::gather, task, MovedBoxes(task, across), boxes);
    t.chunk = task.uses[across.use].chunk;
    return t;
}

Transfer task_transfer(graph::Task& task, Boxes& boxes) {
    return between_uses(Transfer::What::task, task, MovedBoxes(task), boxes);
}

}  // namespace kmm::memory
