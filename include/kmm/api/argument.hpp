// From an argument of a submit to what the task's function receives: the extension points and the plain values.
//
// Owns: ArgumentHandler (submitting thread) and ArgumentUnpack (the thread that runs the task). Must not know: which
// kinds of arguments exist; they specialise these templates. C++17.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kmm/api/task_group.hpp"
#include "kmm/core/identifiers.hpp"

namespace kmm {

namespace detail {

/// What a type without an ArgumentHandler of its own gets: each task receives a copy of the value.
template<typename T, typename = void>
struct GeneralHandler {
    using type = T;
    using ignores_domain = void;

    explicit GeneralHandler(T value) : value_(std::move(value)) {}
    void initialize(const TaskGroupInit&) {}
    type before_submit(TaskInstance&) { return value_; }
    void commit(const TaskGroupCommit&) {}
    void after_submit(const TaskSubmissionResult&) {}

  private:
    T value_;
};

}  // namespace detail

/// Turns one argument of a submit, of (decayed) type `T`, into what each task stores. Constructed from the argument;
/// the members are called in this order, all on the submitting thread:
/// - `initialize` once;
/// - `before_submit` once for each task; what it returns is stored in the task;
/// - `commit` once, when all tasks are built and nothing is queued yet;
/// - `after_submit` once, after the tasks were queued.
/// What the first three throw leaves the submit without effect. The general form passes a copy of the value to each
/// task; of a mapping (mapper.hpp), what it gives for the task's chunk.
template<typename T>
struct ArgumentHandler : detail::GeneralHandler<T> {
    using detail::GeneralHandler<T>::GeneralHandler;
};

/// What each task stores of an argument of type `T`.
template<typename T>
using Argument = typename ArgumentHandler<std::decay_t<T>>::type;

/// Turns what a task stored (`ArgumentHandler<..>::type`) into the function's parameter, when the task runs. The
/// general form passes the stored value itself. A kernel needs none where stored value and parameter are aggregates
/// of as many members: each `Argument` of an array becomes a view, each value is converted. With one of its own a
/// launcher thread builds the parameters of each task.
template<ExecutionSpace Space, typename T>
struct ArgumentUnpack {
    static T& call(TaskContext&, T& stored) { return stored; }
};

namespace detail {

/// Whether a handler says that its `initialize` does nothing; a submit of one task then builds no Domain for it.
template<typename Handler, typename = void>
struct IgnoresDomain : std::false_type {};
template<typename Handler>
struct IgnoresDomain<Handler, std::void_t<typename Handler::ignores_domain>> : std::true_type {};

}  // namespace detail
}  // namespace kmm
