// One piece of work of a stream or graph: what to do, with everything it needs copied into it.
//
// Owns: the record and the code that carries it out. Must not know: streams, threads, order. `perform` runs on workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"

namespace kmm::driver::host {

class Stream;
struct Event;

enum class WorkKind : std::uint8_t { none, wait, timestamp, copy, box, fill, callback, kernel };

/// Not before `stream` has completed `position`.
struct WaitWork {
    Stream* stream;
    std::uint64_t position;
};

/// Stores the time into the event, unless the event was recorded again since.
struct TimestampWork {
    Event* event;
    std::uint64_t record;
};

struct FillWork {
    void* destination;
    std::size_t pattern_bytes;
    std::size_t count;
    std::byte pattern[64];
};

struct CallbackWork {
    HostCallback function;
    void* user;
};

struct KernelWork {
    const HostKernel* kernel;
    HostLaunchGeometry geometry;
    KernelHooks hooks;
    std::uint64_t num_blocks;
    std::size_t parameter_bytes;

    std::uint64_t num_threads() const noexcept {
        return num_blocks * geometry.block[0] * geometry.block[1] * geometry.block[2];
    }
};

/// Movable only by `copy_from`. Keeps its extra memory when it is used again, so that a stream's records stop
/// allocating.
class Work {
  public:
    WorkKind kind = WorkKind::none;
    union {
        WaitWork wait;
        TimestampWork timestamp;
        CopyPiece copy;
        BoxCopy box;
        FillWork fill;
        CallbackWork callback;
        KernelWork kernel;
    };

    Work() noexcept : wait{} {}
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work();

    void set_wait(Stream* stream, std::uint64_t position) noexcept;
    void set_timestamp(Event* event, std::uint64_t record) noexcept;
    void set_copy(const CopyPiece& piece) noexcept;
    /// Copies the source bytes now. Throws std::bad_alloc.
    void set_staged_copy(const CopyPiece& piece);
    void set_box(const BoxCopy& box) noexcept;
    void set_fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count) noexcept;
    void set_callback(HostCallback function, void* user) noexcept;
    /// The launch must have passed `valid_launch`. Throws std::bad_alloc.
    void set_kernel(const KernelLaunch& launch);
    /// Throws std::bad_alloc.
    void copy_from(const Work& other);

    const void* parameters() const noexcept { return kernel.parameter_bytes > inline_bytes ? extra_ : inline_; }

  private:
    // Covers launches with three views and some numbers; larger ones use `extra_`, which is kept.
    static constexpr std::size_t inline_bytes = 192;

    std::byte* need_extra(std::size_t bytes);

    alignas(64) std::byte inline_[inline_bytes];
    std::byte* extra_ = nullptr;
    std::size_t extra_bytes_ = 0;
};

/// Geometry within the limits of a device and a kernel to call.
bool valid_launch(const KernelLaunch& launch) noexcept;
bool valid_box(const BoxCopy& box) noexcept;

/// Copies, fills and callbacks. Kernels are run in ranges of blocks by `Executor`.
void perform(const Work& work);

}  // namespace kmm::driver::host
