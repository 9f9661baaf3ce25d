// How many of the schedule's tasks become possible with one (enabling.hpp).
//
// Owns: nothing but memory for lists. Must not know: lanes, how much room there is. Runs under the scheduler's baton.
#pragma once

#include <cstdint>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::schedule {

class Lookahead {
  public:
    /// As enabling::count. Adds what was looked at to `*steps`: at most `enabling::most_steps`, and once more what one
    /// task takes.
    std::size_t count_enabled(const graph::Task& first, std::uint64_t* steps);
    /// As enabling::is_last_of_any.
    static bool enables(const graph::Task& task) noexcept;
    /// Whether it counts such a task at all.
    static bool looks_at(const graph::Task& task) noexcept {
        return task.kind == graph::TaskKind::kernel || task.kind == graph::TaskKind::device_function;
    }

  private:
    graph::Vector<const graph::Task*> counted_;
};

}  // namespace kmm::schedule
