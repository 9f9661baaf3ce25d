// What argument handlers are told while a submit is built. See argument.hpp.
//
// Owns: nothing; plain references that are valid during one call. The submitting thread. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/detail/runtime_core.hpp"

namespace kmm {

class Runtime;

/// Told once, before the first task of a submit is built.
struct TaskGroupInit {
    Runtime& runtime;
    const Domain& domain;
};

/// One task that is being built. The last two members are for the library's own handlers.
struct TaskInstance {
    Runtime& runtime;
    const DomainChunk& chunk;
    MemoryId memory_id;  ///< where the task will read and write
    detail::Submission& submission;
    std::uint32_t argument = 0;  ///< number of the argument within the call, from 0
};

/// Told once, when every task is built; nothing is queued yet. What a handler throws leaves the submit without effect.
struct TaskGroupCommit {
    Runtime& runtime;
};

/// Told once, after the tasks were queued.
struct TaskSubmissionResult {
    Runtime& runtime;
    EventId event_id;  ///< of the whole submit
};

/// What a running task knows about the memory of its accesses.
using TaskContext = detail::TaskContext;

}  // namespace kmm
