// Measured durations of kernels.
//
// Owns: one entry for each kernel and size of its grid, for as long as the runtime lives. Pure: must not know lanes,
// threads or clocks. What tells one kernel from another is its function and the number of its blocks up to a factor of
// two. (Loops whose length is a parameter are not told apart: such a kernel is what most of its launches are.)
#pragma once

#include <cstdint>

#include "kmm/graph/task.hpp"

namespace kmm::schedule {

class KernelTimes {
  public:
    using Id = std::uint32_t;
    /// A kernel below this is short: work on another lane that has to wait for it costs as much as it gains.
    static constexpr std::int64_t short_ns = 10'000;

    /// O(1); remembers the latest kernel asked for.
    Id find(const graph::Kernel& kernel);
    /// Counts a launch. True: this one should be timed. The first ones are, and later one in 256.
    bool count_launch(Id id) noexcept;
    /// Notes the duration of a launch. The median of the latest three counts (of two the longer), since a single one
    /// may be an outlier: the kernel had nothing to do, or its thread was interrupted between its two events.
    void measured(Id id, std::int64_t ns) noexcept;
    /// False too while nothing was measured: to put a long kernel behind others costs more than to wait for a short
    /// one.
    bool is_short(Id id) const noexcept { return kernels_[id].ns != unknown && kernels_[id].ns < short_ns; }

  private:
    static constexpr std::int64_t unknown = -1;
    static constexpr std::uint64_t launches_between = 256;
    struct Entry {
        std::uint64_t launches = 0;
        std::int64_t ns = unknown;
        std::int64_t latest_ns = unknown;
        std::int64_t before_ns = unknown;
    };
    graph::Vector<Entry> kernels_;
    graph::UnorderedMap<std::uint64_t, Id> ids_;  ///< by function and size
    std::uint64_t latest_ = 0;
    Id latest_id_ = 0;
};

}  // namespace kmm::schedule
