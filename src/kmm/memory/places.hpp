// The blocks that a task's uses need in its memory, and the addresses that its views see.
//
// Must not know: how blocks are found. Under the scheduler's baton; addresses are those of a placed task.
#pragma once

#include "kmm/graph/task.hpp"
#include "kmm/memory/chunk.hpp"

namespace kmm::memory {

/// Calls `f(use, chunk)` for each use that needs a block in the task's memory.
template<typename F> void for_each_place(graph::Task& task, F&& f) {
    for (graph::Use& u : task.uses)
        if (u.needs_block()) f(u, *u.chunk);
}

/// Of the chunk's first element where the task uses it; null: there never was content.
inline std::byte* address_of(const graph::Use& use) noexcept {
    return reinterpret_cast<std::byte*>(use.chunk->replicas[use.memory].address);
}

/// Of the region's first element; null: an empty region. O(regions across chunks).
inline std::byte* address_of(const graph::Task& task, const graph::View& view) noexcept {
    if (view.is_empty()) return nullptr;
    const graph::Use& use = task.uses[view.use];
    if (use.place == graph::Use::Place::none)
        for (const graph::Across& a : task.across())
            if (a.use == view.use && a.form == graph::Across::Form::in_place)
                return address_of(task.part(a, 0)) + a.offset_from_first_part;
    std::byte* const chunk = address_of(use);
    return chunk == nullptr ? nullptr : chunk + view.offset_bytes;
}

/// Strides in elements of what lies there, for the axes of the array; of an empty region 0. O(rank + regions across
/// chunks).
void set_strides(const graph::Task& task, const graph::View& view, std::int64_t* strides) noexcept;
/// Of a kernel: writes the fields of its table into its parameters. O(fields).
void write_fields(graph::Task& task) noexcept;

}  // namespace kmm::memory
