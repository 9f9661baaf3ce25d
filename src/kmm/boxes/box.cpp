#include "kmm/boxes/box.hpp"

#include "driver/format.hpp"

namespace kmm::boxes {

std::string to_text(const Box& box, std::size_t rank) {
    std::string text = "{";
    for (std::size_t k = 0; k < rank; ++k) {
        if (k != 0) text += ", ";
        text += driver::format("{}...{}", box.begin[k], box.end[k]);
    }
    return text + "}";
}

}  // namespace kmm::boxes
