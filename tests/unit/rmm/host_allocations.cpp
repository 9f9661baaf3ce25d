// Owns: operator new of the program, which counts, and fails where host_allocations.hpp says.
#include "host_allocations.hpp"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace rmm_test {

thread_local int allocations_left = -1;
thread_local bool has_failed = false;
std::atomic<std::size_t> allocated_bytes{0};

}  // namespace rmm_test

namespace {

/// 0: as malloc aligns. Null: there is no memory.
void* allocate_now(std::size_t bytes, std::size_t alignment) noexcept {
    if (bytes == 0) bytes = 1;
    void* const p = alignment == 0 ? std::malloc(bytes)
                                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p != nullptr) rmm_test::allocated_bytes.fetch_add(malloc_usable_size(p), std::memory_order_relaxed);
    return p;
}

void* allocate(std::size_t bytes, std::size_t alignment = 0) {
    using rmm_test::allocations_left;
    if (allocations_left == 0) {
        allocations_left = -1;
        rmm_test::has_failed = true;
        throw std::bad_alloc();
    }
    if (allocations_left > 0) --allocations_left;
    if (void* p = allocate_now(bytes, alignment)) return p;
    throw std::bad_alloc();
}

void release(void* p) noexcept {
    if (p == nullptr) return;
    rmm_test::allocated_bytes.fetch_sub(malloc_usable_size(p), std::memory_order_relaxed);
    std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_now(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_now(bytes, 0); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
