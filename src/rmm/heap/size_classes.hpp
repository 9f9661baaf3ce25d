// Elements sorted by size, for the smallest that fits: a tree for each class of sizes.
//
// A class is a quarter of the way from one power of two to the next, as in two-level segregated fit (Masmano, Ripoll,
// Crespo, Real: TLSF, ECRTS 2004). Where sizes vary a class has one element or two, so that most changes and searches
// need no descent; where they do not, all are in one tree. Unlike lists, trees give the very smallest that fits. Owns:
// the links. Must not know: what the elements are, where they live. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rmm/heap/tree.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// `Order` as of a tree without sums; it compares sizes first. T has a `std::size_t size_bytes`, which is not 0. O(log
/// elements of a class) each.
template<typename T, tree_links<T> T::* Links, typename Order>
class size_classes {
  public:
    void insert(T* added) noexcept {
        const std::size_t of = class_of(added->size_bytes);
        trees_[of].insert(added);
        used_[of / bits] |= bit_of(of);
    }
    void erase(T* gone) noexcept {
        const std::size_t of = class_of(gone->size_bytes);
        trees_[of].erase(gone);
        if (trees_[of].empty()) used_[of / bits] &= ~bit_of(of);
    }
    /// The smallest that fits; of equals the first in order. Adds the elements looked at to `*steps`.
    T* first_from(std::size_t size_bytes, std::size_t* steps) const noexcept {
        const std::size_t of = class_of(size_bytes);
        if (T* const at = trees_[of].lower_bound([=](const T& t) { return t.size_bytes < size_bytes; }, steps))
            return at;
        // All of a later class fit.
        std::size_t word = (of + 1) / bits;
        if (word == used_.size()) return nullptr;
        std::uint64_t left = used_[word] & ~std::uint64_t{0} << (of + 1) % bits;
        while (left == 0) {
            if (++word == used_.size()) return nullptr;
            left = used_[word];
        }
        const auto first = word * bits + static_cast<std::size_t>(std::countr_zero(left));
        return trees_[first].lower_bound([](const T&) { return false; }, steps);
    }

  private:
    static constexpr std::size_t bits = 64;
    static constexpr std::size_t classes_in_power = 4;
    static constexpr std::size_t class_of(std::size_t size_bytes) noexcept {
        const auto power = static_cast<std::size_t>(std::bit_width(size_bytes)) - 1;
        const std::size_t quarter = power < 2 ? 0 : size_bytes >> (power - 2) & (classes_in_power - 1);
        return power * classes_in_power + quarter;
    }
    static constexpr std::uint64_t bit_of(std::size_t of) noexcept { return std::uint64_t{1} << of % bits; }

    // 2 KiB, by far the most of a heap: each pool has two, each stream of a capture one.
    std::array<tree<T, Links, Order>, 64 * classes_in_power> trees_;
    std::array<std::uint64_t, 64 * classes_in_power / bits> used_{};
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
