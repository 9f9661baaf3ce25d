// Records the state of a memory when a task finds none there, for the task's error.
//
// Owns: the holders of each memory as of the last look. Makes no words: shortage_words.hpp does. Runs under the baton.
#pragma once

#include <cstdint>
#include <memory>

#include "kmm/graph/task.hpp"
#include "kmm/runtime/engine.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/texts/shortage_words.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::detail {

class Shortages {
  public:
    Shortages(const Platform& platform, const ShortageWords& words) : platform_(platform), words_(words) {
        known_.resize_for_devices(platform.num_devices());
    }
    /// Shares the last report of that memory while nothing was freed there or on the host, which is O(1). Else
    /// O(tasks that have not settled), and O(replicas of the memory) where a sixteenth of them has changed since the
    /// last look. Throws std::bad_alloc.
    std::shared_ptr<const graph::Unworded> look(const graph::Task& task, const schedule::Scheduler& scheduler,
                                                graph::TaskTable& table, const Engine& engine);

  private:
    struct Known {
        std::shared_ptr<const Holders> holders;
        memory::MemoryCounters counters;
        std::size_t largest_free_bytes = 0;
        std::uint64_t ticks = 0;
        std::shared_ptr<const Shortage> report;  ///< the last
        std::uint64_t frees = 0;                 ///< when it was made: `frees_for`
    };
    static std::uint64_t frees_for(const memory::Residency& residency, memory::MemoryIndex memory) noexcept;
    void look_at_holders(const memory::Residency& residency, memory::MemoryIndex m);

    const Platform& platform_;
    const ShortageWords& words_;
    memory::PerMemory<Known> known_;
};

}  // namespace kmm::detail
