// A chunk, one piece of an array, and the array.
//
// Owns: plain records, guarded by the scheduler's baton unless marked otherwise. The submitting thread makes a chunk's
// record, under the order lock, with the first task that uses the chunk; an untouched chunk has no record anywhere.
#pragma once

#include <bit>
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
#include "kmm/graph/task.hpp"
#include "kmm/memory/demands.hpp"
#include "kmm/memory/next_uses.hpp"
#include "kmm/memory/replica.hpp"
#include "kmm/plan/layout.hpp"

namespace kmm::memory {

struct Array;

/// Frequently used fields come first, in one cache line.
struct Chunk {
    Array* array = nullptr;           // constant
    std::uint32_t index = 0;          // constant
    std::uint32_t index_in_plan = 0;  ///< while a plan is made that looks at it (schedule/planner.hpp)
    std::size_t size_bytes = 0;       // constant; may be 0
    std::uint64_t version = 0;        ///< number of writes so far; 0: nothing was written
    std::uint64_t hold = 0;           ///< number of the task that is being given memory: its chunks are no victims
    Replicas replicas;
    Demands demands;
    NextUses next_uses;
    std::uint64_t alignment_log2 : 8;  // constant; not below that of the heap
    /// Place in the order of the first task that was placed to make its content; 0: none was, or it was the front
    /// (schedule::Ahead).
    std::uint64_t made_at : 56;
    static constexpr std::uint64_t most_made_at = (std::uint64_t{1} << 56) - 1;  // a task's number has 48 bits
    /// The only copy was lost (a failed write-back, a lost device); cleared when the content is replaced.
    std::shared_ptr<graph::RootFailure> lost;
    // Ticks of residency's clock, which order events around a failed copy.
    std::uint64_t copied_at = 0;     ///< the latest copy that was requested
    std::uint64_t replaced_at = 0;   ///< the latest write that owes nothing to the content before
    std::uint64_t spoiled_at = 0;    ///< when it was told last that a copy had failed
    std::uint64_t evicted_from = 0;  ///< a bit for each memory (was_evicted_from)
    Ghosts* ghosts = nullptr;        ///< of its replicas that hold no more

    Chunk() noexcept : alignment_log2(log2_of(heap_alignment) & 0xff), made_at(0) {}
    Chunk(Array& of, std::uint32_t number, std::size_t size, std::size_t aligned_to) noexcept
        : array(&of), index(number), size_bytes(size), alignment_log2(log2_of(aligned_to) & 0xff), made_at(0) {}

    /// The host alone holds the content, and only what tasks will still read of it. O(replicas).
    bool is_in_parts() const noexcept { return version != 0 && replicas[MemoryIndex::host()].holds_parts_of(version); }
    /// Whether the current version was evicted from `m` and not fetched since: fetching it again is thrash. Not counted
    /// for memories beyond the first 64.
    bool was_evicted_from(MemoryIndex m) const noexcept { return (evicted_from & bit_of(m)) != 0; }
    void set_evicted_from(MemoryIndex m, bool was) noexcept {
        evicted_from = was ? evicted_from | bit_of(m) : evicted_from & ~bit_of(m);
    }
    /// Memory that a replica takes: from any address of a heap an aligned one is not further away than the difference.
    std::size_t alignment() const noexcept { return std::size_t{1} << alignment_log2; }
    std::size_t block_bytes() const noexcept { return block_bytes_of(size_bytes, alignment()); }
    static std::size_t block_bytes_of(std::size_t size_bytes, std::size_t alignment) noexcept {
        return size_bytes == 0 ? 0 : size_bytes + (alignment - heap_alignment);
    }
    std::uintptr_t first_aligned(std::uintptr_t address) const noexcept {
        return (address + alignment() - 1) & ~(std::uintptr_t{alignment()} - 1);
    }

  private:
    static std::uint64_t log2_of(std::size_t power) noexcept {
        return static_cast<std::uint64_t>(std::countr_zero(power));
    }
    static std::uint64_t bit_of(MemoryIndex m) noexcept {
        return m.index() < 64 ? std::uint64_t{1} << m.index() : std::uint64_t{0};
    }
};
static_assert(sizeof(Chunk) <= 128, "there may be a million");

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
    std::uint32_t gaps_in_vain = 0;  ///< likewise some of the blocks between them, and not all
    std::uint32_t num_laid = 0;      ///< chunks, the last time
};

/// The data of one bound array.
struct Array {
    // ---- made once, before any chunk is touched
    /// For an array with a layout; `element_bytes` and `alignment` are set before. O(1).
    void set_layout(std::shared_ptr<const plan::Layout> cut, std::size_t num_devices) {
        layout = std::move(cut);
        chunks.set_size(layout->num_chunks());
        written_by.resize_for_devices(num_devices);
        is_stack = layout->is_stack() && may_touch();
        if (is_stack) neighbours.resize_for_devices(num_devices);
    }
    /// For a temporary: one chunk, which is the region.
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
    /// The record of a chunk, made if there is none. Under the order lock. Throws std::bad_alloc, with nothing changed.
    Chunk& touch(std::size_t chunk) {
        return chunks.touch(
            chunk, [&] { return Chunk(*this, static_cast<std::uint32_t>(chunk), chunk_bytes(chunk), alignment); });
    }

    /// For messages. Any thread: a program may name an array at any time.
    std::string name() const {
        const locks::Guard guard(name_mutex_);
        return name_;
    }
    /// Memory for a region beside the chunks of an array, whose name it has. No handle refers to it.
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
    /// Constant; of a temporary: tasks fill it when they are placed (graph::Across), repeatedly if need be. Evicted
    /// without saving, because its source region is not written before its last task is done.
    bool is_gathered = false;
    /// Constant: the array is cut along the slowest axis alone, and the size of each chunk but the last is a multiple
    /// of the heap's alignment.
    bool is_stack = false;
    std::uint64_t users = 0;           ///< uses by unsettled tasks
    std::uint64_t uses_to_come = 0;    ///< of a temporary: by tasks that the schedule has not been told of
    PerMemory<ChunkRange> written_by;  ///< by memory: chunks that kernels there write; filled in by the schedule
    PerMemory<Neighbours> neighbours;  ///< by memory; of a stack
    /// Bytes of its chunks that submits so far have written: its share of graph::HeldBytes. Guarded by the order lock;
    /// read without it when the last handle is dropped.
    std::size_t held_bytes = 0;
    std::size_t largest_block_bytes = 0;  ///< of chunks that tasks have used so far; filled in by the schedule
    std::uint64_t refetched_bytes = 0;    ///< fetched again after an eviction, over all memories
    bool released = false;                ///< no handle is left; the array is freed after its last task
    bool is_unused() const noexcept { return released && users == 0 && uses_to_come == 0; }
    std::size_t list_index = 0;

  private:
    /// Whether the blocks of all chunks could follow each other without gaps.
    bool may_touch() const noexcept {
        return alignment == heap_alignment && chunks.size() > 1 && chunk_bytes(0) % heap_alignment == 0;
    }

    mutable locks::Mutex name_mutex_;
    std::string name_ KMM_GUARDED_BY(name_mutex_);
};

}  // namespace kmm::memory
