// Which of a task's accesses need a block in the task's own memory.
#pragma once

#include "kmm/graph/task.hpp"

namespace kmm::memory {

inline bool needs_place(const graph::Access& access) noexcept {
    return access.chunk != nullptr && access.first_of_chunk && access.in_use && !access.anywhere;
}
/// Calls `f(access, chunk)`.
template<typename F> void for_each_place(graph::Task& task, F&& f) {
    for (graph::Access& a : task.accesses)
        if (needs_place(a)) f(a, *a.chunk);
}

}  // namespace kmm::memory
