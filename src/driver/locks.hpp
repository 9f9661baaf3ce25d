// Locks that clang checks: mutexes, the lock for very short sections, scopes that hold them, a condition variable, and
// the annotations that say what a lock guards.
//
// Owns: those. Must not know: what is guarded; docs/design/locks.md lists every lock and the order in which they are
// taken. Any thread. The library's sources use these in place of the standard ones, which carry no annotations in
// libstdc++: `clang++ -Wthread-safety` (./dev asan) then refuses an access to a guarded member without its lock. On
// other compilers the annotations are nothing, and the types cost what those of the standard library do.
//
// What clang cannot follow: a lambda is checked on its own, so one that runs under a lock says so
// (`[&]() KMM_REQUIRES(mutex_) { .. }`); constructors and destructors are not checked; `a.mutex` and `b.mutex` are two
// locks, even where `a` is `b`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define KMM_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define KMM_THREAD_ANNOTATION(...)
#endif
/// Of types: a lock; a scope that holds one.
#define KMM_CAPABILITY(kind) KMM_THREAD_ANNOTATION(capability(kind))
#define KMM_SCOPED_CAPABILITY KMM_THREAD_ANNOTATION(scoped_lockable)
/// Of members: used only with the lock; what the pointer points to is used only with the lock.
#define KMM_GUARDED_BY(...) KMM_THREAD_ANNOTATION(guarded_by(__VA_ARGS__))
#define KMM_POINTEE_GUARDED_BY(...) KMM_THREAD_ANNOTATION(pt_guarded_by(__VA_ARGS__))
/// Of functions: the caller holds the lock; the caller does not.
#define KMM_REQUIRES(...) KMM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define KMM_REQUIRES_SHARED(...) KMM_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define KMM_EXCLUDES(...) KMM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
/// Of functions: they take the lock, let it go, or take it if they return this value.
#define KMM_ACQUIRE(...) KMM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define KMM_ACQUIRE_SHARED(...) KMM_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define KMM_RELEASE(...) KMM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define KMM_RELEASE_SHARED(...) KMM_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define KMM_RELEASE_EITHER(...) KMM_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define KMM_TRY_ACQUIRE(...) KMM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define KMM_TRY_ACQUIRE_SHARED(...) KMM_THREAD_ANNOTATION(try_acquire_shared_capability(__VA_ARGS__))
/// Of functions: the lock is held from here on, by means that clang cannot see; which lock a function returns.
#define KMM_ASSERT_HELD(...) KMM_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
#define KMM_RETURNS_LOCK(...) KMM_THREAD_ANNOTATION(lock_returned(__VA_ARGS__))
/// Of functions: not checked. A comment says why.
#define KMM_UNCHECKED_LOCKS KMM_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace kmm::locks {

class Condition;

class KMM_CAPABILITY("mutex") Mutex {
  public:
    void lock() KMM_ACQUIRE() { native_.lock(); }
    bool try_lock() KMM_TRY_ACQUIRE(true) { return native_.try_lock(); }
    void unlock() KMM_RELEASE() { native_.unlock(); }

  private:
    friend Condition;
    std::mutex native_;
};

/// Many may hold it to read.
class KMM_CAPABILITY("mutex") SharedMutex {
  public:
    void lock() KMM_ACQUIRE() { native_.lock(); }
    bool try_lock() KMM_TRY_ACQUIRE(true) { return native_.try_lock(); }
    void unlock() KMM_RELEASE() { native_.unlock(); }
    void lock_shared() KMM_ACQUIRE_SHARED() { native_.lock_shared(); }
    void unlock_shared() KMM_RELEASE_SHARED() { native_.unlock_shared(); }

  private:
    std::shared_mutex native_;
};

/// Tells the core that this thread is spinning.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// A lock for sections of a fraction of a microsecond, which never call the driver or user code: ShortLock, TinyLock.
///
/// A waiter spins for about as long as a few sections take, then lets other threads of its core run, and only then
/// sleeps, if it is of those that are woken: sleeping and waking cost ten to a hundred times the section. One word, all
/// zeros while it is free; its destructor does nothing.
template<bool wakes_sleepers>
class KMM_CAPABILITY("mutex") BasicShortLock {
  public:
    void lock() noexcept KMM_ACQUIRE() {
        if (!take()) take_slowly();
    }
    bool try_lock() noexcept KMM_TRY_ACQUIRE(true) { return take(); }
    /// As `try_lock`, but spins for about the time of a short section.
    bool try_lock_briefly() noexcept KMM_TRY_ACQUIRE(true) {
        for (int spin = 0; spin < few_spins; ++spin) {
            if (state_.load(std::memory_order_relaxed) == free && take()) return true;
            relax();
        }
        return take();
    }
    void unlock() noexcept KMM_RELEASE() {
        if constexpr (!wakes_sleepers)
            state_.store(free, std::memory_order_release);
        else if (state_.exchange(free, std::memory_order_release) == held_with_sleepers)
            state_.notify_one();
    }

  private:
    static constexpr std::uint32_t free = 0;
    static constexpr std::uint32_t held = 1;
    static constexpr std::uint32_t held_with_sleepers = 2;
    // About 5 microseconds of pauses: some ten sections.
    static constexpr int max_spins = 128;
    // Of locks whose waiters do not sleep, and whose sections are shorter than a pause.
    static constexpr int max_tiny_spins = 64;
    // As long as the shortest sections.
    static constexpr int few_spins = 8;
    // Half a microsecond each where no other thread wants the core; where one does, it may be the one that holds the
    // lock. After that many the holder has probably been descheduled.
    static constexpr int max_yields = 64;

    bool take() noexcept {
        std::uint32_t seen = free;
        return state_.compare_exchange_strong(seen, held, std::memory_order_acquire, std::memory_order_relaxed);
    }
    void take_slowly() noexcept {
        if constexpr (wakes_sleepers)
            take_asleep();
        else
            take_awake();
    }
    void take_awake() noexcept {
        for (int spin = 0; spin < max_tiny_spins; ++spin) {
            if (state_.load(std::memory_order_relaxed) == free && take()) return;
            relax();
        }
        while (state_.load(std::memory_order_relaxed) != free || !take()) std::this_thread::yield();
    }
    void take_asleep() noexcept {
        for (int spin = 0; spin < max_spins; ++spin) {
            relax();
            if (state_.load(std::memory_order_relaxed) == free && take()) return;
        }
        for (int yield = 0; yield < max_yields; ++yield) {
            std::this_thread::yield();
            if (state_.load(std::memory_order_relaxed) == free && take()) return;
        }
        // Other threads may sleep too, and are not counted: the lock is taken as `held_with_sleepers`.
        while (state_.exchange(held_with_sleepers, std::memory_order_acquire) != free)
            state_.wait(held_with_sleepers, std::memory_order_relaxed);
    }

    std::atomic<std::uint32_t> state_{free};
};

/// Who sleeps is woken by the next `unlock`, which looks for that: 4 ns of 9 for taking and letting go (Xeon, one
/// thread).
using ShortLock = BasicShortLock<true>;
/// For sections of a few instructions that every task passes several times: an `unlock` is a store. Who waits goes on
/// letting other threads run, and does not sleep.
using TinyLock = BasicShortLock<false>;

/// Holds a lock for a scope.
template<typename M>
class KMM_SCOPED_CAPABILITY [[nodiscard]] Guard {
  public:
    explicit Guard(M& mutex) KMM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    Guard(M& mutex, std::adopt_lock_t) KMM_REQUIRES(mutex) : mutex_(mutex) {}
    ~Guard() KMM_RELEASE() { mutex_.unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

  private:
    M& mutex_;
};

/// Holds a lock to read for a scope.
template<typename M>
class KMM_SCOPED_CAPABILITY [[nodiscard]] SharedGuard {
  public:
    explicit SharedGuard(M& mutex) KMM_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
    ~SharedGuard() KMM_RELEASE() { mutex_.unlock_shared(); }
    SharedGuard(const SharedGuard&) = delete;
    SharedGuard& operator=(const SharedGuard&) = delete;

  private:
    M& mutex_;
};

/// Holds a lock for a scope or for parts of it. A BasicLockable itself.
template<typename M>
class KMM_SCOPED_CAPABILITY [[nodiscard]] Lock {
  public:
    explicit Lock(M& mutex) KMM_ACQUIRE(mutex) : mutex_(mutex), owns_(true) { mutex_.lock(); }
    Lock(M& mutex, std::adopt_lock_t) KMM_REQUIRES(mutex) : mutex_(mutex), owns_(true) {}
    /// Without the lock: `lock` or `try_lock` takes it.
    Lock(M& mutex, std::defer_lock_t) KMM_EXCLUDES(mutex) : mutex_(mutex) {}
    ~Lock() KMM_RELEASE() {
        if (owns_) mutex_.unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    // Unchecked inside: clang does not know that `mutex_` is what the scope was made for.
    void lock() KMM_ACQUIRE() KMM_UNCHECKED_LOCKS {
        mutex_.lock();
        owns_ = true;
    }
    bool try_lock() KMM_TRY_ACQUIRE(true) KMM_UNCHECKED_LOCKS { return owns_ = mutex_.try_lock(); }
    void unlock() KMM_RELEASE() KMM_UNCHECKED_LOCKS {
        owns_ = false;
        mutex_.unlock();
    }
    bool owns_lock() const noexcept { return owns_; }
    M& mutex() const noexcept { return mutex_; }

  private:
    M& mutex_;
    bool owns_ = false;
};

/// Lets a lock go for a scope; it is back whichever way the scope ends.
template<typename M>
class KMM_SCOPED_CAPABILITY [[nodiscard]] Unlocked {
  public:
    /// `mutex` is what `held` holds: clang does not look into `held`.
    Unlocked(Lock<M>& held, M& mutex) KMM_RELEASE(mutex) : held_(held) {
        (void)mutex;
        held_.unlock();
    }
    ~Unlocked() KMM_RELEASE() { held_.lock(); }  // clang's word for the end of such a scope
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

  private:
    Lock<M>& held_;
};

/// Of a `Mutex`. A predicate runs under the lock, and says so: `[&]() KMM_REQUIRES(mutex_) { .. }`.
class Condition {
  public:
    void notify_one() noexcept { native_.notify_one(); }
    void notify_all() noexcept { native_.notify_all(); }

    void wait(Lock<Mutex>& lock) {
        const Native native(lock);
        native_.wait(native.held());
    }
    template<typename Done> void wait(Lock<Mutex>& lock, Done done) KMM_UNCHECKED_LOCKS {
        while (!done()) wait(lock);
    }
    template<typename Clock, typename Duration>
    std::cv_status wait_until(Lock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& end) {
        const Native native(lock);
        return native_.wait_until(native.held(), end);
    }
    /// What `done` says at the end.
    template<typename Clock, typename Duration, typename Done>
    bool wait_until(Lock<Mutex>& lock, const std::chrono::time_point<Clock, Duration>& end,
                    Done done) KMM_UNCHECKED_LOCKS {
        while (!done())
            if (wait_until(lock, end) == std::cv_status::timeout) return done();
        return true;
    }
    template<typename Rep, typename Period>
    std::cv_status wait_for(Lock<Mutex>& lock, const std::chrono::duration<Rep, Period>& time) {
        const Native native(lock);
        return native_.wait_for(native.held(), time);
    }
    template<typename Rep, typename Period, typename Done>
    bool wait_for(Lock<Mutex>& lock, const std::chrono::duration<Rep, Period>& time, Done done) KMM_UNCHECKED_LOCKS {
        return wait_until(lock, std::chrono::steady_clock::now() + time, std::move(done));
    }

  private:
    /// The lock as the standard's condition variable wants it.
    class Native {
      public:
        explicit Native(Lock<Mutex>& lock) : held_(lock.mutex().native_, std::adopt_lock) {}
        ~Native() { held_.release(); }
        std::unique_lock<std::mutex>& held() const noexcept { return held_; }

      private:
        mutable std::unique_lock<std::mutex> held_;
    };

    std::condition_variable native_;
};

}  // namespace kmm::locks
