// What the program holds: the bytes of all chunks that have content and whose array has a handle, in the order of
// submission.
//
// Owns: one number. Must not know: arrays, memories. Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace kmm::graph {

/// A chunk counts from the submit that writes it first, whether its tasks have run or not, until the last handle of its
/// array is dropped. Upper bound of live content for a task that is submitted now, at the time when all earlier tasks
/// have run: an array without a handle is used by earlier tasks only.
class HeldBytes {
  public:
    /// Under the order lock.
    void add(std::size_t bytes) noexcept { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
    /// When the schedule has been sent the array's release: a submit that counts without the array is behind it.
    void remove(std::size_t bytes) noexcept { bytes_.fetch_sub(bytes, std::memory_order_release); }
    std::size_t now() const noexcept { return bytes_.load(std::memory_order_acquire); }

  private:
    std::atomic<std::size_t> bytes_{0};
};

}  // namespace kmm::graph
