// What a task uses: chunks, and what its parameters see of them.
//
// Owns: plain values, parts of a task's record. Must not know: where chunks are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/base/memory_index.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/plan/submit_plan.hpp"

namespace kmm::memory {
struct Chunk;
}  // namespace kmm::memory

namespace kmm::graph {

/// One chunk that a task uses. The uses of a task name distinct chunks.
struct Use : plan::ContentNeeds {
    /// What the task does with the chunk. Constant once the task is committed.
    enum class Role : std::uint8_t {
        chunk,   ///< it works on the chunk
        source,  ///< it copies from the chunk, wherever that is when the task is placed
        region,  ///< the temporary of an Across, which placement fills, or has the chunks read instead
        part,    ///< it reads the chunk only as a part of one region that crosses chunks (Across)
        parts,   ///< likewise of several
    };
    /// Which replica of the chunk the task works on. Ordered: a later value needs more of a replica. Those of parts and
    /// of regions are chosen whenever the task is placed (memory/forms.cpp), and hold until it is placed again.
    enum class Place : std::uint8_t {
        none,      ///< no replica: the chosen form needs none, or needs it no longer
        anywhere,  ///< one in any memory: its content is copied from there
        ghost,     ///< one in the task's memory, to which the part that is read is brought
        here,      ///< one in the task's memory
    };

    Role role = Role::chunk;
    Place place = Place::here;
    /// All that the task reads of the chunk is a small part: what memory keeps of a chunk that is about to be replaced.
    /// Set by the schedule when it gets the task.
    bool is_small_part = false;
    memory::MemoryIndex memory;      ///< where the task uses the chunk, once it is placed
    memory::Chunk* chunk = nullptr;  ///< never null once the task is committed
    std::uint64_t content_at = 0;    ///< of the latest copy whose content the task may read, when it was placed
    std::uint64_t replaced_at = 0;   ///< the chunk's, when the task was placed

    void copy_from_anywhere() noexcept {
        role = Role::source;
        place = Place::anywhere;
        needs_content = true;
    }
    /// Whether the task needs a block for the chunk in its own memory.
    bool needs_block() const noexcept { return place >= Place::ghost; }
    bool is_part() const noexcept { return role == Role::part || role == Role::parts; }
    /// Whether the block of the chunk counts for the size of the task. A region counts by its temporary, and not by the
    /// chunks that it is read from.
    bool takes_room() const noexcept { return role == Role::chunk || role == Role::region; }
};
static_assert(sizeof(Use) == 32);

/// What one parameter of a task's function sees of a use.
struct View {
    static constexpr std::uint32_t nothing = ~std::uint32_t{0};

    std::size_t offset_bytes = 0;  ///< of the region's first element from the start of the chunk
    std::uint32_t use = nothing;   ///< position in the task's uses; `nothing`: an empty region
    detail::AccessKind kind = detail::AccessKind::read;

    bool is_empty() const noexcept { return use == nothing; }
};
static_assert(sizeof(View) == 16);

}  // namespace kmm::graph
