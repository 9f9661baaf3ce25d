#include "kmm/schedule/instruction.hpp"

#include "kmm/memory/chunk.hpp"

namespace kmm::schedule {

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
    const memory::MovedBoxes boxes(task);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const graph::BoxTransfer box = boxes[i];
        const BoxMove move = memory::move_of(box, task.addresses[box.source], task.addresses[box.destination]);
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
    std::copy_n(unset.strides, detail::max_rank, fill.strides);
    return fill;
}

}  // namespace kmm::schedule
