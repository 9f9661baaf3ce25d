#include "kmm/memory/forms.hpp"

#include <algorithm>
#include <utility>

#include "kmm/graph/room.hpp"
#include "kmm/memory/heap_fences.hpp"
#include "kmm/memory/regions.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

using graph::Across;
using graph::Task;
using graph::Use;

namespace {

// Others may take what was asked for before the task is tried again.
constexpr std::uint32_t most_times_asked = 3;
// Of an array and memory: so often chunks are laid without being twice as many as the time before. An array's first
// chunks come in a few lots.
constexpr std::uint32_t most_times_laid = 8;
// So often a search for one block may find none: each costs steps in proportion to the neighbours. Afterwards the array
// is gathered in this memory, for good.
constexpr std::uint32_t most_times_in_vain = 64;

}  // namespace

// ----------------------------------------------------------------------------------------------------------- questions

/// Whether each has a block in the task's memory that begins where the one before it ends.
bool Forms::lie_side_by_side(const Task& task, const Across& across) const noexcept {
    // A driver call may not span two allocations, even if they happen to touch.
    if (!across.may_be_in_place || residents_.space(task.memory).has_sealed()) return false;
    std::uintptr_t expected = chunk_of_part(task, across, 0).replicas[task.memory].address;
    for (std::uint32_t i = 0; i < across.num_parts; ++i) {
        const Chunk& c = chunk_of_part(task, across, i);
        if (c.replicas[task.memory].address == 0 || c.replicas[task.memory].address != expected) return false;
        expected += c.size_bytes;
    }
    return true;
}

/// Whether `bytes` can be had beside the blocks that the task still lacks, without an eviction. O(uses).
bool Forms::have_room_beside(const Task& task, std::size_t bytes) noexcept {
    const MemoryIndex m = task.memory;
    const Space& space = residents_.space(m);
    for (const Use& u : task.uses)
        if (u.role == Use::Role::chunk && u.chunk->replicas[m].address == 0)
            bytes += space.heap.round_up(u.chunk->block_bytes());
    const std::size_t left = space.left_bytes();
    return bytes <= space.heap.free_bytes() + (space.may_grow(1) ? left : 0);
}

/// Marks the parts that are fetched without the rest of their chunk, as ghosts: of chunks of which the task reads
/// little, and which are on another device, or on the host and written by other devices alone. False: gathering the
/// region is better than reading it in place. O(parts + uses).
bool Forms::find_ghosts(const Task& task, Across& across) noexcept {
    const MemoryIndex m = task.memory;
    std::size_t bytes_in_place = 0;  // read of chunks that are here, or are fetched as a whole
    std::size_t places_bytes = 0;
    across.ghosts = 0;
    for (std::uint32_t i = 0; i < across.num_parts; ++i) {
        const Use& part = task.part(across, i);
        const Chunk& c = *part.chunk;
        const std::size_t bytes = part_bytes(across, c);
        if (c.is_in_parts()) return false;  // the host holds these parts alone
        const MemoryIndex source = residents_.source_for(c, m);
        const bool comes_whole = 2 * bytes >= c.size_bytes || (source == Tiers::below(m) && !has_home_elsewhere(c, m));
        if (is_valid(c, m) || comes_whole) {
            bytes_in_place += bytes;
            continue;
        }
        if (source == m || part.role != Use::Role::part) return false;
        across.ghosts |= std::uint64_t{1} << i;
        if (c.replicas[m].address == 0) places_bytes += c.size_bytes;
    }
    if (places_bytes == 0) return true;
    // A gather takes the region's bytes each time. Ghosts may take twice that, because they save the copy.
    return places_bytes <= 2 * bytes_in_place && have_room_beside(task, places_bytes);
}

std::size_t Forms::missing_bytes_of(const Task& task, const Across& across) const noexcept {
    if (holds_region(task, across)) return 0;
    std::size_t bytes = lie_side_by_side(task, across) ? 0 : temporary_of(task, across).size_bytes;
    for (const std::uint32_t use : task.parts_of(across)) {
        const Chunk& c = *task.uses[use].chunk;
        if (!holds_part(c, task.memory, across)) bytes += part_bytes(across, c);
    }
    return bytes;
}

bool Forms::hold(const Task& task) const noexcept {
    return std::all_of(task.across().begin(), task.across().end(), [&](const Across& a) {
        switch (a.form) {
        case Across::Form::in_place: return lie_side_by_side(task, a) && ghosts_have_places(task, a);
        case Across::Form::gathered: return is_valid(temporary_of(task, a), task.memory);
        case Across::Form::gather: break;
        }
        return true;
    });
}

// -------------------------------------------------------------------------------------------------------------- choice

Found Forms::choose(Task& task) {
    for (Across& across : task.across()) {
        if (holds_region(task, across)) {
            across.form = Across::Form::gathered;
            continue;
        }
        Found found = Found::none;
        try {
            if (across.may_be_in_place && find_ghosts(task, across)) {
                const bool lie = lie_side_by_side(task, across) || take_gaps(task, across);
                found = lie ? Found::yes : lay_side_by_side(task, across);
            }
            for (std::uint32_t i = 0; found == Found::yes && i < across.num_parts; ++i)
                if (across.is_ghost(i)) residents_.make_ghosts(chunk_of_part(task, across, i).replicas.at(task.memory));
        } catch (const std::bad_alloc&) {
            found = Found::starved;
        }
        if (found == Found::growing || found == Found::starved) return found;
        across.form = found == Found::yes ? Across::Form::in_place : Across::Form::gather;
    }
    set_places(task);
    return Found::yes;
}

bool Forms::gather_instead(Task& task) noexcept {
    bool any = false;
    for (Across& across : task.across()) {
        if (across.form == Across::Form::gather) continue;
        if (across.form == Across::Form::gathered && is_valid(temporary_of(task, across), task.memory)) continue;
        across.form = Across::Form::gather;
        any = true;
    }
    if (any) set_places(task);
    return any;
}

/// Lays the region's chunks side by side, together with all resident neighbours that tasks in this memory read across:
/// else the next task would move chunks again. After a few times, only if there are twice as many chunks as the last
/// time: an array that arrives chunk by chunk is not moved as a whole for each chunk.
Found Forms::lay_side_by_side(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Array& array = *chunk_of_part(task, across, 0).array();
    Neighbours& neighbours = array.neighbours[m];
    const ChunkRange wanted = chunks_of(task, across);
    const Space& space = residents_.space(m);
    const auto often = [&](std::uint32_t count) {
        return neighbours.times_laid >= most_times_laid && count < 2 * neighbours.num_laid;
    };
    if (space.has_sealed() || neighbours.times_in_vain >= most_times_in_vain || often(neighbours.chunks.size()))
        return Found::none;
    // The range stops growing beyond what one block could hold.
    std::size_t most_bytes = std::min(space.heap.free_bytes(), space.unfit_bytes - 1);
    if (neighbours.times_asked < most_times_asked && space.may_grow(1))
        most_bytes = std::max(most_bytes, space.left_bytes());
    ChunkRange range = wanted;
    std::size_t total = 0;
    for (std::uint32_t i = wanted.first; i <= wanted.last; ++i)
        total += space.heap.round_up(array.chunks[i].block_bytes());
    const auto may_join = [&](std::uint32_t i) {
        ++num_steps_;
        if (!neighbours.chunks.contains(i)) return false;
        const Chunk* const c = array.chunks.find(i);
        if (c == nullptr || c->replicas[m].pinned()) return false;
        if (!is_valid(*c, m) && !c->replicas[m].has_ghosts()) return false;
        total += space.heap.round_up(c->block_bytes());
        return true;
    };
    while (total <= most_bytes && range.first > 0 && may_join(range.first - 1)) --range.first;
    while (total <= most_bytes && range.last + 1 < array.chunks.size() && may_join(range.last + 1)) ++range.last;
    if (total > most_bytes) return Found::none;
    const Found found = often(range.size()) ? Found::none : lay_range(task, array, range, total);
    if (found == Found::yes) neighbours.num_laid = range.size(), ++neighbours.times_laid;
    if (found == Found::none) ++neighbours.times_in_vain;
    return found;
}

/// Takes one block of `total` bytes for the chunks of `range`. Valid replicas move into it; the other chunks get empty
/// places there. Evicts nothing.
Found Forms::lay_range(Task& task, Array& array, const ChunkRange& range, std::size_t total) {
    const MemoryIndex m = task.memory;
    Space& space = residents_.space(m);
    for (std::uint32_t i = range.first; i <= range.last; ++i)
        if (array.chunks[i].replicas[m].pinned()) return Found::none;
    rmm::heap::block block;
    FenceSet fences;
    try {
        space.tell_again();
        block = space.take_free(total);
        if (block) {
            fences = graph_fences(block.fences);
            // Before `MemoryRecords::reserve`: a release after it could free a slab whose room was counted.
            for (std::uint32_t i = range.first; i <= range.last; ++i)
                if (Replica* const r = array.chunks[i].replicas.find(m); r != nullptr && !is_valid(array.chunks[i], m))
                    residents_.release(*r);
            residents_.records(m).reserve(range.size());
            residents_.records(m).ghosts.reserve(range.size());
            space.heap.expect_frees(range.size() - 1);
        }
    } catch (const std::bad_alloc&) {
        if (block) space.give(block.address, total, graph_fences(block.fences));
        return Found::starved;
    }
    if (!block) {
        Neighbours& neighbours = array.neighbours[m];
        const bool may_ask = total <= space.left_bytes() && space.may_grow(total);
        if (neighbours.times_asked >= most_times_asked || !may_ask) return Found::none;
        ++neighbours.times_asked;
        if (!space.is_growing()) space.grow(total);
        return Found::growing;
    }
    std::uintptr_t at = block.address;
    for (std::uint32_t i = range.first; i <= range.last; ++i) {
        Chunk& c = array.chunks[i];
        const std::size_t bytes = space.heap.round_up(c.block_bytes());
        if (is_valid(c, m)) {
            move_to(c, at, fences, task);
        } else {
            residents_.take(c, m, {at, bytes, {}});
            Replica& r = c.replicas.at(m);
            for (const Fence& f : fences) residents_.add_user(r, UserKind::arrival, f);
            residents_.make_ghosts(r);  // keeps the place when the chunk is written elsewhere
            residents_.notify(c, m);    // ghosts that were here are gone
        }
        at += bytes;
    }
    return Found::yes;
}

/// Takes the free gaps between the parts' blocks, which evicted chunks have left, for the chunks without a block.
/// False: not all gaps are free; nothing has changed. Not tried again after `most_times_in_vain` partial
/// failures. O(parts). Throws std::bad_alloc, with nothing changed.
bool Forms::take_gaps(const Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Space& space = residents_.space(m);
    Neighbours& neighbours = chunk_of_part(task, across, 0).array()->neighbours[m];
    if (space.has_sealed() || neighbours.gaps_in_vain >= most_times_in_vain) return false;
    const auto block_of = [&](std::uint32_t i) { return chunk_of_part(task, across, i).replicas[m].block(); };
    std::uint32_t first = 0;
    while (first < across.num_parts && block_of(first) == 0) ++first;
    if (first == across.num_parts) return false;
    std::uintptr_t begin = block_of(first);
    for (std::uint32_t i = first; i > 0; --i) begin -= chunk_of_part(task, across, i - 1).size_bytes;
    std::uintptr_t at = begin;
    for (std::uint32_t i = 0; i < across.num_parts; at += chunk_of_part(task, across, i++).size_bytes)
        if (block_of(i) != 0 && block_of(i) != at) return false;  // no gaps: they lie elsewhere
    space.tell_again();
    residents_.records(m).reserve(across.num_parts);
    std::uint64_t taken = 0;  // a bit for each part
    const auto give_back = [&] {
        for (std::uint32_t i = 0; i < across.num_parts; ++i)
            if ((taken >> i & 1) != 0) residents_.release(chunk_of_part(task, across, i).replicas.at(m));
    };
    at = begin;
    try {
        for (std::uint32_t i = 0; i < across.num_parts; at += chunk_of_part(task, across, i++).size_bytes) {
            Chunk& c = chunk_of_part(task, across, i);
            if (block_of(i) != 0) continue;
            const rmm::heap::block gap = space.heap.take(at, space.heap.round_up(c.block_bytes()));
            if (!gap) {
                neighbours.gaps_in_vain += taken != 0;
                give_back();
                return false;
            }
            residents_.take(c, m, gap);
            taken |= std::uint64_t{1} << i;
        }
    } catch (const std::bad_alloc&) {
        give_back();
        throw;
    }
    for (std::uint32_t i = 0; i < across.num_parts; ++i)
        if ((taken >> i & 1) != 0) residents_.notify(chunk_of_part(task, across, i), m);
    return true;
}

/// To another place in the same memory, behind all that uses either.
void Forms::move_to(Chunk& chunk, std::uintptr_t block, const FenceSet& users_of_block, Task& task) {
    const MemoryIndex m = task.memory;
    Space& space = residents_.space(m);
    Replica& r = chunk.replicas.at(m);
    FenceSet waits;
    r.add_writers_to(waits);
    waits.add(users_of_block);
    chunk.copied_at = residents_.next_tick();
    const Fence fence =
        requests_.transfer(chunk_transfer(chunk, m, m, r.address, chunk.first_aligned(block), &task), waits);
    FenceSet users;
    r.add_all_users_to(users);
    users.add(fence);
    space.give(r.block(), space.heap.round_up(chunk.block_bytes()), std::move(users));
    space.unfit_bytes = ~std::size_t{0};
    r.set_block(block, chunk.first_aligned(block));
    r.content_at = chunk.copied_at;
    residents_.forget_users(r);
    residents_.add_user(r, UserKind::arrival, fence);
    residents_.notify(chunk, m);
}

rmm::heap::block Forms::take_beside(Chunk& chunk, MemoryIndex m) {
    if (chunk.owner->is_temporary()) return {};
    Array& array = *chunk.array();
    if (!array.is_stack || !array.neighbours[m].chunks.contains(chunk.index)) return {};
    Space& space = residents_.space(m);
    if (space.has_sealed()) return {};  // what lies beside the neighbour may be another allocation of the driver
    const auto bytes_of = [&](std::uint32_t i) { return space.heap.round_up(array.block_bytes(i)); };
    const auto block_of = [&](std::uint32_t i) {  // 0: it has none there
        const Chunk* const c = array.chunks.find(i);
        return c == nullptr ? std::uintptr_t{0} : c->replicas[m].block();
    };
    const std::size_t size = bytes_of(chunk.index);
    const std::uintptr_t before = chunk.index == 0 ? 0 : block_of(chunk.index - 1);
    const std::uintptr_t behind = chunk.index + 1 == array.chunks.size() ? 0 : block_of(chunk.index + 1);
    rmm::heap::block block;
    if (before != 0) block = space.heap.take(before + bytes_of(chunk.index - 1), size);
    if (!block && behind != 0) block = space.heap.take(behind - size, size);
    if (block || before != 0 || behind != 0) return block;
    const ChunkRange range = array.neighbours[m].chunks;
    std::size_t total = 0, offset = 0;
    for (std::uint32_t i = range.first; i <= range.last; ++i) {
        ++num_steps_;
        if (i == chunk.index) offset = total;
        if (block_of(i) != 0) return {};
        total += bytes_of(i);
        if (total >= space.unfit_bytes || total > space.heap.free_bytes()) return {};
    }
    block = space.take_free(total);
    if (!block) return {};
    const std::uintptr_t begin = block.address;
    space.give(begin, total, graph_fences(block.fences));
    return space.heap.take(begin + offset, size);
}

// ----------------------------------------------------------------------------------------------------------- placement

void Forms::finish(Task& task) {
    for (const Across& across : task.across()) {
        if (across.form == Across::Form::in_place)
            fetch_ghosts(task, across);
        else if (across.form == Across::Form::gather)
            gather(task, across);
    }
    for (Use& u : task.uses) {
        const bool is_over =
            u.is_part() ? !u.needs_block() : u.role == Use::Role::region && u.place == Use::Place::none;
        if (!is_over) continue;
        u.place = Use::Place::none;
        u.content_at = 0;
        u.replaced_at = u.chunk->replaced_at;
        residents_.remove_next_use(*u.chunk, next_use_of(task, u));
    }
}

void Forms::fetch_ghosts(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    for (std::uint32_t i = 0; i < across.num_parts; ++i) {
        Chunk& c = chunk_of_part(task, across, i);
        if (!across.is_ghost(i) || holds_part(c, m, across)) continue;
        const MemoryIndex from = residents_.source_for(c, m);
        if (from == m) continue;  // as in `fetch`
        const boxes::Box box = box_to_fetch(c, part_of(across, c));
        Replica& s = c.replicas.at(from);
        Replica& d = c.replicas.at(m);
        // Beside other parts it comes after what these came after, and those who read them go on.
        const bool is_beside = comes_beside(c, m, box);
        FenceSet waits;
        s.add_writers_to(waits);
        d.for_each_user([&](UserKind kind, const Fence& f) {
            if (!is_beside || kind == UserKind::arrival) waits.add(f);
        });
        c.copied_at = residents_.next_tick();
        const Fence fence = requests_.transfer(ghost_transfer(c, box, s, d, task, boxes_), waits);
        d.content_at = c.copied_at;
        if (!is_beside) residents_.forget_users(d);
        residents_.add_user(d, UserKind::arrival, fence);
        Ghosts& ghosts = Ghosts::of(d);
        if (d.version != c.version) ghosts.clear();
        d.version = c.version;
        ghosts.add(box);
        residents_.add_user(s, UserKind::copy_read, fence);
        s.tick = residents_.next_tick();
        residents_.reindex_all(c);
        residents_.notify(c, m);
    }
}

void Forms::gather(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Use& region = task.uses[across.use];
    Chunk& to = *region.chunk;
    Replica& d = to.replicas.at(m);
    FenceSet waits;
    d.add_all_users_to(waits);
    region.memory = m;
    for (const std::uint32_t use : task.parts_of(across)) {
        Use& u = task.uses[use];
        u.memory = residents_.read_from(*u.chunk, m);
        u.chunk->replicas[u.memory].add_writers_to(waits);
    }
    if (to.version == 0) to.version = 1;
    to.copied_at = residents_.next_tick();
    const Fence fence = requests_.transfer(gather_transfer(task, across, boxes_), waits);
    graph::clear_and_keep_few(boxes_);  // there may have been very many
    d.content_at = to.copied_at;
    residents_.forget_users(d);
    residents_.add_user(d, UserKind::arrival, fence);
    d.version = to.version;
    for (const std::uint32_t use : task.parts_of(across)) {
        const Use& u = task.uses[use];
        if (Replica* const s = u.chunk->replicas.find(u.memory)) {
            residents_.add_user(*s, UserKind::copy_read, fence);
            s->tick = residents_.next_tick();
        }
        residents_.reindex_all(*u.chunk);
    }
    residents_.reindex_all(to);
    residents_.notify(to, m);
}

}  // namespace kmm::memory
