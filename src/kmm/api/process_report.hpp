// The runtimes of this process, for reports about all of them.
//
// Owns: a list of weak references. Any thread.
#pragma once

#include <memory>

namespace kmm::detail {

class RuntimeCore;

/// Adds a runtime that has just started.
void remember_runtime(const std::shared_ptr<RuntimeCore>& core);

}  // namespace kmm::detail
