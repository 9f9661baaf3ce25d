// What a thread does for the program, as a range that profilers show (KMM_NVTX).
//
// Owns: the range, for its scope. Must not know: lanes, drivers. Any thread.
#pragma once

#include <string>

#include "driver/nvtx_ranges.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::execute {

class NamedRange {
  public:
    /// By the name of the task, or the place of its submit. Nothing if not `wanted`.
    NamedRange(bool wanted, const graph::Task& task) : is_open_(wanted) {
        if (!wanted) return;
        if (!task.info)
            driver::nvtx::push_range("task");
        else if (!task.info->name.empty())
            driver::nvtx::push_range(task.info->name.c_str());
        else
            driver::nvtx::push_range(to_string(task.info->location).c_str());
    }
    /// A copy of the chunk: "x[3]".
    NamedRange(bool wanted, const memory::Chunk& chunk) : is_open_(wanted) {
        if (wanted) driver::nvtx::push_range((chunk.array->name() + "[" + std::to_string(chunk.index) + "]").c_str());
    }
    ~NamedRange() {
        if (is_open_) driver::nvtx::pop_range();
    }
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;

  private:
    bool is_open_;
};

}  // namespace kmm::execute
