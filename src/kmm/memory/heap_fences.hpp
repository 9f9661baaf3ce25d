// Positions on lanes as fences of the heap, whose timelines are the lanes.
//
// Owns: nothing. Pure.
#pragma once

#include <cstdint>

#include "kmm/graph/position.hpp"
#include "rmm/heap/fence_set.hpp"

namespace kmm::memory {

inline rmm::heap::fence_set heap_fences(const graph::FenceSet& set) {
    rmm::heap::fence_set out;
    for (const graph::Fence& f : set) out.add({static_cast<std::uint64_t>(f.lane), f.position});
    return out;
}

inline void add_heap_fences(graph::FenceSet& out, const rmm::heap::fence_set& set) {
    for (const rmm::heap::fence& f : set) out.add({static_cast<graph::LaneId>(f.timeline), f.position});
}

inline graph::FenceSet graph_fences(const rmm::heap::fence_set& set) {
    graph::FenceSet out;
    add_heap_fences(out, set);
    return out;
}

}  // namespace kmm::memory
