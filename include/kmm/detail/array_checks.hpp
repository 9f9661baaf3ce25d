// What arrays check before they ask the runtime, compiled once for all element types and ranks.
//
// Owns: nothing. Any thread. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kmm/core/data_type.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/utils/dim.hpp"

namespace kmm {

class Runtime;

namespace detail {

/// The core of a runtime given by its public face.
RuntimeCore& runtime_core(Runtime& runtime) noexcept;
/// The public face of the runtime of a bound array. IA when unbound.
Runtime& array_runtime_face(const ArrayRecord& record);
/// Binds an array without elements, for a submit that was to write it: over an empty domain no task does. Nothing where
/// it is bound already. CL.
void array_bind_without_elements(const ArrayRef& array, Runtime& runtime);
/// IA: `what` needs a bound array; says how arrays become bound.
[[noreturn]] void throw_unbound(const ArrayRecord& record, const char* what);
/// IA if an axis is negative, naming it, or if the elements have more bytes than 63 bits can count.
void check_shape(std::size_t rank, const std::int64_t* shape, std::size_t element_bytes);
/// IA unless a distribution has the shape of its array.
void check_distribution(std::size_t rank, const std::int64_t* shape, const std::int64_t* distributed);
/// IA: the array's elements are not of type `wanted`.
[[noreturn]] void throw_wrong_type(const ArrayRecord& record, const DataType& wanted);
/// IA: copy_to: 5 elements were given, but array "A" has 6 elements.
[[noreturn]] void throw_wrong_count(const ArrayRecord& record, const char* what, const char* unit,
                                    const std::string& given, std::int64_t expected);
/// IA if `region` is not inside the array.
void check_region(const ArrayRecord& record, const char* what, const Box& region);
/// The same for the region of `size` elements from `offset`, whose end may not fit 64 bits.
void check_region(const ArrayRecord& record, const char* what, const std::int64_t* offset, const std::int64_t* size);
/// IA if a view has another shape than the array.
void check_view_shape(const ArrayRecord& record, const char* what, const std::int64_t* view);

template<typename I>
std::string printable(I value) {
    if constexpr (std::is_signed_v<I>) {
        return std::to_string(static_cast<long long>(value));
    } else {
        return std::to_string(static_cast<unsigned long long>(value));
    }
}

/// The shape as compiled code wants it.
template<std::size_t N>
struct ShapeArray {
    std::int64_t values[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
    explicit ShapeArray(const Dim<N>& shape) noexcept {
        static_assert(N <= max_rank, "arrays have at most 8 axes");
        for (std::size_t axis = 0; axis + 1 <= N; axis++) {
            values[axis] = shape.get_or_default(axis);
        }
    }
};

/// The shape of a new array. IA if a size is negative, or its bytes do not fit 63 bits.
template<std::size_t N>
ShapeArray<N> checked_shape(const Dim<N>& shape, std::size_t element_bytes) {
    const ShapeArray<N> result(shape);
    check_shape(N, result.values, element_bytes);
    return result;
}

}  // namespace detail
}  // namespace kmm
