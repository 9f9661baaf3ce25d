// Implements driver_pool.hpp.
#include "rmm/driver_pool.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/class_names.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

struct known_pools {
    kmm::locks::ShortLock mutex;
    std::vector<driver_pool*> all KMM_GUARDED_BY(mutex);
};

known_pools& the_known_pools() { return ::kmm::driver::never_destroyed<known_pools>(); }

}  // namespace

driver_pool::driver_pool(const char* kind, cudaMemPool_t pool, int device, std::size_t maximum_bytes, whose owner)
    : kind_(kind), pool_(pool), device_(device), maximum_bytes_(maximum_bytes), owner_(owner) {
    enter_ledger(device, *this);
    if (owner != ours) return;
    try {
        known_pools& known = the_known_pools();
        const kmm::locks::Guard in(known.mutex);
        known.all.push_back(this);
    } catch (...) {
        leave_ledger(*this);
        throw;
    }
}

driver_pool::~driver_pool() {
    if (lost_in_fork()) return;
    leave_ledger(*this);
    known_pools& known = the_known_pools();
    const kmm::locks::Guard in(known.mutex);
    std::erase(known.all, this);
}

driver_pool& record_of_pool(cudaMemPool_t pool, driver_pool::whose owner) {
    known_pools& known = the_known_pools();
    const auto find = [&]() KMM_REQUIRES(known.mutex) -> driver_pool* {
        // The latest: the driver may use the handle of a foreign pool again.
        const auto at = std::find_if(known.all.rbegin(), known.all.rend(), [&](auto* p) { return p->pool_ == pool; });
        return at == known.all.rend() ? nullptr : *at;
    };
    {
        const kmm::locks::Guard in(known.mutex);
        if (driver_pool* const p = find()) return *p;
    }
    const char* const kind =
        owner == driver_pool::managed ? "cuda_async_managed_memory_resource" : "cuda_async_view_memory_resource";
    std::unique_ptr<driver_pool> made(new driver_pool(kind, pool, current_device(), 0, owner));
    const kmm::locks::Guard in(known.mutex);
    if (driver_pool* const meanwhile = find()) return *meanwhile;
    known.all.push_back(made.get());
    return *made.release();
}

void driver_pool::raise(std::size_t to) noexcept {
    for (std::atomic<std::size_t>* counter : {&held_bytes_, &peak_bytes_}) {
        std::size_t before = counter->load(std::memory_order_relaxed);
        while (before < to && !counter->compare_exchange_weak(before, to, std::memory_order_relaxed)) {}
    }
}

holder_figures driver_pool::figures() {
    holder_figures f;
    f.name = f.kind = with_class_names(kind_);
    f.held_bytes = held_bytes_.load(std::memory_order_relaxed);
    // Frees with a size that is not the block's may have taken off too much.
    f.in_use_bytes = in_use_bytes_.load(std::memory_order_relaxed);
    if (f.in_use_bytes > f.held_bytes) f.in_use_bytes = 0;
    f.peak_bytes = peak_bytes_.load(std::memory_order_relaxed);
    f.maximum_bytes = maximum_bytes_;
    f.num_blocks = num_blocks_.load(std::memory_order_relaxed);
    f.takes_from_driver = owner_ != managed;
    return f;
}

std::size_t driver_pool::give_back(std::size_t bytes) noexcept {
    if (owner_ != ours) return 0;
    const std::size_t in_use = in_use_bytes_.load(std::memory_order_relaxed);
    const std::size_t held = held_bytes_.load(std::memory_order_relaxed);
    if (held <= in_use) return 0;
    const std::size_t keep = std::max(in_use, held - std::min(held, bytes));
    driver::Driver& d = the_driver();
    if (!d.trim_pool({pool_}, keep).ok()) {
        (void)d.take_last_error();
        return 0;
    }
    held_bytes_.store(keep, std::memory_order_relaxed);
    return held - keep;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
