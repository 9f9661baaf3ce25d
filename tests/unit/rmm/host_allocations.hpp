// Counts what a program has of the host, and lets an allocation fail: where host_allocations.cpp is linked.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace rmm_test {

/// The allocation of this thread after so many more fails, once; negative: none does.
extern thread_local int allocations_left;
/// Set by the allocation that fails.
extern thread_local bool has_failed;
/// What was allocated and not freed, by all threads, as the allocator counts it.
extern std::atomic<std::size_t> allocated_bytes;

/// Of the test itself: what this thread allocates meanwhile does not fail, nor count.
struct Spared {
    ~Spared() { allocations_left = left; }
    const int left = std::exchange(allocations_left, -1);
};

}  // namespace rmm_test
