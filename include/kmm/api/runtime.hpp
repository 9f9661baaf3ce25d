// `Runtime`: the public face of a running runtime, for programs that hold it by reference. See RuntimeHandle.
//
// Owns: nothing; src/kmm's RuntimeCore derives from it. Any thread. C++17.
#pragma once

#include <chrono>
#include <memory>

#include "kmm/core/identifiers.hpp"
#include "kmm/core/system_info.hpp"

namespace kmm {

/// One runtime: devices, their memory, the tasks. Obtained by `RuntimeHandle::worker()`; lives as long as its handles.
class Runtime {
  public:
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    const SystemInfo& system_info() const noexcept;
    /// Whether every task submitted so far is finished. Never blocks.
    bool is_idle();
    /// Gives cached memory back. Blocks for the driver.
    void trim_memory();
    /// Waits for everything, then refuses further submits. TE DL.
    void shutdown();
    /// Waits for an event until a time; whether it is done. TE IA DL.
    bool query_event(EventId event, std::chrono::system_clock::time_point deadline);
    /// Another share of the runtime.
    std::shared_ptr<Runtime> shared_from_this();
    /// Nothing: the runtime makes progress by itself. Kept for programs that call it.
    void make_progress() const noexcept {}

  protected:
    Runtime() = default;
    ~Runtime() = default;
};

}  // namespace kmm
