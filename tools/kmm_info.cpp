// `kmm info`. Owns: the text. Must not know: the runtime; it asks the drivers directly. One thread.
#include "kmm_info.hpp"

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "driver/machine.hpp"
#include "driver/registry.hpp"

extern char** environ;

namespace kmm::tools {
namespace {

using driver::Candidate;
using driver::Driver;

constexpr double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;

double gib(std::size_t bytes) { return static_cast<double>(bytes) / bytes_per_gib; }

const char* name_of(driver::Kind kind) {
    switch (kind) {
    case driver::Kind::cuda: return "cuda";
    case driver::Kind::hip: return "hip";
    case driver::Kind::host: return "host";
    }
    return "?";
}

std::string plural(int count, const char* noun) { return std::to_string(count) + " " + noun + (count == 1 ? "" : "s"); }

void print_versions() {
    std::printf("KMM %s, rmm %s, built with %s\n", KMM_PROJECT_VERSION, KMM_RMM_VERSION, KMM_COMPILER);
}

void print_machine() {
    std::printf("machine  %s, %.1f GiB memory\n", plural(static_cast<int>(driver::usable_processors()), "CPU").c_str(),
                gib(driver::machine_memory_bytes()));
}

void print_drivers(const std::vector<Candidate>& candidates, const Driver* chosen) {
    std::printf("\ndrivers\n");
    for (const Candidate& candidate : candidates) {
        const char* state = !candidate.usable                                       ? "refused"
                            : chosen != nullptr && chosen->kind() == candidate.kind ? "in use "
                                                                                    : "usable ";
        std::printf("  %-5s  %s  ", name_of(candidate.kind), state);
        if (candidate.usable)
            std::printf("%s (%s)\n", plural(candidate.num_devices, "device").c_str(), candidate.reason.c_str());
        else
            std::printf("%s\n", candidate.reason.c_str());
    }
}

void print_device(Driver& driver, int device) {
    driver::DeviceProperties properties;
    const driver::Status status = driver.properties(device, &properties);
    if (!status.ok()) {
        std::printf("  %d  does not answer: %s (%s)\n", device, driver.error_text(status), driver.error_name(status));
        return;
    }
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    std::printf("  %d  %s, %.1f GiB", device, properties.name.c_str(), gib(properties.total_memory_bytes));
    if (driver.memory_info(device, &free_bytes, &total_bytes).ok()) std::printf(" (%.1f free)", gib(free_bytes));
    const std::string numa_node = properties.numa_node < 0 ? "unknown" : std::to_string(properties.numa_node);
    std::printf("\n     %s, %s, NUMA node %s", plural(properties.multiprocessors, "multiprocessor").c_str(),
                plural(properties.copy_engines, "copy engine").c_str(), numa_node.c_str());
    if (properties.compute_capability > 0)
        std::printf(", compute capability %d.%d", properties.compute_capability / 10,
                    properties.compute_capability % 10);
    std::printf("\n     at most %d threads a block, %zu KiB shared memory a block\n", properties.max_threads_per_block,
                properties.max_shared_memory_per_block / 1024);
    if (!properties.pci_bus_id.empty() || !properties.uuid.empty())
        std::printf("     PCI %s, UUID %s\n", properties.pci_bus_id.c_str(), properties.uuid.c_str());
}

void print_links(Driver& driver) {
    const int count = driver.device_count();
    if (count < 2) return;
    std::printf("\nlinks    can the device of the row read memory of the device of the column directly?\n      ");
    for (int peer = 0; peer < count; ++peer) std::printf(" %4d", peer);
    for (int device = 0; device < count; ++device) {
        std::printf("\n  %4d", device);
        for (int peer = 0; peer < count; ++peer) {
            bool reachable = false;
            const bool answered = device != peer && driver.can_access_peer(device, peer, &reachable).ok();
            std::printf(" %4s", device == peer ? "-" : !answered ? "?" : reachable ? "yes" : "no");
        }
    }
    std::printf("\n");
}

void print_abilities(const Driver& driver) {
    const driver::Capabilities able = driver.capabilities();
    const struct {
        bool has;
        const char* name;
    } list[] = {
        {able.virtual_memory, "virtual memory"},
        {able.memory_pools, "memory pools"},
        {able.managed_memory, "managed memory"},
        {able.kernels_by_handle, "kernels by handle"},
        {able.graphs, "graphs"},
        {able.stream_capture, "stream capture"},
        {able.host_callbacks, "host callbacks"},
        {able.batch_copies, "batched copies"},
        {able.device_event, "device-wide events"},
        {able.stream_ids, "stream ids"},
    };
    std::string with;
    std::string without;
    for (const auto& ability : list) {
        std::string& text = ability.has ? with : without;
        text += (text.empty() ? "" : ", ") + std::string(ability.name);
    }
    std::printf("  has      %s\n", with.c_str());
    if (!without.empty()) std::printf("  has not  %s\n", without.c_str());
}

void print_environment() {
    bool any = false;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (std::strncmp(*entry, "KMM_", 4) != 0 && std::strncmp(*entry, "RMM_", 4) != 0) continue;
        std::printf("%s%s\n", any ? "         " : "\nset      ", *entry);
        any = true;
    }
    if (!any) std::printf("\nset      no KMM_ or RMM_ variable\n");
}

}  // namespace

int info() {
    print_versions();
    print_machine();
    std::shared_ptr<Driver> chosen;
    std::string refusal;
    try {
        chosen = driver::process_default_shared();
    } catch (const std::exception& error) {
        refusal = error.what();
    }
    print_drivers(driver::candidates(), chosen.get());
    if (chosen) {
        std::printf("\ndevices  of driver %s, version %d\n", chosen->name(), chosen->version());
        for (int device = 0; device < chosen->device_count(); ++device) print_device(*chosen, device);
        print_abilities(*chosen);
        print_links(*chosen);
    }
    print_environment();
    if (chosen) return 0;
    std::fflush(stdout);
    std::fprintf(stderr, "kmm info: %s\n", refusal.c_str());
    return 1;
}

}  // namespace kmm::tools
