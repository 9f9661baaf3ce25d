// Tasks of the library's own over the chunks of one array: each copies or fills one chunk, or several small ones where
// there are very many.
//
// Owns: which chunks a task has and where it runs, records until they are published. Must not know: what is done with
// the chunks. Used by the submitting thread. There is no plan (plan/planner.hpp): the chunks are known, and no two
// overlap.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kmm/api/array_record.hpp"
#include "kmm/graph/submit_info.hpp"

namespace kmm::detail {

class ChunkBatch : public Batch {
  protected:
    ChunkBatch(ArrayRecord& array, Binding& binding)
        : Batch(&binding.runtime->books()),
          array_(array),
          binding_(binding),
          runtime_(binding.runtime),
          core_(*runtime_) {}
    ~ChunkBatch() { drop(); }  // while the runtime is held

    // ---- before the commit
    /// Tasks of these chunks, and one that is done when they are unless `may_be_one` and there is one. OM: a chunk that
    /// they write is larger than the memory for it.
    void make_tasks(const std::vector<std::size_t>& chunks, std::string name, bool may_be_one);
    /// Of `count` chunks from `chunks_[first]` on, `payload_bytes(count)` in all.
    virtual void describe_task(Task& task, std::size_t first, std::size_t count) = 0;
    virtual std::size_t payload_bytes(std::size_t count) const noexcept = 0;
    /// Most bytes of a task's chunks, of which there are `num_chunks` in all; 0: each chunk has its own task.
    virtual std::size_t most_bytes(std::size_t num_chunks, memory::MemoryIndex place) const noexcept;
    /// Whether a chunk has a task of its own in any case.
    virtual bool is_alone(std::size_t) const { return false; }

    // ---- under the order lock
    /// The tasks' uses have records: there may have been none when the tasks were made. Throws std::bad_alloc.
    void touch_chunks();
    /// A task uses a chunk: its history is told, and says what comes before.
    virtual void enter(std::size_t chunk, const Task& task, graph::Predecessors& before) = 0;
    /// `gate`: all tasks come after this one; 0: there is none.
    void connect_tasks(TaskNumber gate);

    Box box_of(std::size_t chunk) const { return binding_.layout->box(chunk); }

    ArrayRecord& array_;
    Binding& binding_;
    const std::shared_ptr<RuntimeCore> runtime_;
    RuntimeCore& core_;
    bool is_at_home_ = false;          ///< tasks run where chunks are at home, if these fit there; else on the host
    const char* writes_ = nullptr;     ///< the verb of errors; null: chunks are read
    std::vector<std::size_t> chunks_;  ///< in the order of the tasks
    std::vector<std::size_t> ends_;    ///< of the chunks of each task in `chunks_`

  private:
    struct Group {
        std::vector<std::size_t> chunks;
        std::size_t bytes = 0;
    };
    memory::MemoryIndex place_of(std::size_t chunk, std::size_t bytes) const;
    [[noreturn]] void throw_too_large(std::size_t bytes) const;
    void make_task(Group& group, memory::MemoryIndex place, graph::SubmitInfoSource& infos);
};

}  // namespace kmm::detail
