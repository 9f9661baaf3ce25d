// The functions that torch.cuda.memory.CUDAPluggableAllocator calls: rmm/librmm/_torch_allocator.so. Thin over the
// library. Those below `deallocate` are what the setters of its `.allocator()` take, with the signatures that PyTorch
// has there.
//
// Must not know: Python, PyTorch. Any thread, with or without the GIL.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "rmm/c_interface/torch_hooks.hpp"
#include "rmm/error.hpp"

#define RMM_TORCH_API extern "C" __attribute__((visibility("default")))

/// Null for 0 bytes. What it throws is derived from std::bad_alloc: PyTorch makes its own error of it.
RMM_TORCH_API void* allocate(std::size_t size, int device, void* stream) {
    try {
        return rmm::c_interface::allocate_for_torch(size, device, static_cast<cudaStream_t>(stream));
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& e) {
        throw rmm::bad_alloc(e.what());
    }
}

/// A block goes back to the resource that it came from.
RMM_TORCH_API void deallocate(void* pointer, std::size_t size, int device, void* stream) noexcept {
    try {
        rmm::c_interface::deallocate_for_torch(pointer, size, device, static_cast<cudaStream_t>(stream));
    } catch (...) {
        // The library has reported it; PyTorch asks nobody for the error of a free.
    }
}

/// Tensor.record_stream: the block is held back until the stream has passed the free.
RMM_TORCH_API void record_stream(void* pointer, void* stream) {
    rmm::c_interface::record_stream_for_torch(pointer, static_cast<cudaStream_t>(stream));
}

/// torch.cuda.empty_cache.
RMM_TORCH_API void reset() {
    try {
        rmm::c_interface::trim_for_torch();
    } catch (const std::exception&) {
        // Nothing was given back; the next allocation says why there is too little.
    }
}

RMM_TORCH_API void* base_alloc(void* pointer, std::size_t* size) {
    if (size != nullptr) *size = rmm::c_interface::size_for_torch(pointer);
    return pointer;
}

// What is allocated while a stream is captured stays with the graph by itself: the resources see to it, for each block.
using pool_id = std::pair<std::uint64_t, std::uint64_t>;
RMM_TORCH_API void begin_allocate_to_pool(int, pool_id, std::function<bool(void*)>) {}
RMM_TORCH_API void end_allocate_to_pool(int, pool_id) {}
RMM_TORCH_API void release_pool(int, pool_id) {}
