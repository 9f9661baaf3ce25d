// Runs a device function of the program on a stream of its device.
//
// Owns: nothing; a launcher thread keeps one DeviceResource for each stream that it has served. Must not know: the
// scheduler, lanes. Launcher threads only.
#pragma once

#include "kmm/engine/device_thread.hpp"
#include "kmm/engine/host_pool.hpp"
#include "kmm/runtime/platform.hpp"

namespace kmm::detail {

class FunctionRunner final : public engine::LauncherThreads::Runner {
  public:
    FunctionRunner(const Platform& platform, engine::FailedTasks& failed, engine::ErrorMaker& errors) noexcept
        : platform_(platform), failed_tasks_(failed), errors_(errors) {}

    /// Throws what the function threw, or a DeviceError where it left an error of the driver pending.
    void run_device_function(graph::Task& task, std::uint32_t device, engine::StreamHandle stream) override;

  private:
    /// On the host driver: what the task's kernels ask about it, and leave if they throw.
    driver::KernelHooks kernel_hooks(graph::Task& task);
    void run_body(graph::Task& task, std::uint32_t device, TaskContext& context);

    const Platform& platform_;
    engine::FailedTasks& failed_tasks_;
    engine::ErrorMaker& errors_;
};

}  // namespace kmm::detail
