#include "kmm/api/strided_copy.hpp"

#include <algorithm>
#include <utility>

namespace kmm::detail {

namespace {

constexpr std::size_t most_boxes = 64;  // in one call

}  // namespace

std::size_t innermost_box(const std::int64_t* sizes, const std::int64_t* to_steps, const std::int64_t* from_steps,
                          std::size_t element_bytes, driver::BoxMove* box) noexcept {
    *box = {};
    box->run_bytes = element_bytes;
    std::int64_t to_extent = static_cast<std::int64_t>(element_bytes), from_extent = to_extent;
    std::size_t k = max_rank;
    for (; k > 0; --k) {
        const std::int64_t size = sizes[k - 1], to_step = to_steps[k - 1], from_step = from_steps[k - 1];
        if (size == 1) continue;
        if (to_step < to_extent || from_step < from_extent) break;
        const auto run = static_cast<std::int64_t>(box->run_bytes);
        if (box->num_axes == 0 && to_step == run && from_step == run) {
            box->run_bytes *= static_cast<std::size_t>(size);
        } else {
            box->counts[box->num_axes] = size;
            box->destination_steps[box->num_axes] = to_step;
            box->source_steps[box->num_axes++] = from_step;
        }
        to_extent += (size - 1) * to_step;
        from_extent += (size - 1) * from_step;
    }
    for (std::int64_t* const axes : {box->counts, box->destination_steps, box->source_steps})
        std::reverse(axes, axes + box->num_axes);
    return k;
}

driver::Status put_on_stream(const StridedCopy& copy, std::size_t element_bytes, driver::Driver& driver,
                             driver::StreamHandle stream) noexcept {
    std::int64_t to_steps[max_rank], from_steps[max_rank];  // bytes
    for (std::size_t k = 0; k < max_rank; ++k) {
        to_steps[k] = copy.to_strides[k] * static_cast<std::int64_t>(element_bytes);
        from_steps[k] = copy.from_strides[k] * static_cast<std::int64_t>(element_bytes);
    }
    driver::BoxMove inner;
    const std::size_t axes = innermost_box(copy.sizes, to_steps, from_steps, element_bytes, &inner);
    driver::BoxMove boxes[most_boxes];
    std::size_t num_boxes = 0;
    const auto flush = [&] {
        const std::size_t count = std::exchange(num_boxes, 0);
        if (count == 1 && boxes[0].num_axes == 0)
            return driver.copy(boxes[0].destination, boxes[0].source, boxes[0].run_bytes, stream);
        return driver.move_boxes(boxes, count, stream);
    };
    std::int64_t index[max_rank] = {};
    for (bool more = true; more;) {
        std::int64_t to = 0, from = 0;
        for (std::size_t k = 0; k < axes; ++k) {
            to += index[k] * to_steps[k];
            from += index[k] * from_steps[k];
        }
        driver::BoxMove& box = boxes[num_boxes++] = inner;
        box.destination = copy.to + to;
        box.source = copy.from + from;
        std::size_t k = axes;
        while (k-- > 0) {
            if (++index[k] < copy.sizes[k]) break;
            index[k] = 0;
        }
        more = k < axes;
        if (more && num_boxes != most_boxes) continue;
        if (const driver::Status status = flush(); !status.ok()) return status;
    }
    return {};
}

}  // namespace kmm::detail
