// Tasks by their places in the order of submission; those of one place by their numbers, so that no order hangs on
// where records lie in memory.
//
// Owns: the order. Must not know: why tasks are kept.
#pragma once

#include <tuple>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::schedule {

struct PlacedTask {
    /// Before all of the place.
    explicit PlacedTask(graph::TaskNumber at) noexcept : place(at) {}
    explicit PlacedTask(graph::Task& t) noexcept : place(t.place()), number(t.number), task(&t) {}
    graph::TaskNumber place = 0;
    graph::TaskNumber number = 0;
    graph::Task* task = nullptr;
    friend bool operator<(const PlacedTask& a, const PlacedTask& b) noexcept {
        return std::tie(a.place, a.number) < std::tie(b.place, b.number);
    }
};
using TasksByPlace = graph::Set<PlacedTask>;

}  // namespace kmm::schedule
