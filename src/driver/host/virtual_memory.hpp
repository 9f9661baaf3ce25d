// Virtual memory: addresses without memory, memory without addresses, and mappings between the two.
//
// Physical memory of a device is a sparse file in memory; mapping it twice shows the same bytes twice. Memory can be
// touched only while it is mapped and access was set; otherwise the access faults, as on a GPU.
//
// Owns: reservations, files, mappings. Must not know: streams. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "driver/host/memory.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

class VirtualMemory {
  public:
    explicit VirtualMemory(Memory& memory);
    ~VirtualMemory();
    VirtualMemory(const VirtualMemory&) = delete;
    VirtualMemory& operator=(const VirtualMemory&) = delete;

    // As in driver.hpp.
    Code reserve_addresses(std::size_t bytes, void** out);
    Code release_addresses(void* address, std::size_t bytes);
    Code create_physical(int device, std::size_t bytes, std::uint64_t* out);
    Code release_physical(std::uint64_t physical);
    Code map(void* address, std::size_t bytes, std::uint64_t physical);
    Code unmap(void* address, std::size_t bytes);
    Code set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices);

  private:
    struct Physical {
        int device = -1;
        std::size_t size_bytes = 0;
        std::int64_t file_offset = 0;
        std::size_t num_mappings = 0;
        bool released = false;  ///< goes away with its last mapping
    };
    struct File {
        int descriptor = -1;
        std::int64_t size_bytes = 0;  ///< sparse: holes cost nothing
        std::multimap<std::size_t, std::int64_t>
            free_offsets;  ///< by size; used again for physical memory of that size
    };
    struct Mapping {
        std::size_t size_bytes = 0;
        std::uint64_t physical = 0;
    };

    Code open_file(File& file) KMM_REQUIRES(mutex_);
    void discard(std::unordered_map<std::uint64_t, Physical>::iterator physical) noexcept KMM_REQUIRES(mutex_);
    bool inside_reservation(std::uintptr_t address, std::size_t bytes) const KMM_REQUIRES(mutex_);
    bool wholly_mapped(std::uintptr_t address, std::size_t bytes) const KMM_REQUIRES(mutex_);

    Memory& memory_;
    locks::Mutex mutex_;
    std::vector<File> files_ KMM_GUARDED_BY(mutex_);
    std::map<std::uintptr_t, std::size_t> reservations_ KMM_GUARDED_BY(mutex_);
    std::map<std::uintptr_t, Mapping> mappings_ KMM_GUARDED_BY(mutex_);
    std::unordered_map<std::uint64_t, Physical> physical_ KMM_GUARDED_BY(mutex_);
    std::uint64_t next_physical_ KMM_GUARDED_BY(mutex_) = 1;
};

}  // namespace kmm::driver::host
