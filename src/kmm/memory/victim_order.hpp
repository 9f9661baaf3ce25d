// The order in which replicas leave a memory, and the search through it for one that can.
//
// Owns: the links between replicas, which lie in them. Must not know: why a replica has its rank. Belongs to whoever
// holds the scheduler's baton.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kmm/memory/chunk.hpp"
#include "rmm/heap/tree.hpp"

namespace kmm::memory {

struct VictimKey {
    std::uint64_t rank;  ///< lower leaves first
    std::uint64_t tick;
    Chunk* chunk;
    friend auto operator<=>(const VictimKey&, const VictimKey&) = default;
};

/// Sorted by key; each replica says how large a place it needs elsewhere before it can leave (0: none). All calls are
/// O(log replicas) and need no memory.
class VictimOrder {
  public:
    static VictimKey key_of(const Replica& r) noexcept { return {r.key_rank, r.key_tick, r.key_chunk}; }

    void insert(Replica& r) noexcept {
        if (r.priority == 0) {
            // Xorshift (Marsaglia): any priorities will do that have nothing to do with the keys.
            seed_ ^= seed_ << 13;
            seed_ ^= seed_ >> 17;
            seed_ ^= seed_ << 5;
            r.priority = seed_;
        }
        tree_.insert(&r);
    }
    void erase(Replica& r) noexcept { tree_.erase(&r); }
    /// The first one behind `after` that needs a place of less than `below_bytes`; null: none. Adds the replicas that
    /// were looked at to `*steps`.
    Replica* next(const VictimKey& after, std::size_t below_bytes, std::uint64_t* steps) const noexcept {
        std::size_t looked_at = 0;
        Replica* at = tree_.lower_bound([&](const Replica& r) { return key_of(r) <= after; }, &looked_at);
        *steps += looked_at;
        for (; at != nullptr; ++*steps) {
            if (at->key_place_bytes < below_bytes) return at;
            if (Replica* const right = Tree::right(at); right != nullptr && right->least_place_bytes < below_bytes)
                return first_below(right, below_bytes, steps);
            // Behind it and what is on its right comes the lowest one above of which it is on the left.
            Replica* child = at;
            for (at = above(child); at != nullptr && Tree::right(at) == child; at = above(child), ++*steps) child = at;
        }
        return nullptr;
    }

  private:
    struct Order {
        static bool less(const Replica& a, const Replica& b) noexcept { return key_of(a) < key_of(b); }
        bool update(Replica& r) const noexcept {
            std::size_t least = r.key_place_bytes;
            if (const Replica* const left = Tree::left(&r)) least = std::min(least, left->least_place_bytes);
            if (const Replica* const right = Tree::right(&r)) least = std::min(least, right->least_place_bytes);
            return std::exchange(r.least_place_bytes, least) != least;
        }
    };
    using Tree = rmm::heap::tree<Replica, &Replica::in_victims, Order>;

    static Replica* above(const Replica* r) noexcept { return r->in_victims.parent; }
    /// The first one at or below `at` in the tree; there is one.
    static Replica* first_below(Replica* at, std::size_t below_bytes, std::uint64_t* steps) noexcept {
        for (;; ++*steps) {
            if (Replica* const left = Tree::left(at); left != nullptr && left->least_place_bytes < below_bytes)
                at = left;
            else if (at->key_place_bytes < below_bytes)
                return at;
            else
                at = Tree::right(at);
        }
    }

    Tree tree_;
    std::uint32_t seed_ = 2463534242u;
};

}  // namespace kmm::memory
