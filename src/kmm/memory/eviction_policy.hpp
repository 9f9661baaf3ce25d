// Which replica leaves a memory first.
//
// Owns: the ranks. Must not know: chunks, replicas, how the search goes through them (victim_order.hpp). Pure; any
// thread.
//
// Ours: first replicas without a next use, cheapest to lose first, then by farthest next use (Belady 1966); ties by
// least recent use. The others are for the simulator, to compare with.
#pragma once

#include <cstdint>

namespace kmm::memory {

enum class EvictionPolicy : std::uint8_t {
    farthest_next_use,  ///< ours
    least_recently_used,
    clean_first,  ///< then least recently used
};

/// The known future of a replica's content.
struct Prospect {
    enum class Need : std::uint8_t {
        none,      ///< stale, empty, or replaced before it is read
        no_task,   ///< no task has been submitted that uses it
        in_parts,  ///< tasks read small parts of it before it is replaced
        whole,
    };
    Need need = Need::none;
    bool clean = false;  ///< another copy is valid
    /// Only with `whole`: the position in the memory's planned order, below `eviction::beyond_orders`. If that does not
    /// use it: `beyond_orders` plus the number of the first task that needs more than a small part, else of the
    /// first task.
    std::uint64_t next_use = 0;
};

namespace eviction {

// Lower leaves first.
inline constexpr std::uint64_t rank_useless = 0;
inline constexpr std::uint64_t rank_clean = 1;  ///< no submitted task uses it
inline constexpr std::uint64_t rank_parts = 2;  ///< the parts are saved, unless it is clean
inline constexpr std::uint64_t rank_dirty = 3;  ///< no submitted task uses it; must be saved
inline constexpr std::uint64_t rank_used = std::uint64_t{1} << 62;
inline constexpr std::uint64_t last_task = (std::uint64_t{1} << 50) - 1;
inline constexpr std::uint64_t beyond_orders = std::uint64_t{1} << 16;

/// With equal ranks the least recently used leaves first.
constexpr std::uint64_t rank_of(EvictionPolicy policy, const Prospect& prospect) noexcept {
    switch (prospect.need) {
    case Prospect::Need::none: return rank_useless;
    case Prospect::Need::no_task: return prospect.clean ? rank_clean : rank_dirty;
    case Prospect::Need::in_parts: return rank_parts;
    case Prospect::Need::whole: break;
    }
    const std::uint64_t dirty = prospect.clean ? 0 : 1;
    switch (policy) {
    case EvictionPolicy::farthest_next_use: return rank_used + (last_task - prospect.next_use) * 2 + dirty;
    case EvictionPolicy::clean_first: return rank_used + dirty;
    case EvictionPolicy::least_recently_used: break;
    }
    return rank_used;
}

}  // namespace eviction

}  // namespace kmm::memory
