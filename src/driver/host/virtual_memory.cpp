// Owns: virtual memory of the host driver (virtual_memory.hpp). Any thread.
#include "driver/host/virtual_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "driver/host/limits.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {
namespace {

bool aligned(const void* address, std::size_t bytes) {
    return bytes != 0 && bytes % virtual_granularity == 0 &&
           reinterpret_cast<std::uintptr_t>(address) % virtual_granularity == 0;
}

bool make_inaccessible(void* address, std::size_t bytes) {
    return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

}  // namespace

VirtualMemory::VirtualMemory(Memory& memory)
    : memory_(memory), files_(static_cast<std::size_t>(memory.num_devices())) {}

VirtualMemory::~VirtualMemory() {
    for (const auto& [address, size_bytes] : reservations_) munmap(reinterpret_cast<void*>(address), size_bytes);
    for (const File& file : files_)
        if (file.descriptor >= 0) close(file.descriptor);
}

Code VirtualMemory::reserve_addresses(std::size_t bytes, void** out) {
    if (bytes == 0 || bytes % virtual_granularity != 0) return Code::invalid_argument;
    if (bytes > ~std::size_t{0} - virtual_granularity) return Code::out_of_memory;
    // One granule more than needed, so that an aligned piece is in it; the rest goes back.
    void* raw =
        mmap(nullptr, bytes + virtual_granularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return Code::out_of_memory;
    const auto begin = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t address = (begin + virtual_granularity - 1) / virtual_granularity * virtual_granularity;
    const std::uintptr_t end = begin + bytes + virtual_granularity;
    if (address != begin) munmap(raw, address - begin);
    if (address + bytes != end) munmap(reinterpret_cast<void*>(address + bytes), end - address - bytes);
    try {
        const locks::Guard lock(mutex_);
        reservations_.emplace(address, bytes);
    } catch (...) {
        munmap(reinterpret_cast<void*>(address), bytes);
        throw;
    }
    *out = reinterpret_cast<void*>(address);
    return Code::ok;
}

Code VirtualMemory::release_addresses(void* address, std::size_t bytes) {
    const locks::Guard lock(mutex_);
    const auto at = reservations_.find(reinterpret_cast<std::uintptr_t>(address));
    if (at == reservations_.end() || at->second != bytes) return Code::invalid_argument;
    const auto mapping = mappings_.lower_bound(at->first);
    if (mapping != mappings_.end() && mapping->first < at->first + bytes) return Code::invalid_argument;
    munmap(address, bytes);
    reservations_.erase(at);
    return Code::ok;
}

Code VirtualMemory::open_file(File& file) {
    if (file.descriptor >= 0) return Code::ok;
    file.descriptor = memfd_create("kmm-device-memory", MFD_CLOEXEC);
    return file.descriptor >= 0 ? Code::ok : Code::not_supported;
}

Code VirtualMemory::create_physical(int device, std::size_t bytes, std::uint64_t* out) {
    if (bytes == 0 || bytes % virtual_granularity != 0) return Code::invalid_argument;
    const locks::Guard lock(mutex_);
    File& file = files_[static_cast<std::size_t>(device)];
    if (const Code code = open_file(file); code != Code::ok) return code;
    const auto used_before = file.free_offsets.find(bytes);
    const std::int64_t offset = used_before != file.free_offsets.end() ? used_before->second : file.size_bytes;
    if (used_before == file.free_offsets.end()) {
        const std::int64_t size = file.size_bytes + static_cast<std::int64_t>(bytes);
        if (ftruncate(file.descriptor, size) != 0) return Code::out_of_memory;
        file.size_bytes = size;
    }
    if (!memory_.reserve(device, bytes)) {
        if (used_before == file.free_offsets.end()) file.free_offsets.emplace(bytes, offset);
        return Code::out_of_memory;
    }
    try {
        physical_.emplace(next_physical_, Physical{device, bytes, offset, 0, false});
    } catch (...) {
        memory_.unreserve(device, bytes);
        throw;
    }
    if (used_before != file.free_offsets.end()) file.free_offsets.erase(used_before);
    *out = next_physical_++;
    return Code::ok;
}

void VirtualMemory::discard(std::unordered_map<std::uint64_t, Physical>::iterator at) noexcept {
    const Physical physical = at->second;
    File& file = files_[static_cast<std::size_t>(physical.device)];
    // The hole gives the pages back to the system; the next user of the offset finds zeros.
    (void)fallocate(file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, physical.file_offset,
                    static_cast<off_t>(physical.size_bytes));
    try {
        file.free_offsets.emplace(physical.size_bytes, physical.file_offset);
    } catch (...) {
        // Only the number is lost: there are enough of them, and the pages are back already.
    }
    memory_.unreserve(physical.device, physical.size_bytes);
    physical_.erase(at);
}

Code VirtualMemory::release_physical(std::uint64_t handle) {
    const locks::Guard lock(mutex_);
    const auto at = physical_.find(handle);
    if (at == physical_.end() || at->second.released) return Code::invalid_handle;
    at->second.released = true;
    if (at->second.num_mappings == 0) discard(at);
    return Code::ok;
}

bool VirtualMemory::inside_reservation(std::uintptr_t address, std::size_t bytes) const {
    auto at = reservations_.upper_bound(address);
    if (at == reservations_.begin()) return false;
    --at;
    return address - at->first <= at->second && bytes <= at->second - (address - at->first);
}

Code VirtualMemory::map(void* address, std::size_t bytes, std::uint64_t handle) {
    if (!aligned(address, bytes)) return Code::invalid_argument;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const locks::Guard lock(mutex_);
    const auto physical = physical_.find(handle);
    if (physical == physical_.end() || physical->second.released) return Code::invalid_handle;
    if (bytes != physical->second.size_bytes || !inside_reservation(begin, bytes)) return Code::invalid_argument;

    const auto mapping = mappings_.emplace(begin, Mapping{bytes, handle});
    if (!mapping.second) return Code::invalid_argument;
    // The map of all memory refuses what overlaps another mapping.
    Code code = memory_.enter({begin, bytes, MemoryKind::device, Origin::mapping, physical->second.device, nullptr});
    if (code == Code::ok) {
        const File& file = files_[static_cast<std::size_t>(physical->second.device)];
        if (mmap(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file.descriptor, physical->second.file_offset) ==
            MAP_FAILED) {
            memory_.leave(begin);
            code = Code::out_of_memory;
        }
    }
    if (code == Code::ok)
        ++physical->second.num_mappings;
    else
        mappings_.erase(mapping.first);
    return code;
}

bool VirtualMemory::wholly_mapped(std::uintptr_t address, std::size_t bytes) const {
    const std::uintptr_t end = address + bytes;
    for (auto at = mappings_.find(address); at != mappings_.end() && at->first == address; ++at) {
        address += at->second.size_bytes;
        if (address == end) return true;
        if (address > end) return false;
    }
    return false;
}

Code VirtualMemory::unmap(void* address, std::size_t bytes) {
    if (!aligned(address, bytes)) return Code::invalid_argument;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const locks::Guard lock(mutex_);
    if (!wholly_mapped(begin, bytes)) return Code::invalid_argument;
    if (!make_inaccessible(address, bytes)) return Code::out_of_memory;
    for (auto at = mappings_.find(begin); at != mappings_.end() && at->first < begin + bytes;
         at = mappings_.erase(at)) {
        memory_.leave(at->first);
        const auto physical = physical_.find(at->second.physical);
        if (--physical->second.num_mappings == 0 && physical->second.released) discard(physical);
    }
    return Code::ok;
}

Code VirtualMemory::set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) {
    if (!aligned(address, bytes)) return Code::invalid_argument;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const locks::Guard lock(mutex_);
    if (!wholly_mapped(begin, bytes)) return Code::invalid_argument;
    for (std::size_t i = 0; i < num_devices; ++i)
        if (devices[i] < 0 || devices[i] >= memory_.num_devices()) return Code::invalid_argument;
    for (auto at = mappings_.find(begin); at != mappings_.end() && at->first < begin + bytes; ++at) {
        const int own = physical_.find(at->second.physical)->second.device;
        if (std::find(devices, devices + num_devices, own) == devices + num_devices) return Code::invalid_argument;
    }
    // Every virtual device reads all memory of the process, so that one permission serves all of them.
    return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0 ? Code::ok : Code::out_of_memory;
}

}  // namespace kmm::driver::host
