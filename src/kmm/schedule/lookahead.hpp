// How many tasks become possible with one: those that miss nothing more, once it has been issued.
//
// Owns: nothing but memory for lists. Must not know: lanes, how much room there is. Runs under the scheduler's baton.
#pragma once

#include <cstdint>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::schedule {

class Lookahead {
  public:
    /// Tasks in the same memory that could be issued behind `first`, and behind each other, without anything being
    /// fetched but small parts of chunks; no more than `most_enabled`. Adds what was looked at to `*steps`: at most
    /// `most_steps`.
    std::size_t count_enabled(const graph::Task& first, std::uint64_t* steps);
    /// Whether a task in the same memory waits for this one alone. O(1): of very many successors the first few are
    /// looked at.
    static bool enables(const graph::Task& task) noexcept;
    /// Whether it counts such a task at all.
    static bool looks_at(const graph::Task& task) noexcept {
        return task.kind == graph::TaskKind::kernel || task.kind == graph::TaskKind::device_function;
    }

    static constexpr std::size_t most_enabled = 8;
    static constexpr std::uint64_t most_steps = 256;

  private:
    bool may_follow(const graph::Task& task) noexcept;
    bool brings(const memory::Chunk& chunk) noexcept;

    graph::Vector<const graph::Task*> issued_;  ///< `first` and those behind it
    std::uint64_t steps_ = 0;                   ///< of this call
};

}  // namespace kmm::schedule
