// Memory: plain, pinned, managed, the vendor's stream-ordered pools, and virtual memory.
//
// Owns: nothing. Must not know: rmm, kmm. Any thread.
#include <algorithm>

#include "driver/cuda/calls.hpp"
#include "driver/cuda/cuda_driver.hpp"

namespace kmm::driver::vendor {

Status VendorDriver::allocate(int device, std::size_t bytes, void** out) noexcept {
    if (!is_device(device)) return no_such_device;
    if (bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    DeviceGuard guard(*this, device);
    return runtime_status(vendor::allocate(out, bytes));
}

Status VendorDriver::free(void* pointer) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::free(pointer));
}

Status VendorDriver::allocate_managed(std::size_t bytes, void** out) noexcept {
    if (!capabilities_.managed_memory) return not_supported;
    if (bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    return runtime_status(vendor::allocate_managed(out, bytes));
}

Status VendorDriver::prefetch(const void* pointer, std::size_t bytes, int device_or_host,
                              StreamHandle stream) noexcept {
    if (device_or_host != -1 && !is_device(device_or_host)) return no_such_device;
    if (bytes == 0) return {};
    return runtime_status(vendor::prefetch(pointer, bytes, device_or_host, native(stream)));
}

Status VendorDriver::prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept {
    if (device_or_host != -1 && !is_device(device_or_host)) return no_such_device;
    if (bytes == 0) return {};
    return runtime_status(vendor::prefer_location(pointer, bytes, device_or_host));
}

Status VendorDriver::allocate_pinned(std::size_t bytes, void** out) noexcept {
    if (bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    return runtime_status(vendor::allocate_pinned(out, bytes));
}

Status VendorDriver::free_pinned(void* pointer) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::free_pinned(pointer));
}

Status VendorDriver::register_host(void* pointer, std::size_t bytes) noexcept {
    if (pointer == nullptr || bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    return runtime_status(vendor::register_host(pointer, bytes));
}

Status VendorDriver::unregister_host(void* pointer) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::unregister_host(pointer));
}

Status VendorDriver::pointer_info(const void* pointer, PointerInfo* out) noexcept {
    *out = {};
    if (pointer == nullptr) return {};
    PointerKind kind = PointerKind::unknown;
    int device = -1;
    if (const Result failed = pointer_attributes(pointer, &kind, &device)) return runtime_status(failed);
    switch (kind) {
    case PointerKind::unknown: break;
    case PointerKind::pinned: out->kind = MemoryKind::pinned; break;
    case PointerKind::device: *out = {MemoryKind::device, device}; break;
    case PointerKind::managed: *out = {MemoryKind::managed, device}; break;
    }
    return {};
}

// ---- stream-ordered pools

Status VendorDriver::default_pool(int device, PoolHandle* out) noexcept {
    if (!capabilities_.memory_pools) return not_supported;
    if (!is_device(device)) return no_such_device;
    Pool pool{};
    const Status status = runtime_status(vendor::default_pool(&pool, device));
    out->native = pool;
    return status;
}

Status VendorDriver::default_managed_pool(int device, PoolHandle* out) noexcept {
    if (!capabilities_.managed_pools) return not_supported;
    if (!is_device(device)) return no_such_device;
    Pool pool{};
    const Status status = runtime_status(vendor::default_managed_pool(&pool, device));
    out->native = pool;
    return status;
}

Status VendorDriver::create_pool(int device, const PoolOptions& options, PoolHandle* out) noexcept {
    if (!capabilities_.memory_pools) return not_supported;
    if (options.decompression && !capabilities_.hardware_decompression) return not_supported;
    if (!is_device(device)) return no_such_device;
    RelaxedInteraction relaxed;
    DeviceGuard guard(*this, device);
    Pool pool{};
    if (const Result failed = vendor::create_pool(&pool, device, options.maximum_bytes, options.export_handle_types,
                                                  options.decompression))
        return runtime_status(failed);
    const std::uint64_t readers = readers_of_[device].load(std::memory_order_acquire);
    for (int reader = 0; reader < num_devices_; ++reader) {
        if (!(readers >> reader & 1u)) continue;
        if (const Result failed = let_pool_be_read_from(pool, reader)) {
            (void)runtime_status(vendor::destroy_pool(pool));
            return runtime_status(failed);
        }
    }
    out->native = pool;
    return {};
}

Status VendorDriver::destroy_pool(PoolHandle pool) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::destroy_pool(native(pool)));
}

Status VendorDriver::set_pool_release_threshold(PoolHandle pool, std::uint64_t bytes) noexcept {
    return runtime_status(set_release_threshold(native(pool), bytes));
}

Status VendorDriver::trim_pool(PoolHandle pool, std::size_t keep_bytes) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::trim_pool(native(pool), keep_bytes));
}

Status VendorDriver::allocate_async(PoolHandle pool, std::size_t bytes, StreamHandle stream, void** out) noexcept {
    RelaxedInteraction relaxed;
    if (bytes == 0) return invalid_argument;
    return runtime_status(vendor::allocate_async(out, bytes, native(pool), native(stream)));
}

Status VendorDriver::free_async(void* pointer, StreamHandle stream) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::free_async(pointer, native(stream)));
}

// ---- virtual memory

Status VendorDriver::physical_support(int device, PhysicalOptions* out) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    if (!is_device(device)) return no_such_device;
    *out = {vendor::physical_handle_types(device), vendor::has_physical_rdma(device), vendor::has_multicast(device)};
    return {};
}

Status VendorDriver::granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    if (!is_device(device)) return no_such_device;
    const Status status =
        library_call([&] { return vendor::granularity(out, device, options.export_handle_types, options.rdma); });
    if (!status.ok() || !options.multicast) return status;
    // Both are powers of two.
    std::size_t of_objects = 0;
    const Status asked = library_call(
        [&] { return vendor::multicast_granularity(&of_objects, device_count(), options.export_handle_types, *out); });
    *out = std::max(*out, of_objects);
    return asked;
}

Status VendorDriver::reserve_addresses(std::size_t bytes, void** out) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    if (bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::reserve_addresses(out, bytes); });
}

Status VendorDriver::release_addresses(void* address, std::size_t bytes) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::release_addresses(address, bytes); });
}

Status VendorDriver::create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                                     PhysicalHandle* out) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    if (!is_device(device)) return no_such_device;
    if (bytes == 0) return invalid_argument;
    RelaxedInteraction relaxed;
    return library_call([&] {
        return vendor::create_physical(&out->native, bytes, device, options.export_handle_types, options.rdma);
    });
}

Status VendorDriver::release_physical(PhysicalHandle handle) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::release_physical(handle.native); });
}

Status VendorDriver::map(void* address, std::size_t bytes, PhysicalHandle handle) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::map(address, bytes, handle.native); });
}

Status VendorDriver::unmap(void* address, std::size_t bytes) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::unmap(address, bytes); });
}

Status VendorDriver::set_access(void* address, std::size_t bytes, const int* devices,
                                std::size_t num_devices) noexcept {
    if (!capabilities_.virtual_memory) return not_supported;
    if (num_devices == 0 || num_devices > max_access_devices) return invalid_argument;
    for (std::size_t i = 0; i < num_devices; ++i) {
        if (!is_device(devices[i])) return no_such_device;
    }
    RelaxedInteraction relaxed;
    return library_call([&] { return vendor::set_access(address, bytes, devices, num_devices); });
}

}  // namespace kmm::driver::vendor
