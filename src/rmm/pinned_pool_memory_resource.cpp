// Implements <rmm/mr/pinned_pool_memory_resource.hpp>: a pool, and the thread that fills it. Any thread.
#include "rmm/mr/pinned_pool_memory_resource.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
// The first segment is ready in some 3 ms. Each is as large as all before it: a request waits no longer than the pool
// has grown already, and half of the pool's memory is in segments that hold large requests.
constexpr std::size_t smallest_segment = 64 * mib;
constexpr std::size_t largest_segment = 4096 * mib;
constexpr std::size_t growth_on_demand = 256 * mib;

detail::pool_options options_of(std::size_t initial_size, std::optional<std::size_t> maximum_size) {
    detail::pool_options options;
    options.name = "pinned_pool_memory_resource";
    options.maximum_bytes = maximum_size.value_or(~std::size_t{0});
    options.growth_bytes = growth_on_demand;
    options.ordered_upstream = false;
    const std::string own_name = rmm::detail::with_class_names(options.name);
    for (const std::size_t bytes : {initial_size, maximum_size.value_or(0)})
        RMM_EXPECTS(
            is_aligned(bytes, CUDA_ALLOCATION_ALIGNMENT),
            kmm::driver::format("the sizes of a {} must be multiples of 256 bytes; one is {}", own_name, bytes));
    RMM_EXPECTS(initial_size <= options.maximum_bytes,
                kmm::driver::format("the initial size of a {}, {} bytes, exceeds its maximum of {}", own_name,
                                    initial_size, options.maximum_bytes));
    return options;
}

}  // namespace

struct pinned_pool_memory_resource::growing_pool {
    growing_pool(std::size_t initial_size, std::optional<std::size_t> maximum_size)
        : pool(device_async_resource_ref{segments}, options_of(initial_size, maximum_size)),
          driver(rmm::detail::the_driver()),
          device(rmm::detail::current_device()) {
        if (initial_size == 0) {
            grown = true;
            return;
        }
        thread = std::thread([this, initial_size] { run(initial_size); });
    }
    ~growing_pool() {
        stop.store(true);
        if (thread.joinable()) thread.join();
    }

    void run(std::size_t target) {
        const rmm::detail::driver_scope same_driver(driver);
        try {
            rmm::detail::check(driver.set_current_device(device));
            std::size_t segment = smallest_segment;
            while (!stop.load() && pool.engine().grow_ahead(segment, target))
                segment = std::clamp(pool.held_bytes(), smallest_segment, largest_segment);
        } catch (const std::exception& e) {
            // A request that needs the missing memory retries the growth, and throws with the reason.
            rmm::detail::report_misuse("a pinned pool could not grow ahead: ", e.what());
        }
        const kmm::locks::Guard in(mutex);
        grown = true;
        changed.notify_all();
    }

    pinned_host_memory_resource segments;
    detail::pool pool;
    detail::driver::Driver& driver;
    const int device;
    std::atomic<bool> stop{false};
    kmm::locks::Mutex mutex;
    kmm::locks::Condition changed;
    bool grown KMM_GUARDED_BY(mutex) = false;
    std::thread thread;
};

pinned_pool_memory_resource::pinned_pool_memory_resource(std::size_t initial_size,
                                                         std::optional<std::size_t> maximum_size)
    : pool_{std::make_unique<growing_pool>(initial_size, maximum_size)} {}

pinned_pool_memory_resource::~pinned_pool_memory_resource() {
    if (rmm::detail::lost_in_fork()) (void)pool_.release();  // its thread does not exist here
}

std::size_t pinned_pool_memory_resource::pool_size() const noexcept { return pool_->pool.held_bytes(); }

std::size_t pinned_pool_memory_resource::wait_until_grown() {
    rmm::detail::refuse_after_fork();
    kmm::locks::Lock lock(pool_->mutex);
    while (!pool_->grown) pool_->changed.wait(lock);
    return pool_->pool.held_bytes();
}

pool_statistics pinned_pool_memory_resource::statistics() const { return pool_->pool.statistics(); }

std::size_t pinned_pool_memory_resource::trim(std::size_t keep_bytes) {
    rmm::detail::refuse_after_fork();
    pool_->stop.store(true);
    wait_until_grown();
    return pool_->pool.trim(keep_bytes);
}

void pinned_pool_memory_resource::set_name(char const* name) { pool_->pool.set_name(name); }

detail::pool& pinned_pool_memory_resource::implementation() noexcept { return pool_->pool; }

void* pinned_pool_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    return pool_->pool.allocate(bytes, stream);
}

void pinned_pool_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    pool_->pool.deallocate(ptr, bytes, stream);
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
