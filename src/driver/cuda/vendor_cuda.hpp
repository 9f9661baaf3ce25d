// Every CUDA name that the driver uses, behind names without a vendor.
//
// Owns: aliases and inline functions in `kmm::driver::vendor`; a plug-in for HIP would offer the same names, so
// that the .cpp files of this directory compile for either. Must not know: `Driver`, statuses. Any thread; nothing here
// blocks unless CUDA does. Every function returns the vendor's number (0: success) and leaves it as CUDA does:
// functions of the runtime leave a pending error behind (`take_last_error` clears it), those of the driver library do
// not.
//
// The driver library is never linked: its functions are taken through the runtime once a device was found, so that the
// same binary starts on machines without a driver.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#if CUDART_VERSION < 12050
#error "KMM's cuda driver needs a CUDA toolkit 12.5 or newer (cudaGetDriverEntryPointByVersion, cuCtxRecordEvent)"
#endif

namespace kmm::driver::vendor {

using Result = int;
using Stream = cudaStream_t;
using Event = cudaEvent_t;
using Pool = cudaMemPool_t;
using Graph = cudaGraph_t;
using GraphNode = cudaGraphNode_t;
using GraphExec = cudaGraphExec_t;
using Callback = cudaHostFn_t;

inline constexpr const char* driver_name = "cuda";
inline constexpr const char* vendor_name = "NVIDIA";
/// Exists where the kernel module is loaded; only for messages, because WSL and Jetson have other names.
inline constexpr const char* device_file = "/dev/nvidiactl";
inline constexpr const char* visible_devices_variable = "CUDA_VISIBLE_DEVICES";
inline constexpr int built_version = CUDART_VERSION;

// ---- entry points of the driver library

struct EntryPoints {
    PFN_cuLaunchKernel_v4000 launch_kernel = nullptr;
    PFN_cuFuncGetAttribute_v2020 function_get_attribute = nullptr;
    PFN_cuFuncSetAttribute_v9000 function_set_attribute = nullptr;
    PFN_cuKernelGetAttribute_v12000 kernel_get_attribute = nullptr;
    PFN_cuKernelSetAttribute_v12000 kernel_set_attribute = nullptr;
    PFN_cuCtxGetDevice_v2000 context_get_device = nullptr;
    PFN_cuCtxGetCurrent_v4000 context_get_current = nullptr;
    PFN_cuCtxSetCurrent_v4000 context_set_current = nullptr;
    PFN_cuDevicePrimaryCtxRetain_v7000 primary_context_retain = nullptr;
    PFN_cuEventRecord_v2000 event_record = nullptr;
    PFN_cuEventQuery_v2000 event_query = nullptr;
    PFN_cuStreamQuery_v2000 stream_query = nullptr;
    PFN_cuStreamWaitEvent_v3020 stream_wait_event = nullptr;
    PFN_cuStreamGetCtx_v9020 stream_get_context = nullptr;
    PFN_cuStreamGetId_v12000 stream_get_id = nullptr;
    PFN_cuStreamIsCapturing_v10000 stream_is_capturing = nullptr;
    PFN_cuMemsetD8Async_v3020 memset_8 = nullptr;
    PFN_cuMemsetD16Async_v3020 memset_16 = nullptr;
    PFN_cuMemsetD32Async_v3020 memset_32 = nullptr;
    PFN_cuMemsetD2D8Async_v3020 memset_2d_8 = nullptr;
    PFN_cuMemsetD2D16Async_v3020 memset_2d_16 = nullptr;
    PFN_cuMemsetD2D32Async_v3020 memset_2d_32 = nullptr;
    PFN_cuPointerGetAttributes_v7000 pointer_get_attributes = nullptr;
    PFN_cuMemGetAddressRange_v3020 address_range = nullptr;
    PFN_cuThreadExchangeStreamCaptureMode_v10010 exchange_capture_mode = nullptr;
    PFN_cuGraphAddKernelNode_v12000 graph_add_kernel_node = nullptr;
    PFN_cuGraphExecKernelNodeSetParams_v12000 graph_exec_kernel_node_set_params = nullptr;
    // Optional: where the installed driver has none, a capability is off, or kernels are loaded by their first launch.
    PFN_cuCtxRecordEvent_v12050 context_record_event = nullptr;
    PFN_cuFuncLoad_v12040 function_load = nullptr;
    PFN_cuKernelGetFunction_v12000 kernel_get_function = nullptr;
    PFN_cuMemAddressReserve_v10020 address_reserve = nullptr;
    PFN_cuMemAddressFree_v10020 address_free = nullptr;
    PFN_cuMemCreate_v10020 physical_create = nullptr;
    PFN_cuMemRelease_v10020 physical_release = nullptr;
    PFN_cuMemMap_v10020 map = nullptr;
    PFN_cuMemUnmap_v10020 unmap = nullptr;
    PFN_cuMemSetAccess_v10020 set_access = nullptr;
    PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
    PFN_cuMulticastGetGranularity_v12010 multicast_granularity = nullptr;
    PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
};

/// Written once by `load_entry_points`, before any other thread can hold a driver; constant afterwards.
inline EntryPoints entry;

/// `version` is the CUDA version that introduced the signature named by the type of `out`.
template<typename Function>
bool load_entry_point(const char* symbol, unsigned version, Function& out) noexcept {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(symbol, &address, version, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    out = reinterpret_cast<Function>(address);
    return out != nullptr;
}

/// False if the installed driver lacks something that cannot be done without, whose name is then in `*missing`.
inline bool load_entry_points(std::string* missing) {
    auto need = [&](const char* symbol, unsigned version, auto& out) {
        const bool ok = load_entry_point(symbol, version, out);
        if (!ok) *missing = symbol;
        return ok;
    };
    const bool complete =
        need("cuLaunchKernel", 4000, entry.launch_kernel) &&
        need("cuFuncGetAttribute", 2020, entry.function_get_attribute) &&
        need("cuFuncSetAttribute", 9000, entry.function_set_attribute) &&
        need("cuKernelGetAttribute", 12000, entry.kernel_get_attribute) &&
        need("cuKernelSetAttribute", 12000, entry.kernel_set_attribute) &&
        need("cuCtxGetDevice", 2000, entry.context_get_device) &&
        need("cuCtxGetCurrent", 4000, entry.context_get_current) &&
        need("cuCtxSetCurrent", 4000, entry.context_set_current) &&
        need("cuDevicePrimaryCtxRetain", 7000, entry.primary_context_retain) &&
        need("cuEventRecord", 2000, entry.event_record) && need("cuEventQuery", 2000, entry.event_query) &&
        need("cuStreamQuery", 2000, entry.stream_query) && need("cuStreamWaitEvent", 3020, entry.stream_wait_event) &&
        need("cuStreamGetCtx", 9020, entry.stream_get_context) && need("cuStreamGetId", 12000, entry.stream_get_id) &&
        need("cuStreamIsCapturing", 10000, entry.stream_is_capturing) &&
        need("cuMemsetD8Async", 3020, entry.memset_8) && need("cuMemsetD16Async", 3020, entry.memset_16) &&
        need("cuMemsetD32Async", 3020, entry.memset_32) && need("cuMemsetD2D8Async", 3020, entry.memset_2d_8) &&
        need("cuMemsetD2D16Async", 3020, entry.memset_2d_16) && need("cuMemsetD2D32Async", 3020, entry.memset_2d_32) &&
        need("cuPointerGetAttributes", 7000, entry.pointer_get_attributes) &&
        need("cuMemGetAddressRange", 3020, entry.address_range) &&
        need("cuThreadExchangeStreamCaptureMode", 10010, entry.exchange_capture_mode) &&
        need("cuGraphAddKernelNode", 12000, entry.graph_add_kernel_node) &&
        need("cuGraphExecKernelNodeSetParams", 12000, entry.graph_exec_kernel_node_set_params);
    if (!complete) return false;
    (void)load_entry_point("cuCtxRecordEvent", 12050, entry.context_record_event);
    (void)load_entry_point("cuFuncLoad", 12040, entry.function_load);
    (void)load_entry_point("cuKernelGetFunction", 12000, entry.kernel_get_function);
    (void)load_entry_point("cuMemAddressReserve", 10020, entry.address_reserve);
    (void)load_entry_point("cuMemAddressFree", 10020, entry.address_free);
    (void)load_entry_point("cuMemCreate", 10020, entry.physical_create);
    (void)load_entry_point("cuMemRelease", 10020, entry.physical_release);
    (void)load_entry_point("cuMemMap", 10020, entry.map);
    (void)load_entry_point("cuMemUnmap", 10020, entry.unmap);
    (void)load_entry_point("cuMemSetAccess", 10020, entry.set_access);
    (void)load_entry_point("cuMemGetAllocationGranularity", 10020, entry.granularity);
    (void)load_entry_point("cuMulticastGetGranularity", 12010, entry.multicast_granularity);
    (void)load_entry_point("cuDeviceGetAttribute", 2000, entry.device_get_attribute);
    return true;
}

inline bool has_virtual_memory() noexcept {
    return entry.address_reserve && entry.address_free && entry.physical_create && entry.physical_release &&
           entry.map && entry.unmap && entry.set_access && entry.granularity;
}
inline bool has_device_event() noexcept { return entry.context_record_event != nullptr; }

// ---- errors and versions

inline const char* error_name(Result r) noexcept { return cudaGetErrorName(static_cast<cudaError_t>(r)); }
inline const char* error_text(Result r) noexcept { return cudaGetErrorString(static_cast<cudaError_t>(r)); }
inline Result take_last_error() noexcept { return cudaGetLastError(); }
inline Result driver_version(int* out) noexcept { return cudaDriverGetVersion(out); }

// ---- devices and contexts

inline Result device_count(int* out) noexcept { return cudaGetDeviceCount(out); }
inline Result device_attribute(int* out, int number, int device) noexcept {
    return cudaDeviceGetAttribute(out, static_cast<cudaDeviceAttr>(number), device);
}

/// What `DeviceProperties` is made from.
struct RawProperties {
    char name[256];
    unsigned char uuid[16];
    std::size_t total_memory_bytes;
    int major, minor;
    int copy_engines;
    int multiprocessors;
    int max_threads_per_block;
    int max_block_dim[3];
    int max_grid_dim[3];
    std::size_t shared_memory_opt_in;
};
inline Result device_properties(RawProperties* out, int device) noexcept {
    cudaDeviceProp all;
    if (const cudaError_t error = cudaGetDeviceProperties(&all, device)) return error;
    std::snprintf(out->name, sizeof out->name, "%s", all.name);
    static_assert(sizeof all.uuid == sizeof out->uuid);
    std::memcpy(out->uuid, &all.uuid, sizeof out->uuid);
    out->total_memory_bytes = all.totalGlobalMem;
    out->major = all.major;
    out->minor = all.minor;
    out->copy_engines = all.asyncEngineCount;
    out->multiprocessors = all.multiProcessorCount;
    out->max_threads_per_block = all.maxThreadsPerBlock;
    std::copy_n(all.maxThreadsDim, 3, out->max_block_dim);
    std::copy_n(all.maxGridSize, 3, out->max_grid_dim);
    out->shared_memory_opt_in = all.sharedMemPerBlockOptin;
    return 0;
}
inline Result pci_bus_id(char* out, int size, int device) noexcept { return cudaDeviceGetPCIBusId(out, size, device); }
inline Result host_numa_node(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrHostNumaId, device);
}
inline Result supports_managed_memory(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrManagedMemory, device);
}
inline Result supports_memory_pools(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrMemoryPoolsSupported, device);
}
inline Result multiprocessors(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrMultiProcessorCount, device);
}
inline Result shared_memory_opt_in(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

/// Of the calling thread; null if it has none.
inline void* current_context() noexcept {
    CUcontext context = nullptr;
    return entry.context_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}
/// The device of the driver library's current context, which every copy of the runtime in the process follows; where
/// the thread has none yet, the device that this copy of the runtime would use.
inline Result current_device(int* out) noexcept {
    CUcontext context = nullptr;  // asked for first: without one, the question for its device is an error
    CUdevice device = 0;
    if (entry.context_get_current(&context) == CUDA_SUCCESS && context != nullptr &&
        entry.context_get_device(&device) == CUDA_SUCCESS) {
        *out = device;
        return 0;
    }
    return cudaGetDevice(out);
}
/// Makes sure that the thread has a current context.
inline Result bind_thread() noexcept {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device)) return error;
    return cudaSetDevice(device);
}
/// The primary context of a device, created if need be and then kept for the life of the process: other copies of the
/// runtime share it, so it is never reset.
inline Result primary_context(void** out, int device) noexcept {
    if (const cudaError_t error = cudaInitDevice(device, 0, 0)) return error;
    CUcontext context = nullptr;
    const CUresult result = entry.primary_context_retain(&context, device);
    *out = context;
    return result;
}
inline Result set_current_context(void* context) noexcept {
    return entry.context_set_current(static_cast<CUcontext>(context));
}
inline Result memory_info(std::size_t* free_bytes, std::size_t* total_bytes) noexcept {
    return cudaMemGetInfo(free_bytes, total_bytes);
}
inline Result can_access_peer(int* out, int device, int peer) noexcept {
    return cudaDeviceCanAccessPeer(out, device, peer);
}
/// For the current device; already enabled counts as success.
inline Result enable_peer(int peer) noexcept {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) return error;
    (void)cudaGetLastError();
    return 0;
}
inline Result synchronize_current_device() noexcept { return cudaDeviceSynchronize(); }

// ---- memory

inline Result allocate(void** out, std::size_t bytes) noexcept { return cudaMalloc(out, bytes); }
inline Result free(void* pointer) noexcept { return cudaFree(pointer); }
inline Result allocate_managed(void** out, std::size_t bytes) noexcept {
    return cudaMallocManaged(out, bytes, cudaMemAttachGlobal);
}
/// -1: the host.
inline cudaMemLocation location_of(int device_or_host) noexcept {
    cudaMemLocation location{};
    location.type = device_or_host < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    location.id = device_or_host < 0 ? 0 : device_or_host;
    return location;
}
inline Result prefetch(const void* pointer, std::size_t bytes, int device_or_host, Stream stream) noexcept {
#if CUDART_VERSION >= 13000
    return cudaMemPrefetchAsync(pointer, bytes, location_of(device_or_host), 0, stream);
#else
    return cudaMemPrefetchAsync_v2(pointer, bytes, location_of(device_or_host), 0, stream);
#endif
}
inline Result prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept {
#if CUDART_VERSION >= 13000
    return cudaMemAdvise(pointer, bytes, cudaMemAdviseSetPreferredLocation, location_of(device_or_host));
#else
    return cudaMemAdvise_v2(pointer, bytes, cudaMemAdviseSetPreferredLocation, location_of(device_or_host));
#endif
}
inline Result allocate_pinned(void** out, std::size_t bytes) noexcept {
    return cudaHostAlloc(out, bytes, cudaHostAllocPortable);
}
inline Result free_pinned(void* pointer) noexcept { return cudaFreeHost(pointer); }
inline Result register_host(void* pointer, std::size_t bytes) noexcept {
    return cudaHostRegister(pointer, bytes, cudaHostRegisterPortable);
}
inline Result unregister_host(void* pointer) noexcept { return cudaHostUnregister(pointer); }

enum class PointerKind { unknown, pinned, device, managed };
inline Result pointer_attributes(const void* pointer, PointerKind* kind, int* device) noexcept {
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) return error;
    switch (attributes.type) {
    case cudaMemoryTypeHost: *kind = PointerKind::pinned; break;
    case cudaMemoryTypeDevice: *kind = PointerKind::device; break;
    case cudaMemoryTypeManaged: *kind = PointerKind::managed; break;
    default: *kind = PointerKind::unknown; break;
    }
    *device = attributes.device;
    return 0;
}

inline Result default_pool(Pool* out, int device) noexcept { return cudaDeviceGetDefaultMemPool(out, device); }
#if CUDART_VERSION >= 13000
inline constexpr int managed_pools_version = 13000;
inline Result default_managed_pool(Pool* out, int device) noexcept {
    cudaMemLocation location = location_of(device);
    return cudaMemGetDefaultMemPool(out, &location, cudaMemAllocationTypeManaged);
}
#else
inline constexpr int managed_pools_version = 0;  // never: the toolkit does not know them
inline Result default_managed_pool(Pool*, int) noexcept { return cudaErrorNotSupported; }
#endif
#if CUDART_VERSION >= 12080
inline constexpr int decompression_version = 12080;
inline constexpr unsigned short pool_usage_decompression = cudaMemPoolCreateUsageHwDecompress;
#else
inline constexpr int decompression_version = 0;
inline constexpr unsigned short pool_usage_decompression = 0;
#endif
inline Result create_pool(Pool* out, int device, std::size_t maximum_bytes, std::uint32_t export_handle_types,
                          bool decompression) noexcept {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = static_cast<cudaMemAllocationHandleType>(export_handle_types);
    properties.location = location_of(device);
    properties.maxSize = maximum_bytes;
    if (decompression) properties.usage = pool_usage_decompression;
    return cudaMemPoolCreate(out, &properties);
}
inline Result destroy_pool(Pool pool) noexcept { return cudaMemPoolDestroy(pool); }
inline Result set_release_threshold(Pool pool, std::uint64_t bytes) noexcept {
    return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes);
}
inline Result trim_pool(Pool pool, std::size_t keep_bytes) noexcept { return cudaMemPoolTrimTo(pool, keep_bytes); }
inline Result let_pool_be_read_from(Pool pool, int device) noexcept {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return cudaMemPoolSetAccess(pool, &access, 1);
}
inline Result allocate_async(void** out, std::size_t bytes, Pool pool, Stream stream) noexcept {
    return cudaMallocFromPoolAsync(out, bytes, pool, stream);
}
inline Result free_async(void* pointer, Stream stream) noexcept { return cudaFreeAsync(pointer, stream); }

}  // namespace kmm::driver::vendor
