// Stacks and switches. See fiber.hpp. Compiled without -fsanitize=thread in every build: the detector must see the
// user's accesses, not ours (all fibers of an OS thread share this state, one after the other, by construction).
#include "kmm/emulation/fiber.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

#if KMM_EMULATION_SWITCH == 2
#include <boost/context/detail/fcontext.hpp>
#endif

// Weak, so that each is null unless the program links that sanitizer.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
}

namespace kmm::emulation {
namespace {

// A function need not touch its frame from the top down: one that is larger than the guard may step over it. CUDA gives
// a thread 512 KiB of local memory at most. Costs addresses only.
constexpr std::size_t guard_bytes = 1024 * 1024;
// For the engine's own frames, and for unwinding when the block has failed elsewhere.
constexpr std::size_t reserve_bytes = 16 * 1024;
// Instrumented frames are several times larger, and a report is written on the stack that raced.
constexpr std::size_t sanitizer_factor = 8;
// Stacks start at different offsets in their page; otherwise the tops of all of them fall into the same cache sets.
// 5 lines hold what a switch touches; 12 colours of them stay within a page.
constexpr std::size_t colour_bytes = 5 * 64;
constexpr std::size_t num_colours = 12;

// Without flag 0 a switch would itself order the two fibers, and hide every race.
constexpr unsigned tsan_switch_without_order = 1;

/// The stack and the race detector's fiber that an ended fiber left. Making the two takes g++'s detector a millisecond,
/// so they are used again. Lies at the top of the stack. No mutex: it would be an order between kernels that race.
struct SpareStack {
    SpareStack* next;
    void* mapping;
    std::size_t mapping_bytes;
    void* race_fiber;
};

class SpareStacks {
  public:
    void push(SpareStack& one) noexcept {
        const Locked locked(*this);
        one.next = head_;
        head_ = &one;
    }
    SpareStack* pop(std::size_t mapping_bytes) noexcept {
        const Locked locked(*this);
        SpareStack** at = &head_;
        while (*at != nullptr && (*at)->mapping_bytes != mapping_bytes) at = &(*at)->next;
        SpareStack* const one = *at;
        if (one != nullptr) *at = one->next;
        return one;
    }

  private:
    struct Locked {
        explicit Locked(SpareStacks& s) : stacks(s) {
            while (stacks.busy_.test_and_set(std::memory_order_acquire)) stacks.busy_.wait(true);
        }
        ~Locked() {
            stacks.busy_.clear(std::memory_order_release);
            stacks.busy_.notify_one();
        }
        SpareStacks& stacks;
    };
    std::atomic_flag busy_;
    SpareStack* head_ = nullptr;
};
SpareStacks spare_stacks;

bool address_sanitizer_present() noexcept { return __sanitizer_start_switch_fiber != nullptr; }

std::size_t sanitizer_size(std::size_t bytes) noexcept {
    return address_sanitizer_present() || race_detector_present() ? bytes * sanitizer_factor : bytes;
}

}  // namespace

bool race_detector_present() noexcept { return __tsan_create_fiber != nullptr; }

void race_release(void* address) noexcept {
    if (race_detector_present()) __tsan_release(address);
}

void race_acquire(void* address) noexcept {
    if (race_detector_present()) __tsan_acquire(address);
}

Fiber::Fiber() noexcept {
    if (race_detector_present()) race_fiber_ = __tsan_get_current_fiber();
}

Fiber::Fiber(void (*entry)(void*), void* argument, std::size_t index, std::size_t stack_bytes)
    : entry_(entry), argument_(argument) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t reserve = sanitizer_size(reserve_bytes);
    const std::size_t wanted = sanitizer_size(stack_bytes) + reserve + num_colours * colour_bytes;
    const std::size_t bytes = (wanted + page - 1) / page * page;
    mapping_bytes_ = guard_bytes + bytes;
    if (SpareStack* const spare = race_detector_present() ? spare_stacks.pop(mapping_bytes_) : nullptr) {
        mapping_ = spare->mapping;
        race_fiber_ = spare->race_fiber;
    } else {
        void* const mapping =
            mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (mapping == MAP_FAILED) throw std::bad_alloc();
        if (mprotect(static_cast<char*>(mapping) + guard_bytes, bytes, PROT_READ | PROT_WRITE) != 0) {
            munmap(mapping, mapping_bytes_);
            throw std::bad_alloc();
        }
        mapping_ = mapping;
        if (race_detector_present()) race_fiber_ = __tsan_create_fiber(0);
    }
    stack_ = static_cast<char*>(mapping_) + guard_bytes;
    stack_bytes_ = bytes - index % num_colours * colour_bytes;
    reserve_end_ = reinterpret_cast<std::uintptr_t>(stack_) + reserve;
    prepare(static_cast<char*>(mapping_) + guard_bytes + stack_bytes_);
}

Fiber::~Fiber() {
    if (mapping_ == nullptr) return;
    // Of one that has overflowed the race detector knows calls that never returned.
    if (race_fiber_ != nullptr && !overflowed_) {
        auto* const spare = reinterpret_cast<SpareStack*>(static_cast<char*>(mapping_) + mapping_bytes_) - 1;
        *spare = {nullptr, mapping_, mapping_bytes_, race_fiber_};
        spare_stacks.push(*spare);
        return;
    }
    if (race_fiber_ != nullptr) __tsan_destroy_fiber(race_fiber_);
    // The last frames on this stack never returned, and their red zones would outlive them at these addresses.
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(stack_, stack_bytes_);
    munmap(mapping_, mapping_bytes_);
}

bool Fiber::guards(const void* address) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping_);
    return mapping_ != nullptr && reinterpret_cast<std::uintptr_t>(address) - begin < guard_bytes;
}

/// The fault does the rest (stack_guard.cpp): there is one way out of a full stack.
__attribute__((no_sanitize_address)) void Fiber::overflow() const noexcept {
    *static_cast<volatile char*>(mapping_) = 0;
    __builtin_trap();
}

std::uintptr_t Fiber::restart_stack() const noexcept {
    return (reinterpret_cast<std::uintptr_t>(stack_) + stack_bytes_) & ~std::uintptr_t{15};
}

__attribute__((no_sanitize_address)) void Fiber::restart(Fiber* self) noexcept {
    // An exception that is being thrown is leaked: the frames that could catch it are gone.
    *reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals()) = {};
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(self->stack_, self->stack_bytes_);
    self->overflowed_ = true;
    self->entry_(self->argument_);
}

/// The first function on a new stack.
void Fiber::enter(Fiber& self) noexcept {
    self.arrived();
    self.entry_(self.argument_);
}

#if KMM_EMULATION_SWITCH == 1

struct FiberEntry {
    static void enter(Fiber* self) { Fiber::enter(*self); }
};

// kmm_emulation_switch(save, load): pushes the registers that a function must keep, stores the stack pointer in *save,
// takes `load` for the new one and returns there. All switches return to the one place that calls this, so the
// processor predicts each return rightly. The control words of the floating-point units are not kept: kernels share
// them. kmm_emulation_start: where a new stack "returns" to; rbx is the fiber, r12 the function. It has no caller.
extern "C" void kmm_emulation_switch(void** save, void* load);
extern "C" void kmm_emulation_start();
asm(R"(
.text
.p2align 4
.hidden kmm_emulation_switch
.globl kmm_emulation_switch
.type kmm_emulation_switch, @function
kmm_emulation_switch:
    .cfi_startproc
    endbr64
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .cfi_endproc
.size kmm_emulation_switch, . - kmm_emulation_switch
.p2align 4
.hidden kmm_emulation_start
.globl kmm_emulation_start
.type kmm_emulation_start, @function
kmm_emulation_start:
    .cfi_startproc
    .cfi_undefined rip
    movq %rbx, %rdi
    call *%r12
    ud2
    .cfi_endproc
.size kmm_emulation_start, . - kmm_emulation_start
)");

void Fiber::prepare(char* top) noexcept {
    // What the switch pops: r15, r14, r13, r12, rbx, rbp, the return address; behind it the stack is aligned to 16
    // bytes.
    auto* const frame = reinterpret_cast<std::uintptr_t*>(top) - 9;
    frame[3] = reinterpret_cast<std::uintptr_t>(&FiberEntry::enter);
    frame[4] = reinterpret_cast<std::uintptr_t>(this);
    frame[6] = reinterpret_cast<std::uintptr_t>(&kmm_emulation_start);
    context_ = frame;
}

inline void Fiber::jump(Fiber& from, Fiber& to) noexcept { kmm_emulation_switch(&from.context_, to.context_); }

void Fiber::prefetch() const noexcept { __builtin_prefetch(context_); }

#elif KMM_EMULATION_SWITCH == 2

struct FiberEntry {
    static void enter(boost::context::detail::transfer_t transfer) {
        auto* const self = static_cast<Fiber*>(transfer.data);
        self->previous_->context_ = transfer.fctx;
        Fiber::enter(*self);
    }
};

void Fiber::prepare(char* top) noexcept {
    context_ = boost::context::detail::make_fcontext(top, stack_bytes_, &FiberEntry::enter);
}

inline void Fiber::jump(Fiber& from, Fiber& to) noexcept {
    const auto back = boost::context::detail::jump_fcontext(to.context_, &to);
    from.previous_->context_ = back.fctx;
}

void Fiber::prefetch() const noexcept { __builtin_prefetch(context_); }

#else

struct FiberEntry {
    // makecontext passes ints only.
    static void enter(unsigned high, unsigned low) {
        Fiber::enter(*reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low));
    }
};

void Fiber::prepare(char* top) noexcept {
    getcontext(&context_);
    context_.uc_stack.ss_sp = top - stack_bytes_;
    context_.uc_stack.ss_size = stack_bytes_;
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&FiberEntry::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

inline void Fiber::jump(Fiber& from, Fiber& to) noexcept { swapcontext(&from.context_, &to.context_); }

void Fiber::prefetch() const noexcept {}

#endif

void Fiber::arrived() noexcept {
    if (!address_sanitizer_present()) return;
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
    if (previous_->mapping_ == nullptr) {
        previous_->stack_ = bottom;
        previous_->stack_bytes_ = size;
    }
}

void Fiber::switch_to(Fiber& from, Fiber& to, bool for_ever) noexcept {
    auto* const exceptions = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
    from.exceptions_ = *exceptions;
    *exceptions = to.exceptions_;
    to.previous_ = &from;
    if (address_sanitizer_present()) {
        __sanitizer_start_switch_fiber(for_ever ? nullptr : &from.fake_stack_, to.stack_, to.stack_bytes_);
    }
    if (race_detector_present()) {
        // A thread may run as one of the host driver's fibers now and as another the next time.
        from.race_fiber_ = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(to.race_fiber_, tsan_switch_without_order);
    }
    jump(from, to);
    from.arrived();
}

}  // namespace kmm::emulation
