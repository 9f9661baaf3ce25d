// Which of many boxes hold or meet a region, without looking at all of them.
//
// Owns: BoxIndex. Must not know: what the boxes stand for. Pure, immutable after construction, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kmm/boxes/box.hpp"

namespace kmm::boxes {

/// A bounding volume hierarchy over a fixed list of boxes, none of them empty, at most 2^32 - 1. It is loaded from the
/// top, each time with the cut that the fewest boxes cross (Garcia, Lopez, Leutenegger: A greedy algorithm for bulk
/// loading R-trees, 1998), and walked without a stack, by links past each subtree (Smits: Efficiency issues for ray
/// tracing, 1998).
///
/// For disjoint boxes of which few lie across a cut, as where an array is cut into chunks, a query costs O(log n) and
/// what it finds. The cost depends on nothing but how the boxes lie: the order of the list does not matter. Queries
/// allocate nothing. `looked_at`, where it is given, grows by the number of boxes and bounds of subtrees that were
/// compared.
class BoxIndex {
  public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// Of no boxes.
    BoxIndex() = default;
    /// Of the boxes `box_at(0)` to `box_at(count - 1)`, in which axes from `rank` on are not looked at. O(n log n).
    template<typename F> BoxIndex(std::size_t rank, std::size_t count, F&& box_at) : rank_(rank) {
        sides_.resize(2 * rank * count);
        std::int64_t* side = sides_.data();
        for (std::size_t i = 0; i < count; ++i) {
            const Box& b = box_at(i);
            for (std::size_t k = 0; k < rank; ++k) {
                *side++ = b.begin[k];
                *side++ = b.end[k];
            }
        }
        load(count);
    }

    std::size_t size() const noexcept { return numbers_.size(); }
    /// The lowest number of a box that contains all of `region`, `none` if there is none. The boxes must be disjoint.
    std::size_t find(const Box& region, std::size_t* looked_at = nullptr) const noexcept;
    /// Calls `f(number)` for each box that has an element in common with `region`, in no order; none for an empty
    /// region. `f` returns whether to go on.
    template<typename F> void each_that_meets(const Box& region, F&& f, std::size_t* looked_at = nullptr) const;
    /// Two boxes with an element in common, the lower number first; false if there are none, which is known after
    /// O(n log n) where few boxes lie across a cut. Allocates O(log n).
    bool find_overlap(std::size_t* first, std::size_t* second, std::size_t* looked_at = nullptr) const;

  private:
    /// Nodes come in the order of a walk: the first child is the next one, the second child the one after its subtree.
    struct Node {
        std::uint32_t after = 0;  ///< the node that follows when the subtree is left out
        std::uint32_t first = 0;  ///< boxes of the subtree
        std::uint32_t count = 0;
        bool is_leaf = true;
    };
    class Loader;
    /// [begin, end) of each axis.
    const std::int64_t* bounds(std::size_t node) const noexcept { return bounds_.data() + 2 * rank_ * node; }
    const std::int64_t* sides(std::size_t place) const noexcept { return sides_.data() + 2 * rank_ * place; }
    bool contains_region(const std::int64_t* sides, const Box& region) const noexcept {
        for (std::size_t k = 0; k < rank_; ++k)
            if (region.begin[k] < sides[2 * k] || region.end[k] > sides[2 * k + 1]) return false;
        return true;
    }
    bool meets_region(const std::int64_t* sides, const Box& region) const noexcept {
        for (std::size_t k = 0; k < rank_; ++k)
            if (region.begin[k] >= sides[2 * k + 1] || sides[2 * k] >= region.end[k]) return false;
        return true;
    }
    bool meet(const std::int64_t* a, const std::int64_t* b) const noexcept {
        for (std::size_t k = 0; k < rank_; ++k)
            if (a[2 * k] >= b[2 * k + 1] || b[2 * k] >= a[2 * k + 1]) return false;
        return true;
    }
    bool find_overlap_of(const Node& a, const Node& b, std::size_t* places, std::size_t& steps) const;
    void load(std::size_t count);

    std::size_t rank_ = 0;
    std::vector<std::int64_t> sides_;     ///< [begin, end) of each axis of each box, in the order of the leaves
    std::vector<std::uint32_t> numbers_;  ///< of the boxes, in the same order
    std::vector<Node> nodes_;
    std::vector<std::int64_t> bounds_;  ///< as `sides_`: of the boxes below each node
};

template<typename F> void BoxIndex::each_that_meets(const Box& region, F&& f, std::size_t* looked_at) const {
    if (is_empty(region, rank_)) return;
    std::size_t steps = 0;
    bool more = true;
    for (std::size_t at = 0; more && at < nodes_.size();) {
        const Node& node = nodes_[at];
        ++steps;
        if (!meets_region(bounds(at), region)) {
            at = node.after;
            continue;
        }
        ++at;
        if (!node.is_leaf) continue;
        for (std::size_t i = node.first; more && i < std::size_t{node.first} + node.count; ++i) {
            ++steps;
            if (meets_region(sides(i), region)) more = f(std::size_t{numbers_[i]});
        }
    }
    if (looked_at != nullptr) *looked_at += steps;
}

}  // namespace kmm::boxes
