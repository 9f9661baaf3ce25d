#include "kmm/memory/moved_boxes.hpp"

namespace kmm::memory {

graph::BoxTransfer box_in(const Chunk& chunk, const graph::Box& box) noexcept {
    const graph::Box whole = chunk.array->box(chunk.index);
    graph::BoxTransfer made;
    made.box = box;
    made.set_shape(chunk.array->rank, whole, whole, chunk.array->element_bytes);
    return made;
}

graph::BoxTransfer MovedBoxes::operator[](std::size_t i) const noexcept {
    const Chunk& from = *source(i).chunk;
    const Chunk& to = *destination().chunk;
    const graph::Box from_box = from.array->box(from.index), to_box = to.array->box(to.index);
    graph::BoxTransfer made;
    made.source = source_index(i);
    made.destination = destination_index();
    made.box = graph::intersection(from_box, across_ != nullptr ? across_->region : to_box);
    made.set_shape(from.array->rank, from_box, to_box, from.array->element_bytes);
    return made;
}

}  // namespace kmm::memory
