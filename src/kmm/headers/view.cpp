// What views throw. Any thread.
#include "kmm/core/view.hpp"

#include <stdexcept>
#include <string>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm::detail {

void throw_device_view_on_host() {
    throw std::runtime_error("an element of device memory was accessed by host code through a GPU view: use a kernel, "
                             "copy_to, or a host view");
}

void throw_view_index(std::size_t rank, const long long* numbers) {
    std::string index, bounds;
    for (std::size_t i = 0; i < rank; i++) {
        const long long* axis = numbers + 3 * i;
        const char* comma = i > 0 ? ", " : "";
        index += driver::format("{}{}", comma, axis[0]);
        bounds += driver::format("{}{}...{}", comma, axis[1], axis[2]);
    }
    throw InvalidArgument(driver::format("view index {{{}}} is outside the view's bounds {{{}}}", index, bounds));
}

void throw_view_too_large(std::size_t rank, const long long* sizes, std::size_t element_bytes) {
    throw InvalidArgument(driver::format(
        "a view of shape {} with elements of {} bytes has more bytes, or larger strides, than its type can count",
        list_text(sizes, rank), element_bytes));
}

void check_reach(const char* what, std::size_t rank, const std::int64_t* sizes, const std::int64_t* strides_elements,
                 std::size_t element_bytes) {
    std::int64_t forward = static_cast<std::int64_t>(element_bytes), backward = 0;
    bool is_empty = false, is_too_far = false;
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (sizes[axis] <= 0) is_empty = true;
        std::int64_t reach = 0;
        is_too_far |= mul_overflows(strides_elements[axis], static_cast<std::int64_t>(element_bytes), reach) ||
                      mul_overflows(reach, sizes[axis] - 1, reach);
        std::int64_t& side = reach < 0 ? backward : forward;
        is_too_far |= add_overflows(side, reach, side);
    }
    if (is_empty || !is_too_far) return;
    throw InvalidArgument(driver::format(
        "{}: a view of shape {} with the strides {} and elements of {} bytes reaches further than 63 bits can count",
        what, list_text(sizes, rank), list_text(strides_elements, rank), element_bytes));
}

}  // namespace kmm::detail
