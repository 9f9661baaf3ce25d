// A table from addresses to small values: open addressing with linear probing in one array, so that a look-up touches
// one or two cache lines and nothing is allocated for an entry.
//
// Owns the table; must not know what the values are for. Not thread-safe. All operations O(1) on average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// Addresses are never 0, nor are other numbers that stand for them. `LowBits` of them are always the same.
template<typename Value, unsigned LowBits = 8>
class address_map {
  public:
    address_map() : slots_(min_slots) {}

    std::size_t size() const noexcept { return size_; }

    /// Makes room for one more, so that the next `insert` cannot fail. Throws std::bad_alloc, with nothing done.
    void reserve_one() {
        if (2 * (size_ + 1) > slots_.size()) grow();
    }
    /// The address must be new. Throws std::bad_alloc, with nothing done, if the table cannot grow.
    void insert(std::uintptr_t address, const Value& value) {
        reserve_one();
        put(slots_, {address, value});
        ++size_;
    }
    /// Null if there is none; valid until the next change.
    const Value* find(std::uintptr_t address) const noexcept {
        const std::size_t i = position_of(address);
        return i == none ? nullptr : &slots_[i].value;
    }
    /// Takes the entry out.
    std::optional<Value> take(std::uintptr_t address) noexcept {
        std::size_t hole = position_of(address);
        if (hole == none) return std::nullopt;
        const Value found = slots_[hole].value;
        // What stands behind moves up, so that no probe ends early and no tombstones gather.
        for (std::size_t i = next(hole); slots_[i].address != 0; i = next(i)) {
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
    template<typename F>
    void for_each(F&& f) const {
        for (const slot& s : slots_)
            if (s.address != 0) f(s.address, s.value);
    }
    /// O(slots).
    void clear() noexcept {
        for (slot& s : slots_) s = {};
        size_ = 0;
    }

  private:
    struct slot {
        std::uintptr_t address = 0;
        Value value{};
    };
    static constexpr std::size_t min_slots = 64;  // a few cache lines: a small owner costs no more
    static constexpr std::size_t none = ~std::size_t{0};

    static std::size_t home(std::uintptr_t address, std::size_t num_slots) noexcept {
        // Addresses come in rows; the multiplication spreads them (2^64 over the golden ratio).
        return static_cast<std::size_t>(((address >> LowBits) * 0x9e3779b97f4a7c15u) >> 20) & (num_slots - 1);
    }
    std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }
    std::size_t position_of(std::uintptr_t address) const noexcept {
        if (address == 0) return none;
        std::size_t i = home(address, slots_.size());
        while (slots_[i].address != address) {
            if (slots_[i].address == 0) return none;
            i = next(i);
        }
        return i;
    }
    static void put(std::vector<slot>& slots, const slot& entry) noexcept {
        std::size_t i = home(entry.address, slots.size());
        while (slots[i].address != 0) i = (i + 1) & (slots.size() - 1);
        slots[i] = entry;
    }
    void grow() {
        std::vector<slot> larger(2 * slots_.size());
        for (const slot& entry : slots_)
            if (entry.address != 0) put(larger, entry);
        slots_.swap(larger);
    }

    std::vector<slot> slots_;  // a power of two of them, at most half in use
    std::size_t size_ = 0;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
