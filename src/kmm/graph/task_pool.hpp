// Free records of tasks.
//
// Owns: the memory of records. Must not know: what is in them. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::graph {

/// What the record of a task should have room for. More of anything costs a block of the host.
struct RecordSize {
    std::size_t num_uses = 0;
    std::size_t storage_bytes = 0;  ///< parameters or payload
    bool has_layouts = false;
    std::size_t num_edges = 0;   ///< beside two for each use
    std::size_t num_fields = 0;  ///< of the table of a kernel's parameters
};

/// Free task records, of a few sizes. Any thread; O(1). Submitting threads take and the scheduler gives, so each side
/// has a list and a lock of its own: an empty list of takers is exchanged for the givers'.
class TaskPool {
  public:
    TaskPool();
    ~TaskPool();
    TaskPool(const TaskPool&) = delete;
    TaskPool& operator=(const TaskPool&) = delete;
    /// Throws std::bad_alloc.
    Task* take(const RecordSize& size = {});
    void give(Task* task) noexcept;
    /// Gives the host slabs of which no record is in use. O(free records), and no lock that others need is held for
    /// more than some thousand of them; meanwhile those who take records may get new slabs. Without memory for its
    /// lists it does nothing.
    void trim() noexcept;
    /// What the records take, used and free.
    std::size_t size_bytes() noexcept;

  private:
    static constexpr std::size_t num_kinds = 6;
    struct alignas(64) FreeList {
        locks::TinyLock lock;
        std::vector<Task*> tasks KMM_GUARDED_BY(lock);
    };
    /// Records of one size.
    struct Kind {
        std::size_t index = 0;
        FreeList takers;
        FreeList givers;
        std::vector<std::unique_ptr<TaskSlab>> slabs KMM_GUARDED_BY(takers.lock);  ///< and under that of the givers
        std::size_t num_records KMM_GUARDED_BY(takers.lock) = 0;                   ///< likewise; made or not
        TaskSlab* unfinished KMM_GUARDED_BY(takers.lock) = nullptr;                ///< whose records are not all made
    };
    Kind& kind_for(const RecordSize& size) noexcept;
    static void add_slab(Kind& kind, std::unique_ptr<TaskSlab> slab) KMM_REQUIRES(kind.takers.lock, kind.givers.lock);
    static Task* take_free(Kind& kind) noexcept KMM_REQUIRES(kind.takers.lock);
    static std::size_t claim(Kind& kind) noexcept KMM_REQUIRES(kind.takers.lock);
    static void trim(Kind& kind);
    static void take_all_free(Kind& kind, std::vector<Task*>& free);
    static void put_back(Kind& kind, const std::vector<Task*>& kept) noexcept;

    Kind kinds_[num_kinds];
    locks::Mutex trimming_;  ///< one at a time: while one counts what is free, no other gives it away
};

}  // namespace kmm::graph
