// Notifies objects with locks and buffers of fork and exit; identifies threads.
//
// Owns: the list of those objects. Must not know: what they are. Any thread.
#pragma once

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// An object that must be consistent when the process forks. Objects are notified in the order of `place` and of their
/// construction, the lock order, so that they cannot deadlock; after the fork in the reverse order.
class process_observer {
  public:
    /// Who writes to loggers or sinks; loggers; sinks. The log of kmm writes to the program's handler.
    enum class place { log, logger, sink };

    process_observer(const process_observer&) = delete;
    process_observer& operator=(const process_observer&) = delete;

    /// Takes every lock of the object, on the thread that forks.
    virtual void before_fork() noexcept = 0;
    /// Gives the locks back. In the child no other thread exists any more.
    virtual void after_fork(bool in_child) noexcept = 0;
    /// exit() runs: what is pending must leave, and from now on nothing may be held back.
    virtual void at_exit() noexcept = 0;

  protected:
    process_observer() = default;
    ~process_observer() = default;

    /// From when the object is whole, until before it is taken apart. No lock of the object may be held.
    void enlist(place where);
    void withdraw(place where) noexcept;
};

/// The operating system's number of the calling thread. Cheap after a thread's first call.
int thread_id() noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
