// A sorted tree whose links lie in its elements: nothing is allocated for an element, and one can be in several trees.
//
// A treap (Seidel, Aragon: Randomized search trees, 1996): sorted by key from left to right, and by a random priority
// of the element from top to bottom, so that it is balanced whatever the order of changes. A tree may keep sums over
// subtrees up to date (`Order::update`). The direction of a descent cannot be predicted, so the code avoids branches.
// All operations are O(log elements) on average. Owns: the links. Must not know: what the elements are, where they
// live. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

template<typename T>
struct tree_links {
    T* parent = nullptr;
    T* child[2] = {nullptr, nullptr};  // on the left what comes before, on the right what comes behind
};

/// `Order`: `static bool less(const T&, const T&)`, and, if there are sums, `bool update(T&) const`, which computes
/// those of an element from itself and the two below it, and says whether that changed anything. T has a
/// `std::uint32_t priority`.
template<typename T, tree_links<T> T::* Links, typename Order>
class tree {
  public:
    tree() = default;
    tree(tree&& other) noexcept : root_(std::exchange(other.root_, nullptr)), order_(other.order_) {}
    tree& operator=(tree&& other) noexcept {
        root_ = std::exchange(other.root_, nullptr);
        order_ = other.order_;
        return *this;
    }
    const Order& order() const noexcept { return order_; }
    /// The sums are made of something else from now on.
    void set_order(const Order& order) noexcept {
        order_ = order;
        update_all(root_);
    }

    bool empty() const noexcept { return root_ == nullptr; }
    T* root() const noexcept { return root_; }
    static T* left(const T* at) noexcept { return (at->*Links).child[0]; }
    static T* right(const T* at) noexcept { return (at->*Links).child[1]; }

    T* first() const noexcept { return root_ == nullptr ? nullptr : lowest(root_); }
    T* last() const noexcept { return root_ == nullptr ? nullptr : highest(root_); }
    static T* next(const T* at) noexcept {
        if (right(at) != nullptr) return lowest(right(at));
        while (parent(at) != nullptr && right(parent(at)) == at) at = parent(at);
        return parent(at);
    }
    static T* previous(const T* at) noexcept {
        if (left(at) != nullptr) return highest(left(at));
        while (parent(at) != nullptr && left(parent(at)) == at) at = parent(at);
        return parent(at);
    }
    /// The first element for which `is_before(element)` is false; null if there is none. It must be true for the
    /// elements up to some point, and false for the others. Adds the elements looked at to `*steps`.
    template<typename P>
    T* lower_bound(P&& is_before, std::size_t* steps) const noexcept {
        T* found = nullptr;
        std::size_t looked_at = 0;
        for (T* at = root_; at != nullptr; ++looked_at) {
            const bool before = is_before(std::as_const(*at));
            found = before ? found : at;
            at = (at->*Links).child[before];
        }
        *steps += looked_at;
        return found;
    }
    /// The last element for which it is true.
    template<typename P>
    T* last_before(P&& is_before, std::size_t* steps) const noexcept {
        T* found = nullptr;
        std::size_t looked_at = 0;
        for (T* at = root_; at != nullptr; ++looked_at) {
            const bool before = is_before(std::as_const(*at));
            found = before ? at : found;
            at = (at->*Links).child[before];
        }
        *steps += looked_at;
        return found;
    }

    void insert(T* added) noexcept {
        T* above = nullptr;
        bool side = false;
        for (T* at = root_; at != nullptr; at = (at->*Links).child[side]) {
            above = at;
            side = Order::less(*at, *added);
        }
        link(added, above, side);
    }
    /// Where its place is known: between two neighbours, of which one may be null.
    void insert_between(T* before, T* added, T* behind) noexcept {
        if (behind != nullptr && left(behind) == nullptr)
            link(added, behind, false);
        else
            link(added, before, true);
    }

    void erase(T* gone) noexcept {
        std::size_t num_rotated = 0;
        for (; left(gone) != nullptr && right(gone) != nullptr; ++num_rotated)
            rotate_up(left(gone)->priority > right(gone)->priority ? left(gone) : right(gone));
        T* const below = left(gone) != nullptr ? left(gone) : right(gone);
        T* above = parent(gone);
        replace(above, gone, below);
        // Those that were rotated are above each other now.
        if constexpr (has_sums)
            for (; num_rotated > 0; --num_rotated, above = parent(above)) order_.update(*above);
        changed(above);
    }

    /// What the sums are made of has changed in the element.
    void changed(T* at) const noexcept {
        if constexpr (has_sums)
            while (at != nullptr && order_.update(*at)) at = parent(at);
    }

  private:
    static constexpr bool has_sums = requires(const Order& order, T& t) { order.update(t); };

    static T* parent(const T* at) noexcept { return (at->*Links).parent; }
    static T* lowest(T* at) noexcept {
        while (left(at) != nullptr) at = left(at);
        return at;
    }
    static T* highest(T* at) noexcept {
        while (right(at) != nullptr) at = right(at);
        return at;
    }
    void replace(T* above, T* old, T* with) noexcept {
        if (above == nullptr)
            root_ = with;
        else
            (above->*Links).child[right(above) == old] = with;
        if (with != nullptr) (with->*Links).parent = above;
    }
    void link(T* added, T* above, bool side) noexcept {
        added->*Links = {above, {nullptr, nullptr}};
        if (above == nullptr)
            root_ = added;
        else
            (above->*Links).child[side] = added;
        for (T* at = above; at != nullptr && at->priority < added->priority; at = parent(added)) {
            rotate_up(added);
            if constexpr (has_sums) order_.update(*at);
        }
        if constexpr (has_sums) order_.update(*added);
        changed(parent(added));
    }
    /// The element and the one above it change places; the order stays. The sums of both are the caller's matter.
    void rotate_up(T* at) noexcept {
        T* const below = parent(at);
        replace(parent(below), below, at);
        const bool side = right(below) == at;
        T* const moved = (at->*Links).child[!side];
        (below->*Links).child[side] = moved;
        (at->*Links).child[!side] = below;
        if (moved != nullptr) (moved->*Links).parent = below;
        (below->*Links).parent = at;
    }

    void update_all(T* at) const noexcept {
        if (at == nullptr) return;
        update_all(left(at));
        update_all(right(at));
        order_.update(*at);
    }

    T* root_ = nullptr;
    [[no_unique_address]] Order order_;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
