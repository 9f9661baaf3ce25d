// Which compute lane of its device a kernel goes to.
//
// Owns: what was put last on the lanes of one device. Pure: must not know tasks, residency or drivers.
//
// Kernels that follow each other on one lane need no event between them, and kernels on different lanes run side by
// side. So a kernel goes to the lane of the chunk that it writes, and neighbouring chunks share a lane: a stencil
// waits for other lanes only at the ends of its rows of chunks. How many lanes an array's chunks are spread over
// follows from the grid: two for kernels that fill the device, more for smaller ones. A kernel that waits for one lane
// alone stays there, if no more was put behind what it waits for than the emptiest lane has; one that waits for no
// kernel takes the emptiest lane. Short kernels (KernelTimes) gain nothing by running side by side, since handing them
// out takes as long as they do: they share one lane. Those that were spread before they were measured move to that lane
// one by one; a chain of them that runs behind a long kernel stays there. A kernel for which the program named streams
// stays on the lane that it waits for, if that is one of them, or takes the emptiest of them.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kmm/graph/position.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::schedule {

/// How far a lane is.
struct LaneProgress {
    graph::Position issued = 0;
    graph::Position completed = 0;
    graph::Position filled() const noexcept { return issued - completed; }
};

/// What the choice for a kernel hangs on.
struct LaneWish {
    std::uint32_t chunk = 0;         ///< index of the first chunk that it writes
    memory::ChunkRange used_chunks;  ///< of that chunk's array, which kernels of this device write
    std::uint64_t num_threads = 1;   ///< of its grid
    bool is_short = false;
    std::uint64_t allowed = ~std::uint64_t{0};  ///< bit i: lane i; the program named a set of streams
};

class LanePolicy {
  public:
    /// `first`: the device's first compute lane; at most 64 follow each other. `threads_at_once`: that the device runs.
    LanePolicy(graph::LaneId first, std::uint32_t num_lanes, std::uint64_t threads_at_once) noexcept
        : first_(static_cast<std::uint32_t>(graph::index_of(first))),
          num_lanes_(num_lanes),
          threads_at_once_(threads_at_once) {}

    /// Index of the lane among `lanes`, the device's compute lanes. `waits`: what the kernel comes after, on any lanes.
    /// O(fences + lanes).
    std::uint32_t choose(const LaneWish& wish, const graph::FenceSet& waits,
                         std::span<const LaneProgress> lanes) noexcept;
    /// The kernel is at `position` of the lane that was chosen.
    void put(std::uint32_t lane, graph::Position position, bool is_short) noexcept {
        if (!is_short) long_until_[lane] = position;
    }
    /// Whether a kernel that comes after what was just put on `lane`, and after `waits`, is going to be on another
    /// one. `is_first`: of those that come after it. True for some that stay: an event more. False for some that leave:
    /// these wait for a little more than they need.
    bool will_leave(std::uint32_t lane, const LaneWish& wish, const graph::FenceSet& waits, bool is_first,
                    std::span<const LaneProgress> lanes) const noexcept;

  private:
    using Mask = std::uint64_t;
    /// A lane, and how much was put there behind what is waited for.
    struct Follow {
        std::uint32_t lane = 0;
        graph::Position between = ~graph::Position{0};
    };
    /// Over how many lanes the chunks of an array are spread.
    std::uint32_t spread(const LaneWish& wish) const noexcept;
    std::uint32_t home(const LaneWish& wish) const noexcept {
        return static_cast<std::uint32_t>(std::uint64_t{wish.chunk - wish.used_chunks.first} * spread(wish) /
                                          wish.used_chunks.size());
    }
    /// The lanes on which something of `waits` has not passed.
    Mask awaited(const graph::FenceSet& waits, std::span<const LaneProgress> lanes) const noexcept;
    Follow closest(const graph::FenceSet& waits, std::span<const LaneProgress> lanes) const noexcept;
    std::uint32_t among(Mask allowed, const graph::FenceSet& waits, std::span<const LaneProgress> lanes) const noexcept;
    bool is_restricted(const LaneWish& wish) const noexcept {
        const Mask own = ~Mask{0} >> (64 - num_lanes_);
        return (wish.allowed & own) != own;
    }
    std::uint32_t for_short(Mask behind, std::span<const LaneProgress> lanes) noexcept;
    std::uint32_t shared(std::span<const LaneProgress> lanes) noexcept;
    bool has_long(std::uint32_t lane, std::span<const LaneProgress> lanes) const noexcept {
        return lanes[lane].completed < long_until_[lane];
    }
    /// Of the lanes that a short kernel waits for.
    std::uint32_t one_of(Mask behind) const noexcept {
        return (behind >> short_ & 1) != 0 ? short_ : static_cast<std::uint32_t>(std::countr_zero(behind));
    }
    static std::uint32_t least_filled(std::uint32_t from, std::uint32_t count,
                                      std::span<const LaneProgress> lanes) noexcept;

    std::uint32_t first_;
    std::uint32_t num_lanes_;
    std::uint64_t threads_at_once_;
    std::uint32_t next_ = 0;               ///< where the search for a lane begins, for kernels that have none
    std::uint32_t short_ = 0;              ///< the lane that short kernels share
    graph::Position long_until_[64] = {};  ///< by lane: the latest kernel that is not short
};

}  // namespace kmm::schedule
