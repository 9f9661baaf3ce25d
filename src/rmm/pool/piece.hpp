// A block on its way out of a pool: found, but not handed out yet.
//
// Owns: nothing. Must not know: the parts of the pool, which take it back (pool_parts.hpp). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "rmm/heap/fence_set.hpp"
#include "rmm/heap/heap.hpp"
#include "rmm/pool/block_stock.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct arena;

/// A block on its way out, until it is handed out or put back: of an arena, where it counts as in use already, or of a
/// heap.
struct piece {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    heap::fence_set fences;
    arena* from = nullptr;       // null: a heap
    std::uint64_t position = 0;  // of blocks of arenas: with which they go back
    bool was_away = false;
    std::uint8_t area = 0;  // of blocks of a heap: of which
    // Of stocks: the block, and what comes with it into the stock of `from`.
    stocked_block* block = nullptr;
    block_stock more = {};

    explicit operator bool() const noexcept { return address != 0; }
    /// Empty if the block is.
    static piece of_heap(heap::block block, std::uint8_t area) noexcept {
        return {block.address, block.size_bytes, std::move(block.fences), nullptr, 0, false, area};
    }
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
