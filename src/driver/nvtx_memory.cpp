// nvtx_memory.hpp in builds without NVTX: nothing. Elsewhere cuda/nvtx_memory.cpp implements it. Any thread.
#include "driver/nvtx_memory.hpp"

#ifndef KMM_HAVE_NVTX_MEMORY
namespace kmm::driver::nvtx {

bool has_memory() noexcept { return false; }
Heap register_heap(const void*, std::size_t) noexcept { return {}; }
void unregister_heap(Heap) noexcept {}
void register_region(Heap, const void*, std::size_t) noexcept {}
void unregister_region(const void*) noexcept {}

}  // namespace kmm::driver::nvtx
#endif
