// Owns: how a record of work is filled and carried out (work.hpp). Filling runs on the enqueuing thread, `perform` on a
// worker.
#include "driver/host/work.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "driver/host/limits.hpp"

namespace kmm::driver::host {
namespace {

// Over-aligned parameters (vector types) are at most this.
constexpr std::align_val_t extra_alignment{64};

bool fits(Dim3 value, const std::int64_t (&most)[3]) noexcept {
    return value.x >= 1 && value.y >= 1 && value.z >= 1 && value.x <= most[0] && value.y <= most[1] &&
           value.z <= most[2];
}

void perform_box(const BoxCopy& box) {
    auto* destination = static_cast<std::byte*>(box.destination);
    const auto* source = static_cast<const std::byte*>(box.source);
    for (std::size_t plane = 0; plane < box.depth; ++plane) {
        std::byte* to = destination + plane * box.destination_plane_pitch;
        const std::byte* from = source + plane * box.source_plane_pitch;
        for (std::size_t row = 0; row < box.height; ++row) {
            std::memmove(to, from, box.width_bytes);
            to += box.destination_row_pitch;
            from += box.source_row_pitch;
        }
    }
}

void perform_fill(const FillWork& fill) {
    auto* destination = static_cast<std::byte*>(fill.destination);
    const std::size_t total = fill.pattern_bytes * fill.count;
    const bool one_byte =
        std::all_of(fill.pattern, fill.pattern + fill.pattern_bytes, [&](std::byte b) { return b == fill.pattern[0]; });
    if (one_byte) {
        std::memset(destination, static_cast<int>(fill.pattern[0]), total);
        return;
    }
    // Doubles a filled piece up to a size that stays in the first-level cache, then repeats it.
    constexpr std::size_t piece_limit = 8192;
    std::size_t piece = std::min(total, fill.pattern_bytes);
    std::memcpy(destination, fill.pattern, piece);
    while (piece < total && piece * 2 <= piece_limit) {
        const std::size_t more = std::min(piece, total - piece);
        std::memcpy(destination + piece, destination, more);
        piece += more;
    }
    for (std::size_t done = piece; done < total;) {
        const std::size_t more = std::min(piece, total - done);
        std::memcpy(destination + done, destination, more);
        done += more;
    }
}

}  // namespace

Work::~Work() {
    if (extra_ != nullptr) ::operator delete(extra_, extra_alignment);
}

std::byte* Work::need_extra(std::size_t bytes) {
    if (bytes > extra_bytes_) {
        auto* memory = static_cast<std::byte*>(::operator new(bytes, extra_alignment));
        if (extra_ != nullptr) ::operator delete(extra_, extra_alignment);
        extra_ = memory;
        extra_bytes_ = bytes;
    }
    return extra_;
}

void Work::set_wait(Stream* stream, std::uint64_t position) noexcept {
    kind = WorkKind::wait;
    wait = {stream, position};
}

void Work::set_timestamp(Event* event, std::uint64_t record) noexcept {
    kind = WorkKind::timestamp;
    timestamp = {event, record};
}

void Work::set_copy(const CopyPiece& piece) noexcept {
    kind = WorkKind::copy;
    copy = piece;
}

void Work::set_staged_copy(const CopyPiece& piece) {
    std::byte* staged = piece.size_bytes > inline_bytes ? need_extra(piece.size_bytes) : inline_;
    std::memcpy(staged, piece.source, piece.size_bytes);
    kind = WorkKind::copy;
    copy = {piece.destination, staged, piece.size_bytes};
}

void Work::set_box(const BoxCopy& b) noexcept {
    kind = WorkKind::box;
    box = b;
}

void Work::set_fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count) noexcept {
    kind = WorkKind::fill;
    fill.destination = destination;
    fill.pattern_bytes = pattern_bytes;
    fill.count = count;
    std::memcpy(fill.pattern, pattern, pattern_bytes);
}

void Work::set_callback(HostCallback function, void* user) noexcept {
    kind = WorkKind::callback;
    callback = {function, user};
}

void Work::set_kernel(const KernelLaunch& launch) {
    std::byte* to = launch.parameter_bytes > inline_bytes ? need_extra(launch.parameter_bytes) : inline_;
    if (launch.parameter_bytes != 0) std::memcpy(to, launch.parameters, launch.parameter_bytes);
    kind = WorkKind::kernel;
    kernel.kernel = static_cast<const HostKernel*>(launch.function);
    kernel.geometry = {{launch.grid.x, launch.grid.y, launch.grid.z},
                       {launch.block.x, launch.block.y, launch.block.z},
                       launch.shared_bytes,
                       0};
    kernel.hooks = launch.hooks;
    kernel.num_blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
    kernel.parameter_bytes = launch.parameter_bytes;
}

void Work::copy_from(const Work& other) {
    switch (other.kind) {
    case WorkKind::none: break;
    case WorkKind::wait: wait = other.wait; break;
    case WorkKind::timestamp: timestamp = other.timestamp; break;
    case WorkKind::copy: copy = other.copy; break;
    case WorkKind::box: box = other.box; break;
    case WorkKind::fill: fill = other.fill; break;
    case WorkKind::callback: callback = other.callback; break;
    case WorkKind::kernel: {
        const std::size_t bytes = other.kernel.parameter_bytes;
        std::byte* to = bytes > inline_bytes ? need_extra(bytes) : inline_;
        if (bytes != 0) std::memcpy(to, other.parameters(), bytes);
        kernel = other.kernel;
        break;
    }
    }
    kind = other.kind;
}

bool valid_launch(const KernelLaunch& launch) noexcept {
    if (launch.function == nullptr || static_cast<const HostKernel*>(launch.function)->run_blocks == nullptr)
        return false;
    if (!fits(launch.grid, max_grid_dim) || !fits(launch.block, max_block_dim)) return false;
    if (std::uint64_t{launch.block.x} * launch.block.y * launch.block.z > max_threads_per_block) return false;
    if (launch.shared_bytes > max_shared_memory_per_block) return false;
    return launch.parameter_bytes == 0 || launch.parameters != nullptr;
}

bool valid_box(const BoxCopy& box) noexcept {
    if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) return true;  // copies nothing
    if (box.destination == nullptr || box.source == nullptr) return false;
    if (box.height > 1 && (box.destination_row_pitch < box.width_bytes || box.source_row_pitch < box.width_bytes))
        return false;
    return box.depth == 1 ||
           (box.destination_plane_pitch >= box.width_bytes && box.source_plane_pitch >= box.width_bytes);
}

void perform(const Work& work) {
    switch (work.kind) {
    case WorkKind::copy:
        if (work.copy.size_bytes != 0) std::memmove(work.copy.destination, work.copy.source, work.copy.size_bytes);
        break;
    case WorkKind::box: perform_box(work.box); break;
    case WorkKind::fill: perform_fill(work.fill); break;
    case WorkKind::callback: work.callback.function(work.callback.user); break;
    case WorkKind::none:
    case WorkKind::wait:
    case WorkKind::timestamp:
    case WorkKind::kernel: break;
    }
}

}  // namespace kmm::driver::host
