// Tasks of the model of residency (residency_model_test.cpp), as the api and the schedule make them: accesses of a
// program to parts of chunks and to regions across chunks, and what a task's record has of these. Pure.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kmm/memory/moved_boxes.hpp"
#include "kmm/memory/residency.hpp"

namespace kmm::residency_model {

using kmm::detail::AccessKind;
using kmm::graph::Across;
using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::Task;
using kmm::graph::Use;
using kmm::memory::address_of;
using kmm::memory::AddressRange;
using kmm::memory::Array;
using kmm::memory::Owner;
using kmm::memory::Temporary;
using kmm::memory::Chunk;
using kmm::memory::MemoryIndex;
using kmm::memory::PerMemory;
using kmm::memory::Placement;
using kmm::memory::Requests;
using kmm::memory::Residency;

inline constexpr std::size_t unit = kmm::memory::heap_alignment;
inline constexpr MemoryIndex host = MemoryIndex::host();

/// Of a chunk, in units.
struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// What the program says of a part of a chunk; first those that the task has a view of, then the parts of its regions.
struct Access {
    std::uint32_t use = 0;
    Part part{};  ///< none of a temporary, which has no place in the program's order
    AccessKind kind = AccessKind::read;
    bool writes() const { return kind != AccessKind::read; }
};

/// The task's use of the chunk, added if there is none yet.
inline std::uint32_t use_of(Task& task, Chunk& chunk) {
    const auto index =
        static_cast<std::uint32_t>(std::ranges::find(task.uses, &chunk, &Use::chunk) - task.uses.begin());
    if (index == task.uses.size()) task.uses.emplace_back().chunk = &chunk;
    return index;
}

inline Use& add_view(Task& task, std::vector<Access>& accesses, Chunk& chunk, const Part& part, AccessKind kind) {
    kmm::graph::View view;
    view.use = use_of(task, chunk);
    view.kind = kind;
    view.offset_bytes = part.begin * unit;
    task.views.push_back(view);
    accesses.push_back({view.use, part, kind});
    return task.uses[view.use];
}

inline std::size_t num_units(const Chunk& chunk) { return (chunk.size_bytes + unit - 1) / unit; }

/// Of a stack, in units from its start.
struct Region {
    Array* array = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - begin; }
};
/// With it what a task uses in all is not more than a device has.
inline constexpr std::size_t most_region_units = 8;

/// Of a region, in one chunk.
struct Piece {
    Chunk* chunk = nullptr;
    Part part;  ///< of the chunk
};

inline kmm::boxes::Box box_of(std::size_t begin, std::size_t end) {
    kmm::boxes::Box box;
    box.begin[0] = static_cast<std::int64_t>(begin);
    box.end[0] = static_cast<std::int64_t>(end);
    return box;
}

inline std::vector<Piece> pieces_of(const Region& region) {
    std::vector<Piece> pieces;
    for (Chunk& c : region.array->chunks) {
        const kmm::boxes::Box box = region.array->box(c.index);
        const auto begin = static_cast<std::size_t>(box.begin[0]), end = static_cast<std::size_t>(box.end[0]);
        if (region.end <= begin || end <= region.begin) continue;
        pieces.push_back({&c, {std::max(region.begin, begin) - begin, std::min(region.end, end) - begin}});
    }
    return pieces;
}

inline bool uses(const Task& task, const Chunk& chunk) {
    return std::any_of(task.uses.begin(), task.uses.end(), [&](const Use& u) { return u.chunk == &chunk; });
}

/// Of what will be used of the chunk until it is replaced no more than parts are needed, and the host has these.
inline bool has_parts_that_are_read(const Chunk& chunk) {
    if (!chunk.is_in_parts() || chunk.replicas[host].address == 0) return false;
    for (const auto& use : chunk.next_uses.open()) {
        if (use.replaces()) return true;
        if (use.kind != kmm::memory::NextUses::Kind::part) return false;
    }
    return false;
}

// ---- What the api and the schedule make of a region across chunks.

/// As Temporaries::make_memory.
inline std::unique_ptr<Temporary> make_temporary(const Region& region) {
    auto made = std::make_unique<Temporary>(box_of(region.begin, region.end), 1, unit, kmm::memory::heap_alignment,
                                            static_cast<std::uint32_t>(pieces_of(region).size()));
    made->is_gathered = true;
    return made;
}

inline void add_temporary(Task& task, std::vector<Access>& accesses, Temporary& temporary) {
    Use& use = add_view(task, accesses, temporary.chunk, {}, AccessKind::read);
    use.role = Use::Role::region;
    use.needs_content = true;
    ++temporary.uses_to_come;
}

/// As Temporaries::add_across.
inline void add_across(Task& task, std::vector<Access>& accesses, std::uint32_t use, const Region& region,
                       bool may_be_in_place) {
    Across& across = task.cold_part(kmm::graph::UseOfReserve::no).across.emplace_back();
    across.use = use;
    across.region = box_of(region.begin, region.end);
    across.first_part = static_cast<std::uint32_t>(task.cold->parts.size());
    across.may_be_in_place = may_be_in_place;
    for (const Piece& piece : pieces_of(region)) {
        if (across.num_parts++ == 0) across.offset_from_first_part = piece.part.begin * unit;
        const bool is_new = !uses(task, *piece.chunk);
        const std::uint32_t index = use_of(task, *piece.chunk);
        task.cold->parts.emplace_back() = index;
        Use& part = task.uses[index];
        if (is_new || part.is_part()) part.role = is_new ? Use::Role::part : Use::Role::parts;
        part.needs_content = true;
        accesses.push_back({index, piece.part});
    }
}

/// As the schedule does, but with chunks that are small: half a chunk is a small part.
inline void mark_small_parts(Task& task) {
    for (const Across& across : task.across())
        for (const std::uint32_t part : task.parts_of(across)) {
            Use& use = task.uses[part];
            use.is_small_part =
                2 * kmm::memory::part_bytes(across, *use.chunk) <= use.chunk->size_bytes && use.role == Use::Role::part;
        }
}

}  // namespace kmm::residency_model
