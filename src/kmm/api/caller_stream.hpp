// What the calling thread has put on its stream, as something that work on other streams can come after.
//
// Owns: events recorded on streams of the caller's. Must not know: arrays, tasks. The calling thread makes it; any asks.
#pragma once

#include <cstddef>

#include "kmm/detail/runtime_core.hpp"
#include "kmm/execute/runtime_core.hpp"

namespace kmm::detail {

class CallerStream {
  public:
    /// For work of `core` with memory of the program on the device `ordinal`. Inside GPU(f) the caller's stream is the task's;
    /// else the default stream that `means` names, of that device and of the thread's current one.
    /// IA if it is captured: nothing was recorded then. DE.
    CallerStream(RuntimeCore& core, int ordinal, DefaultStream means, const char* what);
    ~CallerStream() { drop(); }
    CallerStream(const CallerStream&) = delete;
    CallerStream& operator=(const CallerStream&) = delete;

    /// What is put on `stream` from now on comes after what the caller had put on its own.
    driver::Status order(driver::StreamHandle stream) const noexcept;
    /// Whether all of that is done already.
    bool passed() const noexcept;

  private:
    void record(int ordinal, driver::StreamHandle stream, const char* what);
    void drop() noexcept;

    driver::Driver& driver_;
    driver::EventHandle events_[2];
    std::size_t count_ = 0;
};

}  // namespace kmm::detail
