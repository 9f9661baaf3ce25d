// Owns: the proof that ThreadSanitizer sees a missing dependency between two streams, also when they did not overlap in
// time. The program races on purpose; its test passes if the sanitizer says so.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "driver/registry.hpp"

namespace {

using namespace kmm::driver;

struct Shared {
    int value = 0;
    alignas(64) std::atomic<bool> first_is_done{false};  // apart, so that looking at it leaves no trace at `value`
};

void increment(const HostKernel&, const HostLaunchGeometry&, const void* parameters, std::uint64_t, std::uint64_t) {
    Shared* shared = nullptr;
    std::memcpy(&shared, parameters, sizeof(shared));
    ++shared->value;
    shared->first_is_done.store(true, std::memory_order_relaxed);  // orders nothing
}

}  // namespace

int main() {
    const auto driver = make_host_driver({1, 1 << 20, 2});
    const HostKernel kernel{increment, nullptr, "increment"};
    Shared shared;
    Shared* pointer = &shared;
    KernelLaunch launch;
    launch.function = &kernel;
    launch.parameters = &pointer;
    launch.parameter_bytes = sizeof(pointer);
    StreamHandle a, b;
    if (!driver->create_stream(0, true, 0, &a).ok() || !driver->create_stream(0, true, 0, &b).ok()) return 1;
    if (!driver->launch(launch, a).ok()) return 1;
    while (!shared.first_is_done.load(std::memory_order_relaxed)) std::this_thread::yield();
    if (!driver->launch(launch, b).ok()) return 1;  // no event between the two
    if (!driver->synchronize_stream(a).ok() || !driver->synchronize_stream(b).ok()) return 1;
    std::printf("value %d\n", shared.value);
    return 0;
}
