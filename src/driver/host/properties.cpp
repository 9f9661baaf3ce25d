// Owns: what the host driver says about itself and its devices. Any thread.
#include <unistd.h>

#include <limits>

#include "driver/format.hpp"
#include "driver/host/host_driver.hpp"
#include "driver/host/limits.hpp"

namespace kmm::driver::host {
namespace {

struct ErrorText {
    const char* name;
    const char* text;
};

ErrorText describe(Code code) {
    switch (code) {
    case Code::ok: return {"ok", "no error"};
    case Code::not_ready: return {"not_ready", "the work has not finished yet"};
    case Code::out_of_memory: return {"out_of_memory", "out of memory"};
    case Code::invalid_argument: return {"invalid_argument", "invalid argument"};
    case Code::invalid_handle: return {"invalid_handle", "no such stream, event, pool, graph or kernel (any more)"};
    case Code::not_supported: return {"not_supported", "the host driver cannot do this"};
    case Code::capture_error:
        return {"capture_error", "not permitted during a capture, or the capture was invalidated"};
    case Code::launch_failed: return {"launch_failed", "a kernel threw an exception"};
    case Code::device_lost: return {"device_lost", "the device is lost"};
    case Code::shut_down: return {"shut_down", "the driver has been shut down"};
    case Code::no_device: return {"no_device", "no usable device"};
    case Code::unknown: break;
    }
    return {"unknown", "unknown error"};
}

/// CUDA's numbers (cudaDeviceAttr), as far as they mean something for a virtual device.
bool find_attribute(int number, int num_threads, int device, int* out) {
    constexpr int warp_size = 32;
    const auto set = [out](std::int64_t value) {
        *out = static_cast<int>(value);
        return true;
    };
    switch (number) {
    case 1: return set(max_threads_per_block);
    case 2: return set(max_block_dim[0]);
    case 3: return set(max_block_dim[1]);
    case 4: return set(max_block_dim[2]);
    case 5: return set(max_grid_dim[0]);
    case 6: return set(max_grid_dim[1]);
    case 7: return set(max_grid_dim[2]);
    case 8:                                            // shared memory per block
    case 81:                                           // ... per multiprocessor
    case 97: return set(max_shared_memory_per_block);  // ... per block with opt-in
    case 9: return set(64 << 10);                      // constant memory
    case 10: return set(warp_size);
    case 11: return set(std::numeric_limits<int>::max());  // pitch
    case 14: return set(memory_alignment);                 // texture alignment
    case 15: return set(1);                                // copies overlap with kernels
    case 16: return set(num_threads);                      // multiprocessors
    case 17: return set(0);                                // no time limit of kernels
    case 18: return set(0);                                // not integrated: memory has its own budget
    case 19: return set(1);                                // host memory can be mapped
    case 20: return set(0);                                // default compute mode
    case 31: return set(1);                                // concurrent kernels
    case 32: return set(0);                                // error correction
    case 33: return set(0);                                // PCI bus
    case 34: return set(device);                           // PCI device
    case 39: return set(max_threads_per_block);            // threads per multiprocessor
    case 40: return set(2);                                // copy engines
    case 41: return set(1);                                // unified addresses
    case 50: return set(0);                                // PCI domain
    case 75:                                               // compute capability, major
    case 76: return set(0);                                // ... minor
    case 78: return set(1);                                // stream priorities
    case 83: return set(1);                                // managed memory
    case 86: return set(1);                                // atomics between host and device
    case 88: return set(1);                                // pageable memory can be accessed
    case 89: return set(1);                                // managed memory can be accessed concurrently
    case 115: return set(1);                               // memory pools
    case 119: return set(0);                               // handles by which other processes open pools
    default: return false;
    }
}

}  // namespace

int HostDriver::version() const noexcept { return 1; }

Capabilities HostDriver::capabilities() const noexcept {
    Capabilities can;
    can.virtual_memory = can.memory_pools = can.managed_memory = can.managed_pools = true;
    can.kernels_by_handle = can.graphs = can.stream_capture = can.host_callbacks = true;
    can.batch_copies = can.stream_ids = can.asynchronous_kernel_errors = true;
    can.device_event = device_events_;
    return can;
}

const char* HostDriver::error_name(Status status) const noexcept { return describe(status.code).name; }

const char* HostDriver::error_text(Status status) const noexcept { return describe(status.code).text; }

Status HostDriver::properties(int device, DeviceProperties* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        const std::string number = std::to_string(device);
        DeviceProperties properties;
        properties.name = "Virtual device " + number;
        properties.total_memory_bytes = memory_.capacity_bytes();
        properties.copy_engines = 2;
        properties.multiprocessors = executor_.num_threads();
        properties.max_threads_per_block = max_threads_per_block;
        for (int axis = 0; axis < 3; ++axis) {
            properties.max_block_dim[axis] = static_cast<int>(max_block_dim[axis]);
            properties.max_grid_dim[axis] = max_grid_dim[axis];
        }
        properties.max_shared_memory_per_block = max_shared_memory_per_block;
        properties.pci_bus_id = "host:" + number;
        properties.uuid = driver::format("host-{}-{}-{}", getpid(), number_, number);
        *out = std::move(properties);
        return {};
    });
}

Status HostDriver::attribute(int device, int number, int* out) noexcept {
    if (!valid_device(device)) return fail(Code::invalid_argument);
    return find_attribute(number, executor_.num_threads(), device, out) ? Status{} : fail(Code::invalid_argument);
}

}  // namespace kmm::driver::host
