// Owns: operator new of the program, which fails where host_allocations.hpp says.
#include "host_allocations.hpp"

#include <cstdlib>
#include <new>

namespace rmm_test {

thread_local int allocations_left = -1;
thread_local bool has_failed = false;

}  // namespace rmm_test

namespace {

void* allocate(std::size_t bytes) {
    using rmm_test::allocations_left;
    if (allocations_left == 0) {
        allocations_left = -1;
        rmm_test::has_failed = true;
        throw std::bad_alloc();
    }
    if (allocations_left > 0) --allocations_left;
    if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
