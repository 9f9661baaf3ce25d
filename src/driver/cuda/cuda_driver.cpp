// Finding out whether a GPU is there; errors; devices.
//
// Owns: the probe and the contexts. Must not know: rmm, kmm. Any thread.
#include "driver/cuda/cuda_driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <mutex>

#include "driver/cuda/calls.hpp"
#include "driver/format.hpp"

namespace kmm::driver::vendor {

namespace {

struct NumbersOfCode {
    Code code;
    std::initializer_list<Result> numbers;
};

constexpr NumbersOfCode failures[] = {
    {Code::invalid_argument, {1, 9, 12, 13, 16, 17, 20, 21, 22, 101, 217, 705, 711, 712, 713, 910, 912}},
    {Code::out_of_memory, {2}},
    {Code::shut_down, {4}},
    {Code::no_device, {3, 34, 35, 46, 100, 802, 803, 804}},
    {Code::not_supported, {31, 36, 215, 800, 801}},
    {Code::invalid_handle, {201, 400, 401, 500}},
    // An image or a function that does not fit the device, too few registers for the block: the next launch may work.
    {Code::launch_failed, {98, 200, 209, 218, 222, 701, 703, 720}},
    {Code::device_lost, {53, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721}},
    {Code::not_ready, {600}},
    {Code::capture_error, {900, 901, 902, 903, 904, 905, 906, 907, 908}},
};

}  // namespace

Code code_of(Result native) noexcept {
    if (native == 0) return Code::ok;
    for (const NumbersOfCode& row : failures) {
        if (std::find(row.numbers.begin(), row.numbers.end(), native) != row.numbers.end()) return row.code;
    }
    return Code::unknown;
}

const char* VendorDriver::name() const noexcept { return driver_name; }

const char* VendorDriver::error_name(Status status) const noexcept { return vendor::error_name(status.native); }

const char* VendorDriver::error_text(Status status) const noexcept { return vendor::error_text(status.native); }

Status VendorDriver::take_last_error() noexcept {
    const Result native = vendor::take_last_error();
    return {code_of(native), native};
}

// ---- probe

namespace {

std::string version_text(int version) { return driver::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string number_text(Result native) {
    return driver::format("{} ({}: {})", error_name(native), native, error_text(native));
}

/// Why a machine without a usable device has none, with what the person in front of it can look at.
std::string refusal(Result native, int count) {
    std::string text;
    if (native == 35 || native == 34) {
        text = driver::format("no usable {} driver", vendor_name);
    } else if (native == 100 || (native == 0 && count == 0)) {
        text = "the driver reports no device";
    } else {
        text = "the driver failed";
    }
    if (native != 0) text += ": " + number_text(native);
    if (::access(device_file, F_OK) != 0) text += driver::format("; {} does not exist", device_file);
    if (const char* visible = std::getenv(visible_devices_variable)) {
        text += driver::format("; {} is '{}'", visible_devices_variable, visible);
    }
    return text;
}

Capabilities find_capabilities(int num_devices, int version) noexcept {
    Capabilities found;
    found.managed_memory = true;
    found.memory_pools = true;
    for (int device = 0; device < num_devices; ++device) {
        int answer = 0;
        found.managed_memory &= runtime_status(supports_managed_memory(&answer, device)).ok() && answer != 0;
        answer = 0;
        found.memory_pools &= runtime_status(supports_memory_pools(&answer, device)).ok() && answer != 0;
    }
    found.managed_pools = managed_pools_version != 0 && version >= managed_pools_version;
    found.hardware_decompression = decompression_version != 0 && version >= decompression_version;
    found.virtual_memory = has_virtual_memory();
    found.device_event = has_device_event();
    found.batch_copies = copy_batch_version != 0 && version >= copy_batch_version;
    found.kernels_by_handle = true;
    found.graphs = true;
    found.stream_capture = true;
    found.host_callbacks = true;
    found.stream_ids = true;
    return found;
}

std::string finding(int num_devices, int version) {
    RawProperties properties{};
    std::string text = count_text(static_cast<std::size_t>(num_devices), "device");
    if (runtime_status(device_properties(&properties, 0)).ok()) {
        text += driver::format(" ({}{})", properties.name, num_devices == 1 ? "" : ", ...");
    }
    return driver::format("{}, driver for {}, built with {}", text, version_text(version), version_text(built_version));
}

}  // namespace

std::shared_ptr<Driver> make_driver(Kind kind, std::string* reason, int* num_devices) {
    std::string text;
    int count = 0;
    int version = 0;
    std::shared_ptr<Driver> made;
    const Result counted = device_count(&count);
    (void)vendor::take_last_error();
    if (counted != 0 || count <= 0) {
        text = refusal(counted, 0);
        count = 0;
    } else {
        count = std::min(count, VendorDriver::max_devices);
        (void)runtime_status(driver_version(&version));
        // The table is the process's, while drivers may be made several times (tests do).
        static std::once_flag loaded;
        static std::string missing;
        std::call_once(loaded, [] {
            if (load_entry_points(&missing)) missing.clear();
        });
        if (!missing.empty()) {
            text = driver::format("the installed driver (for {}) is too old: it has no {}", version_text(version),
                                  missing);
        } else {
            made = std::make_shared<VendorDriver>(kind, count, version, find_capabilities(count, version));
            text = finding(count, version);
        }
    }
    if (reason) *reason = text;
    if (num_devices) *num_devices = count;
    return made;
}

// ---- devices

Status VendorDriver::context_of(int device, void** out) noexcept {
    if (!is_device(device)) return no_such_device;
    void* context = contexts_[device].load(std::memory_order_acquire);
    if (context == nullptr) [[unlikely]] {
        RelaxedInteraction relaxed;
        // Two threads may both come here: the driver gives both the same context and counts one more owner.
        if (const Result made = primary_context(&context, device)) return runtime_status(made);
        contexts_[device].store(context, std::memory_order_release);
    }
    *out = context;
    return {};
}

Status VendorDriver::current_device(int* out) noexcept {
    if (num_devices_ == 1) {  // whatever context the thread has or will get
        *out = 0;
        return {};
    }
    // The primary contexts live as long as the process: one that the thread has seen keeps its device.
    struct Seen {
        void* context = nullptr;
        int device = -1;
    };
    thread_local Seen last;
    void* const context = current_context();
    if (context != nullptr && context == last.context) [[likely]] {
        *out = last.device;
        return {};
    }
    const Status status = runtime_status(vendor::current_device(out));
    if (!status.ok() || !is_device(*out)) return status;
    if (context != nullptr) {
        void* primary = nullptr;
        if (context_of(*out, &primary).ok() && primary == context) last = {context, *out};
    } else if (void* const primary = contexts_[*out].load(std::memory_order_acquire); primary != nullptr) {
        // A thread that has no context yet pays for every question until it has the one that it would get anyway.
        (void)set_current_context(primary);
    }
    return status;
}

Status VendorDriver::set_current_device(int device) noexcept {
    void* context = nullptr;
    if (const Status status = context_of(device, &context); !status.ok()) return status;
    return library_status(set_current_context(context));
}

Status VendorDriver::attribute(int device, int number, int* out) noexcept {
    if (!is_device(device)) return no_such_device;
    return runtime_status(device_attribute(out, number, device));
}

namespace {

std::string uuid_text(const unsigned char* bytes) {
    std::string text = "GPU";
    char hex[3];
    for (int i = 0; i < 16; ++i) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(bytes[i]));
        text += hex;
    }
    return text;
}

}  // namespace

Status VendorDriver::properties(int device, DeviceProperties* out) noexcept {
    if (!is_device(device)) return no_such_device;
    RawProperties raw{};
    if (const Result failed = device_properties(&raw, device)) return runtime_status(failed);
    char bus[32] = "";
    if (const Result failed = vendor::pci_bus_id(bus, sizeof bus, device)) return runtime_status(failed);
    int numa_node = -1;
    if (!runtime_status(host_numa_node(&numa_node, device)).ok()) numa_node = -1;
    try {
        out->name = raw.name;
        out->pci_bus_id = bus;
        out->uuid = uuid_text(raw.uuid);
    } catch (...) {
        return {Code::out_of_memory, 0};
    }
    out->total_memory_bytes = raw.total_memory_bytes;
    out->compute_capability = raw.major * 10 + raw.minor;
    out->copy_engines = raw.copy_engines;
    out->multiprocessors = raw.multiprocessors;
    out->numa_node = numa_node;
    out->max_threads_per_block = raw.max_threads_per_block;
    std::copy_n(raw.max_block_dim, 3, out->max_block_dim);
    std::copy_n(raw.max_grid_dim, 3, out->max_grid_dim);
    out->max_shared_memory_per_block = raw.shared_memory_opt_in;
    return {};
}

Status VendorDriver::memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept {
    if (!is_device(device)) return no_such_device;
    DeviceGuard guard(*this, device);
    return runtime_status(vendor::memory_info(free_bytes, total_bytes));
}

Status VendorDriver::can_access_peer(int device, int peer, bool* out) noexcept {
    if (!is_device(device) || !is_device(peer)) return no_such_device;
    if (device == peer) {
        *out = true;
        return {};
    }
    int answer = 0;
    const Status status = runtime_status(vendor::can_access_peer(&answer, device, peer));
    *out = answer != 0;
    return status;
}

Status VendorDriver::enable_peer(int device, int peer) noexcept {
    if (!is_device(device) || !is_device(peer)) return no_such_device;
    if (device == peer) return {};
    const std::uint64_t bit = std::uint64_t{1} << device;
    if (readers_of_[peer].load(std::memory_order_acquire) & bit) return {};
    RelaxedInteraction relaxed;
    {
        DeviceGuard guard(*this, device);
        if (const Result failed = vendor::enable_peer(peer)) return runtime_status(failed);
    }
    if (capabilities_.memory_pools) {
        Pool pool{};
        if (const Result failed = vendor::default_pool(&pool, peer)) return runtime_status(failed);
        if (const Result failed = let_pool_be_read_from(pool, device)) return runtime_status(failed);
    }
    readers_of_[peer].fetch_or(bit, std::memory_order_release);
    return {};
}

Status VendorDriver::synchronize_device(int device) noexcept {
    if (!is_device(device)) return no_such_device;
    RelaxedInteraction relaxed;
    DeviceGuard guard(*this, device);
    return runtime_status(synchronize_current_device());
}

}  // namespace kmm::driver::vendor

#if !defined(KMM_VENDOR_HIP)
std::shared_ptr<kmm::driver::Driver> kmm::driver::make_cuda_driver(std::string* reason, int* num_devices) {
    return vendor::make_driver(Kind::cuda, reason, num_devices);
}
#endif
