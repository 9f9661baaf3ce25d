// What a task stores for one array access, and the views that it becomes when the task runs.
//
// Owns: StoredView. The region is computed on the submitting thread, the view is built by the thread that runs the
// task. Must not know: arrays, mappings. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kmm/api/argument.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/utils/bounds.hpp"

namespace kmm {
namespace detail {

/// One access of a task: its region, and its number within the task. Trivially copyable. `Whole`: the argument named
/// the array without a mapping, and the view begins at index 0.
template<typename T, std::size_t N, bool Mutable, bool Whole>
struct StoredView {
    Bounds<N> region;
    std::uint32_t access;
};

/// The view type of a StoredView in a memory.
template<typename Stored, ExecutionSpace Space>
struct ViewOf;
template<typename T, std::size_t N, bool Mutable, bool Whole, ExecutionSpace Space>
struct ViewOf<StoredView<T, N, Mutable, Whole>, Space> {
    using element = std::conditional_t<Mutable, T, const T>;
    using domain = std::conditional_t<Whole, views::dynamic_domain<N>, views::dynamic_subdomain<N>>;
    using accessor = std::conditional_t<Space == ExecutionSpace::Host, views::host_accessor, views::device_accessor>;
    using type = AbstractView<element, domain, views::right_to_left_layout<>, accessor>;
};
template<typename Stored, ExecutionSpace Space>
using view_of_t = typename ViewOf<Stored, Space>::type;

template<typename T>
struct IsStoredView : std::false_type {};
template<typename T, std::size_t N, bool Mutable, bool Whole>
struct IsStoredView<StoredView<T, N, Mutable, Whole>> : std::true_type {};

/// The view of a stored access whose first element is at `address`.
template<ExecutionSpace Space, typename T, std::size_t N, bool Mutable, bool Whole>
view_of_t<StoredView<T, N, Mutable, Whole>, Space> make_view(const StoredView<T, N, Mutable, Whole>& stored,
                                                             void* address, const AccessLayout& layout) noexcept {
    using View = view_of_t<StoredView<T, N, Mutable, Whole>, Space>;
    return View::from_region(static_cast<typename View::element_type*>(address), stored.region, layout.strides);
}

}  // namespace detail

template<ExecutionSpace Space, typename T, std::size_t N, bool Mutable, bool Whole>
struct ArgumentUnpack<Space, detail::StoredView<T, N, Mutable, Whole>> {
    static detail::view_of_t<detail::StoredView<T, N, Mutable, Whole>, Space>
    call(TaskContext& context, const detail::StoredView<T, N, Mutable, Whole>& stored) noexcept {
        return detail::make_view<Space>(stored, context.addresses[stored.access], context.layouts[stored.access]);
    }
};

}  // namespace kmm
