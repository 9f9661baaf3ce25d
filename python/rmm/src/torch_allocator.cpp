// The functions that torch.cuda.memory.CUDAPluggableAllocator calls: rmm/librmm/_torch_allocator.so. Thin over the library.
//
// Must not know: Python, PyTorch. Any thread, with or without the GIL.
#include <cstddef>
#include <exception>
#include <new>

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
