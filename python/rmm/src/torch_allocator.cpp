// What PyTorch loads as its allocator: C functions over the hooks of <rmm/rmm.h>.
#include <cstddef>

#include "rmm/rmm.h"

extern "C" __attribute__((visibility("default"))) void* allocate(std::size_t size, int device, void* stream) {
    return rmm_torch_allocate(static_cast<ptrdiff_t>(size), device, static_cast<CUstream_st*>(stream));
}

extern "C" __attribute__((visibility("default"))) void deallocate(void* pointer, std::size_t size, int device,
                                                                  void* stream) noexcept {
    rmm_torch_deallocate(pointer, static_cast<ptrdiff_t>(size), device, static_cast<CUstream_st*>(stream));
}
