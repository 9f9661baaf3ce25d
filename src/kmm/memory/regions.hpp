// What a task's regions across chunks find in its memory, and what their forms need there.
//
// Owns: nothing: questions about records, and the places that follow from forms. Must not know: how a form is chosen,
// heaps, what is requested. Under the scheduler's baton.
#pragma once

#include <cstdint>

#include "kmm/memory/content.hpp"
#include "kmm/memory/moved_boxes.hpp"

namespace kmm::memory {

inline Chunk& chunk_of_part(const graph::Task& task, const graph::Across& across, std::uint32_t i) noexcept {
    return *task.part(across, i).chunk;
}
inline Chunk& temporary_of(const graph::Task& task, const graph::Across& across) noexcept {
    return *task.uses[across.use].chunk;
}
inline ChunkRange chunks_of(const graph::Task& task, const graph::Across& across) noexcept {
    return {chunk_of_part(task, across, 0).index, chunk_of_part(task, across, across.num_parts - 1).index};
}

// Before the task is placed:

/// Marks the uses of small parts (Use::is_small_part): what the task reads of such a chunk is worth keeping instead of
/// the chunk, since it is little, in long runs, and the task uses nothing else of it. O(parts).
void mark_small_parts(graph::Task& task) noexcept;
/// Tasks in its memory read across these chunks, which may be laid side by side there. O(regions).
void note_neighbours(const graph::Task& task) noexcept;

/// What the chosen forms need of parts and temporaries. Of a chunk that several regions have a part of, or that the
/// task uses by itself, too, the one that needs most of it decides. O(parts).
void set_places(graph::Task& task) noexcept;
/// What a task reads of a temporary is as old as that: a failed copy may have left it (may_have_taken). O(parts).
void note_gathered(graph::Task& task) noexcept;

/// Whether the temporary has been filled, for another task, with what is good as far as it is known. O(parts).
bool holds_region(const graph::Task& task, const graph::Across& across) noexcept;
/// Whether each part that is a ghost has a replica that may hold parts. O(parts).
bool ghosts_have_places(const graph::Task& task, const graph::Across& across) noexcept;
/// Whether `m` has the region's part of the chunk, as a ghost or in a valid replica.
bool holds_part(const Chunk& chunk, MemoryIndex m, const graph::Across& across) noexcept;
/// Whether the task's memory lacks the part that the use is; it is one of one region alone. O(parts).
bool lacks_part(const graph::Task& task, const graph::Use& part) noexcept;
/// What is copied for a part. Of a chunk of a stack: whole rows, if these are little too. They are one piece of memory,
/// and other tasks at the same border find what they read.
boxes::Box box_to_fetch(const Chunk& chunk, const boxes::Box& part) noexcept;
/// Whether the box can be copied into `m` without waiting for readers of the parts that are there.
bool comes_beside(const Chunk& chunk, MemoryIndex m, const boxes::Box& box) noexcept;
/// Whether what is copied for the use of a part comes so. O(parts).
bool part_comes_beside(const graph::Task& task, const graph::Use& part) noexcept;

}  // namespace kmm::memory
