#include "failing_new.hpp"

#include <malloc.h>

#include <cstdlib>

std::atomic<long> allocations_left{-1};
std::atomic<long> failures_left{0};
std::atomic<long> failed_so_far{0};
std::atomic<void (*)()> at_first_failure{nullptr};
std::atomic<long> large_left{-1};
std::atomic<long> large_failed{0};
thread_local long calls_until = -1;
thread_local void (*in_the_middle)() = nullptr;
thread_local bool is_spared = false;
std::atomic<long> large_blocks{0};

void fail_after(long allocations, long failures) {
    failed_so_far = 0;
    failures_left = failures;
    allocations_left = allocations;
}

void fail_no_more() { allocations_left = -1; }

void fail_large_after(long allocations) {
    large_failed = 0;
    large_left = allocations;
}

namespace {

void* count(void* p, long change) noexcept {
    const std::size_t bytes = malloc_usable_size(p);
    if (bytes >= std::size_t{1} << 20 && bytes < kmm::graph::HostReserve::size_bytes) large_blocks += change;
    return p;
}

/// 0: as malloc aligns.
void* allocate_now(std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) bytes = 1;
    void* const p = alignment == 0 ? std::malloc(bytes)
                                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p != nullptr) return count(p, 1);
    throw std::bad_alloc();
}

void* allocate(std::size_t bytes, std::size_t alignment = 0) {
    if (calls_until >= 0 && calls_until-- == 0) in_the_middle();
    if (is_spared) return allocate_now(bytes, alignment);
    if (bytes > kmm::graph::HostReserve::size_bytes && large_left.load(std::memory_order_relaxed) >= 0) {
        long left = large_left.load();
        while (left > 0 && !large_left.compare_exchange_weak(left, left - 1)) {}
        if (left == 0) {
            ++large_failed;
            throw std::bad_alloc();
        }
    }
    if (allocations_left.load(std::memory_order_relaxed) >= 0) {
        long left = allocations_left.load();
        while (left > 0 && !allocations_left.compare_exchange_weak(left, left - 1)) {}
        if (left == 0 && failures_left.fetch_sub(1) > 0) {
            ++failed_so_far;
            if (const auto f = at_first_failure.exchange(nullptr)) f();
            throw std::bad_alloc();
        }
    }
    return allocate_now(bytes, alignment);
}

void* allocate_or_null(std::size_t bytes, std::size_t alignment = 0) noexcept {
    try {
        return allocate(bytes, alignment);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void release(void* p) noexcept {
    if (p != nullptr) std::free(count(p, -1));
}

}  // namespace

// Every form, so that none of the library's allocations is left out.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate_or_null(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate_or_null(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
