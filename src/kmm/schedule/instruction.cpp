#include "kmm/schedule/instruction.hpp"

#include "kmm/memory/chunk.hpp"

namespace kmm::schedule {

namespace {

void set_shape(BoxMove& move, const graph::BoxTransfer& box, const std::int64_t* destination_steps) noexcept {
    move.run_bytes = box.run_bytes;
    move.num_axes = box.num_axes;
    std::copy_n(box.counts, box.num_axes, move.counts);
    std::copy_n(box.source_steps, box.num_axes, move.source_steps);
    std::copy_n(destination_steps, box.num_axes, move.destination_steps);
}

}  // namespace

BoxMove move_of(const graph::BoxTransfer& box, const void* source, void* destination) noexcept {
    BoxMove move;
    if (source == nullptr) return move;  // nothing was ever there
    move.source = static_cast<const std::byte*>(source) + box.source_offset_bytes;
    move.destination = static_cast<std::byte*>(destination) + box.destination_offset_bytes;
    set_shape(move, box, box.destination_steps);
    return move;
}

BoxMove part_of(const graph::BoxTransfer& box, std::uintptr_t source, std::uintptr_t destination) noexcept {
    BoxMove move;
    move.source = reinterpret_cast<const std::byte*>(source) + box.source_offset_bytes;
    move.destination = reinterpret_cast<std::byte*>(destination) + box.source_offset_bytes;
    set_shape(move, box, box.source_steps);
    return move;
}

bool same_shape(const BoxMove& a, const BoxMove& b) noexcept {
    return a.run_bytes == b.run_bytes && a.num_axes == b.num_axes &&
           std::equal(a.counts, a.counts + a.num_axes, b.counts) &&
           std::equal(a.source_steps, a.source_steps + a.num_axes, b.source_steps);
}

namespace {

void move_on_host(const BoxMove& move) noexcept {
    auto* to = static_cast<std::byte*>(move.destination);
    const auto* from = static_cast<const std::byte*>(move.source);
    std::int64_t index[BoxMove::max_axes] = {};
    for (;;) {
        std::memcpy(to, from, move.run_bytes);
        std::uint32_t k = move.num_axes;
        while (k > 0) {
            --k;
            to += move.destination_steps[k];
            from += move.source_steps[k];
            if (++index[k] < move.counts[k]) break;
            to -= move.destination_steps[k] * move.counts[k];
            from -= move.source_steps[k] * move.counts[k];
            index[k] = 0;
            if (k == 0) return;
        }
        if (move.num_axes == 0) return;
    }
}

}  // namespace

void run_transfer(void* payload, detail::TaskContext&) {
    const graph::Task& task = *static_cast<const graph::Task*>(payload);
    const MovedBoxes boxes(task);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const graph::BoxTransfer box = boxes[i];
        const BoxMove move = move_of(box, task.addresses[box.source], task.addresses[box.destination]);
        if (move.source != nullptr) move_on_host(move);
    }
}

Fill fill_of(const graph::Task& task, const graph::Unset& unset) noexcept {
    Fill fill;
    fill.address = unset.address;
    const memory::Chunk& chunk = *task.uses[unset.whole_chunk ? unset.index : task.views[unset.index].use].chunk;
    fill.element_bytes = chunk.owner->element_bytes;
    if (unset.whole_chunk) {
        fill.extents[detail::max_rank - 1] = static_cast<std::int64_t>(chunk.size_bytes / fill.element_bytes);
        fill.strides[detail::max_rank - 1] = 1;
        return fill;
    }
    std::copy_n(unset.extents, detail::max_rank, fill.extents);
    std::copy_n(task.layouts[unset.index].strides, detail::max_rank, fill.strides);
    return fill;
}

}  // namespace kmm::schedule
