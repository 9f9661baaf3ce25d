// The handles of emulated kernels: one for each pair of function and loop, made on first use, never freed.
//
// Owns: the handles, and their table, which every submit reads without a lock. Must not know: the driver beyond
// HostKernel. Any thread.
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <new>
#include <string>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/detail/kernel_handle_table.hpp"
#include "kmm/emulation/kernel.hpp"

namespace kmm::emulation::detail {
namespace {

using driver::HostKernel;

struct Registry {
    locks::Mutex mutex;                                    // of who makes one
    std::deque<HostKernel> kernels KMM_GUARDED_BY(mutex);  // a deque, for stable addresses
    std::deque<std::string> names KMM_GUARDED_BY(mutex);
};

// Never destroyed: kernels may be launched while static objects are destroyed.
Registry& registry() { return driver::never_destroyed<Registry>(); }

constinit kmm::detail::KernelHandleTable<> table;

const HostKernel* find(const void* function, RunBlocks run) noexcept {
    return static_cast<const HostKernel*>(table.find(function, reinterpret_cast<std::uintptr_t>(run)));
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
    if (const HostKernel* const known = find(function, run)) return known;  // another thread was faster
    const HostKernel* const made = &all.kernels.emplace_back(HostKernel{run, function, symbol_of(function, all.names)});
    if (!table.insert(function, reinterpret_cast<std::uintptr_t>(run), made)) {
        all.kernels.pop_back();
        throw std::bad_alloc();
    }
    return made;
}

}  // namespace

const HostKernel* find_kernel(const void* function, RunBlocks run) {
    const HostKernel* const known = find(function, run);
    return known != nullptr ? known : find_or_make(function, run);
}

}  // namespace kmm::emulation::detail
