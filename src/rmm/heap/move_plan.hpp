// Which pieces of physical memory to move, and where to, so that a request fits that no free range can hold.
//
// Owns: the choice and its reasons. Must not know: drivers, streams, where the pieces come from. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rmm/heap/address_holes.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// Times of driver calls, measured on an H200 for pieces of 2 MiB to 1 GiB: mostly per piece, hardly per byte. Only
/// their ratios matter to a choice.
struct piece_costs {
    std::uint32_t move_ns = 33000;   ///< unmap 13 us, map 0.5, set access 19
    std::uint32_t fresh_ns = 28000;  ///< create 8 us, map 0.5, set access 19
    std::uint32_t spare_ns = 20000;  ///< map and set access
    std::uint32_t mib_ns = 40;       ///< for each MiB that is mapped or moved
    std::uint32_t wait_ns =
        200000;  ///< once, if something is moved that the device may still use: the host waits for it
};

/// A row of free addresses. What waits for other fences than its neighbour is a row of its own.
struct free_range {
    range where;
    bool ready = true;       ///< nothing on the device uses it any more: it can be unmapped without a wait
    std::uint32_t area = 0;  ///< free ranges of different areas never become one
};

/// Free ranges that touch. Without room on either side it gives pieces, and cannot become a part of the result.
struct free_extent {
    range where;
    std::size_t room_before = 0;  ///< unmapped addresses that end where it begins
    std::size_t room_behind = 0;
};

/// A piece that lies wholly in a free extent.
struct movable_piece {
    range where;
    std::size_t extent = 0;  ///< which
    bool ready = true;
};

/// Physical memory besides the movable pieces.
struct supply {
    std::size_t spare_bytes = 0;        ///< held and mapped nowhere
    std::size_t eager_fresh_bytes = 0;  ///< to be taken from the driver rather than moving anything
    std::size_t fresh_bytes = 0;        ///< to be taken where the rest is not enough; `eager_fresh_bytes` included
    std::size_t step_bytes = 0;         ///< minimum to take where only fresh memory is needed
};

enum class side : std::uint8_t {
    anywhere,  ///< at new addresses
    behind,    ///< right behind `move_plan::kept`
    before     ///< so that it ends where `move_plan::kept` begins
};

struct move_plan {
    bool possible = false;
    std::uint32_t area = 0;  ///< of the request; used when the plan is carried out
    side where = side::anywhere;
    range kept;                   ///< the free extent that stays where it is and becomes a part of the result
    std::vector<range> moved;     ///< whole pieces, sorted; ranges that touch are one
    std::size_t new_bytes = 0;    ///< to be mapped beside `kept`: the least that makes the request fit
    std::size_t fresh_bytes = 0;  ///< of these, what must be taken from the driver
    std::size_t num_moved = 0;    ///< pieces in `moved`
    /// Used when the plan is carried out: if `moved` exceeds the need, the excess part of a piece that is worth cutting
    /// (`is_worth_cutting`) is not mapped. 0: `moved` is mapped whole.
    std::size_t fitting_bytes = 0;
    bool waits = false;         ///< `moved` has pieces that are not ready
    std::uint64_t cost_ns = 0;  ///< what the driver will take, about
};

/// The cheapest way to `bytes` (> 0) of contiguous memory, extents sorted by address. O(pieces log pieces).
move_plan plan_moves(std::size_t bytes, std::span<const free_extent> extents, std::span<const movable_piece> pieces,
                     const supply& from, std::size_t granularity, std::size_t largest_piece_bytes,
                     const piece_costs& costs = {});

/// Pieces in `bytes` of fresh memory: pieces of the largest size and one for the remainder, so that they are few and
/// end where the request does.
inline std::size_t num_pieces(std::size_t bytes, std::size_t largest_piece_bytes) noexcept {
    return bytes / largest_piece_bytes + (bytes % largest_piece_bytes != 0 ? 1 : 0);
}

/// The largest piece for a source that can hold `most_bytes`: a 512th. Large pieces make moving cheap, but whatever
/// small block lies in one keeps all of it from being moved.
std::size_t best_largest_piece(std::size_t most_bytes, std::size_t granularity) noexcept;

/// How large a piece may be of which only a part is used, when `used_bytes` of at most `most_bytes` are in use: the
/// largest size up to half, then less and less (by the third power of what can still be used), down to a 32nd of it.
/// While there is room, few large pieces make moving cheap; when there is little, whatever a large piece keeps from
/// being moved is missed.
std::size_t fitting_piece(std::size_t used_bytes, std::size_t most_bytes, std::size_t largest_piece_bytes,
                          std::size_t granularity) noexcept;

/// Whether a piece that a block would use in part should be cut where the block ends, so that the rest can be moved.
inline bool is_worth_cutting(std::size_t piece_bytes, std::size_t fitting_bytes) noexcept {
    return piece_bytes >= 2 * fitting_bytes;
}

/// Requests from this size on are rounded up to the granularity: their blocks begin and end at pieces, or where pieces
/// can be cut. The waste is small in a large source, and too much for all but the largest requests in a small one.
std::size_t whole_granules_from(std::size_t most_bytes, std::size_t granularity) noexcept;

/// Requests below this had better live in an area of their own (`free_range::area`): they are few bytes, and each makes
/// a whole piece immovable. That made moves a quarter rarer in the simulation.
std::size_t small_request_limit(std::size_t most_bytes, std::size_t granularity) noexcept;

/// How much a pool may take from the driver rather than move memory (`supply::eager_fresh_bytes`): until it holds
/// 1.4375 times `peak_bytes`, the most that was in use (the request counted); `held_bytes` are held now. With a lower
/// factor the mix of sizes keeps memory moving; with a higher one the holes that the mix leaves are not filled when the
/// pool is full. (1.375: half a percent more of the memory can be used, and the driver's calls take 1.7 times as long;
/// 1.5: half a percent less, and 0.9 times as long.)
std::size_t eager_growth(std::size_t peak_bytes, std::size_t held_bytes) noexcept;

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
