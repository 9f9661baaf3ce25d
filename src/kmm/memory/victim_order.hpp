// The order in which replicas leave a memory, and the search through it for one that can.
//
// Owns: the links between their places in it. Must not know: why a replica has its rank. Belongs to whoever holds the
// scheduler's baton.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "rmm/heap/tree.hpp"

namespace kmm::memory {

struct Chunk;

struct VictimKey {
    std::uint64_t rank;  ///< lower leaves first
    std::uint64_t tick;
    Chunk* chunk;
    friend auto operator<=>(const VictimKey&, const VictimKey&) = default;
};

/// The place of a replica. While a memory keeps the order each of its replicas has one, whether it may leave or not: so
/// no change of what may leave needs memory.
struct Victim {
    Chunk* chunk = nullptr;  ///< whose replica it is
    std::uint64_t rank = 0;
    std::uint64_t tick = 0;
    std::size_t place_bytes = 0;        ///< the place on the host that it needs first, because it must be saved
    std::size_t least_place_bytes = 0;  ///< of these, of the replica and those below it in the tree
    rmm::heap::tree_links<Victim> in_order;
    std::uint32_t priority = 0;  ///< of the tree
    std::uint16_t place_in_slab = 0;
    bool indexed = false;   ///< it stands in the order
    bool is_spare = false;  ///< with `indexed`: nothing is lost when it leaves

    static Victim*& free_link(Victim& v) noexcept { return v.in_order.parent; }
    void recycle() noexcept { chunk = nullptr; }
};

/// Sorted by key; each replica says how large a place it needs elsewhere before it can leave (0: none). All calls are
/// O(log replicas) and need no memory.
class VictimOrder {
  public:
    static VictimKey key_of(const Victim& v) noexcept { return {v.rank, v.tick, v.chunk}; }

    void insert(Victim& v) noexcept {
        if (v.priority == 0) {
            // Xorshift (Marsaglia): any priorities will do that have nothing to do with the keys.
            seed_ ^= seed_ << 13;
            seed_ ^= seed_ >> 17;
            seed_ ^= seed_ << 5;
            v.priority = seed_;
        }
        tree_.insert(&v);
    }
    void erase(Victim& v) noexcept { tree_.erase(&v); }
    /// The first one behind `after` that needs a place of less than `below_bytes`; null: none. Adds the replicas that
    /// were looked at to `*steps`.
    Victim* next(const VictimKey& after, std::size_t below_bytes, std::uint64_t* steps) const noexcept {
        std::size_t looked_at = 0;
        Victim* at = tree_.lower_bound([&](const Victim& v) { return key_of(v) <= after; }, &looked_at);
        *steps += looked_at;
        for (; at != nullptr; ++*steps) {
            if (at->place_bytes < below_bytes) return at;
            if (Victim* const right = Tree::right(at); right != nullptr && right->least_place_bytes < below_bytes)
                return first_below(right, below_bytes, steps);
            // Behind it and what is on its right comes the lowest one above of which it is on the left.
            Victim* child = at;
            for (at = above(child); at != nullptr && Tree::right(at) == child; at = above(child), ++*steps) child = at;
        }
        return nullptr;
    }

  private:
    struct Order {
        static bool less(const Victim& a, const Victim& b) noexcept { return key_of(a) < key_of(b); }
        bool update(Victim& v) const noexcept {
            std::size_t least = v.place_bytes;
            if (const Victim* const left = Tree::left(&v)) least = std::min(least, left->least_place_bytes);
            if (const Victim* const right = Tree::right(&v)) least = std::min(least, right->least_place_bytes);
            return std::exchange(v.least_place_bytes, least) != least;
        }
    };
    using Tree = rmm::heap::tree<Victim, &Victim::in_order, Order>;

    static Victim* above(const Victim* v) noexcept { return v->in_order.parent; }
    /// The first one at or below `at` in the tree; there is one.
    static Victim* first_below(Victim* at, std::size_t below_bytes, std::uint64_t* steps) noexcept {
        for (;; ++*steps) {
            if (Victim* const left = Tree::left(at); left != nullptr && left->least_place_bytes < below_bytes)
                at = left;
            else if (at->place_bytes < below_bytes)
                return at;
            else
                at = Tree::right(at);
        }
    }

    Tree tree_;
    std::uint32_t seed_ = 2463534242u;
};

}  // namespace kmm::memory
