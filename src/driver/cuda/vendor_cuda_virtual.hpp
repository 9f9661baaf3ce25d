// Every CUDA name that the driver uses, behind names without a vendor; second part: virtual memory. Same rules as
// vendor_cuda.hpp.
#pragma once

#include "driver/cuda/vendor_cuda.hpp"

namespace kmm::driver::vendor {

inline CUmemAllocationProp physical_properties(int device, unsigned handle_types, bool rdma) noexcept {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
    return properties;
}
inline CUdeviceptr address_of(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

inline bool has_attribute(CUdevice_attribute what, int device) noexcept {
    int value = 0;
    return entry.device_get_attribute != nullptr && entry.device_get_attribute(&value, what, device) == CUDA_SUCCESS &&
           value != 0;
}
inline unsigned physical_handle_types(int device) noexcept {
    unsigned types = 0;
    if (has_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device))
        types |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (has_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device)) types |= CU_MEM_HANDLE_TYPE_FABRIC;
    return types;
}
inline bool has_physical_rdma(int device) noexcept {
    return has_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
}
inline bool has_multicast(int device) noexcept {
    return entry.multicast_granularity != nullptr && has_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
}

inline Result granularity(std::size_t* out, int device, unsigned handle_types, bool rdma) noexcept {
    const CUmemAllocationProp properties = physical_properties(device, handle_types, rdma);
    return entry.granularity(out, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}
/// Granularity in which a multicast object over `num_devices` devices would bind memory; no object is made.
inline Result multicast_granularity(std::size_t* out, int num_devices, unsigned handle_types,
                                    std::size_t bytes) noexcept {
    if (entry.multicast_granularity == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    CUmulticastObjectProp object{};
    object.numDevices = static_cast<unsigned>(num_devices);
    object.size = bytes;
    object.handleTypes = handle_types;
    return entry.multicast_granularity(out, &object, CU_MULTICAST_GRANULARITY_MINIMUM);
}
inline Result reserve_addresses(void** out, std::size_t bytes) noexcept {
    CUdeviceptr address = 0;
    const CUresult result = entry.address_reserve(&address, bytes, 0, 0, 0);
    *out = reinterpret_cast<void*>(address);
    return result;
}
inline Result release_addresses(void* address, std::size_t bytes) noexcept {
    return entry.address_free(address_of(address), bytes);
}
inline Result create_physical(std::uint64_t* out, std::size_t bytes, int device, unsigned handle_types,
                              bool rdma) noexcept {
    const CUmemAllocationProp properties = physical_properties(device, handle_types, rdma);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = entry.physical_create(&handle, bytes, &properties, 0);
    *out = handle;
    return result;
}
inline Result release_physical(std::uint64_t handle) noexcept { return entry.physical_release(handle); }
inline Result map(void* address, std::size_t bytes, std::uint64_t handle) noexcept {
    return entry.map(address_of(address), bytes, 0, handle, 0);
}
inline Result unmap(void* address, std::size_t bytes) noexcept { return entry.unmap(address_of(address), bytes); }
/// More devices than CUDA itself can map to one range at a time would be an error anyway.
inline constexpr std::size_t max_access_devices = 64;
inline Result set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) noexcept {
    CUmemAccessDesc access[max_access_devices] = {};
    for (std::size_t i = 0; i < num_devices; ++i) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = devices[i];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return entry.set_access(address_of(address), bytes, access, num_devices);
}

}  // namespace kmm::driver::vendor
