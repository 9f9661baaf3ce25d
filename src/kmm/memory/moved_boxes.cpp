#include "kmm/memory/moved_boxes.hpp"

namespace kmm::memory {

graph::BoxTransfer box_in(const Chunk& chunk, const boxes::Box& box) noexcept {
    const boxes::Box whole = chunk.box();
    graph::BoxTransfer made;
    made.box = box;
    made.set_shape(chunk.owner->rank, whole, whole, chunk.owner->element_bytes);
    return made;
}

graph::BoxTransfer MovedBoxes::operator[](std::size_t i) const noexcept {
    const Chunk& from = *source(i).chunk;
    const Chunk& to = *destination().chunk;
    const boxes::Box from_box = from.box(), to_box = to.box();
    graph::BoxTransfer made;
    made.source = source_index(i);
    made.destination = destination_index();
    made.box = boxes::intersection(from_box, across_ != nullptr ? across_->region : to_box);
    made.set_shape(from.owner->rank, from_box, to_box, from.owner->element_bytes);
    return made;
}

}  // namespace kmm::memory
