// Overflows of fibers' stacks: a fault in the guard below a stack restarts the fiber instead of ending the process.
//
// Owns: the process's handler of SIGSEGV, which passes every other fault on to the handler that it replaced, and an
// alternate signal stack for each OS thread that runs fibers and has none. Must not know kernels or blocks.
#pragma once

#include "kmm/emulation/fiber.hpp"

namespace kmm::emulation {

/// For the calling OS thread, before a fiber runs on it. `running` is asked on the thread that had a fault, inside the
/// handler: the fiber that runs there, or null. The same function in every call. Throws std::bad_alloc.
void guard_stacks(Fiber* (*running)() noexcept);

}  // namespace kmm::emulation
