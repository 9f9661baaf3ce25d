// The names by which KMM 0.3 calls types, constants and functions of HIP. Part of kmm/core/backends.hpp; nothing in
// files that are not HIP. Macros where KMM has macros: its users call them from any namespace. Owns no state.
#pragma once

#include "kmm/utils/macros.hpp"

#ifdef KMM_USE_HIP
#include <hip/hip_runtime.h>

#include <cstddef>

namespace kmm {

using GPUresult = ::hipError_t;
using GPUdevice = ::hipDevice_t;
using GPUdevice_attribute = ::hipDeviceAttribute_t;
using GPUdeviceptr = ::hipDeviceptr_t;
using GPUcontext = ::hipCtx_t;
using GPUstream = ::hipStream_t;
using GPUevent_t = ::hipEvent_t;
using GPUmodule = ::hipModule_t;
using GPUfunction = ::hipFunction_t;
using GPUmemoryPool = ::hipMemPool_t;
using GPUmemPoolProps = ::hipMemPoolProps;
using GPU_MEMCPY2D = ::hip_Memcpy2D;
using GPU_MEMCPY3D = ::HIP_MEMCPY3D;
using gpuError_t = ::hipError_t;
using gpu_error_t = gpuError_t;

namespace detail {

inline hipError_t hip_copy(hipDeviceptr_t to, hipDeviceptr_t from, std::size_t bytes, hipStream_t stream) {
    return hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream);
}
inline hipError_t hip_error_name(hipError_t status, const char** name) {
    *name = hipGetErrorName(status);
    return hipSuccess;
}
inline hipError_t hip_error_text(hipError_t status, const char** text) {
    *text = hipGetErrorString(status);
    return hipSuccess;
}

}  // namespace detail

/// The contexts are those of the devices; a driver uses either.
inline GPUresult gpuMemcpyPeerAsync(GPUdeviceptr to, GPUcontext, GPUdevice to_device, GPUdeviceptr from, GPUcontext,
                                    GPUdevice from_device, std::size_t bytes, GPUstream stream) {
    return hipMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

}  // namespace kmm

// ---- constants
#define GPU_SUCCESS hipSuccess
#define GPU_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory
#define GPU_ERROR_NOT_READY hipErrorNotReady
#define GPU_ERROR_INVALID_VALUE hipErrorInvalidValue
#define GPU_ERROR_INVALID_CONTEXT hipErrorInvalidContext
#define GPU_ERROR_INVALID_DEVICE hipErrorInvalidDevice
#define GPU_ERROR_NOT_INITIALIZED hipErrorNotInitialized
#define GPU_ERROR_DEINITIALIZED hipErrorDeinitialized
#define GPU_ERROR_UNKNOWN hipErrorUnknown
#define GPU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK hipDeviceAttributeMaxThreadsPerBlock
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X hipDeviceAttributeMaxBlockDimX
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y hipDeviceAttributeMaxBlockDimY
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z hipDeviceAttributeMaxBlockDimZ
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X hipDeviceAttributeMaxGridDimX
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y hipDeviceAttributeMaxGridDimY
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z hipDeviceAttributeMaxGridDimZ
#define GPU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK hipDeviceAttributeMaxSharedMemoryPerBlock
#define GPU_DEVICE_ATTRIBUTE_WARP_SIZE hipDeviceAttributeWarpSize
#define GPU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT hipDeviceAttributeMultiprocessorCount
#define GPU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR hipDeviceAttributeComputeCapabilityMajor
#define GPU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR hipDeviceAttributeComputeCapabilityMinor
#define GPU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK hipDeviceAttributeMaxRegistersPerBlock
#define GPU_STREAM_DEFAULT hipStreamDefault
#define GPU_STREAM_NON_BLOCKING hipStreamNonBlocking
#define GPU_EVENT_DEFAULT hipEventDefault
#define GPU_EVENT_BLOCKING_SYNC hipEventBlockingSync
#define GPU_EVENT_DISABLE_TIMING hipEventDisableTiming
#define GPU_EVENT_WAIT_DEFAULT 0
#define GPU_MEMHOSTALLOC_PORTABLE hipHostMallocPortable
#define GPU_MEMHOSTALLOC_DEVICEMAP hipHostMallocMapped
#define GPU_MEMHOSTALLOC_WRITECOMBINED hipHostMallocWriteCombined
#define GPU_MEMHOSTREGISTER_PORTABLE hipHostRegisterPortable
#define GPU_MEMORYTYPE_HOST hipMemoryTypeHost
#define GPU_MEMORYTYPE_DEVICE hipMemoryTypeDevice
#define GPU_MEMORYTYPE_ARRAY hipMemoryTypeArray
#define GPU_MEMORYTYPE_UNIFIED hipMemoryTypeUnified
#define GPU_MEM_ATTACH_GLOBAL hipMemAttachGlobal
#define GPU_MEM_ATTACH_HOST hipMemAttachHost
#define GPU_MEM_ALLOCATION_TYPE_PINNED hipMemAllocationTypePinned
#define GPU_MEM_HANDLE_TYPE_NONE hipMemHandleTypeNone
#define GPU_MEM_LOCATION_TYPE_DEVICE hipMemLocationTypeDevice
#define GPU_MEM_ACCESS_FLAGS_PROT_READWRITE hipMemAccessFlagsProtReadWrite
#define GPU_MEMPOOL_ATTR_RELEASE_THRESHOLD hipMemPoolAttrReleaseThreshold
#define GPU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT hipMemPoolAttrReservedMemCurrent
#define GPU_MEMPOOL_ATTR_USED_MEM_CURRENT hipMemPoolAttrUsedMemCurrent
#define GPU_POINTER_ATTRIBUTE_CONTEXT HIP_POINTER_ATTRIBUTE_CONTEXT
#define GPU_POINTER_ATTRIBUTE_MEMORY_TYPE HIP_POINTER_ATTRIBUTE_MEMORY_TYPE
#define GPU_POINTER_ATTRIBUTE_DEVICE_POINTER HIP_POINTER_ATTRIBUTE_DEVICE_POINTER
#define GPU_POINTER_ATTRIBUTE_HOST_POINTER HIP_POINTER_ATTRIBUTE_HOST_POINTER
#define GPU_POINTER_ATTRIBUTE_DEVICE_ORDINAL HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL

// ---- functions of the driver's interface
#define gpuCtxGetCurrent hipCtxGetCurrent
#define gpuCtxGetDevice hipCtxGetDevice
#define gpuCtxPopCurrent hipCtxPopCurrent
#define gpuCtxPushCurrent hipCtxPushCurrent
#define gpuCtxSetCurrent hipCtxSetCurrent
#define gpuCtxSynchronize hipCtxSynchronize
#define gpuDeviceCanAccessPeer hipDeviceCanAccessPeer
#define gpuDeviceGet hipDeviceGet
#define gpuDeviceGetAttribute hipDeviceGetAttribute
#define gpuDeviceGetCount hipGetDeviceCount
#define gpuDeviceGetDefaultMemPool hipDeviceGetDefaultMemPool
#define gpuDeviceGetMemPool hipDeviceGetMemPool
#define gpuDeviceGetName hipDeviceGetName
#define gpuDevicePrimaryCtxGetState hipDevicePrimaryCtxGetState
#define gpuDevicePrimaryCtxRelease hipDevicePrimaryCtxRelease
#define gpuDevicePrimaryCtxRetain hipDevicePrimaryCtxRetain
#define gpuDeviceSetMemPool hipDeviceSetMemPool
#define gpuDeviceTotalMem hipDeviceTotalMem
#define gpuEventCreate hipEventCreateWithFlags
#define gpuEventDestroy hipEventDestroy
#define gpuEventElapsedTime hipEventElapsedTime
#define gpuEventQuery hipEventQuery
#define gpuEventRecord hipEventRecord
#define gpuEventSynchronize hipEventSynchronize
#define gpuGetErrorName ::kmm::detail::hip_error_name
#define gpuGetErrorString ::kmm::detail::hip_error_text
#define gpuInit hipInit
#define gpuDriverGetVersion hipDriverGetVersion
#define gpuLaunchHostFunc hipLaunchHostFunc
#define gpuLaunchKernel hipModuleLaunchKernel
#define gpuMemAlloc hipMalloc
#define gpuMemAllocAsync hipMallocAsync
#define gpuMemAllocFromPoolAsync hipMallocFromPoolAsync
#define gpuMemAllocManaged hipMallocManaged
#define gpuMemFree hipFree
#define gpuMemFreeAsync hipFreeAsync
#define gpuMemFreeHost hipHostFree
#define gpuMemGetInfo hipMemGetInfo
#define gpuMemHostAlloc hipHostMalloc
#define gpuMemHostGetDevicePointer hipHostGetDevicePointer
#define gpuMemHostRegister hipHostRegister
#define gpuMemHostUnregister hipHostUnregister
#define gpuMemPoolCreate hipMemPoolCreate
#define gpuMemPoolDestroy hipMemPoolDestroy
#define gpuMemPoolGetAttribute hipMemPoolGetAttribute
#define gpuMemPoolSetAccess hipMemPoolSetAccess
#define gpuMemPoolSetAttribute hipMemPoolSetAttribute
#define gpuMemPoolTrimTo hipMemPoolTrimTo
#define gpuMemcpy2D hipMemcpyParam2D
#define gpuMemcpy2DAsync hipMemcpyParam2DAsync
#define gpuMemcpy3D hipDrvMemcpy3D
#define gpuMemcpy3DAsync hipDrvMemcpy3DAsync
#define gpuMemcpyAsync ::kmm::detail::hip_copy
#define gpuMemcpyDtoD hipMemcpyDtoD
#define gpuMemcpyDtoDAsync hipMemcpyDtoDAsync
#define gpuMemcpyDtoH hipMemcpyDtoH
#define gpuMemcpyDtoHAsync hipMemcpyDtoHAsync
#define gpuMemcpyHtoD hipMemcpyHtoD
#define gpuMemcpyHtoDAsync hipMemcpyHtoDAsync
#define gpuMemsetD16 hipMemsetD16
#define gpuMemsetD16Async hipMemsetD16Async
#define gpuMemsetD32 hipMemsetD32
#define gpuMemsetD32Async hipMemsetD32Async
#define gpuMemsetD8 hipMemsetD8
#define gpuMemsetD8Async hipMemsetD8Async
#define gpuPointerGetAttribute hipPointerGetAttribute
#define gpuStreamCreate hipStreamCreateWithFlags
#define gpuStreamCreateWithPriority hipStreamCreateWithPriority
#define gpuStreamDestroy hipStreamDestroy
#define gpuStreamQuery hipStreamQuery
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamWaitEvent hipStreamWaitEvent
#define gpuStreamAddCallback hipStreamAddCallback
#define gpuModuleGetFunction hipModuleGetFunction
#define gpuModuleLoadData hipModuleLoadData
#define gpuModuleUnload hipModuleUnload

// ---- functions of the runtime's interface
#define gpuGetLastError hipGetLastError
#define gpuPeekAtLastError hipPeekAtLastError
#define gpuDeviceSynchronize hipDeviceSynchronize
#define GPUrtLaunchKernel hipLaunchKernel
#define GPUrtGetErrorName hipGetErrorName
#define GPUrtGetErrorString hipGetErrorString

// The same by their names since KMM 0.3.
#define gpu_mem_pool_t hipMemPool_t
#define gpu_get_last_error hipGetLastError
#define gpu_get_error_string hipGetErrorString
#define gpu_device_synchronize hipDeviceSynchronize
#define gpu_mem_get_info hipMemGetInfo
#define gpu_malloc hipMalloc
#define gpu_malloc_async hipMallocAsync
#define gpu_free hipFree
#define gpu_free_async hipFreeAsync
#define gpu_device_get_default_mem_pool hipDeviceGetDefaultMemPool
#define gpu_mem_pool_set_attribute hipMemPoolSetAttribute
#define g_mem_pool_attr_release_threshold hipMemPoolAttrReleaseThreshold

#ifdef KMM_DETAIL_HAS_BLAS_HEADER
namespace kmm {
using blasStatus_t = ::rocblas_status;
}  // namespace kmm
#define blasCreate rocblas_create_handle
#define blasDestroy rocblas_destroy_handle
#define blasSetStream rocblas_set_stream
#define blasGetStatusString rocblas_status_to_string
#endif

#endif
