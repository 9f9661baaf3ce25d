// Owns: the checks of launches against a device's limits, and who runs a task. The submitting thread.
#include "kmm/detail/submit_checks.hpp"

#include <string>
#include <type_traits>
#include <typeinfo>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/error.hpp"

namespace kmm::detail {

namespace {

constexpr char axis_names[3] = {'x', 'y', 'z'};

/// A launch that is being checked: what messages say about it.
struct Launch {
    const DeviceInfo& device;

    std::string place() const {
        // Only virtual devices have no compute capability.
        return place_text(device.compute_capability() == 0 ? DriverKind::Host : DriverKind::CUDA,
                          device.device_id().get());
    }
    [[noreturn]] void throw_zero(const char* what, int axis) const {
        throw InvalidArgument(driver::format("the kernel's {} {} is 0; it must be at least 1", what, axis_names[axis]));
    }
    /// `axis` -1: the limit has none.
    [[noreturn]] void throw_above(const char* what, int axis, std::int64_t value, std::int64_t limit,
                                  const char* remedy) const {
        std::string text = driver::format("the kernel's {}", what);
        if (axis >= 0) text += std::string(" ") + axis_names[axis];
        text +=
            driver::format(" is {}, but {} ({}) allows at most {}; {}", value, place(), device.name(), limit, remedy);
        throw InvalidArgument(text);
    }

    void check_block(const std::uint32_t (&block)[3], std::size_t shared_bytes) const {
        const DeviceDescription& limits = device.description();
        std::int64_t threads = 1;
        for (int axis = 0; axis < 3; axis++) {
            if (block[axis] == 0) throw_zero("block", axis);
            if (block[axis] > limits.max_block_dim[axis]) {
                throw_above("block", axis, block[axis], limits.max_block_dim[axis], "use a smaller block");
            }
            threads *= block[axis];  // each factor is below a device's limit of about a thousand
        }
        if (threads > std::int64_t{limits.max_threads_per_block}) {
            throw_above("number of threads per block", -1, threads, limits.max_threads_per_block,
                        "use a smaller block");
        }
        if (shared_bytes > limits.max_shared_memory_per_block) {
            throw_above("dynamic shared memory in bytes", -1, static_cast<std::int64_t>(shared_bytes),
                        static_cast<std::int64_t>(limits.max_shared_memory_per_block), "use less shared memory");
        }
    }
    void check_grid(const std::int64_t (&grid)[3]) const {
        const DeviceDescription& limits = device.description();
        for (int axis = 0; axis < 3; axis++) {
            if (grid[axis] == 0) throw_zero("grid", axis);
            if (grid[axis] > std::int64_t{limits.max_grid_dim[axis]}) {
                throw_above("grid", axis, grid[axis], limits.max_grid_dim[axis],
                            "use smaller chunks or more elements per block along this axis");
            }
        }
    }
};

}  // namespace

ResourceId task_resource(ResourceId owner, ExecutionSpace space, const SystemInfo& info) {
    if (owner.is_host()) {
        if (space == ExecutionSpace::Host) return owner;
        throw InvalidResourceException("a GPU or GPUKernel launcher cannot run on the host: name a device as the owner "
                                       "of the chunk, or use Host(f)");
    }
    if (space != ExecutionSpace::Host) return allowed_resource(info, owner);
    check_has_device(info, owner.as_device());
    return ResourceId::host(owner.as_device());
}

bool set_launch_dimensions(const KernelGeometry& geometry, const DomainChunk& chunk, const DeviceInfo& device,
                           KernelDraft& draft) {
    const Launch launch{device};
    launch.check_block(geometry.block, geometry.shared_bytes);
    for (int axis = 0; axis < 3; axis++) {
        if (!geometry.has_grid && geometry.elements[axis] == 0) launch.throw_zero("elements_per_block", axis);
    }
    if (chunk.size.is_empty()) return false;
    std::int64_t grid[3];
    for (int axis = 0; axis < 3; axis++) {
        const std::int64_t size = chunk.size[static_cast<std::size_t>(axis)];
        grid[axis] = geometry.has_grid ? std::int64_t{geometry.grid[axis]} : (size - 1) / geometry.elements[axis] + 1;
    }
    launch.check_grid(grid);
    for (int axis = 0; axis < 3; axis++) {
        draft.grid[axis] = static_cast<std::uint32_t>(grid[axis]);
        draft.block[axis] = geometry.block[axis];
    }
    draft.shared_bytes = static_cast<std::uint32_t>(geometry.shared_bytes);
    return true;
}

void check_launch_geometry(const DeviceInfo& device, const std::uint32_t (&grid)[3], const std::uint32_t (&block)[3],
                           std::size_t shared_bytes) {
    const Launch launch{device};
    launch.check_block(block, shared_bytes);
    launch.check_grid({grid[0], grid[1], grid[2]});
}

void throw_no_function() { throw InvalidArgument("the function of the launcher is a null pointer: name a function"); }

void check_scratch(std::size_t scratch_bytes) {
    if (scratch_bytes == 0) return;
    throw NotAvailable("declared scratch memory (GPU::scratch) is not offered by this version of kmm; pass an array "
                       "with overwrite(..) instead");
}

void rethrow_with_submit(const LauncherInfo& launcher) {
    const auto text_with = [&](const Error& error) {
        return driver::format("{}: {}", text_of(launcher), error.what());
    };
    const auto add_submit = [&](const auto& error) {
        using Class = std::decay_t<decltype(error)>;
        // A program's own kinds of errors pass as they are.
        if (error.where().is_known() || typeid(error) != typeid(Class)) throw;
        throw Class(text_with(error), launcher.location);
    };
    try {
        throw;
    } catch (const InvalidArgument& error) {
        add_submit(error);
    } catch (const InvalidResourceException& error) {
        add_submit(error);
    } catch (const NotAvailable& error) {
        add_submit(error);
    } catch (const GPURuntimeException& error) {
        if (error.where().is_known()) throw;
        throw GPURuntimeException(text_with(error), error.driver(), error.device(), error.status, error.status_name(),
                                  error.is_sticky(), launcher.location);
    }
    throw;
}

}  // namespace kmm::detail
