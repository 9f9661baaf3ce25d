// A thread that waits for a task, in the list of those that do.
//
// Owns: the links of the list. Must not know: how long a thread waits, what for. Under the lock of the list's owner
// (detail::SettledWaits).
#pragma once

#include "driver/locks.hpp"

namespace kmm::graph {

/// On the stack of the thread. Each has a condition of its own, so that no thread is woken for another's task.
struct TaskWaiter {
    locks::Condition wake;
    bool is_over = false;  ///< the task has settled, and the waiter is in no list any more
    TaskWaiter* previous = nullptr;
    TaskWaiter* next = nullptr;

    void link_into(TaskWaiter*& first) noexcept {
        next = first;
        if (next != nullptr) next->previous = this;
        first = this;
    }
    void unlink_from(TaskWaiter*& first) noexcept {
        (previous != nullptr ? previous->next : first) = next;
        if (next != nullptr) next->previous = previous;
    }
};

}  // namespace kmm::graph
