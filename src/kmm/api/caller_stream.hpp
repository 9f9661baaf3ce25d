// What the calling thread has put on its stream, as something that work on other streams can come after.
//
// Owns: events recorded on streams of the caller's. Must not know: arrays, tasks. The calling thread makes it; any
// asks.
#pragma once

#include <cstddef>

#include "kmm/detail/runtime_core.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

/// Memory of the program that is a device's. Managed memory is too: kernels that are on their way write it.
struct DeviceMemory {
    driver::Driver* driver = nullptr;  ///< null: it is the host's
    int ordinal = 0;
};
/// Of the runtime's driver, or where that is a host driver of another one in the process: runtimes and rmm have virtual
/// devices of their own there. The calling thread.
DeviceMemory device_memory_at(RuntimeCore& core, const void* address);

class CallerStream {
  public:
    /// For work of `core` with such memory. Inside GPU(f) the caller's stream is the task's; else the default stream
    /// that `means` names, of the memory's device and of the thread's current one. IA if it is captured: nothing was
    /// recorded then. DE.
    CallerStream(RuntimeCore& core, const DeviceMemory& memory, DefaultStream means, const char* what);
    ~CallerStream() { drop(); }
    CallerStream(const CallerStream&) = delete;
    CallerStream& operator=(const CallerStream&) = delete;

    /// What is put on `stream` from now on comes after what the caller had put on its own.
    driver::Status order(driver::StreamHandle stream) const noexcept;
    /// Whether all of that is done already.
    bool passed() const noexcept;
    /// Whether it is done within some microseconds: the event of a stream without work takes a few. Asks the driver
    /// all that time.
    bool passes_soon() const noexcept;
    /// Blocks until it is: for work on the host. DE.
    void wait() const;

  private:
    void record(int ordinal, driver::StreamHandle stream, const char* what);
    void drop() noexcept;

    driver::Driver& driver_;
    int ordinal_;
    driver::EventHandle events_[2];
    std::size_t count_ = 0;
};

}  // namespace kmm::detail
