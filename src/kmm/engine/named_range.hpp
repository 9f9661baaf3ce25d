// What a thread does for the program, as a range that profilers show (KMM_NVTX).
//
// Owns: the range, for its scope. Must not know: lanes, drivers. Any thread.
#pragma once

#include <new>
#include <string>

#include "driver/nvtx_ranges.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::engine {

class NamedRange {
  public:
    /// By the name of the task, or the place of its submit. Nothing if not `wanted`, or if the host has no memory for
    /// the name.
    NamedRange(bool wanted, const graph::Task& task) noexcept : NamedRange(wanted, task.info.get()) {}
    /// Of a task with this information, or null: it has none.
    NamedRange(bool wanted, const graph::SubmitInfo* info) noexcept {
        if (!wanted) return;
        try {
            if (info == nullptr)
                open("task");
            else
                open(info->name.empty() ? to_string(info->location).c_str() : info->name.c_str());
        } catch (const std::bad_alloc&) {
            // A profiler misses a name; the task goes on.
        }
    }
    /// A copy of the chunk: "x[3]".
    NamedRange(bool wanted, const memory::Chunk& chunk) noexcept {
        if (!wanted) return;
        try {
            open((chunk.owner->name() + "[" + std::to_string(chunk.index) + "]").c_str());
        } catch (const std::bad_alloc&) {
            // As above.
        }
    }
    ~NamedRange() {
        if (is_open_) driver::nvtx::pop_range();
    }
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;

  private:
    void open(const char* name) noexcept {
        driver::nvtx::push_range(name);
        is_open_ = true;
    }
    bool is_open_ = false;
};

}  // namespace kmm::engine
