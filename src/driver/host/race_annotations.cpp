// Owns: fibers for ThreadSanitizer (race_annotations.hpp). Empty in other builds.
#include "driver/host/race_annotations.hpp"

#ifdef KMM_HOST_DRIVER_TSAN
#include <sanitizer/tsan_interface.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#include "driver/locks.hpp"

namespace kmm::driver::host::races {
namespace {

// What a worker's own stack has; untouched pages cost nothing.
constexpr std::size_t stack_bytes = 8 << 20;

/// A new fiber happens after everything its maker has seen. Workers have seen each other through locks, which would
/// hide races, so all fibers are made by one that never synchronises.
struct Maker {
    locks::Mutex mutex;  // a fiber is in one place at a time
    void* fiber KMM_GUARDED_BY(mutex) = __tsan_create_fiber(0);
};

Maker& maker() {
    static Maker& instance = *new Maker;
    return instance;
}

[[gnu::no_sanitize("thread"), gnu::noinline]] void* make_fiber_as(void* fiber) {
    void* self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, 1);
    void* made = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(self, 1);
    return made;
}

void* make_fiber() {
    Maker& m = maker();
    const locks::Guard lock(m.mutex);
    return make_fiber_as(m.fiber);
}

/// Orders what one worker runs.
thread_local char worker_clock = 0;

}  // namespace

void acquire(const Clock* clock) { __tsan_acquire(const_cast<char*>(&clock->token)); }
void release(const Clock* clock) { __tsan_release(const_cast<char*>(&clock->token)); }

void begin_worker() { __tsan_release(&worker_clock); }

/// A stack of its own is needed beside the sanitizer's fiber: local variables of the stream and of the worker would
/// otherwise have the same addresses in turn, which would look like a race.
struct Fiber::State {
    void* fiber = nullptr;
    void* caller_fiber = nullptr;
    void* worker = nullptr;
    void* stack = nullptr;
    ucontext_t context{};
    ucontext_t caller{};
    void (*body)(void*) = nullptr;
    void* argument = nullptr;
};

Fiber::Fiber() = default;

Fiber::~Fiber() {
    if (state_ == nullptr) return;
    __tsan_destroy_fiber(state_->fiber);
    munmap(state_->stack, stack_bytes);
}

// Not instrumented: what the two sides hand over here is ordered by the switch, which the sanitizer must not see.
[[gnu::no_sanitize("thread")]] void Fiber::enter(unsigned high, unsigned low) {
    auto* state = reinterpret_cast<State*>((std::uintptr_t{high} << 32) | low);
    for (;;) {
        __tsan_acquire(state->worker);
        state->body(state->argument);
        __tsan_release(state->worker);
        __tsan_switch_to_fiber(state->caller_fiber, 1);  // 1: the switch itself orders nothing
        swapcontext(&state->context, &state->caller);
    }
}

[[gnu::no_sanitize("thread")]] void Fiber::run(void (*body)(void*), void* argument) {
    if (state_ == nullptr) {
        auto state = std::make_unique<State>();
        state->stack =
            mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (state->stack == MAP_FAILED) throw std::bad_alloc();
        state->fiber = make_fiber();
        getcontext(&state->context);
        state->context.uc_stack.ss_sp = state->stack;
        state->context.uc_stack.ss_size = stack_bytes;
        const auto address = reinterpret_cast<std::uintptr_t>(state.get());
        makecontext(&state->context, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                    static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
        state_ = std::move(state);
    }
    State& state = *state_;
    state.body = body;
    state.argument = argument;
    state.worker = &worker_clock;
    state.caller_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(state.fiber, 1);
    swapcontext(&state.caller, &state.context);
}

}  // namespace kmm::driver::host::races
#endif
