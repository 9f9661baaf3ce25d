// Structs of the program as arguments: KMM_DEFINE_STRUCT_ARGUMENT and KMM_DEFINE_STRUCT_VIEW.
//
// Owns: the macros. This version checks the declarations, but cannot pass such arguments yet: submitting one throws
// NotAvailable. C++17.
#pragma once

#include <tuple>
#include <type_traits>

#include "kmm/api/argument.hpp"
#include "kmm/detail/panic.hpp"

namespace kmm {
namespace detail {

/// The type that the task side of `T` is built as; KMM_DEFINE_STRUCT_VIEW defines it.
template<typename T>
struct StructView {
    using type = T;
};

/// What a task would store for a struct argument.
template<typename T>
struct StructArgument {
    using view_type = typename StructView<T>::type;
};

[[noreturn]] inline void throw_no_struct_arguments() {
    throw_not_available("struct arguments (KMM_DEFINE_STRUCT_ARGUMENT) are not offered by this version of kmm; pass "
                        "the members as arguments of "
                        "their own");
}

/// Handler of every type named in KMM_DEFINE_STRUCT_ARGUMENT.
template<typename T>
struct StructArgumentHandler {
    using type = StructArgument<T>;
    explicit StructArgumentHandler(const T&) {}
    void initialize(const TaskGroupInit&) { throw_no_struct_arguments(); }
    type before_submit(TaskInstance&) { throw_no_struct_arguments(); }
    void commit(const TaskGroupCommit&) {}
    void after_submit(const TaskSubmissionResult&) {}
};

}  // namespace detail

template<ExecutionSpace Space, typename T>
struct ArgumentUnpack<Space, detail::StructArgument<T>> {
    static typename detail::StructView<T>::type call(TaskContext&, detail::StructArgument<T>&) {
        detail::throw_no_struct_arguments();
    }
};

}  // namespace kmm

/// At global scope: what an argument of type `T` passes to a task, as expressions of `it`, a const reference to the
/// object.
#define KMM_DEFINE_STRUCT_ARGUMENT(T, ...)                                                           \
    template<>                                                                                       \
    struct kmm::ArgumentHandler<T> : ::kmm::detail::StructArgumentHandler<T> {                       \
        using ::kmm::detail::StructArgumentHandler<T>::StructArgumentHandler;                        \
        static auto members([[maybe_unused]] const T& it) { return ::std::make_tuple(__VA_ARGS__); } \
    };

/// At global scope: the type built as `V{e1, e2, ...}` on the task side of an argument of type `T`.
#define KMM_DEFINE_STRUCT_VIEW(T, ...)  \
    template<>                          \
    struct kmm::detail::StructView<T> { \
        using type = __VA_ARGS__;       \
    };
