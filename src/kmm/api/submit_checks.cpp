// Owns: the checks of launches against a device's limits, and who runs a task. The submitting thread.
#include "kmm/detail/submit_checks.hpp"

#include <string>

#include "kmm/api/device_error.hpp"
#include "kmm/error.hpp"

namespace kmm::detail {

namespace {

constexpr char axis_names[3] = {'x', 'y', 'z'};

[[noreturn]] void throw_host_target() {
    throw InvalidResourceException(
        "a GPU or GPUKernel launcher cannot run on the host: name a device as the owner of the chunk, or use Host(f)");
}

[[noreturn]] void throw_no_such_device(DeviceId device, std::size_t num_devices) {
    throw InvalidResourceException("device " + std::to_string(int {device.get()}) + " does not belong to this runtime, which has " +
                                   std::to_string(num_devices) + (num_devices == 1 ? " device" : " devices"));
}

[[noreturn]] void throw_zero(const char* what, int axis) {
    throw InvalidArgument(std::string("GPUKernel: ") + what + " " + axis_names[axis] + " is 0; it must be at least 1");
}

[[noreturn]] void throw_above(const char* what, int axis, std::int64_t value, std::int64_t limit, const DeviceInfo& device,
                              const char* remedy) {
    std::string text = std::string("GPUKernel: ") + what;
    if (axis >= 0) text += std::string(" ") + axis_names[axis];
    text += " is " + std::to_string(value) + ", but " + device.name() + " (GPU " + std::to_string(int {device.device_id().get()}) +
            ") allows at most " + std::to_string(limit) + "; " + remedy;
    throw InvalidArgument(text);
}

void check_block(const DeviceDescription& limits, const DeviceInfo& device, const std::uint32_t (&block)[3], std::size_t shared_bytes) {
    std::int64_t threads = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (block[axis] == 0) throw_zero("block", axis);
        if (block[axis] > limits.max_block_dim[axis]) {
            throw_above("block", axis, block[axis], limits.max_block_dim[axis], device, "use a smaller block");
        }
        threads *= block[axis];  // at most 2^31 after each check of an axis against a device's 1024, 1024, 64
    }
    if (threads > std::int64_t {limits.max_threads_per_block}) {
        throw_above("the number of threads per block", -1, threads, limits.max_threads_per_block, device, "use a smaller block");
    }
    if (shared_bytes > limits.max_shared_memory_per_block) {
        throw_above("the dynamic shared memory in bytes", -1, static_cast<std::int64_t>(shared_bytes),
                    static_cast<std::int64_t>(limits.max_shared_memory_per_block), device, "use less shared memory");
    }
}

void check_grid(const DeviceDescription& limits, const DeviceInfo& device, const std::int64_t (&grid)[3]) {
    for (int axis = 0; axis < 3; axis++) {
        if (grid[axis] == 0) throw_zero("grid", axis);
        if (grid[axis] > std::int64_t {limits.max_grid_dim[axis]}) {
            throw_above("grid", axis, grid[axis], limits.max_grid_dim[axis], device,
                        "use smaller chunks or more elements per block along this axis");
        }
    }
}

}  // namespace

ResourceId task_resource(ResourceId owner, ExecutionSpace space, const SystemInfo& info) {
    if (space == ExecutionSpace::Host) {
        return owner.is_device() ? ResourceId::host(owner.as_device()) : owner;
    }
    if (!owner.is_device()) throw_host_target();
    const DeviceId device = owner.as_device();
    if (device.get() >= info.num_devices()) throw_no_such_device(device, info.num_devices());
    const DeviceStreamSet streams = owner.stream_affinity();
    if (!streams.is_empty() && streams != DeviceStreamSet::all()) {
        throw NotAvailable("sets of streams (ResourceId(device, streams)) are not offered by this version of kmm; name the device alone");
    }
    return ResourceId(device);
}

bool plan_kernel(const KernelGeometry& geometry, const DomainChunk& chunk, const DeviceInfo& device, KernelDraft& draft) {
    const DeviceDescription& limits = device.description();
    check_block(limits, device, geometry.block, geometry.shared_bytes);
    if (chunk.size.is_empty()) return false;
    std::int64_t grid[3];
    for (int axis = 0; axis < 3; axis++) {
        const std::int64_t elements = geometry.elements[axis];
        if (geometry.has_grid) {
            grid[axis] = geometry.grid[axis];
        } else {
            if (elements == 0) throw_zero("elements_per_block", axis);
            const std::int64_t size = chunk.size[static_cast<std::size_t>(axis)];
            grid[axis] = (size - 1) / elements + 1;
        }
    }
    check_grid(limits, device, grid);
    for (int axis = 0; axis < 3; axis++) {
        draft.grid[axis] = static_cast<std::uint32_t>(grid[axis]);
        draft.block[axis] = geometry.block[axis];
    }
    draft.shared_bytes = static_cast<std::uint32_t>(geometry.shared_bytes);
    return true;
}

void check_launch_geometry(const DeviceInfo& device, const std::uint32_t (&grid)[3], const std::uint32_t (&block)[3],
                           std::size_t shared_bytes) {
    check_block(device.description(), device, block, shared_bytes);
    check_grid(device.description(), device, {grid[0], grid[1], grid[2]});
}

void check_scratch(std::size_t scratch_bytes) {
    if (scratch_bytes == 0) return;
    throw NotAvailable("declared scratch memory (GPU::scratch) is not offered by this version of kmm; pass an array with overwrite(..) instead");
}

}  // namespace kmm::detail
