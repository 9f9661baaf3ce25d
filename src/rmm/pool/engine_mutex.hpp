// The lock of a pool's engine.
//
// Owns: the lock, and the streams whose last reference was dropped under it: `unlock` destroys them, for
// which the driver is called, when the lock is free again. Must not know: the engine. Any thread; a Lockable,
// for engine_lock.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Waiters read its line of the cache again and again: nothing lies there that is used without it.
class KMM_CAPABILITY("mutex") alignas(64) engine_mutex {
  public:
    void lock() noexcept KMM_ACQUIRE() { lock_.lock(); }
    bool try_lock() noexcept KMM_TRY_ACQUIRE(true) { return lock_.try_lock(); }
    void unlock() noexcept KMM_RELEASE() {
        if (gone_.empty()) [[likely]]
            return lock_.unlock();
        const rmm::detail::gone_streams leaving = std::move(gone_);
        lock_.unlock();
    }
    /// Only with the lock.
    rmm::detail::gone_streams& gone() noexcept { return gone_; }

  private:
    kmm::locks::ShortLock lock_;
    rmm::detail::gone_streams gone_;
};

/// What clang checks in place of the mutex: that this thread holds the lock of its engine. The parts of an engine
/// reach that lock by several ways, which clang takes for different locks; no thread works in two engines at once.
struct KMM_CAPABILITY("lock of the engine") engine_role {};
inline constexpr engine_role in_engine{};
/// For a function that others call under the lock without knowing of it.
inline void expect_in_engine() noexcept KMM_ASSERT_HELD(in_engine) {}

/// Holds the lock of an engine for a scope or for parts of it. The parts of the engine are handed it.
class KMM_SCOPED_CAPABILITY engine_lock {
  public:
    explicit engine_lock(engine_mutex& mutex) noexcept KMM_ACQUIRE(in_engine) : lock_(mutex) {}
    engine_lock(engine_mutex& mutex, std::defer_lock_t defer) noexcept KMM_EXCLUDES(in_engine) : lock_(mutex, defer) {}
    ~engine_lock() KMM_RELEASE() {}
    engine_lock(const engine_lock&) = delete;
    engine_lock& operator=(const engine_lock&) = delete;

    // Unchecked inside: of a role there is nothing to take.
    void lock() noexcept KMM_ACQUIRE() KMM_UNCHECKED_LOCKS { lock_.lock(); }
    bool try_lock() noexcept KMM_TRY_ACQUIRE(true) KMM_UNCHECKED_LOCKS { return lock_.try_lock(); }
    void unlock() noexcept KMM_RELEASE() KMM_UNCHECKED_LOCKS { lock_.unlock(); }
    engine_mutex& mutex() const noexcept { return lock_.mutex(); }

  private:
    kmm::locks::Lock<engine_mutex> lock_;
};

/// Lets a lock go for a scope; it is back whichever way the scope ends.
class KMM_SCOPED_CAPABILITY unlocked {
  public:
    explicit unlocked(engine_lock& held) noexcept KMM_RELEASE(in_engine) : held_(held) { held_.unlock(); }
    ~unlocked() KMM_RELEASE() { held_.lock(); }  // clang's word for the end of such a scope
    unlocked(const unlocked&) = delete;
    unlocked& operator=(const unlocked&) = delete;

  private:
    engine_lock& held_;
};

/// Until `done()`. The condition variable lets the lock go under a lock of its own: streams that have gone are
/// destroyed before. Unchecked inside, as `done` says that it runs in the engine.
template<typename Done>
void wait(std::condition_variable_any& wake, engine_lock& held, Done done) KMM_REQUIRES(in_engine) KMM_UNCHECKED_LOCKS {
    while (!done()) {
        if (held.mutex().gone().empty())
            wake.wait(held);
        else
            const unlocked without(held);
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
