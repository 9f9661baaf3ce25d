// The temporaries of one submit: memory for regions beside the chunks, and the transfers that fill it and write it
// back.
//
// Owns: temporaries and records until the runtime has them. Which regions need a temporary is decided by
// plan::SubmitPlan. Must not know: where chunks are. Used by the submitting thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kmm/api/array_record.hpp"
#include "kmm/plan/needs.hpp"

namespace kmm::detail {

/// What the scheduler need not know of an access of a task; its request is at the same position.
struct DraftAccess {
    ArrayRecord* array = nullptr;
    Binding* binding = nullptr;
    std::uint32_t view = 0;  // position in the task
};

/// Memory for regions beside the chunks (memory::Temporary). A transfer gathers what the tasks read into it before they
/// run, or the tasks do when they are placed (graph::Across); a transfer for each piece brings what they wrote back
/// into the chunks. Transfers are helpers of the batch.
class Temporaries {
  public:
    struct Entry {
        std::unique_ptr<memory::Temporary> data;  ///< until `give_away`
        memory::Temporary* temporary = nullptr;   ///< the same; from then on the runtime's
        graph::Task* gather = nullptr;            ///< null: nothing is filled in, or the batch has it
        graph::Task* given_gather = nullptr;      ///< once the batch has it
        graph::TaskNumber gather_number = 0;      ///< once the batch has it
        std::vector<graph::Task*> write_backs;    ///< likewise; one for each piece
        std::uint32_t first_task = 0;             ///< position in the submit of the first task that uses it
        std::uint32_t last_task = 0;              ///< where the last task or write-back stands that uses it

        memory::Chunk& chunk() const noexcept { return temporary->chunk; }
    };

    Temporaries() = default;
    Temporaries(const Temporaries&) = delete;
    Temporaries& operator=(const Temporaries&) = delete;
    ~Temporaries() { drop(); }

    /// Those of the plan, and room in the table for their transfers. Throws std::bad_alloc; `drop` takes back what was
    /// made. O(pieces).
    void make(RuntimeCore& core, const plan::SubmitPlan& plan, const std::vector<plan::Request>& requests,
              const std::vector<DraftAccess>& accesses, const graph::TaskList& tasks);
    /// `use`, the task's of a temporary that is chosen late: adds what it is chosen from. After all that the task uses
    /// by itself.
    static void add_across(graph::Task& task, std::uint32_t use, std::uint32_t temporary, const plan::SubmitPlan& plan,
                           const plan::Request& request, const DraftAccess& draft);
    /// A task uses the temporary: it stays until all that were counted are settled.
    void count_use(std::uint32_t temporary, std::uint32_t task) noexcept {
        Entry& e = entries_[temporary];
        if (e.temporary->uses_to_come++ == (e.gather != nullptr ? 1 : 0) + e.write_backs.size()) e.first_task = task;
        e.last_task = task;
    }
    /// Reserves for a submit of `count` tasks. Throws std::bad_alloc.
    void count_tasks(std::size_t count) {
        held_changes_.assign(count + 1, 0);
        given_.reserve(num_transfers_);
    }
    /// The batch has the write-back, which stands before `task` and makes `made_bytes` of first content in its chunk.
    void count_write_back(Entry& entry, graph::Task& write_back, std::uint64_t task, std::size_t made_bytes) noexcept {
        entry.last_task = std::max(entry.last_task, static_cast<std::uint32_t>(task));
        held_changes_[task] += static_cast<std::ptrdiff_t>(made_bytes);
        given_.push_back(&write_back);
    }
    /// After all transfers have their places: a temporary counts as held (graph::HeldBytes) from its gather to its last
    /// use. O(tasks + temporaries).
    void add_to_held(const graph::TaskList& tasks, graph::TaskNumber first) noexcept;
    /// The submit has its place in the order: they belong to the runtime from now on, which frees unused ones.
    void give_away() noexcept {
        for (Entry& e : entries_) (void)e.data.release();
    }
    /// Gives back what the runtime does not have.
    void drop() noexcept {
        if (!entries_.empty()) drop_entries();
    }

    std::vector<Entry>& entries() noexcept { return entries_; }
    std::size_t num_transfers() const noexcept { return num_transfers_; }
    bool any_written() const noexcept { return any_written_; }

  private:
    struct Source;

    void drop_entries() noexcept;
    void make_memory(RuntimeCore& core, Entry& entry, const DraftAccess& access, const Box& region,
                     const plan::Temporary& plan);
    static std::uint32_t use_of_part(graph::Task& task, memory::Chunk& chunk);
    graph::Task& make_transfer(const graph::Task& made_for, memory::MemoryIndex memory, std::size_t num_uses);
    void make_gather(Entry& entry, const Source& source);
    static memory::MemoryIndex memory_for(RuntimeCore& core, const Source& source, const plan::Piece& piece);
    void make_write_backs(RuntimeCore& core, Entry& entry, const Source& source);

    std::vector<Entry> entries_;
    graph::TaskPool* pool_ = nullptr;
    std::size_t num_transfers_ = 0;
    bool any_written_ = false;
    std::vector<std::ptrdiff_t> held_changes_;  ///< by task: bytes held more than at the task before it
    std::vector<graph::Task*> given_;           ///< transfers that the batch has
};

}  // namespace kmm::detail
