// What ThreadSanitizer must know about streams, so that it reports a missing dependency whenever it runs the program
// and not only when two streams happen to overlap.
//
// Each stream is a thread of its own to ThreadSanitizer (a "fiber" with a stack of its own): the locks that workers
// exchange order nothing. Order comes only from what the driver promises (enqueue to execution, events,
// synchronisation), and from running on the same worker, because user code may have variables of the thread. So that
// the last hides little, there are more workers under the sanitizer, and each stream keeps to one of them (Executor).
//
// Owns: those annotations; all of it vanishes in other builds. Must not know: streams, drivers.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define KMM_HOST_DRIVER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KMM_HOST_DRIVER_TSAN 1
#endif
#endif

#ifdef KMM_HOST_DRIVER_TSAN
#include <memory>
#endif

namespace kmm::driver::host::races {

#ifdef KMM_HOST_DRIVER_TSAN

inline constexpr bool tracked = true;

/// What was released to a clock happened before what follows its acquire.
struct Clock {
    char token = 0;  ///< an address of its own: an atomic variable's would be overwritten by the variable's own order
};
void acquire(const Clock* clock);
void release(const Clock* clock);

/// A worker calls it first: what its thread has set up (variables of the thread) is known to all that it runs.
void begin_worker();

/// One thread in the eyes of the sanitizer. At most one real thread runs it at a time.
class Fiber {
  public:
    Fiber();
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Runs `body(argument)`, which must not throw, as this fiber. Entering and leaving orders nothing, so that the
    /// body must not touch the caller's variables.
    void run(void (*body)(void*), void* argument);

  private:
    struct State;
    static void enter(unsigned high, unsigned low);

    std::unique_ptr<State> state_;  ///< made at the first run
};

#else

inline constexpr bool tracked = false;
struct Clock {};
inline void acquire(const Clock*) {}
inline void release(const Clock*) {}
inline void begin_worker() {}

class Fiber {
  public:
    void run(void (*body)(void*), void* argument) { body(argument); }
};

#endif

}  // namespace kmm::driver::host::races
