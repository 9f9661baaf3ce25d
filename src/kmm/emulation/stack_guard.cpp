// The handler of faults in guards. Compiled without -fsanitize=thread in every build, as fiber.cpp.
//
// A frame that does not fit its stack cannot be unwound: the fault may come anywhere in a function, also before its
// frame is complete. So the handler leaves what stands on the stack and lets the thread go on in Fiber::restart at its
// top. What the overflowed functions held (memory, locks) is not given back.
#include "kmm/emulation/stack_guard.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <new>

namespace kmm::emulation {
namespace {

// The handler needs a fraction; a handler that it passes a fault on to may write a report.
constexpr std::size_t alternate_stack_bytes = 64 * 1024;

Fiber* (*running_fiber)() noexcept = nullptr;
struct sigaction replaced;

/// False: not known how, on this processor.
bool go_on_in_restart(ucontext_t& context, Fiber* fiber) noexcept {
    const std::uintptr_t stack = fiber->restart_stack();
    const auto function = reinterpret_cast<std::uintptr_t>(&Fiber::restart);
#if defined(__x86_64__) && !defined(__ILP32__)
    // As behind a call: the place of the return address is misaligned by 8.
    constexpr greg_t direction_flag = 0x400;
    greg_t* const registers = context.uc_mcontext.gregs;
    *reinterpret_cast<std::uintptr_t*>(stack - 8) = 0;
    registers[REG_RSP] = static_cast<greg_t>(stack - 8);
    registers[REG_RBP] = 0;
    registers[REG_RDI] = reinterpret_cast<greg_t>(fiber);
    registers[REG_RIP] = static_cast<greg_t>(function);
    registers[REG_EFL] &= ~direction_flag;
    return true;
#elif defined(__aarch64__)
    context.uc_mcontext.sp = stack;
    context.uc_mcontext.regs[0] = reinterpret_cast<std::uintptr_t>(fiber);
    context.uc_mcontext.regs[29] = 0;
    context.uc_mcontext.regs[30] = 0;
    context.uc_mcontext.pc = function;
    return true;
#else
    static_cast<void>(context);
    static_cast<void>(stack);
    static_cast<void>(function);
    return false;
#endif
}

void pass_on(int signal, siginfo_t* info, void* context) {
    if ((replaced.sa_flags & SA_SIGINFO) != 0) {
        replaced.sa_sigaction(signal, info, context);
    } else if (replaced.sa_handler != SIG_DFL && replaced.sa_handler != SIG_IGN) {
        replaced.sa_handler(signal);
    } else if (info->si_code > 0) {
        // Back at the instruction it faults again, and the process ends there.
        sigaction(signal, &replaced, nullptr);
    } else if (replaced.sa_handler == SIG_DFL) {
        sigaction(signal, &replaced, nullptr);
        raise(signal);  // it was sent: there is no instruction to go back to
    }
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (info->si_code > 0) {
        Fiber* const fiber = running_fiber();
        if (fiber != nullptr && fiber->guards(info->si_addr) &&
            go_on_in_restart(*static_cast<ucontext_t*>(context), fiber))
            return;
    }
    pass_on(signal, info, context);
}

bool install() noexcept {
    struct sigaction action = {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &replaced) == 0;
}

/// The handler cannot run on the stack that is full.
class AlternateStack {
  public:
    AlternateStack() {
        stack_t present = {};
        if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
        void* const memory =
            mmap(nullptr, alternate_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        stack_t mine = {};
        mine.ss_sp = memory;
        mine.ss_size = alternate_stack_bytes;
        if (sigaltstack(&mine, nullptr) == 0)
            memory_ = memory;
        else
            munmap(memory, alternate_stack_bytes);
    }
    ~AlternateStack() {
        if (memory_ == nullptr) return;
        stack_t present = {};
        if (sigaltstack(nullptr, &present) == 0 && present.ss_sp == memory_) {
            stack_t none = {};
            none.ss_flags = SS_DISABLE;
            sigaltstack(&none, nullptr);
        }
        munmap(memory_, alternate_stack_bytes);
    }
    AlternateStack(const AlternateStack&) = delete;
    AlternateStack& operator=(const AlternateStack&) = delete;

  private:
    void* memory_ = nullptr;
};

}  // namespace

void guard_stacks(Fiber* (*running)() noexcept) {
    thread_local const AlternateStack alternate_stack;
    static_cast<void>(alternate_stack);
    static const bool installed = [running] {
        running_fiber = running;
        return install();
    }();
    static_cast<void>(installed);
}

}  // namespace kmm::emulation
