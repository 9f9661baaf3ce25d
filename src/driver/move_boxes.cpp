#include "driver/move_boxes.hpp"

#include "driver/box_launch.hpp"

namespace kmm::driver {

namespace {

std::byte* at(void* p, std::int64_t offset) noexcept { return static_cast<std::byte*>(p) + offset; }

const std::byte* at(const void* p, std::int64_t offset) noexcept { return static_cast<const std::byte*>(p) + offset; }

}  // namespace

Status copy_box_by_box(Driver& driver, const BoxMove& box, StreamHandle stream) noexcept {
    BoxCopy copy;
    copy.width_bytes = copy.destination_row_pitch = copy.source_row_pitch = box.run_bytes;
    std::uint32_t outer = box.num_axes;
    if (outer > 0) {
        --outer;
        copy.height = static_cast<std::size_t>(box.counts[outer]);
        copy.destination_row_pitch = static_cast<std::size_t>(box.destination_steps[outer]);
        copy.source_row_pitch = static_cast<std::size_t>(box.source_steps[outer]);
    }
    copy.destination_plane_pitch = copy.destination_row_pitch * copy.height;
    copy.source_plane_pitch = copy.source_row_pitch * copy.height;
    if (outer > 0) {
        --outer;
        copy.depth = static_cast<std::size_t>(box.counts[outer]);
        copy.destination_plane_pitch = static_cast<std::size_t>(box.destination_steps[outer]);
        copy.source_plane_pitch = static_cast<std::size_t>(box.source_steps[outer]);
    }
    std::int64_t index[BoxMove::max_axes] = {};
    for (;;) {
        std::int64_t to = 0, from = 0;
        for (std::uint32_t k = 0; k < outer; ++k) {
            to += index[k] * box.destination_steps[k];
            from += index[k] * box.source_steps[k];
        }
        copy.destination = at(box.destination, to);
        copy.source = at(box.source, from);
        if (const Status status = driver.copy_box(copy, stream); !status.ok()) return status;
        std::uint32_t k = outer;
        while (k > 0 && ++index[k - 1] == box.counts[k - 1]) index[--k] = 0;
        if (k == 0) return {};
    }
}

Status Driver::move_boxes(const BoxMove* list, std::size_t num_boxes, StreamHandle stream) noexcept {
    for (std::size_t i = 0; i < num_boxes; ++i)
        if (!boxes::is_valid(list[i])) return {Code::invalid_argument};
    for (std::size_t i = 0; i < num_boxes; ++i) {
        if (boxes::is_empty(list[i])) continue;
        if (const Status status = copy_box_by_box(*this, boxes::joined(list[i]), stream); !status.ok()) return status;
    }
    return {};
}

}  // namespace kmm::driver
