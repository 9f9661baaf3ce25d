// The members of SystemInfo and DeviceInfo. Immutable; any thread.
#include "kmm/core/system_info.hpp"

#include <string>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/emulation/vector_types.hpp"
#include "kmm/error.hpp"

namespace kmm {

DeviceInfo::DeviceInfo(DeviceDescription description)
    : description_(std::make_shared<const DeviceDescription>(std::move(description))) {}

const std::string& DeviceInfo::name() const noexcept { return description_->name; }
MemoryId DeviceInfo::memory_id() const noexcept { return MemoryId(description_->device_id); }
DeviceId DeviceInfo::device_id() const noexcept { return description_->device_id; }
int DeviceInfo::device_ordinal() const noexcept { return description_->device_ordinal; }
std::size_t DeviceInfo::total_memory_size() const noexcept { return description_->total_memory_bytes; }
std::size_t DeviceInfo::memory_limit() const noexcept { return description_->memory_limit_bytes; }

std::size_t DeviceInfo::free_memory() const {
    if (description_->free_memory == nullptr) return description_->memory_limit_bytes;
    return description_->free_memory(description_->driver.get(), description_->device_ordinal);
}

dim3 DeviceInfo::max_block_dim() const noexcept {
    const auto& d = description_->max_block_dim;
    return dim3(d[0], d[1], d[2]);
}

dim3 DeviceInfo::max_grid_dim() const noexcept {
    const auto& d = description_->max_grid_dim;
    return dim3(d[0], d[1], d[2]);
}

int DeviceInfo::compute_capability() const noexcept { return description_->compute_capability; }
std::size_t DeviceInfo::max_threads_per_block() const noexcept { return description_->max_threads_per_block; }
std::size_t DeviceInfo::max_shared_memory_per_block() const noexcept {
    return description_->max_shared_memory_per_block;
}

int DeviceInfo::attribute(int native_number) const {
    int value = 0;
    const DeviceDescription& d = *description_;
    if (d.attribute == nullptr || !d.attribute(d.driver.get(), d.device_ordinal, native_number, &value)) {
        throw InvalidArgument(driver::format("DeviceInfo::attribute: {} ({}) has no attribute with number {}; use the "
                                             "numbers of the driver's device attributes",
                                             detail::text_of(d.device_id), d.name, native_number));
    }
    return value;
}

std::size_t DeviceInfo::num_compute_streams() const noexcept { return description_->num_compute_streams; }
const std::string& DeviceInfo::pci_bus_id() const noexcept { return description_->pci_bus_id; }
const std::string& DeviceInfo::uuid() const noexcept { return description_->uuid; }

namespace detail {

namespace {

/// Those of the device that the handle may use; of a device without restriction all 64 numbers.
DeviceStreamSet streams_of(const SystemInfo& info, DeviceId device) {
    DeviceStreamSet streams;
    for (const ResourceId& r : info.resources())
        if (r.as_device() == device) streams |= r.stream_affinity();
    return streams;
}

[[noreturn]] void throw_no_stream(const SystemInfo& info, ResourceId resource) {
    const DeviceId device = resource.as_device();
    const std::size_t count = info.device(device).num_compute_streams();
    const DeviceStreamSet streams = streams_of(info, device) & DeviceStreamSet::range(0, count);
    throw InvalidResourceException(driver::format("{}: the handle has {}; name some of these streams, or the device "
                                                  "alone",
                                                  text_of(resource), text_of(ResourceId(device, streams))));
}

}  // namespace

ResourceId allowed_resource(const SystemInfo& info, ResourceId resource) {
    const DeviceId device = resource.as_device();
    check_has_device(info, device);
    const DeviceStreamSet named = resource.stream_affinity();
    if (info.is_whole() && named == DeviceStreamSet::all()) return resource;
    const DeviceStreamSet own = streams_of(info, device);
    if (own.is_empty()) {
        std::string names;
        for (const ResourceId& r : info.resources()) names += (names.empty() ? "" : ", ") + text_of(r);
        throw InvalidResourceException(
            driver::format("{} is not among the resources of this handle, which are: {}; name one of them, or use a "
                           "handle that was constrained to it",
                           text_of(device), names.empty() ? "the host" : names));
    }
    const DeviceStreamSet there = DeviceStreamSet::range(0, info.device(device).num_compute_streams());
    const DeviceStreamSet streams = named & own & there;
    if (streams.is_empty()) throw_no_stream(info, resource);
    return ResourceId(device, streams == there ? DeviceStreamSet::all() : streams);
}

}  // namespace detail

namespace {

std::shared_ptr<const std::vector<ResourceId>> all_devices(const std::vector<DeviceInfo>& devices) {
    auto resources = std::make_shared<std::vector<ResourceId>>();
    for (const DeviceInfo& device : devices) resources->push_back(ResourceId(device.device_id()));
    return resources;
}

}  // namespace

SystemInfo::SystemInfo() : SystemInfo(SystemDescription()) {}

SystemInfo::SystemInfo(SystemDescription description)
    : description_(std::make_shared<const SystemDescription>(std::move(description))),
      resources_(all_devices(description_->devices)) {}

SystemInfo SystemInfo::constrain_to(const std::vector<ResourceId>& resources) const {
    if (resources.empty())
        throw InvalidArgument("constrain_to: the list of resources is empty; name devices, or ResourceId::host()");
    auto devices = std::make_shared<std::vector<ResourceId>>();
    for (const ResourceId& resource : resources) {
        if (resource.is_host()) continue;
        const ResourceId allowed = detail::allowed_resource(*this, resource);
        const DeviceStreamSet named = resource.stream_affinity();
        const DeviceStreamSet there =
            named & DeviceStreamSet::range(0, device(resource.as_device()).num_compute_streams());
        if (named != DeviceStreamSet::all() && !detail::streams_of(*this, resource.as_device()).contains(there))
            detail::throw_no_stream(*this, resource);
        devices->push_back(allowed);
    }
    SystemInfo result = *this;
    result.resources_ = std::move(devices);
    result.is_whole_ = false;
    return result;
}

std::size_t SystemInfo::num_devices() const noexcept { return description_->devices.size(); }

const DeviceInfo& SystemInfo::device(DeviceId id) const {
    if (id.get() < description_->devices.size()) return description_->devices[id.get()];
    throw InvalidArgument(
        driver::format("SystemInfo::device: there is no {}: this runtime has {} devices, numbered from 0",
                       detail::text_of(id), num_devices()));
}

const DeviceInfo& SystemInfo::device_by_ordinal(int ordinal) const {
    std::string known;
    for (const DeviceInfo& device : description_->devices) {
        if (device.device_ordinal() == ordinal) return device;
        known += (known.empty() ? "" : ", ") + std::to_string(device.device_ordinal());
    }
    throw InvalidArgument(
        driver::format("SystemInfo::device_by_ordinal: this runtime does not use device {} of the driver; it uses: {}",
                       ordinal, known.empty() ? "none" : known));
}

const std::vector<DeviceInfo>& SystemInfo::devices() const noexcept { return description_->devices; }
const std::vector<ResourceId>& SystemInfo::resources() const noexcept { return *resources_; }
bool SystemInfo::host_allowed() const noexcept { return true; }

std::vector<MemoryId> SystemInfo::memories() const {
    std::vector<MemoryId> result{MemoryId::host()};
    for (const DeviceInfo& device : description_->devices) result.push_back(device.memory_id());
    return result;
}

MemoryId SystemInfo::affinity_memory(ResourceId resource) const noexcept { return resource.as_memory(); }
MemoryId SystemInfo::affinity_memory(DeviceId device) const noexcept { return MemoryId(device); }

ResourceId SystemInfo::affinity_processor(MemoryId memory) noexcept {
    return memory.is_host() ? ResourceId::host(memory.device_affinity()) : ResourceId(memory.device_affinity());
}

bool SystemInfo::is_memory_accessible(MemoryId memory, ResourceId resource) const noexcept {
    return memory.is_host() || memory == resource.as_memory();
}

bool SystemInfo::is_memory_accessible(MemoryId memory, DeviceId device) const noexcept {
    return is_memory_accessible(memory, ResourceId(device));
}

DriverKind SystemInfo::driver() const noexcept { return description_->driver; }
int SystemInfo::driver_version() const noexcept { return description_->driver_version; }
std::size_t SystemInfo::host_memory_size() const noexcept { return description_->host_memory_bytes; }

bool SystemInfo::can_access_peer(DeviceId from, DeviceId to) const noexcept {
    const std::size_t n = num_devices();
    if (from.get() >= n || to.get() >= n) return false;
    return from == to || (!description_->peer_access.empty() && description_->peer_access[from.get() * n + to.get()]);
}

std::uint16_t SystemInfo::runtime_number() const noexcept { return description_->runtime_number; }

namespace detail {

void check_has_device(const SystemInfo& info, DeviceId id) {
    const std::size_t count = info.num_devices();
    if (id.get() < count) return;
    const std::string remedy = count == 0   ? std::string("the host alone")
                               : count == 1 ? std::string("device 0")
                                            : driver::format("a device from 0 to {}", count - 1);
    throw InvalidResourceException(driver::format("the runtime has no {}, only {}: name {}",
                                                  place_text(info.driver(), id.get()),
                                                  driver::count_text(count, "device"), remedy));
}

}  // namespace detail

}  // namespace kmm
