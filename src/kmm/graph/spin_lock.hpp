// The library's lock for a few instructions (driver/locks.hpp) by the names that execute has for it.
#pragma once

#include "driver/locks.hpp"

namespace kmm::graph {

using SpinLock = locks::TinyLock;
inline void cpu_relax() noexcept { locks::relax(); }

}  // namespace kmm::graph
