// Memory of the virtual devices and of the host, and the owner of each address.
//
// Owns: the accounts of the devices and the map of all allocations. Must not know: streams, order. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "driver/driver.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

struct Pool;

/// Which calls allocated the memory, and so which may free it.
enum class Origin : std::uint8_t { plain, managed, pinned, registered, pool, mapping };

struct Allocation {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    MemoryKind kind = MemoryKind::pageable;
    Origin origin = Origin::plain;
    int device = -1;
    Pool* pool = nullptr;  ///< origin pool only

    bool contains(const void* pointer, std::size_t bytes) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(pointer);
        return at >= address && at - address <= size_bytes && bytes <= size_bytes - (at - address);
    }
};

class Memory {
  public:
    Memory(int num_devices, std::size_t bytes_per_device);
    ~Memory();  ///< frees what was not released
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    int num_devices() const noexcept { return num_devices_; }
    std::size_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::size_t free_bytes(int device) const noexcept;

    /// Takes bytes (rounded up) off a device's account. False if they are not there.
    bool reserve(int device, std::size_t bytes) noexcept;
    void unreserve(int device, std::size_t bytes) noexcept;

    /// Memory of this kind, entered in the map. A device pays for memory of origin plain and pool.
    Code allocate(std::size_t bytes, MemoryKind kind, Origin origin, int device, Pool* pool, void** out) noexcept;
    /// Takes back memory of `allocate`, which must not be in use any more.
    void release(const Allocation& allocation) noexcept;
    /// Enters memory that was allocated elsewhere. `invalid_argument` if a part of it is known already.
    Code enter(const Allocation& allocation) noexcept;
    void leave(std::uintptr_t address) noexcept;

    /// The allocation that holds the address.
    std::optional<Allocation> find(const void* pointer) const noexcept;
    /// The allocation that begins there and has this origin.
    std::optional<Allocation> find_exactly(const void* pointer, Origin origin) const noexcept;

    /// How a copy sees its two ends, with one look at the map.
    struct CopyEnds {
        bool destination_pageable = false;
        bool source_pageable = false;
        bool in_bounds = true;
    };
    CopyEnds classify(const void* destination, std::size_t destination_bytes, const void* source,
                      std::size_t source_bytes) const noexcept;

  private:
    const Allocation* find_locked(const void* pointer) const noexcept KMM_REQUIRES_SHARED(mutex_);

    const int num_devices_;
    const std::size_t capacity_bytes_;
    std::unique_ptr<std::atomic<std::size_t>[]> used_bytes_;
    mutable locks::SharedMutex mutex_;
    std::map<std::uintptr_t, Allocation> allocations_ KMM_GUARDED_BY(mutex_);
};

/// `a * b` if it does not overflow.
bool multiply(std::size_t a, std::size_t b, std::size_t* out) noexcept;

}  // namespace kmm::driver::host
