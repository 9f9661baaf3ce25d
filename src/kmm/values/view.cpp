// What views throw. Any thread.
#include "kmm/core/view.hpp"

#include <stdexcept>
#include <string>

#include "kmm/error.hpp"

namespace kmm::detail {

void throw_device_view_on_host() {
    throw std::runtime_error("an element of device memory was accessed by host code through a GPU view: use a kernel, "
                             "copy_to, or a host view");
}

void throw_view_index(std::size_t rank, const long long* numbers) {
    std::string index = "{";
    std::string bounds = "{";
    for (std::size_t i = 0; i < rank; i++) {
        const long long* axis = numbers + 3 * i;
        index += (i > 0 ? ", " : "") + std::to_string(axis[0]);
        bounds += (i > 0 ? ", " : "") + std::to_string(axis[1]) + "..." + std::to_string(axis[2]);
    }
    throw InvalidArgument("view index " + index + "} is outside the view's bounds " + bounds + "}");
}

}  // namespace kmm::detail
