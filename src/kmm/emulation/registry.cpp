// The handles of emulated kernels: one for each pair of function and loop, made on first use, never freed. Owns a table
// that is read without locks at every submit. Must not know the driver beyond HostKernel. Any thread.
#include <cxxabi.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/emulation/kernel.hpp"

namespace kmm::emulation::detail {
namespace {

using driver::HostKernel;

struct Registry {
    locks::Mutex mutex;
    std::deque<HostKernel> kernels KMM_GUARDED_BY(mutex);  // a deque, for stable addresses
    std::deque<std::string> names KMM_GUARDED_BY(mutex);
    std::map<std::pair<std::uintptr_t, std::uintptr_t>, const HostKernel*> by_key KMM_GUARDED_BY(mutex);
};

// Never destroyed: kernels may be launched while static objects are destroyed.
Registry& registry() { return driver::never_destroyed<Registry>(); }

// Open addressing, filled up to half, so that a search that ends in an empty slot is short. Programs have tens of
// kernels; those beyond half the table are found in the map, under the lock.
constexpr std::size_t table_size = 4096;
std::atomic<const HostKernel*> table[table_size];

std::size_t slot_of(const void* function) noexcept {
    // Functions are aligned to 16 bytes; the multiplier is 2^64 divided by the golden ratio, which spreads what is
    // left.
    const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(function) >> 4;
    return static_cast<std::size_t>((bits * 0x9e3779b97f4a7c15u) >> 32) % table_size;
}

const char* symbol_of(const void* function, std::deque<std::string>& names) {
    Dl_info info{};
    if (dladdr(function, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != function) return nullptr;
    int status = 0;
    char* const readable = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    names.emplace_back(status == 0 ? readable : info.dli_sname);
    std::free(readable);
    return names.back().c_str();
}

const HostKernel* find_or_make(const void* function, RunBlocks run) {
    Registry& all = registry();
    const locks::Guard lock(all.mutex);
    const HostKernel*& known =
        all.by_key[{reinterpret_cast<std::uintptr_t>(function), reinterpret_cast<std::uintptr_t>(run)}];
    if (known != nullptr) return known;
    known = &all.kernels.emplace_back(HostKernel{run, function, symbol_of(function, all.names)});
    if (all.kernels.size() <= table_size / 2) {
        std::size_t slot = slot_of(function);
        while (table[slot].load(std::memory_order_relaxed) != nullptr) slot = (slot + 1) % table_size;
        table[slot].store(known, std::memory_order_release);
    }
    return known;
}

}  // namespace

const HostKernel* find_kernel(const void* function, RunBlocks run) {
    for (std::size_t slot = slot_of(function);; slot = (slot + 1) % table_size) {
        const HostKernel* const found = table[slot].load(std::memory_order_acquire);
        if (found == nullptr) return find_or_make(function, run);
        if (found->function == function && found->run_blocks == run) return found;
    }
}

}  // namespace kmm::emulation::detail
