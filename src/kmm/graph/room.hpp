// Room in a list before something is registered that must not be lost when there is none; and how much of it is kept.
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

/// Empties a list that is used again. What it has grown to beyond some pages goes back to the host.
template<typename List>
void clear_and_keep_few(List& list) noexcept {
    constexpr std::size_t most_bytes = std::size_t{1} << 18;
    if (list.capacity() > most_bytes / sizeof(*list.data())) [[unlikely]]
        List().swap(list);
    else
        list.clear();
}

}  // namespace kmm::graph
