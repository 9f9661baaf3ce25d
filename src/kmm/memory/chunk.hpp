// A chunk and its replicas: where the bytes of one piece of an array are.
//
// Owns: plain records. All of it belongs to whoever holds the scheduler's baton, but for what is marked constant. A
// chunk has a record from the first task on that uses it: whoever submits makes it under the order lock. Of the others
// nothing is anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/graph/box.hpp"
#include "kmm/graph/memory_index.hpp"
#include "kmm/graph/paged_records.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/next_uses.hpp"
#include "kmm/memory/planned_uses.hpp"
#include "kmm/memory/ready_uses.hpp"
#include "kmm/plan/layout.hpp"
#include "rmm/heap/tree.hpp"

namespace kmm::memory {

using graph::Fence;
using graph::FenceSet;

/// Addresses of blocks are multiples of this, and sizes are rounded up to it.
inline constexpr std::size_t heap_alignment = 256;

struct Array;
struct Chunk;

/// The bytes of one chunk in one memory. Valid when `version` is the chunk's.
struct Replica {
    std::uintptr_t address = 0;  ///< 0: none
    std::uintptr_t block =
        0;  ///< where its memory begins; before `address` where elements are aligned to more than the heap
    std::uint64_t version = 0;
    // Users whose position is not known: device functions being launched, host tasks. Nothing may be copied over a
    // replica that has any, copied from one that has writers, or evicted.
    std::uint32_t reader_pins = 0;
    std::uint32_t writer_pins = 0;
    FenceSet arrivals;     ///< copies into it, and what its memory was used for before
    FenceSet task_writes;  ///< tasks that write it
    FenceSet task_reads;   ///< tasks that read it
    FenceSet copy_reads;   ///< copies out of it
    ReadyUses ready;       ///< tasks in the memory's fetch queue that use the chunk: their missing bytes follow this
    PlannedUses planned;   ///< by tasks of the memory's plan
    std::size_t resident_at = 0;  ///< its place among the residents of its memory
    // Where the replica stands in its memory's order of victims, while that is kept (memory/victim_order.hpp).
    bool indexed = false;
    std::uint32_t priority = 0;  ///< of the tree
    Chunk* key_chunk = nullptr;  ///< whose it is
    std::uint64_t key_rank = 0;
    std::uint64_t key_tick = 0;
    std::size_t key_place_bytes = 0;    ///< the place on the host that it needs first, because it must be saved
    std::size_t least_place_bytes = 0;  ///< of these, of the replica and those below it in the tree
    rmm::heap::tree_links<Replica> in_victims;
    std::uint64_t tick = 0;             ///< when it was used last
    std::uint64_t content_at = 0;       ///< when the latest copy into it was requested, whatever became of it since
    std::uint64_t evicted_version = 0;  ///< the version that was evicted from here last: fetching it again is thrash

    graph::TaskList waiting;  ///< tasks that wait until it is not pinned, or until nobody writes it

    bool pinned() const noexcept { return (reader_pins | writer_pins) != 0; }
    void add_all_users(FenceSet& out) const {
        out.add(arrivals);
        out.add(task_writes);
        out.add(task_reads);
        out.add(copy_reads);
    }
    void forget_users() noexcept {
        arrivals.clear();
        task_writes.clear();
        task_reads.clear();
        copy_reads.clear();
    }
};

struct Chunk {
    Array* array = nullptr;                  // constant
    std::uint32_t index = 0;                 // constant
    std::uint32_t index_in_plan = 0;         ///< while a plan is made that looks at it (schedule/planner.hpp)
    std::size_t size_bytes = 0;              // constant; may be 0
    std::size_t alignment = heap_alignment;  // constant; a power of two, not below that of the heap
    std::uint64_t version = 0;               ///< number of writes so far; 0: nothing was written
    // Ticks of residency's clock, to tell after a failed copy what came before it.
    std::uint64_t copied_at = 0;    ///< the latest copy that was requested
    std::uint64_t replaced_at = 0;  ///< the latest write that owes nothing to the content before
    std::uint64_t spoiled_at = 0;   ///< when it was told last that a copy had failed
    /// The version of which the host's replica holds what tasks will still read, parts of the chunk, while no replica
    /// holds all of it: its next write replaces it.
    std::uint64_t parts_version = 0;
    std::uint64_t hold = 0;  ///< number of the task that is being given memory: its chunks are no victims
    PerMemory<Replica> replicas;
    NextUses next_uses;
    /// The only copy was lost (a failed write-back, a lost device); cleared when the content is replaced.
    std::shared_ptr<graph::RootFailure> lost;

    bool is_in_parts() const noexcept { return version != 0 && parts_version == version; }
    /// Memory that a replica takes: from any address of a heap an aligned one is not further away than the difference.
    std::size_t block_bytes() const noexcept { return block_bytes_of(size_bytes, alignment); }
    static std::size_t block_bytes_of(std::size_t size_bytes, std::size_t alignment) noexcept {
        return size_bytes == 0 ? 0 : size_bytes + (alignment - heap_alignment);
    }
    std::uintptr_t first_aligned(std::uintptr_t address) const noexcept {
        return (address + alignment - 1) & ~(std::uintptr_t{alignment} - 1);
    }
};

/// Indices from the first to the last that were added.
struct ChunkRange {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    bool any = false;

    ChunkRange() = default;
    ChunkRange(std::uint32_t from, std::uint32_t to) noexcept : first(from), last(to), any(true) {}
    void add(std::uint32_t index) noexcept {
        first = any && first < index ? first : index;
        last = any && last > index ? last : index;
        any = true;
    }
    std::uint32_t size() const noexcept { return last - first + 1; }
    bool contains(std::uint32_t index) const noexcept { return any && first <= index && index <= last; }
};

/// The chunks of an array that tasks in one memory have read several of as one region.
struct Neighbours {
    ChunkRange chunks;
    // To lay them side by side:
    std::uint32_t times_asked = 0;  ///< for memory
    std::uint32_t times_laid = 0;
    std::uint32_t times_in_vain = 0;
    std::uint32_t num_laid = 0;  ///< chunks, the last time
};

/// The data of one bound array.
struct Array {
    // ---- made once, before any chunk is touched
    /// Of an array of a runtime with so many devices, whose elements are set: its chunks are those of the layout. O(1).
    void set_layout(std::shared_ptr<const plan::Layout> cut, std::size_t num_devices) {
        layout = std::move(cut);
        chunks.set_size(layout->num_chunks());
        written_by.resize_for_devices(num_devices);
        is_stack = layout->is_stack() && may_touch();
        if (is_stack) neighbours.resize_for_devices(num_devices);
    }
    /// The same of a temporary: one chunk, which is the region.
    void set_region(const graph::Box& box, std::size_t num_devices) {
        region = box;
        chunks.set_size(1);
        written_by.resize_for_devices(num_devices);
    }

    // ---- any thread
    graph::Box box(std::size_t chunk) const noexcept { return layout != nullptr ? layout->box(chunk) : region; }
    std::size_t chunk_bytes(std::size_t chunk) const noexcept {
        const std::size_t elements =
            layout != nullptr ? layout->num_elements(chunk) : static_cast<std::size_t>(graph::volume(region));
        return elements * element_bytes;
    }
    /// What a replica takes: as the chunk's record says, whether there is one or not.
    std::size_t block_bytes(std::size_t chunk) const noexcept {
        return Chunk::block_bytes_of(chunk_bytes(chunk), alignment);
    }
    /// The record of a chunk, which is made if there is none. Under the order lock. Throws std::bad_alloc, and nothing
    /// has changed.
    Chunk& touch(std::size_t chunk) {
        return chunks.touch(chunk, [&] {
            Chunk c;
            c.array = this;
            c.index = static_cast<std::uint32_t>(chunk);
            c.size_bytes = chunk_bytes(chunk);
            c.alignment = alignment;
            c.replicas.resize_for_devices(written_by.num_devices());
            return c;
        });
    }

    /// For messages. Any thread: a program may name an array at any time.
    std::string name() const {
        const locks::Guard guard(name_mutex_);
        return name_;
    }
    /// No handle names it: memory for a region beside the chunks of an array, whose name it has.
    bool is_temporary() const noexcept { return num_pieces != 0; }
    void set_name(std::string name) {
        const locks::Guard guard(name_mutex_);
        name_ = std::move(name);
    }
    graph::PagedRecords<Chunk> chunks;           ///< by index; any thread finds those that exist
    std::uint64_t number = 0;                    // constant; among the arrays of the runtime, from 1
    std::size_t rank = 0;                        // constant
    std::size_t alignment = heap_alignment;      // constant; of each chunk
    std::uint32_t element_bytes = 0;             // constant
    std::uint32_t num_pieces = 0;                // constant; of a temporary: the chunks that its region meets
    std::shared_ptr<const plan::Layout> layout;  // constant; null: of a temporary
    graph::Box region;                           // constant; of a temporary
    /// Constant; of a temporary: tasks fill it when they are placed (graph::Across), and may do so again. It is dropped
    /// rather than saved: nobody writes what it holds before its last task is done.
    bool is_gathered = false;
    /// Constant: each chunk begins along the slowest axis where the one before it ends, and has the same extents along
    /// the others; their sizes are multiples of what the heap aligns to, but for the last.
    bool is_stack = false;
    std::uint64_t users = 0;           ///< accesses of unsettled tasks
    std::uint64_t uses_to_come = 0;    ///< of a temporary: accesses of tasks that the schedule has not been told of
    PerMemory<ChunkRange> written_by;  ///< by memory: chunks that kernels there write; filled in by the schedule
    PerMemory<Neighbours> neighbours;  ///< by memory; of a stack
    /// Of a temporary on the host that was filled before its task was placed: what that task needs beside it.
    std::size_t filled_ahead_of_bytes = 0;
    bool filled_ahead = false;
    std::uint64_t refetched_bytes = 0;  ///< fetched again after an eviction, over all memories
    bool released = false;              ///< no handle is left: freed when nobody uses it
    bool is_unused() const noexcept { return released && users == 0 && uses_to_come == 0; }
    std::size_t list_index = 0;
    Array* next_dropped = nullptr;  ///< of a runtime that gave up

  private:
    /// Whether the block of each chunk could end where that of the next one begins.
    bool may_touch() const noexcept {
        return alignment == heap_alignment && chunks.size() > 1 && chunk_bytes(0) % heap_alignment == 0;
    }

    mutable locks::Mutex name_mutex_;
    std::string name_ KMM_GUARDED_BY(name_mutex_);
};

}  // namespace kmm::memory
