// Lanes whose completed position has advanced since the last `take`.
//
// Owns: their numbers. Guarded by the scheduler's baton.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/position.hpp"

namespace kmm::memory {

class AdvancedLanes {
  public:
    void add(graph::LaneId lane) {
        const std::uint64_t number = graph::index_of(lane);
        if (number >= is_listed_.size()) is_listed_.resize(number + 1);
        if (is_listed_[number]) return;
        is_listed_[number] = true;
        listed_.push_back(number);
    }
    bool empty() const noexcept { return listed_.empty(); }
    /// Moves the lanes to `out` in ascending order, and keeps the memory of `out` for later ones.
    void take(graph::Vector<std::uint64_t>& out) {
        for (const std::uint64_t number : listed_) is_listed_[number] = false;
        out.clear();
        out.swap(listed_);
        std::sort(out.begin(), out.end());
    }

  private:
    graph::Vector<char> is_listed_;
    graph::Vector<std::uint64_t> listed_;
};

}  // namespace kmm::memory
