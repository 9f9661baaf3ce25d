// Starting and ending a runtime: driver, devices, limits, threads.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "driver/byte_size.hpp"
#include "driver/check.hpp"
#include "driver/machine.hpp"
#include "driver/nvtx_ranges.hpp"
#include "driver/registry.hpp"
#include "kmm/base/log.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

namespace {

// Launcher threads of each device: device functions may block in a library, and two of them rarely do at once.
constexpr std::uint32_t launchers_per_device = 2;
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
            throw InvalidArgument("virtual_devices is " + std::to_string(config.virtual_devices) + ": use 1 to " +
                                  std::to_string(MAX_DEVICES));
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
        return driver::make_host_driver(options);
    }
    auto driver = driver::open(kind, &reason);
    if (driver == nullptr)
        throw NotAvailable(std::string("the ") + (kind == driver::Kind::cuda ? "cuda" : "hip") +
                           " driver cannot be used: " + reason + "; use KMM_DRIVER=auto or host");
    return driver;
}

void check_fraction(double value, const char* name) {
    if (!(value > 0 && value <= 1))
        throw InvalidArgument(std::string(name) + " is " + driver::fixed_text(value, 6) +
                              ": use a value above 0 and at most 1");
}

void check_seconds(double value, const char* name, const char* what_zero_is) {
    if (!(value >= 0))
        throw InvalidArgument(std::string(name) + " is " + driver::fixed_text(value, 6) + ": use seconds from 0 (" +
                              what_zero_is + ") up; infinity is never");
}

void check_config(const RuntimeConfig& c) {
    check_seconds(c.watchdog, "watchdog", "off");
    check_seconds(c.memory_wait, "memory_wait", "at once");
    if (c.host_threads > MAX_HOST_THREADS)
        throw InvalidArgument("host_threads is " + std::to_string(c.host_threads) + ": use 0 (usable CPUs) to " +
                              std::to_string(MAX_HOST_THREADS));
    check_fraction(c.device_memory_fraction, "device_memory_fraction");
    check_fraction(c.host_memory_fraction, "host_memory_fraction");
    if (c.device_concurrent_streams < 1 || c.device_concurrent_streams > 64)
        throw InvalidArgument("device_concurrent_streams is " + std::to_string(c.device_concurrent_streams) +
                              ": use 1 to 64");
    if (!c.spill_directory.empty())
        throw NotAvailable(
            "the disk tier is not offered by this version of kmm: leave spill_directory (KMM_SPILL_DIR) empty");
}

/// Automatic is resolved; what the driver or the program does not have is refused.
DeviceMemoryKind memory_kind(const RuntimeConfig& config, const driver::Driver& driver, std::size_t num_devices) {
    const driver::Capabilities can = driver.capabilities();
    const auto refuse = [&](const char* name, const char* missing) {
        throw NotAvailable(std::string("device_memory_kind (KMM_DEVICE_POOL) is ") + name + ", but the " +
                           driver.name() + " driver has no " + missing + ": leave it alone, or use caching");
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
            throw InvalidArgument("device_memory_kind is Resource and device_resource has " +
                                  std::to_string(config.device_resource.size()) + " entries for " +
                                  std::to_string(num_devices) + " devices: give one for each");
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

std::shared_ptr<RuntimeCore> RuntimeCore::start(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver) {
    if (driver::lost_in_fork())
        throw Closed(std::string("no runtime can be made here: ") + driver::LostInFork().what());
    check_config(config);
    if (driver == nullptr) driver = choose_driver(config);
    try {
        std::unique_ptr<RuntimeCore> core(new RuntimeCore(config, std::move(driver)));
        core->start_threads();
        // The last handle may go on one of the runtime's own threads, which cannot wait for itself.
        return std::shared_ptr<RuntimeCore>(core.release(), [](RuntimeCore* dying) {
            // The child of a fork has none of the threads, and what they waited on cannot even be destroyed: it is
            // left.
            if (driver::lost_in_fork()) return;
            if (!engine::RuntimeThread::of(dying)) return delete dying;
            try {
                std::thread([dying] { delete dying; }).detach();
            } catch (const std::exception&) {
                log::post(log::Level::error,
                          "a kmm runtime stays until the process ends: there is no thread to end it");
            }
        });
    } catch (const driver::DriverError& e) {
        throw DeviceError(e.what(), config.driver, -1, e.native(), e.name());
    } catch (const std::system_error& e) {
        throw NotAvailable(std::string("the system gives a runtime no threads (") + e.what() +
                           "): end some of the process's, or raise its limits (ulimit -u, -v)");
    }
}

RuntimeCore::RuntimeCore(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver)
    : config_(config),
      driver_(std::move(driver)),
      number_(next_runtime_number.fetch_add(1)),
      no_host_memory_(std::make_exception_ptr(OutOfMemory(
          MemoryId::host(), 0, 0, 0,
          "the host has no memory for the books of the runtime: the program, or others on the machine, use all "
          "that the system gives; submit less at a time, or lower KMM_HOST_MEM"))),
      started_(std::chrono::steady_clock::now()) {
    if (number_ == 0) number_ = next_runtime_number.fetch_add(1);
    graph::HostReserve::prepare();
    log::prepare();
    given_up_ = std::make_shared<graph::Failure>();
    given_up_->root = std::make_shared<graph::RootFailure>();
    given_up_->root->cause = no_host_memory_;
    given_up_->root->error = no_host_memory_;
    given_up_->root->delivered = true;
    on_host_driver_ = driver_->kind() == driver::Kind::host;
    const int present = driver_->device_count();
    if (config_.devices.empty())
        for (int i = 0; i < present; ++i) ordinals_.push_back(i);
    for (const int d : config_.devices) {
        if (d < 0 || d >= present)
            throw InvalidArgument("devices names GPU " + std::to_string(d) + ", but the " + driver_->name() +
                                  " driver has " + std::to_string(present) + " (numbered from 0)");
        if (std::find(ordinals_.begin(), ordinals_.end(), d) != ordinals_.end())
            throw InvalidArgument("devices names GPU " + std::to_string(d) + " twice");
        ordinals_.push_back(d);
    }
    config_.device_memory_kind = memory_kind(config_, *driver_, ordinals_.size());
    if (config_.host_threads == 0) config_.host_threads = std::min(driver::usable_processors(), MAX_HOST_THREADS);
    // So long nobody waits, and clocks could not count it.
    constexpr double longest_watch_seconds = 1e9;
    if (config_.watchdog > longest_watch_seconds) config_.watchdog = 0;
    set_limits();
    describe();
}

void RuntimeCore::set_limits() {
    const auto fraction_of = [](double fraction, std::size_t whole) {
        return static_cast<std::size_t>(fraction * static_cast<double>(whole));
    };
    std::size_t host =
        std::min(config_.host_memory_limit, fraction_of(config_.host_memory_fraction, driver::machine_memory_bytes()));
    // Virtual devices live in the machine's memory too: what they may use is taken out of the host tier, of which a
    // quarter stays for the host however large they were asked to be.
    const std::size_t most_of_virtual_device = (host - host / 4) / std::max<std::size_t>(1, ordinals_.size());
    limits_.resize_for_devices(ordinals_.size());
    for (const memory::MemoryIndex m : limits_.device_memories()) {
        std::size_t free_bytes = 0, total = 0;
        driver::check(*driver_, driver_->memory_info(ordinals_[m.device()], &free_bytes, &total),
                      "ask a device for its memory");
        std::size_t limit = fraction_of(config_.device_memory_fraction, total);
        limit -= std::min(limit, config_.device_memory_keep_free);
        limit = std::min(limit, config_.device_memory_limit);
        if (on_host_driver_) {
            limit = std::min(limit, most_of_virtual_device);
            host -= limit;
        }
        limits_[m] = limit;
    }
    limits_[memory::MemoryIndex::host()] = host;
}

void RuntimeCore::describe() {
    SystemDescription system;
    const std::size_t n = ordinals_.size();
    peers_.assign(n, std::vector<bool>(n, false));
    system.peer_access.assign(n * n, false);
    for (std::size_t i = 0; i < n; ++i) {
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
        for (std::size_t j = 0; j < n; ++j) {
            bool can = false;
            if (i == j || !driver_->can_access_peer(ordinals_[i], ordinals_[j], &can).ok() || !can) continue;
            peers_[i][j] = driver_->enable_peer(ordinals_[i], ordinals_[j]).ok();
            system.peer_access[i * n + j] = peers_[i][j];
        }
    }
    system.driver = on_host_driver_                         ? DriverKind::Host
                    : driver_->kind() == driver::Kind::cuda ? DriverKind::CUDA
                                                            : DriverKind::HIP;
    system.driver_version = driver_->version();
    system.host_memory_bytes = driver::machine_memory_bytes();
    system.runtime_number = number_;
    info_ = std::make_unique<SystemInfo>(std::move(system));
}

void RuntimeCore::start_threads() {
    schedule::SchedulerOptions options;
    options.num_devices = num_devices();
    options.compute_lanes = static_cast<std::uint32_t>(config_.device_concurrent_streams);
    options.launcher_lanes = launchers_per_device;
    options.host_threads = static_cast<std::uint32_t>(config_.host_threads);
    options.threads_at_once = threads_at_once_;
    options.debug = config_.debug_mode;
    options.functions_touch_memory = on_host_driver_;
    options.trace = &trace_;
    scheduler_ = std::make_unique<schedule::Scheduler>(static_cast<schedule::Outbox&>(*this), table_, options, limits_);
    begin_files_of_config();
    if (config_.nvtx && !driver::nvtx::has_ranges()) {
        log::write(log::Level::warn, "nvtx (KMM_NVTX) is on, but this build of kmm has no NVTX: build it with CUDA");
        config_.nvtx = false;
    }
    outgoing_.resize(num_devices());
    refused_at_ns_.resize_for_devices(ordinals_.size());
    lanes_ = std::make_unique<engine::Lanes>(*driver_, ordinals_, scheduler_->lanes_per_device());
    memory_service_ = std::make_unique<supply::MemoryService>(
        *lanes_, ordinals_, limits_, config_, config_.device_memory_kind, this, static_cast<engine::Mailbox&>(*this));
    for (std::uint32_t d = 0; d < num_devices(); ++d) {
        device_threads_.push_back(std::make_unique<engine::DeviceThread>(
            d, launchers_per_device, *lanes_, failed_tasks_, this, static_cast<engine::Mailbox&>(*this),
            static_cast<engine::ErrorMaker&>(*this), trace_, config_.trace_device_times, config_.nvtx));
        std::vector<graph::LaneId> lanes;
        lanes.reserve(launchers_per_device);
        for (std::uint32_t i = 0; i < launchers_per_device; ++i)
            lanes.push_back(scheduler_->lane(d, schedule::LaneRole::launcher, i));
        launchers_.push_back(
            std::make_unique<engine::LauncherThreads>(d, lanes, *lanes_, failed_tasks_, this, on_host_driver_,
                                                      static_cast<engine::LauncherThreads::Runner&>(*this),
                                                      static_cast<engine::Mailbox&>(*this), trace_, config_.nvtx));
    }
    scheduler_thread_ = std::thread([this] {
        engine::RuntimeThread mark(this);
        scheduler_loop();
    });
    for (std::uint32_t d = 0; d < num_devices(); ++d)
        shares_.push_back(std::make_unique<supply::DeviceShare>(
            static_cast<supply::ShareSource&>(*this), *driver_, d, ordinals_[d],
            "kmm runtime " + std::to_string(number_), config_.device_memory_kind != DeviceMemoryKind::Resource));
    // Last: where threads are scarce the pool gets what is left, and every task can still be run.
    host_pool_ = std::make_unique<engine::HostPool>(config_.host_threads, this, on_host_driver_,
                                                    static_cast<engine::Mailbox&>(*this), trace_, config_.nvtx);
    if (const std::size_t given = host_pool_->size(); given < config_.host_threads) {
        log::write(log::Level::warn, "runtime " + std::to_string(number_) + " runs host tasks on " +
                                         std::to_string(given) + " threads instead of " +
                                         std::to_string(config_.host_threads) +
                                         " (KMM_HOST_THREADS): the system gives no more");
        config_.host_threads = given;
    }
    threads_started_ = 2 + num_devices();
}

RuntimeCore::~RuntimeCore() {
    if (scheduler_thread_.joinable()) {
        // Every task has to finish, and every message (the release of the last array) has to be read.
        closed_.store(true);
        while (!idle() || !message_queue_.empty() || baton_.is_taken()) {
            if (!idle()) wait_idle();
            help();
            std::this_thread::yield();
        }
        shares_.clear();
        stop_scheduler_.store(true);
        scheduler_sleeper_.wake();
        scheduler_thread_.join();
    }
    shares_.clear();
    with_baton([this]() KMM_REQUIRES(baton_) { ends_ = true; });  // the memory service may still take the baton
    host_pool_.reset();
    launchers_.clear();
    device_threads_.clear();
    help();
    memory_service_.reset();
    delete_dropped_arrays();
    log_undelivered();
    log::flush();
}

void RuntimeCore::refuse_after_fork() const {
    if (driver::lost_in_fork())
        throw Closed("runtime " + std::to_string(number_) + " is not in this process: " + driver::LostInFork().what());
}

void RuntimeCore::throw_not_open() const {
    refuse_after_fork();
    if (closed_.load(std::memory_order_relaxed))
        throw Closed("runtime " + std::to_string(number_) + " was closed: make a new one");
    std::rethrow_exception(no_host_memory_);
}

// Without a task of its own: a barrier cannot be submitted to a runtime that is going.
void RuntimeCore::wait_idle() {
    const engine::Workers::Wait wait;  // the last handle may go in a task of another runtime
    unfinished_.wait_until_below(1);
}

}  // namespace kmm::detail
