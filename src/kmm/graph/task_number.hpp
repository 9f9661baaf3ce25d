// What tasks are called by.
#pragma once

#include <cstdint>

namespace kmm::graph {

/// A task's place in the order of submission; 0 is "none". The low 48 bits of an EventId. A submit takes numbers that
/// follow each other: one for each of its tasks, and one for itself if these are several. Joins and transfers that the
/// library makes for itself (helpers) take no place: they have numbers of a series of their own, which no program sees.
using TaskNumber = std::uint64_t;
inline constexpr TaskNumber first_helper = TaskNumber{1} << 62;
/// Above all numbers: where the first task that failed stands if none has.
inline constexpr TaskNumber no_failure = ~TaskNumber{0};
constexpr bool is_helper(TaskNumber number) noexcept { return number >= first_helper; }

}  // namespace kmm::graph
