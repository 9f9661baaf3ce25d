// What the program holds: the bytes of all chunks that have content and whose array has a handle, in the order of
// submission.
//
// Owns: one number. Must not know: arrays, memories. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace kmm::graph {

/// A chunk counts from the submit on that writes it first, whether its tasks have run or not, until the last handle of
/// its array goes. A task that is submitted later finds no more than this when all tasks before it have run: who used a
/// chunk that does not count any more was submitted before its handle went.
class HeldBytes {
  public:
    /// Under the order lock.
    void add(std::size_t bytes) noexcept { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
    /// Before the array's release is told, so that no submit after it counts what has gone.
    void remove(std::size_t bytes) noexcept { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
    std::size_t now() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::size_t> bytes_{0};
};

}  // namespace kmm::graph
