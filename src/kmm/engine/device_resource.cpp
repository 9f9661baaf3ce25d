// The compiled part of Resource, HostResource and DeviceResource: work on the task's stream, through the driver.
//
// Owns: nothing. Must not know: tasks, arrays. The thread that runs the task.
#include "kmm/engine/device_resource.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "driver/format.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm {

Resource::~Resource() = default;
HostResource::~HostResource() = default;
DeviceResource::~DeviceResource() = default;

DeviceResource::DeviceResource(const DeviceInfo& info, driver::Driver& driver, void* stream)
    : DeviceInfo(info), driver_(&driver), stream_(stream) {}

namespace {

using detail::max_rank;
using detail::StridedBox;

driver::StreamHandle handle(void* stream) noexcept { return driver::StreamHandle{stream}; }

/// One axis of a strided operation on two boxes (a fill has one). Strides in bytes.
struct Axis2 {
    std::int64_t size = 1;
    std::int64_t to_stride = 0;
    std::int64_t from_stride = 0;
};

/// The axes of a box, innermost first, those of size 1 left out and those merged that are one in both boxes.
struct AxisList {
    Axis2 axes[max_rank];
    std::size_t count = 0;
    bool empty = false;

    AxisList(std::size_t rank, const std::int64_t* sizes, const StridedBox& to, const StridedBox& from,
             std::int64_t element_bytes) {
        for (std::size_t k = rank; k-- > 0;) {
            if (sizes[k] <= 0) empty = true;
            if (sizes[k] == 1) continue;
            const Axis2 next{sizes[k], to.strides[k] * element_bytes, from.strides[k] * element_bytes};
            if (count > 0) {
                Axis2& last = axes[count - 1];
                if (next.to_stride == last.to_stride * last.size && next.from_stride == last.from_stride * last.size) {
                    last.size *= next.size;
                    continue;
                }
            }
            axes[count++] = next;
        }
    }

    /// Takes the innermost axis away if its elements lie one behind the other in both boxes; its size, else 1.
    std::int64_t take_contiguous(std::int64_t element_bytes) noexcept {
        if (count == 0 || axes[0].to_stride != element_bytes || axes[0].from_stride != element_bytes) return 1;
        return take_first().size;
    }

    Axis2 take_first() noexcept {
        const Axis2 first = axes[0];
        std::copy(axes + 1, axes + count, axes);
        count--;
        return first;
    }
};

/// Calls `action(to_offset, from_offset)` (bytes) for every index of the axes.
template<typename Action>
void for_each_index(const Axis2* axes, std::size_t count, std::int64_t to_offset, std::int64_t from_offset,
                    const Action& action) {
    if (count == 0) {
        action(to_offset, from_offset);
        return;
    }
    const Axis2& outer = axes[count - 1];
    for (std::int64_t i = 0; i < outer.size; i++) {
        for_each_index(axes, count - 1, to_offset + i * outer.to_stride, from_offset + i * outer.from_stride, action);
    }
}

char* at(void* base, std::int64_t offset) noexcept { return static_cast<char*>(base) + offset; }

bool is_pitch(std::int64_t stride, std::int64_t at_least) noexcept { return stride >= at_least; }

/// A plane pitch must be a whole number of rows: vendors' interfaces count it in rows.
bool is_plane_pitch(std::int64_t plane, std::int64_t row, std::int64_t height) noexcept {
    return row > 0 && plane >= row * height && plane % row == 0;
}

}  // namespace

void DeviceResource::synchronize() const {
    detail::check_device(*driver_, device_ordinal(), driver_->synchronize_stream(handle(stream_)),
                         "waiting for a task's stream");
}

void DeviceResource::copy_bytes(const void* from, void* to, std::size_t num_bytes) const {
    if (num_bytes == 0) return;
    detail::check_device(*driver_, device_ordinal(), driver_->copy(to, from, num_bytes, handle(stream_)),
                         "a copy in a task");
}

void DeviceResource::fill_elements(void* pointer, const void* value, std::size_t element_bytes, std::size_t n) const {
    if (detail::checked_bytes("fill", n, element_bytes) == 0) return;
    detail::check_device(*driver_, device_ordinal(), driver_->fill(pointer, value, element_bytes, n, handle(stream_)),
                         "a fill in a task");
}

void DeviceResource::fill_bytes(void* pointer, std::size_t num_bytes, const void* pattern,
                                std::size_t pattern_bytes) const {
    if (pattern_bytes < 1 || pattern_bytes > 64) {
        throw InvalidArgument(driver::format("fill_bytes: the pattern has {} bytes; give 1 to 64", pattern_bytes));
    }
    if (num_bytes % pattern_bytes != 0) {
        throw InvalidArgument(driver::format("fill_bytes: {} bytes are not a multiple of the pattern's {} bytes",
                                             num_bytes, pattern_bytes));
    }
    fill_elements(pointer, pattern, pattern_bytes, num_bytes / pattern_bytes);
}

void DeviceResource::fill_box(std::size_t rank, const std::int64_t* sizes, const StridedBox& box, const void* value,
                              std::size_t element_bytes) const {
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    detail::check_reach("fill", rank, sizes, box.strides, element_bytes);
    AxisList list(rank, sizes, box, box, bytes);
    if (list.empty) return;
    const auto run = static_cast<std::size_t>(list.take_contiguous(bytes));
    for_each_index(list.axes, list.count, 0, 0, [&](std::int64_t offset, std::int64_t) {
        fill_elements(at(box.data, offset), value, element_bytes, run);
    });
}

void DeviceResource::copy_box(std::size_t rank, const std::int64_t* to_sizes, const std::int64_t* from_sizes,
                              const StridedBox& to, const StridedBox& from, std::size_t element_bytes) const {
    for (std::size_t k = 0; k < rank; k++) {
        if (to_sizes[k] != from_sizes[k]) {
            throw InvalidArgument(driver::format("copy: the source has {} elements along axis {} and the destination "
                                                 "{}; both views must have equal sizes",
                                                 from_sizes[k], k, to_sizes[k]));
        }
    }
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    detail::check_reach("copy", rank, to_sizes, to.strides, element_bytes);
    detail::check_reach("copy", rank, from_sizes, from.strides, element_bytes);
    AxisList list(rank, to_sizes, to, from, bytes);
    if (list.empty) return;
    const std::int64_t width = list.take_contiguous(bytes) * bytes;
    driver::BoxCopy copy;
    copy.width_bytes = static_cast<std::size_t>(width);
    copy.destination_row_pitch = copy.source_row_pitch = copy.width_bytes;
    if (list.count > 0 && is_pitch(list.axes[0].to_stride, width) && is_pitch(list.axes[0].from_stride, width)) {
        const Axis2 row = list.take_first();
        copy.height = static_cast<std::size_t>(row.size);
        copy.destination_row_pitch = static_cast<std::size_t>(row.to_stride);
        copy.source_row_pitch = static_cast<std::size_t>(row.from_stride);
        if (list.count > 0 && is_plane_pitch(list.axes[0].to_stride, row.to_stride, row.size) &&
            is_plane_pitch(list.axes[0].from_stride, row.from_stride, row.size)) {
            const Axis2 plane = list.take_first();
            copy.depth = static_cast<std::size_t>(plane.size);
            copy.destination_plane_pitch = static_cast<std::size_t>(plane.to_stride);
            copy.source_plane_pitch = static_cast<std::size_t>(plane.from_stride);
        }
    }
    if (copy.depth == 1) {
        copy.destination_plane_pitch = copy.destination_row_pitch * copy.height;
        copy.source_plane_pitch = copy.source_row_pitch * copy.height;
    }
    for_each_index(list.axes, list.count, 0, 0, [&](std::int64_t to_offset, std::int64_t from_offset) {
        if (copy.height == 1 && copy.depth == 1) {
            copy_bytes(at(from.data, from_offset), at(to.data, to_offset), copy.width_bytes);
            return;
        }
        copy.destination = at(to.data, to_offset);
        copy.source = at(from.data, from_offset);
        detail::check_device(*driver_, device_ordinal(), driver_->copy_box(copy, handle(stream_)),
                             "a strided copy in a task");
    });
}

void DeviceResource::require_kernel_mode(detail::LauncherInfo::Mode mode) const {
    detail::require_kernel_mode(driver_->kind(), mode, "DeviceResource::launch");
}

void DeviceResource::launch_packed(const void* kernel, const std::uint32_t (&grid)[3], const std::uint32_t (&block)[3],
                                   std::uint32_t shared_bytes, const void* parameters,
                                   std::size_t parameter_bytes) const {
    detail::check_launch_geometry(*this, grid, block, shared_bytes);
    driver::KernelLaunch launch;
    launch.function = kernel;
    launch.grid = {grid[0], grid[1], grid[2]};
    launch.block = {block[0], block[1], block[2]};
    launch.shared_bytes = shared_bytes;
    launch.parameters = parameters;
    launch.parameter_bytes = parameter_bytes;
    if (hooks_ != nullptr) launch.hooks = *hooks_;
    detail::check_device(*driver_, device_ordinal(), driver_->prepare_kernel(kernel, shared_bytes),
                         "preparing a kernel");
    detail::check_device(*driver_, device_ordinal(), driver_->launch(launch, handle(stream_)), "launching a kernel");
}

namespace detail {
std::size_t checked_bytes(const char* what, std::size_t n, std::size_t element_bytes) {
    std::size_t bytes = 0;
    if (!mul_overflows(n, element_bytes, bytes) && bytes <= std::numeric_limits<std::ptrdiff_t>::max()) return bytes;
    throw InvalidArgument(
        driver::format("{}: {} elements of {} bytes have more bytes than 63 bits can count", what, n, element_bytes));
}

void throw_wrong_resource(const char* wanted) {
    throw InvalidResourceException(driver::format("Resource::cast: this task runs on no {} resource", wanted));
}
}  // namespace detail

}  // namespace kmm
