// A stack with a place in the code, and the switch between two of them. Owns stacks, their guards (stack_guard.hpp),
// saved registers, the C++ exception state, and what the sanitizers must be told. Must not know kernels, blocks or
// scheduling. A fiber belongs to the OS thread that made it and never runs on another.
#pragma once

#include <cstddef>
#include <cstdint>

// Three ways to switch stacks. Our own for x86-64 (a third of the time of Boost.Context's, because it keeps the
// processor's prediction of returns in step); Boost.Context for other processors where the build found it; else the C
// library's, whose system calls make it twenty times slower. KMM_EMULATION_SWITCH (1, 2, 3) overrides, for tests of the
// others.
#if !defined(KMM_EMULATION_SWITCH)
#if defined(__x86_64__) && !defined(__ILP32__)
#define KMM_EMULATION_SWITCH 1
#elif KMM_HAS_BOOST_CONTEXT
#define KMM_EMULATION_SWITCH 2
#else
#define KMM_EMULATION_SWITCH 3
#endif
#endif
#if KMM_EMULATION_SWITCH == 3
#include <ucontext.h>
#endif

namespace kmm::emulation {

/// Whether ThreadSanitizer's run-time library is in this process: found out at run time, so that users who instrument
/// their own files need no special build of the library.
bool race_detector_present() noexcept;

/// Synchronisation edges for the race detector: everything before a `release` of an address happens before whatever
/// follows an `acquire` of it. Nothing without the detector.
void race_release(void* address) noexcept;
void race_acquire(void* address) noexcept;

/// What one thread of a kernel has if nothing else is asked for: CUDA's own default for local memory is 1 KiB, deep
/// recursion is rare.
inline constexpr std::size_t default_stack_bytes = 64 * 1024;

// One cache line holds what every switch touches.
class alignas(64) Fiber {
  public:
    /// Stands for the stack that the calling OS thread runs on now.
    Fiber() noexcept;
    /// A new stack of at least `stack_bytes`; `entry(argument)` runs on it at the first switch to it, and again, from
    /// the top, after each overflow. It never returns. `index` spreads the tops of stacks over the cache sets. Throws
    /// std::bad_alloc.
    Fiber(void (*entry)(void*), void* argument, std::size_t index, std::size_t stack_bytes);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Suspends `from`, which is running, and resumes `to`. Returns when `from` is resumed. `for_ever`: it never is,
    /// and what the sanitizers keep for it is freed.
    static void switch_to(Fiber& from, Fiber& to, bool for_ever = false) noexcept;
    /// Fetches into the cache what a switch to this fiber will read first.
    void prefetch() const noexcept;

    /// The stack was too small. What stood on it is gone, without its destructors.
    bool has_overflowed() const noexcept { return overflowed_; }
    /// For the scheduler, on this fiber, before it changes its lists: counts as an overflow if too little stack is left
    /// for its own frames, or for unwinding afterwards.
    void require_reserve() const noexcept {
        if (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < reserve_end_) [[unlikely]]
            overflow();
    }
    /// Whether a fault at this address is an overflow of this stack.
    bool guards(const void* address) const noexcept;
    /// For the handler of faults: the call of `restart(this)` at `restart_stack()`, in the place of what overflowed.
    static void restart(Fiber* self) noexcept;
    std::uintptr_t restart_stack() const noexcept;

    Fiber* next = nullptr;           ///< in the list that holds this fiber (at most one)
    unsigned thread[3] = {0, 0, 0};  ///< for the scheduler: threadIdx of the emulated thread that waits here
    bool used = false;               ///< for the scheduler: has carried a thread of this block

  private:
#if KMM_EMULATION_SWITCH == 3
    using SavedContext = ucontext_t;
#else
    using SavedContext = void*;  // where the registers lie on the stack
#endif
    void prepare(char* top) noexcept;
    static void jump(Fiber& from, Fiber& to) noexcept;
    static void enter(Fiber& self) noexcept;
    void arrived() noexcept;
    [[noreturn]] void overflow() const noexcept;
    friend struct FiberEntry;

    // The C++ run-time library keeps one of these for each OS thread; an exception in flight belongs to a fiber.
    struct ExceptionState {
        void* caught = nullptr;
        unsigned int uncaught = 0;
    };

    SavedContext context_{};
    ExceptionState exceptions_;
    Fiber* previous_ = nullptr;  // who switched to this one last
    void (*entry_)(void*) = nullptr;
    void* argument_ = nullptr;
    void* mapping_ = nullptr;  // guard and stack; null: the OS thread's own stack
    std::size_t mapping_bytes_ = 0;
    const void* stack_ = nullptr;  // lowest address and size, for AddressSanitizer
    std::size_t stack_bytes_ = 0;
    void* fake_stack_ = nullptr;  // AddressSanitizer's
    void* race_fiber_ = nullptr;  // ThreadSanitizer's
    std::uintptr_t reserve_end_ = 0;
    bool overflowed_ = false;
};

/// A list through `Fiber::next`.
class FiberQueue {
  public:
    bool empty() const noexcept { return head_ == nullptr; }
    Fiber* head() const noexcept { return head_; }
    void push(Fiber& fiber) noexcept {
        fiber.next = nullptr;
        (head_ == nullptr ? head_ : tail_->next) = &fiber;
        tail_ = &fiber;
    }
    void push_front(Fiber& fiber) noexcept {
        fiber.next = head_;
        if (head_ == nullptr) tail_ = &fiber;
        head_ = &fiber;
    }
    Fiber* pop() noexcept {
        Fiber* const first = head_;
        if (first != nullptr) head_ = first->next;
        return first;
    }
    /// Moves all of `other` to the end of this.
    void append(FiberQueue& other) noexcept {
        if (other.empty()) return;
        (head_ == nullptr ? head_ : tail_->next) = other.head_;
        tail_ = other.tail_;
        other.head_ = nullptr;
    }

  private:
    Fiber* head_ = nullptr;
    Fiber* tail_ = nullptr;
};

}  // namespace kmm::emulation
