// What lies where: the replicas of all chunks in all memories, who uses them, and in which order they would leave.
//
// Owns: a space and records for each memory, and the records of what tasks will use. Must not know: why a block is
// taken or a replica leaves, forms of regions, placement. Under the scheduler's baton.
//
// Victims: first replicas without a next use (clean before dirty, least recently used first), then by farthest next use
// (Belady 1966), as ranked by the schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kmm/memory/busy_replicas.hpp"
#include "kmm/memory/content.hpp"
#include "kmm/memory/eviction_policy.hpp"
#include "kmm/memory/ghosts.hpp"
#include "kmm/memory/record_slabs.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/memory/space.hpp"
#include "kmm/memory/victim_order.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::memory {

/// Of one memory.
struct MemoryRecords {
    static constexpr std::size_t record_slab_bytes = 16384;

    RecordSlabs<Replica, SystemMemory, record_slab_bytes> replicas;  ///< all of this memory
    RecordSlabs<Ghosts, SystemMemory, record_slab_bytes> ghosts;
    bool indexed = false;  ///< `victims` is maintained: from the first eviction on
    VictimOrder victims;
    RecordSlabs<Victim, SystemMemory, record_slab_bytes> victim_records;  ///< with `indexed` one a replica
    std::size_t idle_bytes = 0;                                           ///< of evictable replicas that no task needs
    std::size_t spare_bytes = 0;                                          ///< of clean evictable replicas
    std::uint64_t num_pinned = 0;                                         ///< of `replicas`
    std::size_t pinned_bytes = 0;                                         ///< that these take

    /// Throws std::bad_alloc. As many replicas need no memory to come then, and none needs any to leave.
    void reserve(std::size_t count) {
        replicas.reserve(count);
        if (indexed) victim_records.reserve(count);
    }
    void trim() noexcept {
        victim_records.trim();
        replicas.trim();
        ghosts.trim();
    }
};

class Residents {
  public:
    static constexpr std::uint64_t rank_never = ~0ull;  ///< of what cannot leave

    Residents(Requests& requests, const PerMemory<std::size_t>& limits_bytes, const trace::Emitter& trace,
              EvictionPolicy policy);

    // ---- memories
    /// What the driver gives and takes is told to it.
    Space& space(MemoryIndex m) noexcept { return spaces_[m]; }
    const Space& space(MemoryIndex m) const noexcept { return spaces_[m]; }
    MemoryRecords& records(MemoryIndex m) noexcept { return records_[m]; }
    const MemoryRecords& records(MemoryIndex m) const noexcept { return records_[m]; }
    MemoryRange memories() const noexcept { return spaces_.memories(); }
    MemoryRange device_memories() const noexcept { return spaces_.device_memories(); }
    std::size_t num_devices() const noexcept { return spaces_.num_devices(); }
    std::size_t rounded(std::size_t bytes) const noexcept { return spaces_[MemoryIndex::host()].heap.round_up(bytes); }
    /// Grows with every change of where content is.
    std::uint64_t ticks() const noexcept { return tick_; }
    std::uint64_t next_tick() noexcept { return ++tick_; }
    /// The lane's completed position has advanced: memory that waited for it may be ready. O(memories).
    void advanced(graph::LaneId lane) {
        for (Space& s : spaces_) s.advanced(lane);
    }
    /// Emits the current use of each memory to the trace.
    void tell_memory() const noexcept {
        for (const Space& s : spaces_) s.tell();
    }
    /// Frees slabs without used records. O(memories + these).
    void trim_records() noexcept;

    // ---- blocks
    /// A replica without content in the block. Where a record is reserved.
    void take(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block);
    /// Frees the replica's block behind its users. `last`: one more user, which was not added to the replica.
    void release(Replica& replica, const Fence* last = nullptr);
    /// Removes the record of a replica, without freeing its block.
    void forget(Replica& replica);
    /// Undoes an allocation for a task whose other chunks found no room; counters as if it had not been made.
    void take_back_block(Chunk& chunk, MemoryIndex m);
    void free_chunks(Owner& owner);
    /// No handle is left of an array that tasks still use: chunks that none of them needs may go. O(chunks that were
    /// touched), once.
    void released(Array& array);
    /// It holds all of the version, or will when its arrivals are there; 0: nothing.
    void set_version(Replica& replica, std::uint64_t version) noexcept;
    /// Of a replica that is not valid. Throws std::bad_alloc where no record was reserved, and nothing has changed.
    void make_ghosts(Replica& replica);
    void count_pinned(const Chunk& chunk, MemoryIndex m, bool is_pinned) noexcept;
    void count_fetch(Chunk& chunk, MemoryIndex to) noexcept;

    // ---- where content comes from
    /// A linked device first (NVLink is faster than the way through the host), then the memory below, then any; `to`:
    /// nothing is good elsewhere. O(replicas).
    MemoryIndex source_for(const Chunk& chunk, MemoryIndex to) const noexcept;
    /// Where a transfer reads the chunk: in the memory that it writes to, if it is there.
    MemoryIndex read_from(const Chunk& chunk, MemoryIndex m) const noexcept;

    // ---- users
    void add_user(Replica& replica, UserKind kind, Fence fence);
    void forget_users(Replica& replica) noexcept;
    /// Queues the task until the replica's pins that block it end.
    void wait_for(Replica& replica, graph::Task& task);
    graph::TaskList take_waiting(Replica& replica) noexcept;
    void wake(const graph::TaskList& tasks);
    /// Tells ready tasks in `m` that what they miss of the chunk may have changed.
    void notify(const Chunk& chunk, MemoryIndex m);
    /// Whether the work that uses it has passed.
    bool is_idle(const Replica& replica) const noexcept;

    // ---- the future, as the schedule sees it
    void add_next_use(Chunk& chunk, const NextUses::Use& use);
    void remove_next_use(Chunk& chunk, const NextUses::Use& use);
    /// From now on the ready task is notified when the chunk may have changed its missing bytes
    /// (Requests::residency_changed). Throws std::bad_alloc if the host's reserve is exhausted too, with nothing done.
    void listen(ReadyUse& use);
    void stop_listening(ReadyUse& use) noexcept;
    /// The task stands at `position` (from 1) of its memory's plan, until it is issued or `unplan`: its chunks are
    /// evicted after those that the plan uses later or not at all. Called from the plan's last task to its first.
    /// O(uses * log replicas).
    void plan(graph::Task& task, std::uint16_t position);
    void unplan(graph::Task& task);
    void forget_planned_use(const graph::Task& task, Chunk& chunk) noexcept;

    // ---- the order of victims
    /// Starts the memory's order. False: no host memory for it. O(replicas * log replicas), once for each memory.
    bool begin_order(MemoryIndex m);
    /// Whether the memory has evicted anything so far: else no plan is worth its time.
    bool has_evicted(MemoryIndex m) const noexcept { return records_[m].indexed; }
    std::uint64_t victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept;
    /// After a change of what its place in the order follows from. O(log replicas).
    void reindex(Replica& replica) {
        if (replica.victim != nullptr) reindex_in_order(replica);
    }
    void reindex_all(Chunk& chunk) {
        if (!any_indexed_) return;
        for (Replica& r : chunk.replicas) reindex(r);
    }
    /// Appends the first `count` victims to `out`. O(count * log replicas).
    void list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out);
    void note_evicted(const Chunk& chunk, MemoryIndex m, bool saved, std::size_t bytes) const noexcept;

    // ---- for reports and tests
    std::size_t num_resident(MemoryIndex m) const noexcept { return records_[m].replicas.num_used(); }
    /// Calls `f(chunk)` for every chunk that has memory there. O(replicas).
    template<typename F> void for_each_resident(MemoryIndex m, F&& f) const {
        records_[m].replicas.for_each_made([&](const Replica& r) {
            if (r.address != 0) f(std::as_const(*r.chunk));
        });
    }
    /// Bytes of chunks that are not pinned.
    std::size_t evictable_bytes(MemoryIndex m) const noexcept {
        return spaces_[m].counters.current_bytes - records_[m].pinned_bytes;
    }
    /// Whether the chunk stands among the victims where it belongs, if it stands there.
    bool is_victim_in_order(const Chunk& chunk, MemoryIndex m) const noexcept {
        const Replica& r = chunk.replicas[m];
        return r.victim == nullptr || !r.victim->indexed || r.victim->rank == victim_rank(chunk, m);
    }
    /// Entries of lists and trees examined so far.
    std::uint64_t num_steps() const noexcept {
        std::uint64_t sum = num_steps_;
        for (const Space& s : spaces_) sum += s.counters.victims_tried + s.heap.num_steps();
        return sum;
    }

  private:
    std::optional<Prospect> prospect_of(const Chunk& chunk, MemoryIndex m) const noexcept;
    void attach_victim(Replica& replica);
    void count_victim(const Victim& victim, MemoryIndex m, bool is_added) noexcept;
    void reindex_in_order(Replica& replica);
    void unindex(Replica& replica) noexcept;

    Requests& requests_;
    const trace::Emitter& trace_;
    const EvictionPolicy policy_;
    PerMemory<Space> spaces_;
    PerMemory<MemoryRecords> records_;
    bool any_indexed_ = false;  ///< of `records_`
    std::uint64_t tick_ = 0;
    std::uint64_t num_steps_ = 0;
    BusyReplicas busy_;
    DemandPool demands_;
    NextUses::Pool next_uses_;
    PlannedUsePool planned_uses_;
};

}  // namespace kmm::memory
