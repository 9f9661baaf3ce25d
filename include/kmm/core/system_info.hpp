// What a runtime knows about its devices. Immutable snapshots, except where "now" is said; cheap to copy; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kmm/core/identifiers.hpp"

struct dim3;

namespace kmm {

/// The same type as in kernels. It is complete where CUDA's or HIP's header, or kmm/emulation.hpp, was included.
using dim3 = ::dim3;

/// The data of a DeviceInfo. Made by the runtime.
struct DeviceDescription {
    std::string name;
    DeviceId device_id;
    int device_ordinal = 0;  ///< the driver's number
    std::size_t total_memory_bytes = 0;
    std::size_t memory_limit_bytes = 0;
    std::uint32_t max_block_dim[3] = {1, 1, 1};
    std::uint32_t max_grid_dim[3] = {1, 1, 1};
    std::uint32_t max_threads_per_block = 1;
    int compute_capability = 0;  ///< major * 10 + minor; 0 on the host driver
    std::size_t max_shared_memory_per_block = 0;
    std::size_t num_compute_streams = 1;
    std::string pci_bus_id;
    std::string uuid;
    /// Asks the driver; returns false if it knows no such attribute. Null: it knows none.
    bool (*attribute)(const void* driver, int device_ordinal, int number, int* value) = nullptr;
    /// Asks the driver for the free bytes now. Null: the limit.
    std::size_t (*free_memory)(const void* driver, int device_ordinal) = nullptr;
    std::shared_ptr<const void> driver;  ///< kept alive for the two functions
};

/// One device of a runtime.
class DeviceInfo {
  public:
    explicit DeviceInfo(DeviceDescription description);

    const std::string& name() const noexcept;
    MemoryId memory_id() const noexcept;
    DeviceId device_id() const noexcept;
    int device_ordinal() const noexcept;
    std::size_t total_memory_size() const noexcept;
    /// Bytes that the runtime may use at most.
    std::size_t memory_limit() const noexcept;
    /// Bytes free on the device now: allocations of all processes count as used.
    std::size_t free_memory() const;
    dim3 max_block_dim() const noexcept;
    dim3 max_grid_dim() const noexcept;
    /// major * 10 + minor; 0 on the host driver.
    int compute_capability() const noexcept;
    std::size_t max_threads_per_block() const noexcept;
    /// Bytes, opt-in included.
    std::size_t max_shared_memory_per_block() const noexcept;
    /// The driver's attribute with this native number (on the host driver: CUDA's numbers). InvalidArgument if unknown.
    int attribute(int native_number) const;
    std::size_t num_compute_streams() const noexcept;
    const std::string& pci_bus_id() const noexcept;
    const std::string& uuid() const noexcept;
    const DeviceDescription& description() const noexcept { return *description_; }

  private:
    std::shared_ptr<const DeviceDescription> description_;
};

/// The data of a SystemInfo. Made by the runtime.
struct SystemDescription {
    std::vector<DeviceInfo> devices;  ///< in the order of their DeviceIds
    DriverKind driver = DriverKind::Host;
    int driver_version = 0;
    std::size_t host_memory_bytes = 0;
    std::uint16_t runtime_number = 0;
    /// peer_access[from * devices.size() + to]; empty: none.
    std::vector<bool> peer_access;
};

/// The devices of a runtime and what a handle may use of them.
class SystemInfo {
  public:
    /// No devices.
    SystemInfo();
    /// All devices, with all streams.
    explicit SystemInfo(SystemDescription description);
    /// The same runtime, seen by a handle that may use only `resources` (hosts in it are left out of `resources()`). A
    /// device with all its streams stands for those that this handle has of it. IA for none; IR for a device or a set
    /// of streams that this handle has not.
    SystemInfo constrain_to(const std::vector<ResourceId>& resources) const;

    std::size_t num_devices() const noexcept;
    /// InvalidArgument if there is no such device.
    const DeviceInfo& device(DeviceId id) const;
    /// By the driver's number. InvalidArgument if there is no such device.
    const DeviceInfo& device_by_ordinal(int ordinal) const;
    const std::vector<DeviceInfo>& devices() const noexcept;
    /// The handle's devices, in the order in which they were given, each with its streams. The host is not listed.
    const std::vector<ResourceId>& resources() const noexcept;
    /// Whether the handle may use every device and all streams.
    bool is_whole() const noexcept { return is_whole_; }
    /// Whether tasks may run on the host: always, since every handle may.
    bool host_allowed() const noexcept;
    /// The host first, then the devices.
    std::vector<MemoryId> memories() const;
    MemoryId affinity_memory(ResourceId resource) const noexcept;
    MemoryId affinity_memory(DeviceId device) const noexcept;
    static ResourceId affinity_processor(MemoryId memory) noexcept;
    /// Host memory is accessible by everyone, device memory by its device.
    bool is_memory_accessible(MemoryId memory, ResourceId resource) const noexcept;
    bool is_memory_accessible(MemoryId memory, DeviceId device) const noexcept;
    DriverKind driver() const noexcept;
    /// Native number, such as 13000.
    int driver_version() const noexcept;
    /// Bytes of the host, or of the container's limit if that is smaller.
    std::size_t host_memory_size() const noexcept;
    /// Whether kernels on `from` can read the memory of `to`.
    bool can_access_peer(DeviceId from, DeviceId to) const noexcept;
    /// The number in the upper 16 bits of the runtime's events.
    std::uint16_t runtime_number() const noexcept;

  private:
    std::shared_ptr<const SystemDescription> description_;
    std::shared_ptr<const std::vector<ResourceId>> resources_;
    bool is_whole_ = true;
};

namespace detail {
/// IR unless the runtime has this device.
void check_has_device(const SystemInfo& info, DeviceId id);
/// The device with those of its streams that both it and the handle name. IR if the handle does not have the device, or
/// there is no such stream. O(resources of the handle), O(1) if it is whole and no set of streams is named.
ResourceId allowed_resource(const SystemInfo& info, ResourceId device);
}  // namespace detail

}  // namespace kmm
