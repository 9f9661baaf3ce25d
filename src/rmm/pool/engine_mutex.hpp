// The lock of a pool's engine.
//
// Owns: the lock, and the streams whose last reference was dropped under it: `unlock` destroys them, for
// which the driver is called, when the lock is free again. Must not know: the engine. Any thread; a Lockable,
// for std::unique_lock.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "rmm/pool/short_lock.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Waiters read its line of the cache again and again: nothing lies there that is used without it.
class alignas(64) engine_mutex {
  public:
    void lock() noexcept { lock_.lock(); }
    bool try_lock() noexcept { return lock_.try_lock(); }
    void unlock() noexcept {
        if (gone_.empty()) [[likely]]
            return lock_.unlock();
        const rmm::detail::gone_streams leaving = std::move(gone_);
        lock_.unlock();
    }
    /// Only with the lock.
    rmm::detail::gone_streams& gone() noexcept { return gone_; }

  private:
    rmm::detail::short_lock lock_;
    rmm::detail::gone_streams gone_;
};

/// Lets a lock go for a scope; it is back whichever way the scope ends.
class unlocked {
  public:
    explicit unlocked(std::unique_lock<engine_mutex>& held) noexcept : held_(held) { held_.unlock(); }
    ~unlocked() { held_.lock(); }
    unlocked(const unlocked&) = delete;
    unlocked& operator=(const unlocked&) = delete;

  private:
    std::unique_lock<engine_mutex>& held_;
};

/// Until `done()`. The condition variable lets the lock go under a lock of its own: streams that have gone are
/// destroyed before.
template<typename Done>
void wait(std::condition_variable_any& wake, std::unique_lock<engine_mutex>& held, Done done) {
    while (!done()) {
        if (held.mutex()->gone().empty())
            wake.wait(held);
        else
            const unlocked without(held);
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
