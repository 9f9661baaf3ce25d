// Which memories hold the content of a chunk, and what a task would find of it there.
//
// Owns: nothing: questions about records. Must not know: heaps, victims, what is requested. Under the scheduler's
// baton.
#pragma once

#include <cstdint>

#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::memory {

/// Whether the memory has the chunk's content, all of it, or will when what is on its way arrives.
inline bool is_valid(const Chunk& chunk, MemoryIndex m) noexcept {
    return chunk.version != 0 && chunk.replicas[m].holds_all_of(chunk.version);
}
/// Whether a task in `m` that reads the chunk must have it copied there.
inline bool needs_copy(const Chunk& chunk, MemoryIndex m) noexcept {
    return !chunk.replicas[m].holds_all_of(chunk.version);
}
/// Whether what a task in `m` reads of the chunk is there.
inline bool is_here(const Chunk& chunk, MemoryIndex m) noexcept { return chunk.version == 0 || is_valid(chunk, m); }

/// Whether another memory than `m` has it. O(replicas).
inline bool valid_elsewhere(const Chunk& chunk, MemoryIndex m) noexcept {
    for (const Replica& r : chunk.replicas)
        if (r.holds_all_of(chunk.version) && r.memory() != m) return true;
    return false;
}
/// Whether it may leave `m` without being saved. O(replicas).
inline bool is_clean(const Chunk& chunk, MemoryIndex m) noexcept {
    return chunk.owner->is_gathered || valid_elsewhere(chunk, m);
}
/// Whether the memory has the content, and no other does. O(replicas).
inline bool must_be_saved(const Chunk& chunk, MemoryIndex m) noexcept {
    return is_valid(chunk, m) && !is_clean(chunk, m);
}
/// Whether kernels of other devices write the chunk, and none in `m`, as far as known. Of a chunk of an array.
/// O(memories).
inline bool has_home_elsewhere(const Chunk& chunk, MemoryIndex m) noexcept {
    const PerMemory<ChunkRange>& written_by = chunk.array()->written_by;
    if (written_by[m].contains(chunk.index)) return false;
    for (const MemoryIndex other : written_by.device_memories())
        if (written_by[other].contains(chunk.index)) return true;
    return false;
}

/// What the task's use of a chunk is among the next ones of that chunk.
inline NextUses::Use next_use_of(const graph::Task& task, const graph::Use& use) noexcept {
    const auto kind = use.owes_nothing()  ? NextUses::Kind::replaces
                      : use.is_small_part ? NextUses::Kind::part
                                          : NextUses::Kind::needs;
    return {task.place(), kind};
}

// Of a copy that was requested at a tick (Chunk::copied_at) and failed:

/// Whether a placed task that needs the chunk's content may have taken for it what that copy never brought: directly,
/// or through copies and writes since. True also where the replica was filled since from content that the copy did not
/// concern. O(1).
inline bool may_have_taken(const graph::Use& use, std::uint64_t copied_at) noexcept {
    return use.needs_content && use.content_at >= copied_at && use.replaced_at < copied_at;
}
/// Whether a placed task may have read a part that was to come to `m` (Transfer::What::ghost).
inline bool may_have_taken_part(const graph::Use& use, MemoryIndex m, std::uint64_t copied_at) noexcept {
    return use.place == graph::Use::Place::ghost && use.memory == m && use.content_at >= copied_at;
}

}  // namespace kmm::memory
