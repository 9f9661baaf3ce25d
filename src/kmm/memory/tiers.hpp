// Tiers of memory: a table with a row for each kind of memory, and what content goes over between two memories.
//
// Owns: nothing. The only code that decides by which way content goes from tier to tier. Must not know: chunks, how
// much there is of a memory, which devices can read each other. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kmm/base/memory_index.hpp"
#include "kmm/graph/position.hpp"

namespace kmm::memory {

/// What a copy between two memories goes over.
enum class Link : std::uint8_t { host_to_device, device_to_host, device_to_device };
inline constexpr std::size_t num_links = 3;

class Tiers {
  public:
    /// Where content is saved that must leave `m`; none: it stays while it is the only copy.
    static constexpr std::optional<MemoryIndex> below(MemoryIndex m) noexcept { return row(m).below; }
    /// Nothing is below: a dirty chunk cannot leave.
    static constexpr bool is_last(MemoryIndex m) noexcept { return !below(m); }
    /// Nothing is above: no other memory saves its content there.
    static constexpr bool is_first(MemoryIndex m) noexcept {
        for (const Row& r : rows)
            if (r.below == m) return false;
        return true;
    }
    /// The next memory on the way of content to `to`, which may be more than one copy away.
    static constexpr MemoryIndex next_on_way(MemoryIndex from, MemoryIndex to) noexcept {
        return below(to) == from ? to : below(from).value_or(to);
    }
    /// Tasks and copies in this memory run on lanes of its device, and lanes wait for them on the device. Otherwise
    /// they run on threads of the host, after their dependencies are complete.
    static constexpr bool has_lanes(MemoryIndex m) noexcept { return row(m).has_lanes; }
    /// Of two different memories, or within a device; within the host nothing is copied over a link.
    static constexpr Link link(MemoryIndex from, MemoryIndex to) noexcept {
        return row(from).links[static_cast<std::size_t>(to.kind())];
    }
    /// The device whose lane does a copy: the destination's, but for the way down.
    static constexpr std::uint32_t device_of_link(MemoryIndex from, MemoryIndex to) noexcept {
        return has_lanes(to) ? to.device() : from.device();
    }
    static constexpr graph::LaneRole lane_role(Link link) noexcept {
        using graph::LaneRole;
        return std::array{LaneRole::up, LaneRole::down, LaneRole::peer}[static_cast<std::size_t>(link)];
    }

  private:
    struct Row {
        std::optional<MemoryIndex> below;
        bool has_lanes;
        Link links[num_memory_kinds];  ///< to a memory of each kind
    };
    static constexpr Row rows[num_memory_kinds] = {
        {std::nullopt, false, {Link::host_to_device, Link::host_to_device}},  // the host's
        {MemoryIndex::host(), true, {Link::device_to_host, Link::device_to_device}},
    };
    static constexpr const Row& row(MemoryIndex m) noexcept { return rows[static_cast<std::size_t>(m.kind())]; }
};

}  // namespace kmm::memory
