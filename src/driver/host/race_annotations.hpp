// What ThreadSanitizer must know about streams, so that it reports a missing dependency whenever it runs the program and
// not only when two streams happen to overlap.
//
// Each stream is a thread of its own to ThreadSanitizer (a "fiber"): which worker runs it, and what the worker did
// before, orders nothing. Order comes only from what the driver promises: enqueue to execution, events, synchronisation.
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
#include <sanitizer/tsan_interface.h>
#endif

namespace kmm::driver::host::races {

#ifdef KMM_HOST_DRIVER_TSAN

inline constexpr bool tracked = true;
using Fiber = void*;
inline Fiber make_fiber() { return __tsan_create_fiber(0); }
inline void destroy_fiber(Fiber fiber) {
    if (fiber != nullptr) __tsan_destroy_fiber(fiber);
}
/// What was released to a clock happened before what follows its acquire.
struct Clock {
    char token = 0;  ///< an address of its own: an atomic variable's would be overwritten by the variable's own order
};
inline void acquire(const Clock* clock) { __tsan_acquire(const_cast<char*>(&clock->token)); }
inline void release(const Clock* clock) { __tsan_release(const_cast<char*>(&clock->token)); }

/// Runs a scope as the given fiber. Inlined always: the sanitizer's shadow stack of a fiber must see balanced calls.
class FiberScope {
  public:
    [[gnu::always_inline]] explicit FiberScope(Fiber fiber) : previous_(__tsan_get_current_fiber()) {
        __tsan_switch_to_fiber(fiber, 1);  // 1: the switch itself orders nothing
    }
    [[gnu::always_inline]] ~FiberScope() { __tsan_switch_to_fiber(previous_, 1); }
    FiberScope(const FiberScope&) = delete;
    FiberScope& operator=(const FiberScope&) = delete;

  private:
    Fiber previous_;
};

#else

inline constexpr bool tracked = false;
using Fiber = void*;
inline Fiber make_fiber() { return nullptr; }
inline void destroy_fiber(Fiber) {}
struct Clock {};
inline void acquire(const Clock*) {}
inline void release(const Clock*) {}
class FiberScope {
  public:
    explicit FiberScope(Fiber) {}
    ~FiberScope() {}
};

#endif

}  // namespace kmm::driver::host::races
