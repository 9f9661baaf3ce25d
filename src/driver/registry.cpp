// Owns: the process's drivers, one of each kind, and the choice of the default one (registry.hpp). Any thread.
//
// The registry is never destroyed: static objects of the program may still free memory through it when the process
// ends.
#include "driver/registry.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>

#include "driver/byte_size.hpp"
#include "driver/fork.hpp"
#include "driver/format.hpp"
#include "driver/host/host_driver.hpp"
#include "driver/host/limits.hpp"
#include "driver/machine.hpp"
#include "driver/never_destroyed.hpp"
#ifdef KMM_HAVE_CUDA_DRIVER
#include "driver/cuda/cuda_driver.hpp"
#include "driver/locks.hpp"
#endif

namespace kmm::driver {
namespace {

constexpr const char* not_built = "not built into this library";

struct Registry {
    std::once_flag cuda_probed;
    std::shared_ptr<Driver> cuda;
    std::string cuda_reason = not_built;
    int cuda_devices = 0;

    locks::Mutex host_mutex;
    std::shared_ptr<Driver> host KMM_GUARDED_BY(host_mutex);

    locks::Mutex default_mutex;
    std::shared_ptr<Driver> default_driver KMM_GUARDED_BY(default_mutex);
};

Registry& registry() { return never_destroyed<Registry>(); }

// The default driver, once it is chosen. Cleared in the child of a fork, which cannot use it (fork.hpp), so that
// readers of this pointer need not ask `lost_in_fork`.
constinit std::atomic<Driver*> default_known{nullptr};
[[maybe_unused]] const int forgotten_in_child =
    pthread_atfork(nullptr, nullptr, [] { default_known.store(nullptr, std::memory_order_relaxed); });

void probe_cuda(Registry& r) {
    if (lost_in_fork()) return;  // what the parent found stays, and opens no more
    DriverUse use;
    std::call_once(r.cuda_probed, [&] {
#ifdef KMM_HAVE_CUDA_DRIVER
        r.cuda_reason.clear();
        r.cuda = make_cuda_driver(&r.cuda_reason, &r.cuda_devices);
        if (r.cuda != nullptr) use.keep();
#endif
    });
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

std::shared_ptr<Driver> open_host(std::string* reason) {
    Registry& r = registry();
    const DriverUse use;
    const locks::Guard lock(r.host_mutex);
    if (r.host == nullptr) {
        try {
            r.host = make_host_driver(host_options_from_environment());
        } catch (const std::exception& error) {
            if (reason != nullptr) *reason = error.what();
        }
    }
    return r.host;
}

Candidate host_candidate() {
    Candidate candidate;
    candidate.kind = Kind::host;
    try {
        candidate.num_devices = host::effective_options(host_options_from_environment()).num_devices;
        candidate.usable = true;
        candidate.reason = count_text(static_cast<std::size_t>(candidate.num_devices), "virtual device");
    } catch (const std::exception& error) {
        candidate.reason = error.what();
    }
    return candidate;
}

const char* name_of(Kind kind) {
    switch (kind) {
    case Kind::host: return "host";
    case Kind::cuda: return "cuda";
    case Kind::hip: return "hip";
    }
    return "unknown";
}

std::shared_ptr<Driver> choose_default() {
    const std::string wanted = variable("KMM_DRIVER");
    std::string lower = wanted;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string refused;
    for (const Kind kind : {Kind::cuda, Kind::hip, Kind::host}) {
        const bool automatic = lower.empty() || lower == "auto";
        if (!automatic && lower != name_of(kind)) continue;
        std::string reason;
        if (auto driver = open(kind, &reason)) return driver;
        if (!automatic)
            throw std::runtime_error(
                driver::format("KMM_DRIVER asks for the {} driver, which cannot be used: {}", lower, reason));
        refused += driver::format("{}{}: {}", refused.empty() ? "" : "; ", name_of(kind), reason);
    }
    if (!refused.empty()) throw std::runtime_error(driver::format("no driver can be used ({})", refused));
    throw std::runtime_error(driver::format("KMM_DRIVER is '{}': use auto, cuda, hip or host", wanted));
}

}  // namespace

std::vector<Candidate> candidates() {
    Registry& r = registry();
    if (lost_in_fork()) {
        const std::string reason = LostInFork().what();
        return {{Kind::cuda, false, reason, 0}, {Kind::hip, false, not_built, 0}, {Kind::host, false, reason, 0}};
    }
    probe_cuda(r);
    return {{Kind::cuda, r.cuda != nullptr, r.cuda_reason, r.cuda_devices},
            {Kind::hip, false, not_built, 0},
            host_candidate()};
}

std::shared_ptr<Driver> host_if_open() noexcept {
    try {
        Registry& r = registry();
        const locks::Guard lock(r.host_mutex);
        return r.host;
    } catch (const std::bad_alloc&) {
        return nullptr;  // there was no registry yet, so none is open
    }
}

std::shared_ptr<Driver> make_host_driver(const HostOptions& options) {
    expect_not_lost();
    DriverUse use;
    // In the child of a fork its threads cannot be joined, nor what they waited on be destroyed: it is left.
    std::shared_ptr<host::HostDriver> made(new host::HostDriver(options), [](host::HostDriver* driver) {
        if (!lost_in_fork()) delete driver;
    });
    use.keep();
    return made;
}

HostOptions host_options_from_environment() {
    HostOptions options;
    if (const std::string text = variable("KMM_VIRTUAL_DEVICES"); !text.empty()) {
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, options.num_devices);
        if (parsed.ec != std::errc() || parsed.ptr != end || options.num_devices < 1 ||
            options.num_devices > host::max_devices)
            throw std::invalid_argument(driver::format(
                "KMM_VIRTUAL_DEVICES is '{}': use a number of devices from 1 to {}", text, host::max_devices));
    }
    if (const std::string text = variable("KMM_VIRTUAL_DEVICE_MEM"); !text.empty()) {
        std::string error;
        const auto bytes = parse_byte_size(text, machine_memory_bytes(), &error);
        if (!bytes) throw std::invalid_argument("KMM_VIRTUAL_DEVICE_MEM: " + error);
        if (*bytes == 0)
            throw std::invalid_argument(
                driver::format("KMM_VIRTUAL_DEVICE_MEM is '{}': a device needs some memory", text));
        options.memory_bytes = *bytes;
    }
    if (const std::string text = variable("KMM_FIBER_STACK"); !text.empty()) {
        std::string error;
        const auto bytes = parse_byte_size(text, 0, &error);
        if (!bytes) throw std::invalid_argument("KMM_FIBER_STACK: " + error);
        if (*bytes < smallest_stack_bytes || *bytes > largest_stack_bytes)
            throw std::invalid_argument(driver::format("KMM_FIBER_STACK is '{}': use {} to {}", text,
                                                       byte_size_text(smallest_stack_bytes),
                                                       byte_size_text(largest_stack_bytes)));
        options.stack_bytes = *bytes;
    }
    options.device_events = variable("KMM_TEST_NO_DEVICE_EVENTS") != "1";
    return options;
}

std::shared_ptr<Driver> open(Kind kind, std::string* reason) {
    if (lost_in_fork()) {
        if (reason != nullptr) *reason = LostInFork().what();
        return nullptr;
    }
    switch (kind) {
    case Kind::host: return open_host(reason);
    case Kind::cuda: {
        Registry& r = registry();
        probe_cuda(r);
        if (r.cuda == nullptr && reason != nullptr) *reason = r.cuda_reason;
        return r.cuda;
    }
    case Kind::hip: break;
    }
    if (reason != nullptr) *reason = not_built;
    return nullptr;
}

std::shared_ptr<Driver> process_default_shared() {
    expect_not_lost();
    Registry& r = registry();
    const DriverUse use;  // what is chosen keeps a use of its own
    const locks::Guard lock(r.default_mutex);
    if (r.default_driver == nullptr) {
        r.default_driver = choose_default();
        default_known.store(r.default_driver.get(), std::memory_order_release);
    }
    return r.default_driver;
}

Driver& process_default() {
    // Asked for by every free function of rmm: after the first time one load.
    if (Driver* const known = default_known.load(std::memory_order_acquire)) [[likely]]
        return *known;
    return *process_default_shared();  // throws after a fork
}

}  // namespace kmm::driver
