// NVTX's view of memory: tools such as compute-sanitizer learn which parts of a large block are in use.
//
// Owns: nothing; forwards. Must not know: pools. Any thread. Header-only NVTX: where no tool listens, a call is a test
// of a pointer.
#pragma once

#include <cstddef>

namespace kmm::driver::nvtx {

/// Whether this build has it (cuda builds whose toolkit has nvtx3/nvToolsExtMem.h). Else nothing below may be called.
bool has_memory() noexcept;

/// A block of which only regions may be used.
struct Heap {
    void* native = nullptr;
};
Heap register_heap(const void* base, std::size_t bytes) noexcept;
void unregister_heap(Heap) noexcept;
void register_region(Heap, const void* base, std::size_t bytes) noexcept;
void unregister_region(const void* base) noexcept;

}  // namespace kmm::driver::nvtx
