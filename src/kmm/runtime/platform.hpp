// What a runtime stands on: driver, devices, how much of each memory it may use, configuration.
//
// Owns: these; they do not change once the runtime has started. Must not know: tasks, arrays, the scheduler. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "driver/fork.hpp"
#include "kmm/base/memory_index.hpp"
#include "kmm/core/config.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/core/system_info.hpp"

namespace kmm::detail {

class Platform {
  public:
    /// Looks at the devices, and settles what the configuration leaves open. `driver` may be null: the one that the
    /// configuration asks for. NA IA DE CL.
    Platform(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver);
    Platform(const Platform&) = delete;
    Platform& operator=(const Platform&) = delete;

    driver::Driver& driver() const noexcept { return *driver_; }
    const char* driver_name() const noexcept { return driver_->name(); }
    bool on_host_driver() const noexcept { return on_host_driver_; }
    const RuntimeConfig& config() const noexcept { return config_; }
    const SystemInfo& info() const noexcept { return *info_; }
    /// Of the runtime within the process, from 1.
    std::uint16_t number() const noexcept { return number_; }
    /// What marks the runtime's own threads, and those that run its tasks (engine::RuntimeThread, engine::TaskScope).
    const void* runtime_mark() const noexcept { return this; }

    std::uint32_t num_devices() const noexcept { return static_cast<std::uint32_t>(ordinals_.size()); }
    /// The driver's number of each device.
    const std::vector<int>& ordinals() const noexcept { return ordinals_; }
    /// Whether the first device may read the second one's memory.
    bool has_peer_access(std::uint32_t device, std::uint32_t other) const noexcept { return peers_[device][other]; }
    /// That a device runs, the least of all.
    std::uint64_t threads_at_once() const noexcept { return threads_at_once_; }

    const memory::PerMemory<std::size_t>& limits_bytes() const noexcept { return limits_; }
    std::size_t limit_bytes(memory::MemoryIndex m) const noexcept { return limits_[m]; }
    /// Granularity in which a device's memory is taken (supply::piece_bytes).
    std::size_t piece_bytes(std::uint32_t device) const noexcept { return pieces_[device]; }
    /// `bytes` rounded down to whole pieces of the device's memory; unchanged if less than a piece.
    std::size_t whole_pieces(std::uint32_t device, std::size_t bytes) const noexcept;

    std::string place_text(const ResourceId& where) const;  ///< "GPU 1", "virtual GPU 1", "the host"

    // ---- while the runtime starts
    /// The system gave no more threads.
    void set_host_threads(std::size_t given) noexcept { config_.host_threads = given; }
    void turn_nvtx_off() noexcept { config_.nvtx = false; }

  private:
    void choose_devices();
    void set_limits();
    void describe();
    void describe_device(std::size_t i, SystemDescription& system);
    void connect_peers(std::size_t i, SystemDescription& system);

    RuntimeConfig config_;
    std::shared_ptr<driver::Driver> driver_;
    std::uint16_t number_ = 0;
    const driver::DriverUse use_;  // whichever driver it is: the threads are lost in a fork
    bool on_host_driver_ = false;
    std::vector<int> ordinals_;
    memory::PerMemory<std::size_t> limits_;
    std::vector<std::size_t> pieces_;  // by device
    std::vector<std::vector<bool>> peers_;
    std::uint64_t threads_at_once_ = 1;
    std::unique_ptr<SystemInfo> info_;
};

}  // namespace kmm::detail
