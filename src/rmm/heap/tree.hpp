// A sorted tree whose links lie in its elements: nothing is allocated for an element, and one can be in several trees.
//
// A treap (Seidel, Aragon: Randomized search trees, 1996): sorted by key from left to right, by a random priority of the
// element from top to bottom, so that it is balanced whatever the order of changes. A tree may keep sums over subtrees up to
// date (`Order::update`). Owns: the links. Must not know: what the elements are, where they live. Not thread-safe.
// All operations O(log elements) on average.
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
    T* left = nullptr;
    T* right = nullptr;
};

/// `Order`: `static bool less(const T&, const T&)`, and, if there are sums, `static bool update(T&)`, which computes those of
/// an element from itself and the two below it, and says whether that changed anything. T has a `std::uint32_t priority`.
template<typename T, tree_links<T> T::* Links, typename Order>
class tree {
  public:
    tree() = default;
    tree(tree&& other) noexcept : root_(std::exchange(other.root_, nullptr)) {}
    tree& operator=(tree&& other) noexcept {
        root_ = std::exchange(other.root_, nullptr);
        return *this;
    }

    bool empty() const noexcept { return root_ == nullptr; }
    T* root() const noexcept { return root_; }
    static T* left(const T* at) noexcept { return (at->*Links).left; }
    static T* right(const T* at) noexcept { return (at->*Links).right; }

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
    /// The first element for which `is_before(element)` is false; null if there is none. It must be true for the elements up
    /// to some point, and false for the others. Adds the elements looked at to `*steps`.
    template<typename P>
    T* lower_bound(P&& is_before, std::size_t* steps) const {
        T* found = nullptr;
        std::size_t looked_at = 0;
        for (T* at = root_; at != nullptr; ++looked_at) {
            if (is_before(std::as_const(*at))) {
                at = right(at);
            } else {
                found = at;
                at = left(at);
            }
        }
        *steps += looked_at;
        return found;
    }
    /// The last element for which it is true.
    template<typename P>
    T* last_before(P&& is_before, std::size_t* steps) const {
        T* found = nullptr;
        std::size_t looked_at = 0;
        for (T* at = root_; at != nullptr; ++looked_at) {
            if (is_before(std::as_const(*at))) {
                found = at;
                at = right(at);
            } else {
                at = left(at);
            }
        }
        *steps += looked_at;
        return found;
    }

    void insert(T* added) noexcept {
        T* above = nullptr;
        bool is_left = false;
        for (T* at = root_; at != nullptr; at = is_left ? left(at) : right(at)) {
            above = at;
            is_left = Order::less(*added, *at);
        }
        added->*Links = {above, nullptr, nullptr};
        if (above == nullptr)
            root_ = added;
        else
            (is_left ? (above->*Links).left : (above->*Links).right) = added;
        changed(added);
        while (parent(added) != nullptr && parent(added)->priority < added->priority) rotate_up(added);
    }

    void erase(T* gone) noexcept {
        while (left(gone) != nullptr && right(gone) != nullptr)
            rotate_up(left(gone)->priority > right(gone)->priority ? left(gone) : right(gone));
        T* const below = left(gone) != nullptr ? left(gone) : right(gone);
        T* const above = parent(gone);
        replace(above, gone, below);
        if (above != nullptr) changed(above);
    }

    /// What the sums are made of has changed in the element.
    static void changed(T* at) noexcept {
        if constexpr (has_sums)
            while (at != nullptr && Order::update(*at)) at = parent(at);
    }

  private:
    static constexpr bool has_sums = requires(T& t) { Order::update(t); };

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
        else if (left(above) == old)
            (above->*Links).left = with;
        else
            (above->*Links).right = with;
        if (with != nullptr) (with->*Links).parent = above;
    }
    /// The element and the one above it change places; the order stays.
    void rotate_up(T* at) noexcept {
        T* const below = parent(at);
        replace(parent(below), below, at);
        T* moved = nullptr;
        if (left(below) == at) {
            moved = right(at);
            (below->*Links).left = moved;
            (at->*Links).right = below;
        } else {
            moved = left(at);
            (below->*Links).right = moved;
            (at->*Links).left = below;
        }
        if (moved != nullptr) (moved->*Links).parent = below;
        (below->*Links).parent = at;
        if constexpr (has_sums) {
            Order::update(*below);
            Order::update(*at);
        }
    }

    T* root_ = nullptr;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
