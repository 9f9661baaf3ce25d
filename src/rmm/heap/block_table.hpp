// From addresses to descriptors, for very many of them: eight bytes an entry, so that the table of a hundred thousand
// blocks stays in a core's cache.
//
// An entry holds 32 bits of the address and the index of a descriptor, which knows the whole address. Owns the
// table; must not know what a descriptor is. Open addressing with linear probing. Not thread-safe. All operations
// O(1) on average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

class block_table {
  public:
    using index = std::uint32_t;
    static constexpr index none = ~index{0};

    block_table() : slots_(min_slots, empty) {}

    std::size_t size() const noexcept { return size_; }

    /// Makes room for one more, so that the next `insert` cannot fail. Throws std::bad_alloc, with nothing done.
    void reserve_one() {
        if (2 * (size_ + 1) > slots_.size()) grow();
    }
    /// `key`: the address in units; it must be new.
    void insert(std::uint64_t key, index at) {
        reserve_one();
        put(slots_, pack(key, at));
        ++size_;
    }
    /// Takes the entry out for whose descriptor `is_it(index)` is true; `none` if there is none.
    template<typename P>
    index take(std::uint64_t key, P&& is_it) noexcept {
        const std::size_t mask = slots_.size() - 1;
        std::size_t hole = home(static_cast<std::uint32_t>(key), mask);
        for (;; hole = (hole + 1) & mask) {
            if (slots_[hole] == empty) return none;
            if (key_of(slots_[hole]) == static_cast<std::uint32_t>(key) && is_it(index_of(slots_[hole]))) break;
        }
        const index found = index_of(slots_[hole]);
        // What stands behind moves up, so that no probe ends early and no tombstones gather.
        for (std::size_t i = (hole + 1) & mask; slots_[i] != empty; i = (i + 1) & mask) {
            const std::size_t wanted = home(key_of(slots_[i]), mask);
            if (((i - wanted) & mask) < ((i - hole) & mask)) continue;
            slots_[hole] = slots_[i];
            hole = i;
        }
        slots_[hole] = empty;
        --size_;
        return found;
    }
    template<typename F>
    void for_each(F&& f) const {
        for (std::uint64_t s : slots_)
            if (s != empty) f(index_of(s));
    }

  private:
    static constexpr std::size_t min_slots = 64;
    static constexpr std::uint64_t empty = ~std::uint64_t{0};  // no descriptor has the index `none`

    static std::uint64_t pack(std::uint64_t key, index at) noexcept { return key << 32 | at; }
    static std::uint32_t key_of(std::uint64_t slot) noexcept { return static_cast<std::uint32_t>(slot >> 32); }
    static index index_of(std::uint64_t slot) noexcept { return static_cast<index>(slot); }
    static std::size_t home(std::uint32_t key, std::size_t mask) noexcept {
        // Keys come in rows; the multiplication spreads them (2^64 over the golden ratio).
        return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
    }
    static void put(std::vector<std::uint64_t>& slots, std::uint64_t entry) noexcept {
        const std::size_t mask = slots.size() - 1;
        std::size_t i = home(key_of(entry), mask);
        while (slots[i] != empty) i = (i + 1) & mask;
        slots[i] = entry;
    }
    void grow() {
        std::vector<std::uint64_t> larger(2 * slots_.size(), empty);
        for (std::uint64_t s : slots_)
            if (s != empty) put(larger, s);
        slots_.swap(larger);
    }

    std::vector<std::uint64_t> slots_;  // a power of two of them, at most half in use
    std::size_t size_ = 0;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
