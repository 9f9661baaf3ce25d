// The operations that combine contributions of several tasks. Plain values; any thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <type_traits>

#include "kmm/utils/macros.hpp"

namespace kmm {

/// The built-in operations. Which element types each takes: integers all; floating-point Sum, Product, Min, Max (the
/// last two ignore NaN unless all are NaN); complex Sum, Product; KeyValue Min, Max.
enum struct Reduction : std::uint8_t { Invalid, Sum, Product, Min, Max, BitAnd, BitOr };

/// An operation of the user's. `function(a, b)` must be associative; it need not be commutative: contributions are
/// combined in the order of tasks, then of private indices. See reduction_op and host_reduction_op.
template<typename T, typename F, bool HostOnly>
struct CustomReduction {
    static_assert(std::is_trivially_copyable<F>::value, "the function of a reduction must be trivially copyable");
    static_assert(std::is_invocable_r<T, const F&, T, T>::value,
                  "the function of a reduction must be callable as T(T, T)");
    using value_type = T;
    static constexpr bool host_only = HostOnly;
    T identity;
    F function;
};

/// `function` with `identity` as its neutral element. In CUDA and HIP files it must be callable on the device; in plain
/// files contributions are combined on the host unless the driver is host.
template<typename T, typename F>
CustomReduction<T, F, false> reduction_op(T identity, F function) {
    return {identity, function};
}

/// The same; contributions are always combined on the host.
template<typename T, typename F>
CustomReduction<T, F, true> host_reduction_op(T identity, F function) {
    return {identity, function};
}

template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const Reduction& op) {
    switch (op) {
    case Reduction::Sum: return stream << "Sum";
    case Reduction::Product: return stream << "Product";
    case Reduction::Min: return stream << "Min";
    case Reduction::Max: return stream << "Max";
    case Reduction::BitAnd: return stream << "BitAnd";
    case Reduction::BitOr: return stream << "BitOr";
    case Reduction::Invalid: break;
    }
    return stream << "Invalid";
}

}  // namespace kmm
