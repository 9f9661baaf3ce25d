// Lists of a whole process, which must outlive every static object.
//
// Owns: one T for each type T, never destroyed, and reachable for ever, so that leak checkers are content. Must not
// know: what they are. Any thread.
#pragma once

#include <atomic>

namespace kmm::driver {

/// The process's T, made by the first call. Throws what T's constructor throws. Not a static variable with a
/// constructor: a process that forks while another thread runs the constructor would wait for it in the child for ever.
template<typename T>
T& never_destroyed() {
    static constinit std::atomic<T*> instance{nullptr};
    if (T* const known = instance.load(std::memory_order_acquire)) return *known;
    T* const made = new T;
    T* first = nullptr;
    if (instance.compare_exchange_strong(first, made, std::memory_order_acq_rel)) return *made;
    delete made;
    return *first;
}

}  // namespace kmm::driver
