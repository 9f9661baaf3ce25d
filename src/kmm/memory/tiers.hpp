// Tiers of memory: what lies below a memory, and what lies between two.
//
// Owns: nothing. The only code that decides by which way content goes from tier to tier. Must not know: chunks, how
// much there is of a memory, which devices can read each other. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kmm/graph/memory_index.hpp"
#include "kmm/graph/position.hpp"

namespace kmm::memory {

/// What a copy between two memories goes over.
enum class Link : std::uint8_t { host_to_device, device_to_host, device_to_device };
inline constexpr std::size_t num_links = 3;

class Tiers {
  public:
    /// Where content is saved that must leave `m`; none: it stays while it is the only copy.
    static constexpr std::optional<MemoryIndex> below(MemoryIndex m) noexcept {
        if (m.is_device()) return MemoryIndex::host();
        return std::nullopt;
    }
    /// Of two different memories.
    static constexpr Link link(MemoryIndex from, MemoryIndex to) noexcept {
        if (from.is_host()) return Link::host_to_device;
        return to.is_host() ? Link::device_to_host : Link::device_to_device;
    }
    /// The device whose lane does a copy: the destination's, but for the way down.
    static constexpr std::uint32_t device_of_link(MemoryIndex from, MemoryIndex to) noexcept {
        return to.is_device() ? to.device() : from.device();
    }
    static constexpr graph::LaneRole lane_role(Link link) noexcept {
        switch (link) {
        case Link::host_to_device: return graph::LaneRole::up;
        case Link::device_to_host: return graph::LaneRole::down;
        case Link::device_to_device: break;
        }
        return graph::LaneRole::peer;
    }
};

}  // namespace kmm::memory
