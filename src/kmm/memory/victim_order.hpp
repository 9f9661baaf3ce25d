// The eviction order of a memory's replicas, and the search for the next victim.
//
// Owns: the links of the order. Must not know: why a replica has its rank. Guarded by the scheduler's baton.
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

/// A replica's entry in the order. While a memory keeps an order each of its replicas has one, evictable or not, so
/// that becoming evictable needs no memory.
struct Victim {
    Chunk* chunk = nullptr;  ///< whose replica it is
    std::uint64_t rank = 0;
    std::uint64_t tick = 0;
    std::size_t place_bytes = 0;        ///< to allocate elsewhere before it can leave, because it must be saved
    std::size_t least_place_bytes = 0;  ///< the least `place_bytes` of its subtree
    rmm::heap::tree_links<Victim> in_order;
    std::uint32_t priority = 0;  ///< of the tree
    std::uint16_t place_in_slab = 0;
    bool indexed = false;   ///< it stands in the order
    bool is_spare = false;  ///< with `indexed`: nothing is lost when it leaves

    static Victim*& free_link(Victim& v) noexcept { return v.in_order.parent; }
    void recycle() noexcept { chunk = nullptr; }
};

/// A tree sorted by key, which also finds the next victim that needs less than a given place elsewhere. All calls are
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
    /// The first victim behind `after` with `place_bytes` below `below_bytes`; null: none. Adds the replicas examined
    /// to `*steps`.
    Victim* next(const VictimKey& after, std::size_t below_bytes, std::uint64_t* steps) const noexcept {
        std::size_t looked_at = 0;
        Victim* at = tree_.lower_bound([&](const Victim& v) { return key_of(v) <= after; }, &looked_at);
        *steps += looked_at;
        for (; at != nullptr; ++*steps) {
            if (at->place_bytes < below_bytes) return at;
            if (Victim* const right = Tree::right(at); right != nullptr && right->least_place_bytes < below_bytes)
                return first_below(right, below_bytes, steps);
            // Next in order: the lowest ancestor in whose left subtree it lies.
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
    /// The first match in the subtree of `at`, which has one.
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
