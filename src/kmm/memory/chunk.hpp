// A chunk, which is one piece of an array or a temporary, and what it is of.
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
#include "kmm/base/memory_index.hpp"
#include "kmm/boxes/box.hpp"
#include "kmm/graph/paged_records.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/demands.hpp"
#include "kmm/memory/next_uses.hpp"
#include "kmm/memory/replica.hpp"
#include "kmm/plan/layout.hpp"

namespace kmm::memory {

struct Array;
struct Owner;

/// Frequently used fields come first, in one cache line.
struct Chunk {
    Owner* owner = nullptr;             // constant: an array or a temporary
    std::uint32_t index = 0;            // constant
    std::uint32_t index_in_search = 0;  ///< while an order is looked for that it matters to (schedule/order_search.hpp)
    std::size_t size_bytes = 0;         // constant; may be 0
    std::uint64_t version = 0;          ///< number of writes so far; 0: nothing was written
    std::uint64_t hold = 0;             ///< number of the task that is being given memory: its chunks are no victims
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
    Chunk(Owner& of, std::uint32_t number, std::size_t size, std::size_t aligned_to) noexcept
        : owner(&of), index(number), size_bytes(size), alignment_log2(log2_of(aligned_to) & 0xff), made_at(0) {}

    /// Where its elements are, in the indices of the array. O(rank).
    boxes::Box box() const noexcept;
    Array* array() const noexcept;  ///< null: a temporary's

    /// The host alone holds the content, and only what tasks will still read of it. O(replicas).
    bool is_in_parts() const noexcept { return version != 0 && replicas[MemoryIndex::host()].holds_parts_of(version); }
    /// Whether the current version was evicted from `m` and not fetched since: fetching it again is thrash. Not counted
    /// for memories beyond the first 64.
    bool was_evicted_from(MemoryIndex m) const noexcept { return (evicted_from & bit_of(m)) != 0; }
    void set_evicted_from(MemoryIndex m, bool was) noexcept {
        evicted_from = was ? evicted_from | bit_of(m) : evicted_from & ~bit_of(m);
    }
    std::size_t alignment() const noexcept { return std::size_t{1} << alignment_log2; }
    /// Memory that a replica takes.
    std::size_t block_bytes() const noexcept { return block_bytes_of(size_bytes, alignment()); }
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

/// Owner of chunks: an array, or a temporary.
struct Owner {
    // ---- constant from the first use of a chunk on
    std::uint64_t number = 0;  ///< among all of the runtime, from 1
    std::size_t rank = 0;
    std::size_t alignment = heap_alignment;  ///< of each chunk
    std::uint32_t element_bytes = 0;
    std::uint32_t num_pieces = 0;  ///< of a temporary: the chunks that its region meets
    /// Of a temporary: tasks fill it when they are placed (graph::Across), repeatedly if need be. Evicted without
    /// saving, because its source region is not written before its last task is done.
    bool is_gathered = false;

    // ---- under the baton
    bool released = false;                ///< no handle is left; freed after its last task
    std::uint64_t users = 0;              ///< uses by unsettled tasks
    std::uint64_t uses_to_come = 0;       ///< of a temporary: by tasks that the schedule has not been told of
    std::size_t largest_block_bytes = 0;  ///< of chunks that tasks have used so far; filled in by the schedule
    std::uint64_t refetched_bytes = 0;    ///< fetched again after an eviction, over all memories

    bool is_temporary() const noexcept { return num_pieces != 0; }
    Array* as_array() noexcept;  ///< null: a temporary
    bool is_unused() const noexcept { return released && users == 0 && uses_to_come == 0; }
    /// For messages; a temporary has that of its array. Any thread: a program may name an array at any time.
    std::string name() const {
        const std::shared_ptr<const std::string> name = shared_name();
        return name == nullptr ? std::string() : *name;
    }
    void set_name(std::string name) { set_name(std::make_shared<const std::string>(std::move(name))); }
    /// The name that `other` has now.
    void share_name(const Owner& other) { set_name(other.shared_name()); }
    std::size_t num_chunks() const noexcept;
    /// Of a chunk, whether it has a record or not; in the indices of the array. O(rank).
    boxes::Box box(std::size_t chunk) const noexcept;
    /// Likewise in elements for each axis: chunks are packed, row-major.
    void set_strides(std::size_t chunk, std::int64_t* strides) const noexcept;
    /// The record of a chunk, made if there is none. Under the order lock. Throws std::bad_alloc, with nothing changed.
    Chunk& touch(std::size_t chunk);
    /// Calls `f(Chunk&)` for those that have a record. O(pages of records).
    template<typename F> void for_each_chunk(F&& f);

  protected:
    Owner() = default;
    ~Owner() = default;

  private:
    std::shared_ptr<const std::string> shared_name() const {
        const locks::Guard guard(name_mutex_);
        return name_;
    }
    void set_name(std::shared_ptr<const std::string> name) {
        const locks::Guard guard(name_mutex_);
        name_.swap(name);
    }

    mutable locks::Mutex name_mutex_;
    std::shared_ptr<const std::string> name_ KMM_GUARDED_BY(name_mutex_);
};

/// The data of one bound array.
struct Array : Owner {
    // ---- made once, before any chunk is touched
    /// `element_bytes` and `alignment` are set before. O(1).
    void set_layout(std::shared_ptr<const plan::Layout> cut, std::size_t num_devices) {
        layout = std::move(cut);
        chunks.set_size(layout->num_chunks());
        written_by.resize_for_devices(num_devices);
        is_stack = layout->is_stack() && may_touch();
        if (is_stack) neighbours.resize_for_devices(num_devices);
    }

    // ---- any thread
    std::size_t chunk_bytes(std::size_t chunk) const noexcept { return layout->num_elements(chunk) * element_bytes; }
    /// What a replica takes: as the chunk's record says, whether there is one or not.
    std::size_t block_bytes(std::size_t chunk) const noexcept { return block_bytes_of(chunk_bytes(chunk), alignment); }

    graph::PagedRecords<Chunk> chunks;           ///< by index; any thread finds those that exist
    std::shared_ptr<const plan::Layout> layout;  // constant
    /// Constant: the array is cut along the slowest axis alone, and the size of each chunk but the last is a multiple
    /// of the heap's alignment.
    bool is_stack = false;
    PerMemory<ChunkRange> written_by;  ///< by memory: chunks that kernels there write; filled in by the schedule
    PerMemory<Neighbours> neighbours;  ///< by memory; of a stack
    /// Bytes of its chunks that submits so far have written: its share of graph::HeldBytes. Guarded by the order lock;
    /// read without it when the last handle is dropped.
    std::size_t held_bytes = 0;

  private:
    /// Whether the blocks of all chunks could follow each other without gaps.
    bool may_touch() const noexcept {
        return alignment == heap_alignment && chunks.size() > 1 && chunk_bytes(0) % heap_alignment == 0;
    }
};

/// Memory for a region beside the chunks of an array: one chunk, which no handle names. It is evicted and comes back
/// like any other, and is freed after the last task that uses it.
struct Temporary : Owner {
    /// `pieces`, at least 1: how many chunks the region meets.
    Temporary(const boxes::Box& box, std::size_t axes, std::size_t bytes_of_element, std::size_t aligned_to,
              std::uint32_t pieces) noexcept
        : region(box), chunk(*this, 0, static_cast<std::size_t>(boxes::volume(box)) * bytes_of_element, aligned_to) {
        rank = axes;
        element_bytes = static_cast<std::uint32_t>(bytes_of_element);
        alignment = aligned_to;
        num_pieces = pieces;
        released = true;
    }

    const boxes::Box region;
    Chunk chunk;
};

inline Array* Owner::as_array() noexcept { return is_temporary() ? nullptr : static_cast<Array*>(this); }

inline Array* Chunk::array() const noexcept { return owner->as_array(); }

inline boxes::Box Chunk::box() const noexcept { return owner->box(index); }

inline std::size_t Owner::num_chunks() const noexcept {
    return is_temporary() ? 1 : static_cast<const Array&>(*this).layout->num_chunks();
}

inline boxes::Box Owner::box(std::size_t chunk) const noexcept {
    return is_temporary() ? static_cast<const Temporary&>(*this).region
                          : static_cast<const Array&>(*this).layout->box(chunk);
}

inline void Owner::set_strides(std::size_t chunk, std::int64_t* strides) const noexcept {
    if (is_temporary())
        boxes::row_major_strides(static_cast<const Temporary&>(*this).region, strides, rank);
    else
        static_cast<const Array&>(*this).layout->set_strides(chunk, strides);
}

inline Chunk& Owner::touch(std::size_t i) {
    if (is_temporary()) return static_cast<Temporary&>(*this).chunk;
    Array& a = static_cast<Array&>(*this);
    return a.chunks.touch(i, [&] { return Chunk(a, static_cast<std::uint32_t>(i), a.chunk_bytes(i), a.alignment); });
}

template<typename F> void Owner::for_each_chunk(F&& f) {
    if (is_temporary()) return f(static_cast<Temporary&>(*this).chunk);
    for (Chunk& c : static_cast<Array&>(*this).chunks) f(c);
}

/// Deletes either.
struct DeleteOwner {
    void operator()(Owner* owner) const noexcept {
        if (owner->is_temporary())
            delete static_cast<Temporary*>(owner);
        else
            delete static_cast<Array*>(owner);
    }
};
using OwnerPtr = std::unique_ptr<Owner, DeleteOwner>;

}  // namespace kmm::memory
