// How a runtime answers the rest of the process, which asks about its memory of a device, or for some of it.
//
// Owns: nothing. Must not know: who asks. Any thread that has no baton.
#pragma once

#include "kmm/runtime/engine_room.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/turns.hpp"
#include "kmm/supply/device_share.hpp"

namespace kmm::detail {

class ProcessShare final : public supply::ShareSource {
  public:
    ProcessShare(const Platform& platform, EngineRoom& engine, SchedulerTurns& turns) noexcept
        : platform_(platform), engine_(engine), turns_(turns) {}

    supply::ShareFigures share_of(std::uint32_t device) override;
    std::size_t reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                   std::chrono::steady_clock::time_point deadline) noexcept override;
    const void* some_memory_of(std::uint32_t device) const noexcept override {
        return engine_.memory_service().sample(memory::MemoryIndex::of_device(device));
    }

  private:
    const Platform& platform_;
    EngineRoom& engine_;
    SchedulerTurns& turns_;
};

}  // namespace kmm::detail
