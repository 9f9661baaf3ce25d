// Owns: accounts and map of memory.hpp. Any thread.
#include "driver/host/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "driver/host/limits.hpp"
#include "driver/locks.hpp"
#include "driver/machine.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define KMM_HOST_DRIVER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KMM_HOST_DRIVER_ASAN 1
#endif
#endif

namespace kmm::driver::host {
namespace {

#ifdef KMM_HOST_DRIVER_ASAN
// AddressSanitizer guards what malloc gives, so that it finds kernels that leave their memory.
constexpr std::size_t map_from_bytes = ~std::size_t{0};
#else
// Below this the time to fault fresh pages in exceeds what giving them back to the system is worth.
constexpr std::size_t map_from_bytes = 4 << 20;
#endif

std::size_t round_up(std::size_t bytes) { return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment; }

void* system_allocate(std::size_t bytes) noexcept {
    if (bytes > machine_memory_bytes()) return nullptr;
    if (bytes >= map_from_bytes) {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? nullptr : memory;
    }
    void* memory = nullptr;
    return posix_memalign(&memory, memory_alignment, bytes) == 0 ? memory : nullptr;
}

void system_free(void* memory, std::size_t bytes) noexcept {
    if (bytes >= map_from_bytes)
        munmap(memory, bytes);
    else
        std::free(memory);
}

bool device_pays(Origin origin) { return origin == Origin::plain || origin == Origin::pool; }

bool ours(Origin origin) { return origin != Origin::registered && origin != Origin::mapping; }

}  // namespace

bool multiply(std::size_t a, std::size_t b, std::size_t* out) noexcept { return !__builtin_mul_overflow(a, b, out); }

Memory::Memory(int num_devices, std::size_t bytes_per_device)
    : num_devices_(num_devices),
      capacity_bytes_(bytes_per_device),
      used_bytes_(std::make_unique<std::atomic<std::size_t>[]>(static_cast<std::size_t>(num_devices))) {
    (void)machine_memory_bytes();  // read now: it is asked for where nothing may throw
}

Memory::~Memory() {
    for (const auto& [address, allocation] : allocations_)
        if (ours(allocation.origin)) system_free(reinterpret_cast<void*>(address), allocation.size_bytes);
}

std::size_t Memory::free_bytes(int device) const noexcept {
    return capacity_bytes_ - used_bytes_[device].load(std::memory_order_relaxed);
}

bool Memory::reserve(int device, std::size_t bytes) noexcept {
    if (bytes > capacity_bytes_) return false;
    bytes = round_up(bytes);
    std::size_t used = used_bytes_[device].load(std::memory_order_relaxed);
    do {
        if (bytes > capacity_bytes_ - used) return false;
    } while (!used_bytes_[device].compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
}

void Memory::unreserve(int device, std::size_t bytes) noexcept {
    used_bytes_[device].fetch_sub(round_up(bytes), std::memory_order_relaxed);
}

Code Memory::allocate(std::size_t bytes, MemoryKind kind, Origin origin, int device, Pool* pool, void** out) noexcept {
    if (device_pays(origin) && !reserve(device, bytes)) return Code::out_of_memory;
    void* memory = system_allocate(bytes);
    Code code = memory == nullptr ? Code::out_of_memory : Code::ok;
    if (memory != nullptr) {
        code = enter({reinterpret_cast<std::uintptr_t>(memory), bytes, kind, origin, device, pool});
        if (code != Code::ok) system_free(memory, bytes);
    }
    if (code == Code::ok)
        *out = memory;
    else if (device_pays(origin))
        unreserve(device, bytes);
    return code;
}

void Memory::release(const Allocation& allocation) noexcept {
    // Out of the map before the system can give the address away again.
    leave(allocation.address);
    system_free(reinterpret_cast<void*>(allocation.address), allocation.size_bytes);
    if (device_pays(allocation.origin)) unreserve(allocation.device, allocation.size_bytes);
}

Code Memory::enter(const Allocation& allocation) noexcept {
    try {
        const locks::Guard lock(mutex_);
        auto next = allocations_.lower_bound(allocation.address);
        if (next != allocations_.end() && next->first < allocation.address + allocation.size_bytes)
            return Code::invalid_argument;
        if (next != allocations_.begin()) {
            const Allocation& previous = std::prev(next)->second;
            if (previous.address + previous.size_bytes > allocation.address) return Code::invalid_argument;
        }
        allocations_.emplace_hint(next, allocation.address, allocation);
        return Code::ok;
    } catch (const std::bad_alloc&) {
        return Code::out_of_memory;
    }
}

void Memory::leave(std::uintptr_t address) noexcept {
    const locks::Guard lock(mutex_);
    allocations_.erase(address);
}

const Allocation* Memory::find_locked(const void* pointer) const noexcept {
    auto at = allocations_.upper_bound(reinterpret_cast<std::uintptr_t>(pointer));
    if (at == allocations_.begin()) return nullptr;
    const Allocation& allocation = std::prev(at)->second;
    return reinterpret_cast<std::uintptr_t>(pointer) - allocation.address < allocation.size_bytes ? &allocation
                                                                                                  : nullptr;
}

std::optional<Allocation> Memory::find(const void* pointer) const noexcept {
    const locks::SharedGuard lock(mutex_);
    const Allocation* found = find_locked(pointer);
    return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<Allocation> Memory::find_exactly(const void* pointer, Origin origin) const noexcept {
    const locks::SharedGuard lock(mutex_);
    auto at = allocations_.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (at == allocations_.end() || at->second.origin != origin) return std::nullopt;
    return at->second;
}

Memory::CopyEnds Memory::classify(const void* destination, std::size_t destination_bytes, const void* source,
                                  std::size_t source_bytes) const noexcept {
    CopyEnds ends;
    const locks::SharedGuard lock(mutex_);
    const Allocation* to = find_locked(destination);
    const Allocation* from = find_locked(source);
    ends.destination_pageable = to == nullptr;
    ends.source_pageable = from == nullptr;
    // Mappings that touch may be used as one.
    if (to != nullptr && to->origin != Origin::mapping) ends.in_bounds = to->contains(destination, destination_bytes);
    if (from != nullptr && from->origin != Origin::mapping) ends.in_bounds &= from->contains(source, source_bytes);
    return ends;
}

}  // namespace kmm::driver::host
