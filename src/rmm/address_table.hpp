// Blocks of memory by their address.
//
// Open addressing with linear probing in one array: a look-up touches one or two cache lines, and nothing is allocated for
// a block. Owns the table; must not know what a block is for. Not thread-safe. All operations O(1) on average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// `Block` is copied freely and has `std::uintptr_t address`, which is never 0 in use and 0 in `Block{}`.
template<typename Block>
class address_table {
  public:
    address_table() : slots_(min_slots) {}

    std::size_t size() const noexcept { return size_; }

    /// The address must be new. Throws std::bad_alloc, and has done nothing then, if the table cannot grow.
    void insert(const Block& block) {
        if (2 * (size_ + 1) > slots_.size()) grow();
        put(slots_, block);
        ++size_;
    }

    /// Takes the block out; one of address 0 if there is none.
    Block take(std::uintptr_t address) noexcept {
        std::size_t i = home(address, slots_.size());
        while (slots_[i].address != address) {
            if (slots_[i].address == 0) return {};
            i = next(i);
        }
        const Block found = slots_[i];
        // What stands behind moves up, so that no probe ends early and no tombstones gather.
        std::size_t hole = i;
        for (i = next(i); slots_[i].address != 0; i = next(i)) {
            const std::size_t wanted = home(slots_[i].address, slots_.size());
            const bool reaches_hole = ((i - wanted) & (slots_.size() - 1)) >= ((i - hole) & (slots_.size() - 1));
            if (!reaches_hole) continue;
            slots_[hole] = slots_[i];
            hole = i;
        }
        slots_[hole] = {};
        --size_;
        return found;
    }

    /// `visit(block)` for each, in no order.
    template<typename Visit>
    void for_each(Visit visit) const {
        for (const Block& block : slots_)
            if (block.address != 0) visit(block);
    }

    /// O(slots).
    void clear() noexcept {
        for (Block& block : slots_) block = {};
        size_ = 0;
    }

  private:
    static constexpr std::size_t min_slots = 64;  // a few cache lines: a small pool costs no more

    static std::size_t home(std::uintptr_t address, std::size_t num_slots) noexcept {
        // Addresses are multiples of 256 and come in rows; the multiplication spreads them (2^64 over the golden ratio).
        return static_cast<std::size_t>(((address >> 8) * 0x9e3779b97f4a7c15u) >> 20) & (num_slots - 1);
    }
    std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }

    static void put(std::vector<Block>& slots, const Block& block) noexcept {
        std::size_t i = home(block.address, slots.size());
        while (slots[i].address != 0) i = (i + 1) & (slots.size() - 1);
        slots[i] = block;
    }
    void grow() {
        std::vector<Block> larger(2 * slots_.size());
        for (const Block& block : slots_)
            if (block.address != 0) put(larger, block);
        slots_.swap(larger);
    }

    std::vector<Block> slots_;  // a power of two of them, at most half in use
    std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
