// Implements pinning.hpp.
#include "rmm/pinning.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "driver/check.hpp"
#include "driver/locks.hpp"
#include "driver/machine.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

using driver::Code;
using driver::Driver;
using driver::Status;

// More than this many gain nothing: the memory is the limit.
constexpr std::size_t most_threads = 16;
// Starting a thread costs what it takes one to touch about half a MiB.
constexpr std::size_t smallest_share = std::size_t{8} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) noexcept { return (value + unit - 1) / unit * unit; }

/// Whether devices can use registered memory by the address that the host uses.
bool addresses_are_shared(Driver& d) noexcept {
    constexpr int can_use_host_pointer_for_registered_memory = 91;  // CUDA's number
    for (int device = 0; device < d.device_count(); ++device) {
        int can = 0;
        if (!d.attribute(device, can_use_host_pointer_for_registered_memory, &can).ok()) {
            (void)d.take_last_error();
            return false;
        }
        if (can == 0) return false;
    }
    return true;
}

void touch(std::byte* address, std::size_t bytes) noexcept {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t threads =
        std::clamp<std::size_t>(bytes / smallest_share, 1, std::min(driver::usable_processors(), most_threads));
    const std::size_t share = round_up((bytes + threads - 1) / threads, pinning_unit);
    const auto run = [=](std::size_t begin) {
        // Once a small page: where there are no huge pages each of them faults.
        for (std::size_t i = begin; i < std::min(begin + share, bytes); i += page)
            *reinterpret_cast<volatile std::byte*>(address + i) = std::byte{0};
    };
    std::thread others[most_threads];
    std::size_t num_others = 0;
    for (std::size_t begin = share; begin < bytes; begin += share) {
        try {
            others[num_others] = std::thread(run, begin);
            ++num_others;
        } catch (const std::exception&) {
            run(begin);  // the system gives no more threads
        }
    }
    run(0);
    for (std::size_t i = 0; i < num_others; ++i) others[i].join();
}

/// False where the driver's own call has to do it.
bool register_pages(Driver& d, std::size_t bytes, pinned_block* out) noexcept {
    const bool real = d.kind() != driver::Kind::host;
    // A little more than the pages themselves: page tables, and a reserve for other processes.
    if (bytes > ~std::size_t{0} / 2 || (real && bytes + bytes / 256 > driver::available_memory_bytes())) return false;
    if (real && !addresses_are_shared(d)) return false;
    pinned_block b;
    b.size_bytes = round_up(bytes, pinning_unit);
    // One huge page of addresses more than needed: the block begins at one, and ends before the next block begins.
    b.reserved_bytes = b.size_bytes + pinning_unit;
    b.reservation =
        ::mmap(nullptr, b.reserved_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b.reservation == MAP_FAILED) return false;
    b.address = reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(b.reservation), pinning_unit));
    (void)::madvise(b.address, b.size_bytes, MADV_HUGEPAGE);
    // The host driver pins nothing: its pages may come when they are used.
    if (real) touch(static_cast<std::byte*>(b.address), b.size_bytes);
    if (!d.register_host(b.address, b.size_bytes).ok()) {
        (void)d.take_last_error();
        ::munmap(b.reservation, b.reserved_bytes);
        return false;
    }
    *out = b;
    return true;
}

struct large_blocks {
    kmm::locks::Mutex mutex;
    std::unordered_map<void*, pinned_block> by_address KMM_GUARDED_BY(mutex);
};
// There never was one: then a free need not make the table to look into it.
std::atomic<bool> has_large_blocks{false};
// Never destroyed: memory may be freed by destructors of static objects.
large_blocks& all_large_blocks() {
    static large_blocks& instance = *new large_blocks;
    return instance;
}

}  // namespace

Status pin(Driver& d, std::size_t bytes, pinned_block* out) noexcept {
    if (register_pages(d, bytes, out)) return {};
    pinned_block b;
    b.size_bytes = bytes;
    const Status status = d.allocate_pinned(bytes, &b.address);
    if (status.ok()) *out = b;
    return status;
}

void unpin(Driver& d, const pinned_block& b) noexcept {
    if (b.reservation == nullptr) {
        report_failure(d.free_pinned(b.address), "free pinned memory");
        return;
    }
    const Status status = d.unregister_host(b.address);
    report_failure(status, "release page-locked memory");
    // Pages that the driver still holds must stay mapped.
    if (status.ok() || status.code == Code::shut_down) ::munmap(b.reservation, b.reserved_bytes);
}

Status allocate_pinned(Driver& d, std::size_t bytes, void** out) noexcept {
    if (bytes < pin_from_bytes) return d.allocate_pinned(bytes, out);
    pinned_block b;
    const Status status = pin(d, bytes, &b);
    if (!status.ok()) return status;
    if (b.reservation != nullptr) {
        try {
            large_blocks& all = all_large_blocks();
            const kmm::locks::Guard in(all.mutex);
            all.by_address.emplace(b.address, b);
            has_large_blocks.store(true, std::memory_order_release);
        } catch (const std::bad_alloc&) {
            unpin(d, b);
            return {Code::out_of_memory, 0};
        }
    }
    *out = b.address;
    return {};
}

Status free_pinned(Driver& d, void* ptr) noexcept {
    pinned_block b;
    if (has_large_blocks.load(std::memory_order_acquire)) {
        large_blocks& all = all_large_blocks();
        const kmm::locks::Guard in(all.mutex);
        const auto at = all.by_address.find(ptr);
        if (at != all.by_address.end()) {
            b = at->second;
            all.by_address.erase(at);
        }
    }
    if (b.address == nullptr) return d.free_pinned(ptr);
    unpin(d, b);
    return {};
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
