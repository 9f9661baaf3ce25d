// Where each chunk is: reserves all memory of a task, requests its copies, and records what tasks do with content.
//
// Owns: the placement of tasks, and its parts: what lies where (residents), regions across chunks (forms), the search
// for blocks (blocks), moves within memories (compaction). Decides residency when a task is issued, because only then
// is free space known. Must not know: drivers, threads, clocks, which task is next. It asks for copies and for more
// memory through `Requests`. Runs under the scheduler's baton.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kmm/memory/blocks.hpp"
#include "kmm/memory/compaction.hpp"
#include "kmm/memory/forms.hpp"
#include "kmm/memory/placement.hpp"
#include "kmm/memory/residents.hpp"

namespace kmm::memory {

class Residency {
  public:
    /// `find_unset`: debug mode, `place` lists in Task::unset the chunks that come without content.
    /// `trace` outlives it.
    Residency(Requests& requests, const PerMemory<std::size_t>& limits_bytes, bool find_unset = false,
              const trace::Emitter& trace = trace::nobody_listens,
              EvictionPolicy policy = EvictionPolicy::farthest_next_use);

    Residents& residents() noexcept { return residents_; }
    const Residents& residents() const noexcept { return residents_; }
    Space& space(MemoryIndex m) noexcept { return residents_.space(m); }
    const Space& space(MemoryIndex m) const noexcept { return residents_.space(m); }
    Blocks& blocks() noexcept { return blocks_; }
    Compaction& compaction() noexcept { return compaction_; }
    const Compaction& compaction() const noexcept { return compaction_; }

    // ---- questions about a task
    /// Bytes that would have to be fetched or allocated for the task to run in its memory. O(uses).
    std::size_t missing_bytes(const graph::Task& task) const noexcept;
    /// Bytes that the task causes on a link: fetched now, and saved later because it writes them. 0: it fetches little
    /// beside what it uses. O(uses * memories).
    std::size_t moved_bytes(const graph::Task& task) const noexcept;
    /// The latest use of any chunk of the task in its memory, as a tick. O(uses).
    std::uint64_t last_use(const graph::Task& task) const noexcept {
        std::uint64_t last = 0;
        for (const graph::Use& u : task.uses)
            if (is_valid(*u.chunk, task.memory)) last = std::max(last, u.chunk->replicas[task.memory].tick);
        return last;
    }
    /// Bytes of blocks for content that the task is the first to make. O(uses).
    std::size_t made_bytes(const graph::Task& task) const noexcept;
    /// Bytes of blocks whose content the task needs. O(uses).
    std::size_t read_bytes(const graph::Task& task) const noexcept;
    /// Whether `left_bytes` of free memory and idle chunks remain beside what the task misses (if any). O(uses).
    bool has_idle_room(const graph::Task& task, std::size_t left_bytes) const noexcept;
    /// Bytes of blocks that the task needs and that are not there. O(uses).
    std::size_t block_bytes_missing(const graph::Task& task) const noexcept;

    // ---- placement
    /// Reserves all memory of the task, requests its copies, sets its addresses and adds to its waits; or changes
    /// nothing that matters. O(uses + victims * log replicas).
    Placement place(graph::Task& task, Room room = Room::as_usual);
    /// What the task that was placed last lacks (Placement::lacks).
    const Lacking& lacking() const noexcept { return lacking_; }
    const std::shared_ptr<graph::RootFailure>& lost_cause() const noexcept { return lost_cause_; }
    /// The placed task stands at `fence`: its uses are known.
    void issued(graph::Task& task, Fence fence);
    /// The placed task runs where no position is known: its replicas are pinned until `unpin`.
    void pin(graph::Task& task);
    /// Ends `pin`; `fence` (if any) says where the work stands that is still going on.
    void unpin(graph::Task& task, const Fence* fence);

    // ---- failures
    /// The copy requested at `copied_at` (Chunk::copied_at) did not happen. What later copies and writes may have made
    /// of it counts as spoiled too; if no good content is left, the chunk is lost until it is replaced.
    void copy_failed(Chunk& chunk, std::uint64_t copied_at, const std::shared_ptr<graph::RootFailure>& cause);
    /// The part requested at `copied_at` (Transfer::What::ghost) did not come to that memory. Nothing else is
    /// concerned: ghosts are no source of anything.
    void part_failed(Chunk& chunk, MemoryIndex m, std::uint64_t copied_at);

    /// Entries of lists and trees examined so far, for tests of the complexity.
    std::uint64_t num_steps() const noexcept {
        return num_steps_ + residents_.num_steps() + forms_.num_steps() + blocks_.num_steps() + compaction_.num_steps();
    }

  private:
    Placement place_with_forms(graph::Task& task);
    Placement place_in_forms(graph::Task& task);
    bool lacks_for_sure(const graph::Task& task);
    Placement check_content(graph::Task& task);
    Found allocate_missing(graph::Task& task, graph::Vector<Chunk*>* taken);
    Found allocate_side_by_side(graph::Task& task, graph::Vector<Chunk*>* taken);
    void fetch(Chunk& chunk, MemoryIndex to, graph::Task& task);
    void finish_placement(graph::Task& task);
    static void address_unset(graph::Task& task) noexcept;
    Replica* used(const graph::Use& use);
    void written(Chunk& chunk, Replica& at, bool owes_nothing);
    void use_is_over(graph::Task& task, const graph::Use& use);

    Requests& requests_;
    const bool find_unset_;
    Residents residents_;
    Forms forms_;
    Blocks blocks_;
    Compaction compaction_;
    Lacking lacking_;
    std::shared_ptr<graph::RootFailure> lost_cause_;
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::memory
