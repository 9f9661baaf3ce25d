// Elements of a box in some memory, without their type: what views look like to compiled code.
//
// Owns: nothing. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/core/view.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/utils/bounds.hpp"
#include "kmm/utils/dim.hpp"

namespace kmm {
namespace detail {

/// A box of elements in some memory: address of the first one, strides in elements.
struct StridedBox {
    void* data = nullptr;
    std::int64_t strides[max_rank] = {0, 0, 0, 0, 0, 0, 0, 0};
};

/// IA unless every byte of a box of `sizes` elements lies within 63 bits of its first one.
void check_reach(const char* what, std::size_t rank, const std::int64_t* sizes, const std::int64_t* strides_elements,
                 std::size_t element_bytes);

template<typename V>
StridedBox strided_box(const V& view) noexcept {
    StridedBox box;
    box.data = const_cast<void*>(static_cast<const volatile void*>(view.data()));
    for (std::size_t axis = 0; axis + 1 <= V::rank; axis++) {
        box.strides[axis] = static_cast<std::int64_t>(view.stride(axis));
    }
    return box;
}

template<typename V>
void store_sizes(const V& view, std::int64_t (&sizes)[max_rank]) noexcept {
    for (std::size_t axis = 0; axis < max_rank; axis++) {
        sizes[axis] = axis + 1 <= V::rank ? static_cast<std::int64_t>(view.size(axis)) : 1;
    }
}

template<typename V>
Dim<V::rank> view_shape(const V& view) {
    Dim<V::rank> shape;
    for (std::size_t axis = 0; axis + 1 <= V::rank; axis++) {
        shape[axis] = static_cast<default_index_type>(view.size(axis));
    }
    return shape;
}

/// Strides of packed row-major elements of a box.
template<std::size_t N>
struct PackedStrides {
    std::int64_t values[max_rank] = {0, 0, 0, 0, 0, 0, 0, 0};
    explicit PackedStrides(const Bounds<N>& box) {
        std::int64_t stride = 1;
        for (std::size_t k = 1; k <= N; k++) {
            values[N - k] = stride;
            stride *= box.size(N - k);
        }
    }
};

template<std::size_t N>
Box to_box(const Bounds<N>& bounds) noexcept {
    static_assert(N <= max_rank, "arrays have at most 8 axes");
    Box box;
    for (std::size_t axis = 0; axis + 1 <= N; axis++) {
        box.begin[axis] = bounds.begin(axis);
        box.end[axis] = bounds.end(axis);
    }
    return box;
}

template<std::size_t N>
Bounds<N> to_bounds(const Box& box) {
    Bounds<N> bounds;
    for (std::size_t axis = 0; axis + 1 <= N; axis++) {
        bounds[axis].begin = box.begin[axis];
        bounds[axis].end = box.end[axis];
    }
    return bounds;
}

}  // namespace detail
}  // namespace kmm
