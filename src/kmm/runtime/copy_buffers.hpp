// Page-locked buffers through which copies to the program's memory leave a device.
//
// Owns: a bounded number of buffers, and a stream of each device for the copies into them. They are beside the limits
// of the runtime's memories, so that a program can read its data out when these are full. Must not know: tasks, chunks.
// Any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/runtime/platform.hpp"

namespace kmm::detail {

class CopyBuffers {
  public:
    /// One half of a buffer is filled by the device while the other one is read.
    static constexpr std::size_t half_bytes = std::size_t{512} << 10;
    static constexpr std::size_t buffer_bytes = 2 * half_bytes;
    /// With eight threads or more the bandwidth of the host's memory is the limit.
    static constexpr std::size_t most_buffers = 8;

    /// Makes the streams: later the program may have taken all memory of a device. The first Hold tries again.
    explicit CopyBuffers(const Platform& platform) noexcept;
    ~CopyBuffers();
    CopyBuffers(const CopyBuffers&) = delete;
    CopyBuffers& operator=(const CopyBuffers&) = delete;

    /// While it lives there are buffers and streams: a copy that holds them from its beginning needs no more memory.
    class Hold {
      public:
        /// OM DE.
        explicit Hold(CopyBuffers& buffers);
        ~Hold();
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        CopyBuffers& buffers_;
    };
    /// One buffer. The constructor blocks until one is free: a thread that has one waits only for copies out of a
    /// device. Only while there is a Hold.
    class Buffer {
      public:
        explicit Buffer(CopyBuffers& buffers);
        ~Buffer();
        Buffer(const Buffer&) = delete;
        Buffer& operator=(const Buffer&) = delete;
        std::byte* half(std::size_t i) const noexcept { return address_ + i * half_bytes; }

      private:
        CopyBuffers& buffers_;
        std::byte* address_;
    };
    /// All copies out of a device are put on one stream. Only while there is a Hold. DE of a device that was lost.
    driver::StreamHandle stream(std::uint32_t device) const;

    /// Host memory in use by buffers now.
    std::size_t size_bytes() const;
    /// Frees all buffers, unless there is a Hold.
    void trim() noexcept;

  private:
    /// Memory of all buffers. Given back by `drop`.
    struct Memory {
        std::byte* address = nullptr;
        std::size_t num_buffers = 0;
        bool pinned = false;
    };
    struct Stream {
        driver::StreamHandle handle;
        driver::Status status;  ///< of a device that was lost: data that is elsewhere can still be read
    };
    Memory get_memory() const noexcept;
    void drop(const Memory& memory) const noexcept;
    void prepare();
    void make_streams();

    const Platform& platform_;
    mutable locks::Mutex mutex_;
    locks::Condition is_free_;
    Memory memory_ KMM_GUARDED_BY(mutex_);
    std::vector<std::byte*> free_ KMM_GUARDED_BY(mutex_);
    std::size_t holds_ KMM_GUARDED_BY(mutex_) = 0;
    bool is_preparing_ KMM_GUARDED_BY(mutex_) = false;  ///< a thread gets memory and streams
    std::vector<Stream> streams_;                       ///< by device; constant from the first Hold on
};

}  // namespace kmm::detail
