// Room in a list before something is registered that must not be lost when there is none.
#pragma once

#include <algorithm>
#include <cstddef>

namespace kmm::graph {

/// The next `push_back` cannot throw. Amortised constant time, which `reserve(size() + 1)` is not: that moves every
/// element each time.
template<typename List>
void room_for_one_more(List& list) {
    constexpr std::size_t least = 16;
    if (list.size() == list.capacity()) list.reserve(std::max(least, 2 * list.size()));
}

}  // namespace kmm::graph
