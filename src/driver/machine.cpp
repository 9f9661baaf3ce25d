// Implements machine.hpp. Any thread.
//
// The files of the kernel are read by the C library: streams of the C++ library read numbers as the locale of the
// program writes them.
#include "driver/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

namespace kmm::driver {
namespace {

/// The first number that `format` finds in a line of the file, in the file's unit; nothing where there is none ("max").
std::optional<std::size_t> number_in(const char* path, const char* format) noexcept {
    const auto close = [](std::FILE* file) { std::fclose(file); };
    const std::unique_ptr<std::FILE, decltype(close)> file{std::fopen(path, "re"), close};
    if (file == nullptr) return std::nullopt;
    char line[128];
    unsigned long long value = 0;
    while (std::fgets(line, sizeof line, file.get()) != nullptr)
        if (std::sscanf(line, format, &value) == 1) return static_cast<std::size_t>(value);
    return std::nullopt;
}

/// A version of the kernel's control groups: where the limit stands, and what counts towards it but for pages of files,
/// which go when memory is needed.
struct ControlGroup {
    const char* limit_path;
    const char* use_path;
    const char* use_format;
};
constexpr ControlGroup control_groups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.stat", "anon %llu"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.stat", "total_rss %llu"},
};

std::size_t limit_of(const ControlGroup& group) noexcept {
    const auto limit = number_in(group.limit_path, "%llu");
    return limit && *limit != 0 ? *limit : unknown_bytes;
}

}  // namespace

std::size_t machine_memory_bytes() noexcept {
    static const std::size_t bytes = [] {
        const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
        std::size_t most = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        for (const ControlGroup& group : control_groups) most = std::min(most, limit_of(group));
        return most;
    }();
    return bytes;
}

std::size_t available_memory_bytes() noexcept {
    const auto kib = number_in("/proc/meminfo", "MemAvailable: %llu kB");
    std::size_t bytes = kib ? *kib * 1024 : unknown_bytes;
    for (const ControlGroup& group : control_groups) {
        const std::size_t limit = limit_of(group);
        if (limit == unknown_bytes) continue;
        const std::size_t used = number_in(group.use_path, group.use_format).value_or(0);
        bytes = std::min(bytes, limit - std::min(limit, used));
    }
    return bytes;
}

std::size_t usable_processors() noexcept {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace kmm::driver
