// Where the memory of one device comes from: an rmm resource, chosen by RuntimeConfig::device_memory_kind.
//
// Owns: the resource if it is the runtime's own, and the stream of its allocations and frees. Must not know: heaps, who
// uses the memory. One thread, from the first call to the destructor (rmm's calls go to the runtime's driver there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "driver/driver.hpp"
#include "kmm/core/config.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "rmm/resource_ref.hpp"

namespace kmm::supply {

/// Granularity of a device's memory of that kind (not Automatic): a request takes a whole number of pieces. Asks the
/// driver; throws what driver::check throws.
std::size_t piece_bytes(driver::Driver& driver, int ordinal, DeviceMemoryKind kind);

class DeviceMemory {
  public:
    /// `ordinals`: the devices of the runtime, which may all use the memory; `device` is one of their indices. `kind`
    /// is not Automatic. `source` is for DeviceMemoryKind::Resource, and outlives this object.
    DeviceMemory(driver::Driver& driver, const std::vector<int>& ordinals, std::size_t device, DeviceMemoryKind kind,
                 const DeviceMemorySource* source);
    /// All memory must have been given back.
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    /// Memory that is ready for every stream; null if refused for any reason. Blocks until it is ready.
    void* take(std::size_t bytes) noexcept;
    /// Frees memory that has no pending user or, if `in_order`, only users that `stream` is ordered after.
    void give_back(void* memory, std::size_t bytes) noexcept;
    /// Whether frees are stream-ordered: the next owner is ordered after `stream`, so that no wait is needed before
    /// `give_back`.
    bool in_order() const noexcept { return kind_ == DeviceMemoryKind::Resource; }
    driver::StreamHandle stream() const noexcept { return stream_; }
    /// As `take` and `give_back`, from the driver itself for any kind.
    void* take_plain(std::size_t bytes) noexcept;
    void give_back_plain(void* memory, std::size_t bytes) noexcept;
    /// Gives free memory that the runtime's own resource keeps back to the driver.
    void trim() noexcept;

    /// Whether adjacent allocations may be used as one.
    bool is_one_range() const noexcept { return kind_ == DeviceMemoryKind::Vmm; }
    std::size_t piece_bytes() const noexcept { return piece_bytes_; }
    /// Taken from the driver for this runtime, in use or not.
    std::size_t held_bytes() const noexcept;
    std::uint64_t mappings() const noexcept;

  private:
    class OwnPool;
    void make();
    bool is_ours(const void* memory) noexcept;

    driver::Driver& driver_;
    const std::vector<int> ordinals_;
    const int ordinal_;
    const DeviceMemoryKind kind_;
    const std::size_t piece_bytes_;
    const DeviceMemorySource* source_;
    driver::StreamHandle stream_;
    std::unique_ptr<rmm::mr::device_memory_resource> upstream_;  // of the pool
    std::unique_ptr<rmm::mr::device_memory_resource> own_;
    OwnPool* pool_ = nullptr;  // own_, if it is one
    std::optional<rmm::device_async_resource_ref> resource_;
    std::size_t taken_bytes_ = 0;
    std::size_t plain_bytes_ = 0;
    bool warned_ = false;
};

}  // namespace kmm::supply
