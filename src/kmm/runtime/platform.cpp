// Which driver and devices a runtime uses, and how much of their memory.
#include "kmm/runtime/platform.hpp"

#include "driver/format.hpp"

#include <algorithm>
#include <atomic>

#include "driver/byte_size.hpp"
#include "driver/check.hpp"
#include "driver/machine.hpp"
#include "driver/registry.hpp"
#include "kmm/base/text.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/error.hpp"
#include "kmm/supply/device_memory.hpp"

namespace kmm::detail {

namespace {

// Of most devices, for kernels that use few registers: those of others fill a device with fewer.
constexpr std::uint64_t threads_of_multiprocessor = 2048;

std::atomic<std::uint16_t> next_runtime_number{1};

std::shared_ptr<driver::Driver> choose_driver(const RuntimeConfig& config) {
    driver::Kind kind = driver::Kind::host;
    if (config.driver == DriverKind::Auto) {
        for (const driver::Candidate& c : driver::candidates()) {
            if (!c.usable) continue;
            kind = c.kind;
            break;
        }
    } else if (config.driver != DriverKind::Host) {
        kind = config.driver == DriverKind::CUDA ? driver::Kind::cuda : driver::Kind::hip;
    }
    std::string reason;
    // A resource of the program's is made on the driver of the process: so must be the runtime.
    if (kind == driver::Kind::host && config.device_memory_kind == DeviceMemoryKind::Resource) {
        auto shared = driver::open(kind, &reason);
        if (shared == nullptr) throw NotAvailable("the host driver cannot be used: " + reason);
        return shared;
    }
    if (kind == driver::Kind::host) {
        if (config.virtual_devices < 1 || config.virtual_devices > MAX_DEVICES)
            throw InvalidArgument(
                driver::format("virtual_devices is {}: use 1 to {}", config.virtual_devices, MAX_DEVICES));
        driver::HostOptions options;
        options.num_devices = static_cast<int>(config.virtual_devices);
        const std::size_t tier =
            static_cast<std::size_t>(static_cast<double>(driver::machine_memory_bytes()) * config.host_memory_fraction);
        options.memory_bytes = config.virtual_device_memory != 0
                                   ? config.virtual_device_memory
                                   : std::min(tier, config.host_memory_limit) / 3 / config.virtual_devices;
        // Memory below 2 MiB cannot be mapped in pages; the driver then still gives it piece by piece.
        options.memory_bytes = std::max<std::size_t>(options.memory_bytes, 4096);
        options.num_threads = static_cast<int>(config.host_threads);
        options.stack_bytes = config.fiber_stack;
        return driver::make_host_driver(options);
    }
    auto driver = driver::open(kind, &reason);
    if (driver == nullptr)
        throw NotAvailable(
            driver::format("the {} driver cannot be used: {}; use KMM_DRIVER=auto or host", driver_text(kind), reason));
    return driver;
}

void check_fraction(double value, const char* name) {
    if (!(value > 0 && value <= 1))
        throw InvalidArgument(
            driver::format("{} is {}: use a value above 0 and at most 1", name, driver::fixed_text(value, 6)));
}

void check_seconds(double value, const char* name, const char* what_zero_is) {
    if (!(value >= 0))
        throw InvalidArgument(driver::format("{} is {}: use seconds from 0 ({}) up; infinity is never", name,
                                             driver::fixed_text(value, 6), what_zero_is));
}

static_assert(MIN_FIBER_STACK == driver::smallest_stack_bytes && MAX_FIBER_STACK == driver::largest_stack_bytes);

void check_config(const RuntimeConfig& c) {
    check_seconds(c.watchdog, "watchdog", "off");
    check_seconds(c.memory_wait, "memory_wait", "at once");
    if (c.host_threads > MAX_HOST_THREADS)
        throw InvalidArgument(
            driver::format("host_threads is {}: use 0 (usable CPUs) to {}", c.host_threads, MAX_HOST_THREADS));
    if (c.fiber_stack < MIN_FIBER_STACK || c.fiber_stack > MAX_FIBER_STACK)
        throw InvalidArgument(driver::format("fiber_stack is {}: use {} to {}", c.fiber_stack,
                                             driver::byte_size_text(MIN_FIBER_STACK),
                                             driver::byte_size_text(MAX_FIBER_STACK)));
    check_fraction(c.device_memory_fraction, "device_memory_fraction");
    check_fraction(c.host_memory_fraction, "host_memory_fraction");
    if (c.device_concurrent_streams < 1 || c.device_concurrent_streams > 64)
        throw InvalidArgument(
            driver::format("device_concurrent_streams is {}: use 1 to 64", c.device_concurrent_streams));
    if (!c.spill_directory.empty())
        throw NotAvailable(
            "the disk tier is not offered by this version of kmm: leave spill_directory (KMM_SPILL_DIR) empty");
}

/// Automatic is resolved; what the driver or the program does not have is refused.
DeviceMemoryKind memory_kind(const RuntimeConfig& config, const driver::Driver& driver, std::size_t num_devices) {
    const driver::Capabilities can = driver.capabilities();
    const auto refuse = [&](const char* name, const char* missing) {
        throw NotAvailable(driver::format(
            "device_memory_kind (KMM_DEVICE_POOL) is {}, but the {} driver has no {}: leave it alone, or use caching",
            name, driver.name(), missing));
    };
    switch (config.device_memory_kind) {
    case DeviceMemoryKind::Automatic: return can.virtual_memory ? DeviceMemoryKind::Vmm : DeviceMemoryKind::CachingPool;
    case DeviceMemoryKind::Vmm:
        if (!can.virtual_memory) refuse("vmm", "virtual memory");
        break;
    case DeviceMemoryKind::DefaultPool:
        if (!can.memory_pools) refuse("default", "memory pools");
        break;
    case DeviceMemoryKind::PrivatePool:
        if (!can.memory_pools) refuse("private", "memory pools");
        break;
    case DeviceMemoryKind::CachingPool:
    case DeviceMemoryKind::NoPool: break;
    case DeviceMemoryKind::Resource:
        if (config.device_resource.size() != num_devices)
            throw InvalidArgument(driver::format(
                "device_memory_kind is Resource and device_resource has {} entries for {} devices: give one for each",
                config.device_resource.size(), num_devices));
        for (const DeviceMemorySource& s : config.device_resource)
            if (s.allocate == nullptr || s.deallocate == nullptr)
                throw InvalidArgument("device_resource has an entry without functions: make it from a resource");
        break;
    }
    return config.device_memory_kind;
}

std::size_t free_memory_now(const void* driver, int ordinal) {
    std::size_t free_bytes = 0, total = 0;
    (void)static_cast<driver::Driver*>(const_cast<void*>(driver))->memory_info(ordinal, &free_bytes, &total);
    return free_bytes;
}

bool attribute_now(const void* driver, int ordinal, int number, int* value) {
    return static_cast<driver::Driver*>(const_cast<void*>(driver))->attribute(ordinal, number, value).ok();
}

}  // namespace

Platform::Platform(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver)
    : config_(config), driver_(std::move(driver)) {
    if (driver::lost_in_fork())
        throw Closed(std::string("no runtime can be made here: ") + driver::LostInFork().what());
    check_config(config);
    if (driver_ == nullptr) driver_ = choose_driver(config);
    while (number_ == 0) number_ = next_runtime_number.fetch_add(1);
    on_host_driver_ = driver_->kind() == driver::Kind::host;
    choose_devices();
    config_.device_memory_kind = memory_kind(config_, *driver_, ordinals_.size());
    if (config_.host_threads == 0) config_.host_threads = std::min(driver::usable_processors(), MAX_HOST_THREADS);
    // Longer than any wait, and clocks could overflow: off.
    constexpr double longest_watch_seconds = 1e9;
    if (config_.watchdog > longest_watch_seconds) config_.watchdog = 0;
    set_limits();
    describe();
}

void Platform::choose_devices() {
    const int present = driver_->device_count();
    if (config_.devices.empty())
        for (int i = 0; i < present; ++i) ordinals_.push_back(i);
    for (const int d : config_.devices) {
        if (d < 0 || d >= present)
            throw InvalidArgument(driver::format("devices names GPU {}, but the {} driver has {} (numbered from 0)", d,
                                                 driver_->name(), present));
        if (std::find(ordinals_.begin(), ordinals_.end(), d) != ordinals_.end())
            throw InvalidArgument(driver::format("devices names GPU {} twice", d));
        ordinals_.push_back(d);
    }
}

std::string Platform::place_text(const ResourceId& where) const {
    if (where.is_host()) return "the host";
    return detail::place_text(driver_kind(driver_->kind()), where.as_device().get());
}

void Platform::set_limits() {
    const auto fraction_of = [](double fraction, std::size_t whole) {
        return static_cast<std::size_t>(fraction * static_cast<double>(whole));
    };
    std::size_t host =
        std::min(config_.host_memory_limit, fraction_of(config_.host_memory_fraction, driver::machine_memory_bytes()));
    // Virtual devices live in the machine's memory too: what they may use is taken out of the host tier, of which a
    // quarter stays for the host however large they were asked to be.
    const std::size_t most_of_virtual_device = (host - host / 4) / std::max<std::size_t>(1, ordinals_.size());
    limits_.resize_for_devices(ordinals_.size());
    pieces_.resize(ordinals_.size());
    for (const memory::MemoryIndex m : limits_.device_memories()) {
        std::size_t free_bytes = 0, total = 0;
        driver::check(*driver_, driver_->memory_info(ordinals_[m.device()], &free_bytes, &total),
                      "ask a device for its memory");
        std::size_t limit = fraction_of(config_.device_memory_fraction, total);
        limit -= std::min(limit, config_.device_memory_keep_free);
        limit = std::min(limit, config_.device_memory_limit);
        pieces_[m.device()] = supply::piece_bytes(*driver_, ordinals_[m.device()], config_.device_memory_kind);
        limit = std::min(limit, whole_pieces(m.device(), total));
        if (on_host_driver_) {
            limit = std::min(limit, most_of_virtual_device);
            host -= limit;
        }
        limits_[m] = limit;
    }
    limits_[memory::MemoryIndex::host()] = host;
}

std::size_t Platform::whole_pieces(std::uint32_t device, std::size_t bytes) const noexcept {
    const std::size_t piece = pieces_[device];
    return bytes < piece ? bytes : bytes / piece * piece;
}

void Platform::describe() {
    SystemDescription system;
    const std::size_t n = ordinals_.size();
    peers_.assign(n, std::vector<bool>(n, false));
    system.peer_access.assign(n * n, false);
    for (std::size_t i = 0; i < n; ++i) {
        describe_device(i, system);
        connect_peers(i, system);
    }
    system.driver = driver_kind(driver_->kind());
    system.driver_version = driver_->version();
    system.host_memory_bytes = driver::machine_memory_bytes();
    system.runtime_number = number_;
    info_ = std::make_unique<SystemInfo>(std::move(system));
}

void Platform::describe_device(std::size_t i, SystemDescription& system) {
    driver::DeviceProperties p;
    driver::check(*driver_, driver_->properties(ordinals_[i], &p), "ask a device for its properties");
    const auto threads = static_cast<std::uint64_t>(std::max(1, p.multiprocessors)) * threads_of_multiprocessor;
    threads_at_once_ = i == 0 ? threads : std::min(threads_at_once_, threads);
    DeviceDescription d;
    d.name = p.name;
    d.device_id = DeviceId(static_cast<std::uint8_t>(i));
    d.device_ordinal = ordinals_[i];
    d.total_memory_bytes = p.total_memory_bytes;
    d.memory_limit_bytes = limits_[memory::MemoryIndex::of_device(static_cast<std::uint32_t>(i))];
    for (int k = 0; k < 3; ++k) {
        d.max_block_dim[k] = static_cast<std::uint32_t>(p.max_block_dim[k]);
        d.max_grid_dim[k] = static_cast<std::uint32_t>(std::min<std::int64_t>(p.max_grid_dim[k], UINT32_MAX));
    }
    d.max_threads_per_block = static_cast<std::uint32_t>(p.max_threads_per_block);
    d.compute_capability = p.compute_capability;
    d.max_shared_memory_per_block = p.max_shared_memory_per_block;
    d.num_compute_streams = config_.device_concurrent_streams;
    d.pci_bus_id = p.pci_bus_id;
    d.uuid = p.uuid;
    d.attribute = attribute_now;
    d.free_memory = free_memory_now;
    d.driver = driver_;
    system.devices.emplace_back(std::move(d));
}

void Platform::connect_peers(std::size_t i, SystemDescription& system) {
    const std::size_t n = ordinals_.size();
    for (std::size_t j = 0; j < n; ++j) {
        bool can = false;
        if (i == j || !driver_->can_access_peer(ordinals_[i], ordinals_[j], &can).ok() || !can) continue;
        peers_[i][j] = driver_->enable_peer(ordinals_[i], ordinals_[j]).ok();
        system.peer_access[i * n + j] = peers_[i][j];
    }
}

}  // namespace kmm::detail
