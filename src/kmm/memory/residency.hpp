// Where each chunk is: reserves all memory of a task, requests its copies, and chooses what is evicted for it.
//
// Owns: one heap and one order of victims for each memory, and the replicas of all chunks. Decides residency when a
// task is issued, because only then is free space known. Must not know: drivers, threads, clocks, which task is next.
// It asks for copies and for more memory through `Requests`. Runs under the scheduler's baton.
//
// Victims: first replicas without a next use (clean before dirty, least recently used first), then by farthest next use
// (Belady 1966), as ranked by the schedule. If tasks read only small parts of a chunk before it is replaced, only these
// parts are saved, in the host's replica.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kmm/memory/busy_replicas.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/memory/content.hpp"
#include "kmm/memory/eviction_policy.hpp"
#include "kmm/memory/placement.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/memory/residents.hpp"
#include "kmm/memory/space.hpp"
#include "kmm/memory/tiers.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::memory {

class Residency {
  public:
    /// `find_unset`: debug mode, `place` lists in Task::unset the chunks that come without content.
    /// `trace` outlives it.
    Residency(Requests& requests, PerMemory<std::size_t> limits_bytes, bool find_unset = false,
              const trace::Emitter& trace = trace::nobody_listens,
              EvictionPolicy policy = EvictionPolicy::farthest_next_use);

    // ---- capacity
    /// What the driver gives and takes is told to it.
    Space& space(MemoryIndex m) noexcept { return spaces_[m]; }
    const Space& space(MemoryIndex m) const noexcept { return spaces_[m]; }
    /// Takes whole regions out of the heap, for other users of the device's memory, until they hold `wanted_bytes` or
    /// no other region can be freed now. First free regions; then those whose chunks have no device work pending,
    /// cheapest victims first; then, unless `at_once`, the others. Chunks are evicted.
    /// O(replicas + regions * free pieces).
    Reclaimed reclaim(MemoryIndex memory, const std::vector<AddressRange>& regions, std::size_t wanted_bytes,
                      bool at_once);
    /// The lane's completed position has advanced: memory that waited for it may be ready. O(memories).
    void advanced(graph::LaneId lane) {
        for (Space& s : spaces_) s.advanced(lane);
    }
    const Lacking& lacking() const noexcept { return lacking_; }
    std::size_t rounded(std::size_t bytes) const noexcept { return spaces_[MemoryIndex::host()].heap.round_up(bytes); }
    MemoryRange memories() const noexcept { return spaces_.memories(); }
    std::size_t num_devices() const noexcept { return spaces_.num_devices(); }
    std::size_t num_resident(MemoryIndex m) const noexcept { return residents_[m].replicas.num_used(); }
    /// Grows with every change of where content is.
    std::uint64_t ticks() const noexcept { return tick_; }

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
    /// Whether the memory has evicted anything so far: else no plan is worth its time.
    bool has_evicted(MemoryIndex m) const noexcept { return residents_[m].indexed; }
    /// Appends the first `count` victims to `out`. O(count * log replicas).
    void list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out);

    // ---- tasks
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
    /// Moves blocks together, so that the free memory of each region is one piece. Only while nothing uses the memory.
    /// Copies in a device are requested; the host's are made before this returns. False: there was nothing to move.
    /// O(replicas * log replicas).
    bool compact(MemoryIndex m);
    /// Least size of the bounce buffer, host memory outside the budget: a block whose new place overlaps the old one is
    /// moved by way of it, and stays if it does not fit. O(replicas * log replicas).
    std::size_t bounce_bytes_to_compact(MemoryIndex m);
    std::size_t bounce_bytes() const noexcept { return bounce_bytes_; }
    void set_bounce(std::uintptr_t address, std::size_t bytes) noexcept;
    /// There is none any more; what on a device still uses it.
    FenceSet take_bounce() noexcept { return bounce_bytes_ = 0, std::exchange(bounce_users_, {}); }
    /// Exchanges the blocks of a chunk that the task lacks in its memory and of a chunk of the same size that the task
    /// does not use, by way of the bounce buffer: for memories that are full to the last byte. Only while nothing uses
    /// the memories. False: there is no such pair, or the buffer is too small. O(uses * victims * log victims).
    bool swap_for(graph::Task& task);
    /// Least size of the bounce buffer for `swap_for`; 0: there is no such pair. Cost: the same.
    std::size_t bounce_bytes_to_swap(graph::Task& task);
    /// Reserves all memory of the task, requests its copies, sets its addresses and adds to its waits; or changes
    /// nothing that matters. O(uses + victims * log replicas).
    Placement place(graph::Task& task, Room room = Room::as_usual);
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
    /// The part requested at `copied_at` (Requests::copy_part) did not come to that memory. Nothing else is concerned:
    /// ghosts are no source of anything.
    void part_failed(Chunk& chunk, MemoryIndex m, std::uint64_t copied_at);
    const std::shared_ptr<graph::RootFailure>& lost_cause() const noexcept { return lost_cause_; }

    /// Frees slabs without used records. O(memories + these).
    void trim_records() noexcept;

    // ---- arrays and temporaries
    void free_chunks(Owner& owner);
    /// No handle is left of an array that tasks still use: chunks that none of them needs may go. O(chunks that were
    /// touched), once.
    void released(Array& array);
    /// Emits the current use of each memory to the trace.
    void tell_memory() const noexcept {
        for (const Space& s : spaces_) s.tell();
    }
    /// Calls `f(chunk)` for every chunk that has memory there. O(replicas); for reports and errors only.
    template<typename F> void for_each_resident(MemoryIndex m, F&& f) const {
        residents_[m].replicas.for_each_made([&](const Replica& r) {
            if (r.address != 0) f(std::as_const(*r.chunk));
        });
    }
    /// Whether the chunk stands among the victims where it belongs, if it stands there; for tests.
    bool is_victim_in_order(const Chunk& chunk, MemoryIndex m) const noexcept {
        const Replica& r = chunk.replicas[m];
        return r.victim == nullptr || !r.victim->indexed || r.victim->rank == victim_rank(chunk, m);
    }
    /// Entries of lists and trees examined so far, for tests of the complexity.
    std::uint64_t num_steps() const noexcept {
        std::uint64_t sum = num_steps_;
        for (const Space& s : spaces_) sum += s.counters.victims_tried + s.heap.num_steps();
        return sum;
    }
    /// Bytes of chunks that are not pinned.
    std::size_t evictable_bytes(MemoryIndex m) const noexcept {
        return spaces_[m].counters.current_bytes - residents_[m].pinned_bytes;
    }

  private:
    /// `starved`: the host has no memory for the records of it.
    enum class Found : std::uint8_t { yes, growing, pinned, none, starved };

    MemoryIndex source_for(const Chunk& chunk, MemoryIndex to) const noexcept;
    MemoryIndex read_from(const Chunk& chunk, MemoryIndex m) const noexcept;
    Found allocate(Chunk& chunk, MemoryIndex m);
    Found make_room(MemoryIndex m);
    bool exchange(Space& space, std::size_t bytes) {
        const bool is_asked = space.exchange(bytes, exchange_bytes_, tick_ + 1);
        tick_ += is_asked ? 1 : 0;
        return is_asked;
    }
    bool lacks_for_sure(const graph::Task& task);
    Placement check_content(graph::Task& task);
    Placement place_with_forms(graph::Task& task);
    Placement place_in_forms(graph::Task& task);
    void count_victim(const Victim& victim, MemoryIndex m, bool is_added) noexcept;
    // Regions that lie in several chunks (forms.cpp).
    Found choose_forms(graph::Task& task);
    bool gather_instead(graph::Task& task) noexcept;
    bool forms_hold(const graph::Task& task) const noexcept;
    std::size_t missing_across(const graph::Task& task, const graph::Across& across) const noexcept;
    bool lie_side_by_side(const graph::Task& task, const graph::Across& across) const noexcept;
    bool have_room_beside(const graph::Task& task, std::size_t bytes) noexcept;
    bool find_ghosts(const graph::Task& task, graph::Across& across) noexcept;
    void make_ghosts(Replica& replica);
    /// It holds all of the version, or will when its arrivals are there; 0: nothing.
    void set_version(Replica& replica, std::uint64_t version) noexcept;
    void fetch_ghosts(graph::Task& task, const graph::Across& across);
    bool take_gaps(const graph::Task& task, const graph::Across& across);
    Found lay_side_by_side(graph::Task& task, const graph::Across& across);
    Found lay_range(graph::Task& task, Array& array, const ChunkRange& range, std::size_t total);
    void move_to(Chunk& chunk, std::uintptr_t block, const FenceSet& users_of_block, graph::Task& task);
    rmm::heap::block take_beside(Chunk& chunk, MemoryIndex m);
    void gather(graph::Task& task, const graph::Across& across);
    void finish_forms(graph::Task& task);
    struct Shift {
        Replica* replica;
        std::uintptr_t to;
        bool overlaps() const noexcept { return to + replica->chunk->block_bytes() > replica->block(); }
    };
    graph::Vector<Shift> list_shifts(MemoryIndex m, std::size_t most_overlapping_bytes);
    Fence shift(const Shift& shift, MemoryIndex m, const FenceSet& after);
    struct Swap {
        Chunk* chunk = nullptr;  ///< that the task lacks; null: there is no pair
        Chunk* other = nullptr;  ///< evicted for it
        MemoryIndex from, to;    ///< of `chunk`
        bool comes_up() const noexcept { return Tiers::below(to) == from; }
        Chunk& lower() const noexcept { return comes_up() ? *chunk : *other; }
        Chunk& upper() const noexcept { return comes_up() ? *other : *chunk; }
    };
    Swap find_swap(graph::Task& task);
    Chunk* last_needed_of_size(MemoryIndex m, std::size_t bytes, MemoryIndex other);
    void arrive(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block, Fence fence);
    Found allocate_missing(graph::Task& task, graph::Vector<Chunk*>* taken);
    Found allocate_side_by_side(graph::Task& task, graph::Vector<Chunk*>* taken);
    void finish_placement(graph::Task& task);
    static void address_unset(graph::Task& task) noexcept;
    bool is_idle(const Replica& replica) const noexcept;
    enum class Saves : std::uint8_t { what_is_read, all };
    Found evict(Chunk& chunk, MemoryIndex m, Saves saves);
    Found find_place_to_save(Chunk& chunk, MemoryIndex m, MemoryIndex* to);
    Found allocate_spare(Chunk& chunk, MemoryIndex m);
    std::size_t largest_spare_room_beside(MemoryIndex m) const noexcept;
    Fence save(Chunk& chunk, MemoryIndex m, MemoryIndex to, bool in_parts);
    void release(Replica& replica, const Fence* last = nullptr);
    void forget(Replica& replica);
    void take_back_block(Chunk& chunk, MemoryIndex m);
    void add_user(Replica& replica, UserKind kind, Fence fence);
    void forget_users(Replica& replica) noexcept;
    void wait_for(Replica& replica, graph::Task& task);
    graph::TaskList take_waiting(Replica& replica) noexcept;
    void count_pinned(const Chunk& chunk, MemoryIndex m, bool is_pinned) noexcept;
    void take(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block);
    void fetch(Chunk& chunk, MemoryIndex to, graph::Task& task);
    void count_fetch(Chunk& chunk, MemoryIndex to) noexcept;
    void written(Chunk& chunk, Replica& at, bool owes_nothing);
    Replica* used(const graph::Use& use);
    void use_is_over(graph::Task& task, const graph::Use& use);
    void forget_planned_use(const graph::Task& task, Chunk& chunk) noexcept;
    void reindex(Replica& replica) {
        if (replica.victim != nullptr) reindex_in_order(replica);
    }
    void reindex_in_order(Replica& replica);
    void unindex(Replica& replica) noexcept;
    void attach_victim(Replica& replica);
    bool begin_order(MemoryIndex m);
    void reindex_all(Chunk& chunk) {
        if (!any_indexed_) return;
        for (Replica& r : chunk.replicas) reindex(r);
    }
    std::optional<Prospect> prospect_of(const Chunk& chunk, MemoryIndex m) const noexcept;
    std::uint64_t victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept;
    void notify(const Chunk& chunk, MemoryIndex m);
    void wake(const graph::TaskList& tasks);
    void note_evicted(const Chunk& chunk, MemoryIndex m, bool saved, std::size_t bytes) const noexcept;

    Requests& requests_;
    const bool find_unset_;
    const trace::Emitter& trace_;
    const EvictionPolicy policy_;
    PerMemory<Space> spaces_;
    PerMemory<Residents> residents_;
    bool any_indexed_ = false;  ///< of `residents_`
    // While a task is placed:
    Room room_ = Room::as_usual;
    MemoryIndex placed_in_;
    std::uint64_t tick_ = 0;
    std::uint64_t num_steps_ = 0;
    std::size_t exchange_bytes_ = 0;  ///< while a task is placed whose own chunks have all left: what it needs in all
    Lacking lacking_;                 ///< of the task that was placed last
    std::uintptr_t bounce_address_ = 0;
    std::size_t bounce_bytes_ = 0;
    FenceSet bounce_users_;          ///< the latest, which comes after those before
    bool passed_over_held_ = false;  ///< the latest search in the memory below left out chunks of the task being placed
    std::shared_ptr<graph::RootFailure> lost_cause_;
    BusyReplicas busy_;
    DemandPool demands_;
    NextUses::Pool next_uses_;
    PlannedUsePool planned_uses_;
    graph::Vector<graph::TaskNumber> part_readers_;  ///< keeps its memory
};

}  // namespace kmm::memory
