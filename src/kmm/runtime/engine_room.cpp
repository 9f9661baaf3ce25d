#include "kmm/runtime/engine_room.hpp"

#include "kmm/engine/sleeper.hpp"

namespace kmm::detail {

EngineRoom::~EngineRoom() { end_threads(); }

void EngineRoom::start(const schedule::LanePositions& positions, engine::Mailbox& mailbox) {
    const RuntimeConfig& config = platform_.config();
    const void* const runtime = platform_.runtime_mark();
    lanes_ = std::make_unique<engine::Lanes>(platform_.driver(), platform_.ordinals(), positions.per_device());
    // What moves boxes is a kernel that others wait for, and takes a part of the device only.
    for (std::uint32_t d = 0; d < platform_.num_devices(); ++d)
        for (const auto role : {schedule::LaneRole::up, schedule::LaneRole::down, schedule::LaneRole::peer})
            lanes_->make_urgent(positions.id(d, role));
    memory_service_ = std::make_unique<supply::MemoryService>(*lanes_, platform_.ordinals(), platform_.limits_bytes(),
                                                              config, config.device_memory_kind, runtime, mailbox);
    for (std::uint32_t d = 0; d < platform_.num_devices(); ++d) {
        device_threads_.push_back(std::make_unique<engine::DeviceThread>(
            d, launchers_per_device, *lanes_, failed_tasks_, runtime, mailbox, errors_, emitter_,
            config.trace_device_times, config.nvtx, engine::many_cores()));
        std::vector<graph::LaneId> lanes;
        lanes.reserve(launchers_per_device);
        for (std::uint32_t i = 0; i < launchers_per_device; ++i)
            lanes.push_back(positions.id(d, schedule::LaneRole::launcher, i));
        launchers_.push_back(std::make_unique<engine::LauncherThreads>(d, lanes, *lanes_, failed_tasks_, runtime,
                                                                       platform_.on_host_driver(), runner_, mailbox,
                                                                       emitter_, config.nvtx));
    }
}

std::size_t EngineRoom::start_host_pool(engine::Mailbox& mailbox) {
    const RuntimeConfig& config = platform_.config();
    host_pool_ =
        std::make_unique<engine::HostPool>(config.host_threads, platform_.runtime_mark(), platform_.on_host_driver(),
                                           mailbox, emitter_, config.nvtx, engine::many_cores());
    return host_pool_->size();
}

void EngineRoom::stop() noexcept {
    for (const auto& thread : device_threads_) thread->stop_feeding();
    for (const auto& launchers : launchers_) launchers->drop_queue();
    host_pool_->drop_queue();
}

void EngineRoom::wait_until_stopped() noexcept {
    for (const auto& launchers : launchers_) launchers->wait_until_none_runs();
    host_pool_->wait_until_none_runs();
    for (const auto& thread : device_threads_) thread->wait_until_stopped();
    lanes_->synchronize();  // of the launchers' lanes too
}

void EngineRoom::end_threads() noexcept {
    host_pool_.reset();
    launchers_.clear();
    device_threads_.clear();
}

std::size_t EngineRoom::threads_started() const {
    std::size_t count = 1 + device_threads_.size() + host_pool_->threads_started();  // 1: the memory service
    for (const auto& launchers : launchers_) count += launchers->threads_started();
    return count;
}

}  // namespace kmm::detail
