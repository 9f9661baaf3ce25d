// Whether this process is the child of a fork that left it without drivers.
//
// A fork copies one thread. What a driver keeps for its parent, threads, streams, memory, does not exist in the child,
// no vendor's driver works there, and a lock that another thread held is never given back. A fork before the first use
// of a driver loses nothing. Owns: the mark, the count of uses, the words for it. Must not know: drivers. Any thread.
#pragma once

#include <atomic>
#include <stdexcept>

namespace kmm::driver {

namespace detail {
extern std::atomic<bool> lost;
}  // namespace detail

/// True in the child (and its children) of a process that had used a driver, or had begun to. To be asked before
/// locks, waits and calls of a driver. Costs one load; never changes within a process.
inline bool lost_in_fork() noexcept { return detail::lost.load(std::memory_order_relaxed); }

/// Says that drivers cannot be used in this child, and names fork and spawn.
class LostInFork : public std::runtime_error {
  public:
    LostInFork();
};

/// Throws LostInFork in such a child.
void expect_not_lost();

/// A driver is about to be opened, or a lock that a child might wait for is about to be taken: a fork from here on
/// loses the driver, for good if it is `kept`.
class DriverUse {
  public:
    DriverUse() noexcept;
    ~DriverUse();
    DriverUse(const DriverUse&) = delete;
    DriverUse& operator=(const DriverUse&) = delete;
    void keep() noexcept { kept_ = true; }

  private:
    bool kept_ = false;
};

}  // namespace kmm::driver
