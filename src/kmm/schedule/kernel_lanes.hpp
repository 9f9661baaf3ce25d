// The compute lane of each kernel, and whether something will wait for exactly that kernel.
//
// Owns: a policy for each device, and measured durations of kernels. Must not know: instructions, residency. Runs under
// the scheduler's baton.
#pragma once

#include <cstdint>
#include <vector>

#include "kmm/schedule/kernel_times.hpp"
#include "kmm/schedule/lane_policy.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/schedule/outbox.hpp"

namespace kmm::schedule {

class KernelLanes {
  public:
    KernelLanes(LanePositions& lanes, const SchedulerOptions& options);

    /// The kernel is going to be issued: which chunks kernels of its device write decides how these are spread over
    /// lanes. May be told more than once. O(uses).
    void foresee(Task& kernel);
    /// The next position on the lane that suits the kernel. O(uses + fences + lanes).
    Fence take(const Task& kernel);
    /// Whether, of the tasks that come after the kernel, some will be on another lane, or wait on the host.
    /// O(successors).
    bool is_awaited_elsewhere(const Task& kernel) const noexcept;

    /// Counts a launch. True: its duration should be measured.
    bool count_launch(const Task& kernel) noexcept { return times_.count_launch(kernel.kernel_times); }
    void measured(KernelTimes::Id kernel, std::int64_t ns) noexcept { times_.measured(kernel, ns); }

  private:
    LaneWish wish(const Task& kernel) const noexcept;

    LanePositions& lanes_;
    std::vector<LanePolicy> policies_;  ///< by device
    KernelTimes times_;
};

}  // namespace kmm::schedule
