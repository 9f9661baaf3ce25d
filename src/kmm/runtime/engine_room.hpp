// The threads that carry out what the scheduler decides: those of devices, launchers, the host pool, the memory
// service.
//
// Owns: these, and the lanes. Must not know: what the scheduler decides, words, who publishes tasks. Started and ended
// by the thread that makes the runtime, and the one that ends it.
#pragma once

#include <memory>
#include <vector>

#include "kmm/engine/device_thread.hpp"
#include "kmm/engine/host_pool.hpp"
#include "kmm/engine/lanes.hpp"
#include "kmm/engine/mailbox.hpp"
#include "kmm/runtime/engine.hpp"
#include "kmm/runtime/function_runner.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/supply/memory_service.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::detail {

class EngineRoom final : public Engine {
  public:
    EngineRoom(const Platform& platform, engine::ErrorMaker& errors, const trace::Emitter& emitter)
        : platform_(platform), errors_(errors), emitter_(emitter), runner_(platform, failed_tasks_, errors) {}
    EngineRoom(const EngineRoom&) = delete;
    EngineRoom& operator=(const EngineRoom&) = delete;
    ~EngineRoom();

    /// All but the host pool. The scheduler says which lanes there are. Throws std::system_error.
    void start(const schedule::LanePositions& positions, engine::Mailbox& mailbox);
    /// Started last: if threads are scarce the pool gets fewer, and every task can still be run. Returns how many it
    /// got; throws std::system_error if none.
    std::size_t start_host_pool(engine::Mailbox& mailbox);
    /// When every task has settled. The memory service stays: it may still ask the scheduler.
    void end_threads() noexcept;
    void end_memory_service() noexcept { memory_service_.reset(); }

    engine::Lanes& lanes() noexcept { return *lanes_; }
    supply::MemoryService& memory_service() noexcept { return *memory_service_; }
    const supply::MemoryService& memory_service() const noexcept { return *memory_service_; }
    const std::vector<std::unique_ptr<engine::DeviceThread>>& device_threads() const noexcept {
        return device_threads_;
    }
    engine::HostPool& host_pool() noexcept { return *host_pool_; }
    /// All that were ever started.
    std::size_t threads_started() const;

    // ---- Engine
    void push(std::uint32_t device, schedule::InstructionList& instructions) override {
        device_threads_[device]->push(instructions);
    }
    void launch(std::uint32_t device, graph::Task& task) override { launchers_[device]->push(task); }
    void push_to_host(std::span<graph::Task* const> tasks) override { host_pool_->push(tasks); }
    void grow(memory::MemoryIndex memory, std::size_t at_least_bytes) override {
        memory_service_->grow(memory, at_least_bytes);
    }
    void exchange(memory::MemoryIndex memory, std::size_t at_least_bytes) override {
        memory_service_->exchange(memory, at_least_bytes);
    }
    void give_bounce(std::size_t bytes) override { memory_service_->give_bounce(bytes); }
    void await(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient) override {
        memory_service_->await(memory, lacking, patient);
    }
    void device_advanced() override { memory_service_->device_advanced(); }
    std::size_t taken_bytes(std::uint32_t device) const override { return memory_service_->taken_bytes(device); }
    engine::FailedTasks& failed_tasks() noexcept override { return failed_tasks_; }
    void stop() noexcept override;
    void wait_until_stopped() noexcept override;

  private:
    const Platform& platform_;
    engine::ErrorMaker& errors_;
    const trace::Emitter& emitter_;
    // The order of the members is the order in which they start, and the reverse of the order in which they end.
    engine::FailedTasks failed_tasks_;
    FunctionRunner runner_;
    std::unique_ptr<engine::Lanes> lanes_;
    std::unique_ptr<supply::MemoryService> memory_service_;
    std::vector<std::unique_ptr<engine::DeviceThread>> device_threads_;
    std::vector<std::unique_ptr<engine::LauncherThreads>> launchers_;
    std::unique_ptr<engine::HostPool> host_pool_;
};

}  // namespace kmm::detail
