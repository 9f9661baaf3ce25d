// The names by which KMM 0.3 calls types, constants and functions of CUDA. Part of kmm/core/backends.hpp; nothing in
// files that are not CUDA. Macros where KMM has macros: its users call them from any namespace. Owns no state.
#pragma once

#include "kmm/utils/macros.hpp"

#ifdef KMM_USE_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace kmm {

using GPUresult = ::CUresult;
using GPUdevice = ::CUdevice;
using GPUdevice_attribute = ::CUdevice_attribute;
using GPUdeviceptr = ::CUdeviceptr;
using GPUcontext = ::CUcontext;
using GPUstream = ::CUstream;
using GPUevent_t = ::CUevent;
using GPUmodule = ::CUmodule;
using GPUfunction = ::CUfunction;
using GPUmemoryPool = ::CUmemoryPool;
using GPUmemPoolProps = ::CUmemPoolProps;
using GPU_MEMCPY2D = ::CUDA_MEMCPY2D;
using GPU_MEMCPY3D = ::CUDA_MEMCPY3D;
using gpuError_t = ::cudaError_t;
using gpu_error_t = gpuError_t;

/// The contexts are those of the devices; a driver uses either.
inline GPUresult gpuMemcpyPeerAsync(GPUdeviceptr to, GPUcontext to_context, GPUdevice, GPUdeviceptr from,
                                    GPUcontext from_context, GPUdevice, std::size_t bytes, GPUstream stream) {
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream);
}

}  // namespace kmm

// ---- constants
#define GPU_SUCCESS CUDA_SUCCESS
#define GPU_ERROR_OUT_OF_MEMORY CUDA_ERROR_OUT_OF_MEMORY
#define GPU_ERROR_NOT_READY CUDA_ERROR_NOT_READY
#define GPU_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE
#define GPU_ERROR_INVALID_CONTEXT CUDA_ERROR_INVALID_CONTEXT
#define GPU_ERROR_INVALID_DEVICE CUDA_ERROR_INVALID_DEVICE
#define GPU_ERROR_NOT_INITIALIZED CUDA_ERROR_NOT_INITIALIZED
#define GPU_ERROR_DEINITIALIZED CUDA_ERROR_DEINITIALIZED
#define GPU_ERROR_UNKNOWN CUDA_ERROR_UNKNOWN
#define GPU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y
#define GPU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y
#define GPU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z
#define GPU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK
#define GPU_DEVICE_ATTRIBUTE_WARP_SIZE CU_DEVICE_ATTRIBUTE_WARP_SIZE
#define GPU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
#define GPU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
#define GPU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
#define GPU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
#define GPU_DEVICE_ATTRIBUTE_MAX CU_DEVICE_ATTRIBUTE_MAX
#define GPU_STREAM_DEFAULT CU_STREAM_DEFAULT
#define GPU_STREAM_NON_BLOCKING CU_STREAM_NON_BLOCKING
#define GPU_EVENT_DEFAULT CU_EVENT_DEFAULT
#define GPU_EVENT_BLOCKING_SYNC CU_EVENT_BLOCKING_SYNC
#define GPU_EVENT_DISABLE_TIMING CU_EVENT_DISABLE_TIMING
#define GPU_EVENT_WAIT_DEFAULT CU_EVENT_WAIT_DEFAULT
#define GPU_MEMHOSTALLOC_PORTABLE CU_MEMHOSTALLOC_PORTABLE
#define GPU_MEMHOSTALLOC_DEVICEMAP CU_MEMHOSTALLOC_DEVICEMAP
#define GPU_MEMHOSTALLOC_WRITECOMBINED CU_MEMHOSTALLOC_WRITECOMBINED
#define GPU_MEMHOSTREGISTER_PORTABLE CU_MEMHOSTREGISTER_PORTABLE
#define GPU_MEMORYTYPE_HOST CU_MEMORYTYPE_HOST
#define GPU_MEMORYTYPE_DEVICE CU_MEMORYTYPE_DEVICE
#define GPU_MEMORYTYPE_ARRAY CU_MEMORYTYPE_ARRAY
#define GPU_MEMORYTYPE_UNIFIED CU_MEMORYTYPE_UNIFIED
#define GPU_MEM_ATTACH_GLOBAL CU_MEM_ATTACH_GLOBAL
#define GPU_MEM_ATTACH_HOST CU_MEM_ATTACH_HOST
#define GPU_MEM_ALLOCATION_TYPE_PINNED CU_MEM_ALLOCATION_TYPE_PINNED
#define GPU_MEM_HANDLE_TYPE_NONE CU_MEM_HANDLE_TYPE_NONE
#define GPU_MEM_LOCATION_TYPE_DEVICE CU_MEM_LOCATION_TYPE_DEVICE
#define GPU_MEM_ACCESS_FLAGS_PROT_READWRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define GPU_MEMPOOL_ATTR_RELEASE_THRESHOLD CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
#define GPU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
#define GPU_MEMPOOL_ATTR_USED_MEM_CURRENT CU_MEMPOOL_ATTR_USED_MEM_CURRENT
#define GPU_POINTER_ATTRIBUTE_CONTEXT CU_POINTER_ATTRIBUTE_CONTEXT
#define GPU_POINTER_ATTRIBUTE_MEMORY_TYPE CU_POINTER_ATTRIBUTE_MEMORY_TYPE
#define GPU_POINTER_ATTRIBUTE_DEVICE_POINTER CU_POINTER_ATTRIBUTE_DEVICE_POINTER
#define GPU_POINTER_ATTRIBUTE_HOST_POINTER CU_POINTER_ATTRIBUTE_HOST_POINTER
#define GPU_POINTER_ATTRIBUTE_DEVICE_ORDINAL CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

// ---- functions of the driver's interface
#define gpuCtxGetCurrent cuCtxGetCurrent
#define gpuCtxGetDevice cuCtxGetDevice
#define gpuCtxGetId cuCtxGetId
#define gpuCtxPopCurrent cuCtxPopCurrent
#define gpuCtxPushCurrent cuCtxPushCurrent
#define gpuCtxSetCurrent cuCtxSetCurrent
#define gpuCtxSynchronize cuCtxSynchronize
#define gpuDeviceCanAccessPeer cuDeviceCanAccessPeer
#define gpuDeviceGet cuDeviceGet
#define gpuDeviceGetAttribute cuDeviceGetAttribute
#define gpuDeviceGetCount cuDeviceGetCount
#define gpuDeviceGetDefaultMemPool cuDeviceGetDefaultMemPool
#define gpuDeviceGetMemPool cuDeviceGetMemPool
#define gpuDeviceGetName cuDeviceGetName
#define gpuDevicePrimaryCtxGetState cuDevicePrimaryCtxGetState
#define gpuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease
#define gpuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain
#define gpuDeviceSetMemPool cuDeviceSetMemPool
#define gpuDeviceTotalMem cuDeviceTotalMem
#define gpuEventCreate cuEventCreate
#define gpuEventDestroy cuEventDestroy
#define gpuEventElapsedTime cuEventElapsedTime
#define gpuEventQuery cuEventQuery
#define gpuEventRecord cuEventRecord
#define gpuEventSynchronize cuEventSynchronize
#define gpuGetErrorName cuGetErrorName
#define gpuGetErrorString cuGetErrorString
#define gpuInit cuInit
#define gpuDriverGetVersion cuDriverGetVersion
#define gpuLaunchHostFunc cuLaunchHostFunc
#define gpuLaunchKernel cuLaunchKernel
#define gpuMemAlloc cuMemAlloc
#define gpuMemAllocAsync cuMemAllocAsync
#define gpuMemAllocFromPoolAsync cuMemAllocFromPoolAsync
#define gpuMemAllocManaged cuMemAllocManaged
#define gpuMemFree cuMemFree
#define gpuMemFreeAsync cuMemFreeAsync
#define gpuMemFreeHost cuMemFreeHost
#define gpuMemGetInfo cuMemGetInfo
#define gpuMemHostAlloc cuMemHostAlloc
#define gpuMemHostGetDevicePointer cuMemHostGetDevicePointer
#define gpuMemHostRegister cuMemHostRegister
#define gpuMemHostUnregister cuMemHostUnregister
#define gpuMemPoolCreate cuMemPoolCreate
#define gpuMemPoolDestroy cuMemPoolDestroy
#define gpuMemPoolGetAttribute cuMemPoolGetAttribute
#define gpuMemPoolSetAccess cuMemPoolSetAccess
#define gpuMemPoolSetAttribute cuMemPoolSetAttribute
#define gpuMemPoolTrimTo cuMemPoolTrimTo
#define gpuMemcpy2D cuMemcpy2D
#define gpuMemcpy2DAsync cuMemcpy2DAsync
#define gpuMemcpy3D cuMemcpy3D
#define gpuMemcpy3DAsync cuMemcpy3DAsync
#define gpuMemcpyAsync cuMemcpyAsync
#define gpuMemcpyDtoD cuMemcpyDtoD
#define gpuMemcpyDtoDAsync cuMemcpyDtoDAsync
#define gpuMemcpyDtoH cuMemcpyDtoH
#define gpuMemcpyDtoHAsync cuMemcpyDtoHAsync
#define gpuMemcpyHtoD cuMemcpyHtoD
#define gpuMemcpyHtoDAsync cuMemcpyHtoDAsync
#define gpuMemsetD16 cuMemsetD16
#define gpuMemsetD16Async cuMemsetD16Async
#define gpuMemsetD32 cuMemsetD32
#define gpuMemsetD32Async cuMemsetD32Async
#define gpuMemsetD8 cuMemsetD8
#define gpuMemsetD8Async cuMemsetD8Async
#define gpuPointerGetAttribute cuPointerGetAttribute
#define gpuStreamCreate cuStreamCreate
#define gpuStreamCreateWithPriority cuStreamCreateWithPriority
#define gpuStreamDestroy cuStreamDestroy
#define gpuStreamGetCtx cuStreamGetCtx
#define gpuStreamQuery cuStreamQuery
#define gpuStreamSynchronize cuStreamSynchronize
#define gpuStreamWaitEvent cuStreamWaitEvent
#define gpuStreamAddCallback cuStreamAddCallback
#define gpuModuleGetFunction cuModuleGetFunction
#define gpuModuleLoadData cuModuleLoadData
#define gpuModuleUnload cuModuleUnload

// ---- functions of the runtime's interface
#define gpuGetLastError cudaGetLastError
#define gpuPeekAtLastError cudaPeekAtLastError
#define gpuDeviceSynchronize cudaDeviceSynchronize
#define GPUrtLaunchKernel cudaLaunchKernel
#define GPUrtGetErrorName cudaGetErrorName
#define GPUrtGetErrorString cudaGetErrorString

// The same by their names since KMM 0.3.
#define gpu_mem_pool_t cudaMemPool_t
#define gpu_get_last_error cudaGetLastError
#define gpu_get_error_string cudaGetErrorString
#define gpu_device_synchronize cudaDeviceSynchronize
#define gpu_mem_get_info cudaMemGetInfo
#define gpu_malloc cudaMalloc
#define gpu_malloc_async cudaMallocAsync
#define gpu_free cudaFree
#define gpu_free_async cudaFreeAsync
#define gpu_device_get_default_mem_pool cudaDeviceGetDefaultMemPool
#define gpu_mem_pool_set_attribute cudaMemPoolSetAttribute
#define g_mem_pool_attr_release_threshold cudaMemPoolAttrReleaseThreshold

#ifdef KMM_DETAIL_HAS_BLAS_HEADER
namespace kmm {
using blasStatus_t = ::cublasStatus_t;
}  // namespace kmm
#define blasCreate cublasCreate
#define blasDestroy cublasDestroy
#define blasSetStream cublasSetStream
#define blasGetStatusString cublasGetStatusString
#endif

#endif
