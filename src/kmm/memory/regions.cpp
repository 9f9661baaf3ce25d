#include "kmm/memory/regions.hpp"

#include <algorithm>

#include "kmm/memory/ghosts.hpp"

namespace kmm::memory {

using graph::Across;
using graph::Task;
using graph::Use;

namespace {

/// That the use is a part of. It has one part. O(parts).
const Across& region_of(const Task& task, const Use& part) noexcept {
    const auto index = static_cast<std::uint32_t>(&part - task.uses.data());
    return *std::ranges::find_if(task.across(), [&](const Across& across) {
        const auto parts = task.parts_of(across);
        return std::ranges::find(parts, index) != parts.end();
    });
}

}  // namespace

void mark_small_parts(Task& task) noexcept {
    constexpr std::size_t largest_share = 8;          // an eighth
    constexpr std::size_t shortest_run_bytes = 1024;  // shorter ones, one by one, take a link as long as the chunk
    for (const Across& across : task.across()) {
        const MovedBoxes boxes(task, across);
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            const graph::BoxTransfer box = boxes[i];
            Use& use = task.uses[box.source];
            if (box.size_bytes() > use.chunk->size_bytes / largest_share) continue;
            if (box.run_bytes < shortest_run_bytes && box.num_axes != 0) continue;
            use.is_small_part = use.role == Use::Role::part;
        }
    }
}

void note_neighbours(const Task& task) noexcept {
    for (const Across& across : task.across()) {
        if (!across.may_be_in_place) continue;
        const Chunk& first = chunk_of_part(task, across, 0);
        Neighbours& neighbours = first.array()->neighbours[task.memory];
        neighbours.chunks.add(first.index);
        neighbours.chunks.add(chunk_of_part(task, across, across.num_parts - 1).index);
    }
}

void set_places(Task& task) noexcept {
    for (Use& u : task.uses)
        if (u.is_part()) u.place = Use::Place::none;
    for (const Across& across : task.across()) {
        const bool is_in_place = across.form == Across::Form::in_place;
        task.uses[across.use].place = is_in_place ? Use::Place::none : Use::Place::here;
        if (across.form == Across::Form::gathered) continue;
        for (std::uint32_t i = 0; i < across.num_parts; ++i) {
            Use& u = task.part(across, i);
            const auto place = !is_in_place         ? Use::Place::anywhere
                               : across.is_ghost(i) ? Use::Place::ghost
                                                    : Use::Place::here;
            u.place = std::max(u.place, place);
        }
    }
}

void note_gathered(Task& task) noexcept {
    for (const Across& across : task.across()) {
        if (across.form == Across::Form::in_place) continue;
        const std::uint64_t filled_at = temporary_of(task, across).replicas[task.memory].content_at;
        for (const std::uint32_t use : task.parts_of(across)) {
            Use& u = task.uses[use];
            u.content_at = std::max(u.content_at, filled_at);
        }
    }
}

bool holds_region(const Task& task, const Across& across) noexcept {
    const Chunk& t = temporary_of(task, across);
    if (!is_valid(t, task.memory)) return false;
    const std::uint64_t filled_at = t.replicas[task.memory].content_at;
    for (std::uint32_t i = 0; i < across.num_parts; ++i)
        if (chunk_of_part(task, across, i).spoiled_at > filled_at) return false;
    return true;
}

bool ghosts_have_places(const Task& task, const Across& across) noexcept {
    for (std::uint32_t i = 0; i < across.num_parts; ++i)
        if (across.is_ghost(i) && !chunk_of_part(task, across, i).replicas[task.memory].has_ghosts()) return false;
    return true;
}

bool holds_part(const Chunk& chunk, MemoryIndex m, const Across& across) noexcept {
    if (is_valid(chunk, m)) return true;
    const Replica& r = chunk.replicas[m];
    return r.has_ghosts() && chunk.version != 0 && r.version == chunk.version &&
           Ghosts::of(r).hold(part_of(across, chunk));
}

bool lacks_part(const Task& task, const Use& part) noexcept {
    return !holds_part(*part.chunk, task.memory, region_of(task, part));
}

boxes::Box box_to_fetch(const Chunk& chunk, const boxes::Box& part) noexcept {
    boxes::Box rows = chunk.box();
    rows.begin[0] = part.begin[0];
    rows.end[0] = part.end[0];
    const std::size_t bytes = static_cast<std::size_t>(boxes::volume(rows)) * chunk.owner->element_bytes;
    return 2 * bytes < chunk.size_bytes ? rows : part;
}

bool comes_beside(const Chunk& chunk, MemoryIndex m, const boxes::Box& box) noexcept {
    const Replica& r = chunk.replicas[m];
    return r.has_ghosts() && r.version == chunk.version && !Ghosts::of(r).overlap(box);
}

bool part_comes_beside(const Task& task, const Use& part) noexcept {
    const Chunk& c = *part.chunk;
    return comes_beside(c, task.memory, box_to_fetch(c, part_of(region_of(task, part), c)));
}

}  // namespace kmm::memory
