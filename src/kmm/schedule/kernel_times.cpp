#include "kmm/schedule/kernel_times.hpp"

#include <algorithm>
#include <bit>

namespace kmm::schedule {

KernelTimes::Id KernelTimes::find(const graph::Kernel& kernel) {
    const std::uint64_t blocks = std::uint64_t{kernel.grid[0]} * kernel.grid[1] * kernel.grid[2];
    // Addresses of a process leave the upper bits free.
    const std::uint64_t key = std::uint64_t{reinterpret_cast<std::uintptr_t>(kernel.function)} << 7 |
                              static_cast<std::uint64_t>(std::bit_width(blocks));
    if (!kernels_.empty() && key == latest_) return latest_id_;
    const auto found = ids_.find(key);
    Id id = 0;
    if (found != ids_.end()) {
        id = found->second;
    } else {
        id = static_cast<Id>(kernels_.size());
        kernels_.emplace_back();
        ids_.emplace(key, id);
    }
    latest_ = key;
    latest_id_ = id;
    return id;
}

bool KernelTimes::count_launch(Id id) noexcept {
    const std::uint64_t n = ++kernels_[id].launches;
    return n <= launches_between ? std::has_single_bit(n) : n % launches_between == 0;
}

void KernelTimes::measured(Id id, std::int64_t ns) noexcept {
    Entry& e = kernels_[id];
    const auto [shorter, longer] = std::minmax(e.latest_ns, e.before_ns);
    e.ns = shorter == unknown ? std::max(ns, longer) : std::clamp(ns, shorter, longer);
    e.before_ns = e.latest_ns;
    e.latest_ns = ns;
}

}  // namespace kmm::schedule
