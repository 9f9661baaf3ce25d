// Regions that lie in several chunks: whether a task reads the chunks where they are, or a copy of the region.
//
// The chunks themselves, where they lie side by side: nothing is copied. So they are laid side by side when a task
// reads across them and there is room without that anything must leave; what is taken for such an array later is taken
// beside its neighbours. Of a chunk that other devices write, and of which the task reads little, only that is brought
// to its place (ghosts.hpp). Else the parts are gathered into a temporary, from wherever they are, which moves the
// region alone.
#include <algorithm>
#include <utility>

#include "kmm/memory/heap_fences.hpp"
#include "kmm/memory/residency.hpp"

namespace kmm::memory {

using graph::Access;
using graph::Across;
using graph::Task;

namespace {

// Others may take what was asked for before the task is tried again.
constexpr std::uint32_t most_times_asked = 3;
// Of an array and memory: so often chunks are laid without being twice as many as the time before. An array's first
// chunks come in a few lots.
constexpr std::uint32_t most_times_laid = 8;
// So often a search for one block may find none: each costs steps in proportion to the neighbours. Afterwards the array
// is gathered in this memory, for good.
constexpr std::uint32_t most_times_in_vain = 64;

template<typename T, typename F>
void for_each_piece(T& task, const Across& across, F&& f) {
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) f(task.accesses[across.first_piece + i]);
}

const Chunk& piece(const Task& task, const Across& across, std::uint32_t i) noexcept {
    return *task.accesses[across.first_piece + i].chunk;
}

const Chunk& temporary(const Task& task, const Across& across) noexcept { return *task.accesses[across.access].chunk; }

void set_form(Task& task, Across& across, Across::Form form) noexcept {
    across.form = form;
    task.accesses[across.access].in_use = form != Across::Form::in_place;
    for_each_piece(task, across, [form](Access& a) {
        a.in_use = form != Across::Form::gathered;
        a.anywhere = form == Across::Form::gather;
        a.is_ghost = a.is_ghost && form == Across::Form::in_place;
    });
}

/// Whether each has a replica that may hold parts.
bool ghosts_have_places(const Task& task, const Across& across) noexcept {
    bool all = true;
    for_each_piece(task, across,
                   [&](const Access& a) { all = all && (!a.is_ghost || a.chunk->replicas[task.memory].has_ghosts()); });
    return all;
}

/// What the task reads of a piece. O(regions of the task).
const graph::BoxTransfer& part_of(const Task& task, const Access& piece) noexcept {
    const auto index = static_cast<std::uint32_t>(&piece - task.accesses.data());
    const Across* a = task.across().data();
    while (index - a->first_piece >= a->num_pieces) ++a;
    return task.boxes()[a->first_box + (index - a->first_piece)];
}

/// Of a chunk of a stack: whole rows, if these are little too. They are one piece of memory, and other tasks at the
/// same border find what they read.
graph::Box box_to_fetch(const Chunk& chunk, const graph::Box& part) noexcept {
    graph::Box rows = chunk.array->box(chunk.index);
    rows.begin[0] = part.begin[0];
    rows.end[0] = part.end[0];
    const std::size_t bytes = static_cast<std::size_t>(graph::volume(rows)) * chunk.array->element_bytes;
    return 2 * bytes < chunk.size_bytes ? rows : part;
}

ChunkRange pieces(const Task& task, const Across& across) noexcept {
    return {piece(task, across, 0).index, piece(task, across, across.num_pieces - 1).index};
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------- questions

/// Whether the temporary has been filled, for another task, with what is good as far as it is known.
bool Residency::holds_region(const Task& task, const Across& across) const noexcept {
    const Chunk& t = temporary(task, across);
    if (!is_valid(t, task.memory)) return false;
    const std::uint64_t filled_at = t.replicas[task.memory].content_at;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i)
        if (piece(task, across, i).spoiled_at > filled_at) return false;
    return true;
}

/// Whether each has a block in the task's memory that begins where the one before it ends.
bool Residency::lie_side_by_side(const Task& task, const Across& across) const noexcept {
    // A driver call may not span two allocations, even if they happen to touch.
    if (!across.may_be_in_place || spaces_[task.memory].has_sealed) return false;
    std::uintptr_t expected = piece(task, across, 0).replicas[task.memory].address;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        const Chunk& c = piece(task, across, i);
        if (c.replicas[task.memory].address == 0 || c.replicas[task.memory].address != expected) return false;
        expected += c.size_bytes;
    }
    return true;
}

/// Whether `m` holds that part of the chunk, as a ghost or in a valid replica.
bool Residency::holds_part(const Chunk& chunk, MemoryIndex m, const graph::Box& part) noexcept {
    if (is_valid(chunk, m)) return true;
    const Replica& r = chunk.replicas[m];
    return r.has_ghosts() && chunk.version != 0 && r.version == chunk.version && Ghosts::of(r).hold(part);
}

bool Residency::lacks_part(const Task& task, const Access& piece) noexcept {
    return !holds_part(*piece.chunk, task.memory, part_of(task, piece).box);
}

/// Whether the part can be copied in without waiting for readers of the parts that are there.
bool Residency::comes_beside(const Chunk& chunk, MemoryIndex m, const graph::Box& part) noexcept {
    const Replica& r = chunk.replicas[m];
    return r.has_ghosts() && r.version == chunk.version && !Ghosts::of(r).overlap(part);
}

bool Residency::part_comes_beside(const Task& task, const Access& piece) noexcept {
    const Chunk& c = *piece.chunk;
    return comes_beside(c, task.memory, box_to_fetch(c, part_of(task, piece).box));
}

/// Whether kernels of other devices write the chunk, and none in `m`, as far as known. O(memories).
bool Residency::has_home_elsewhere(const Chunk& chunk, MemoryIndex m) const noexcept {
    const Array& array = *chunk.array;
    if (array.written_by[m].contains(chunk.index)) return false;
    for (const MemoryIndex other : memories())
        if (other.is_device() && array.written_by[other].contains(chunk.index)) return true;
    return false;
}

/// Whether `bytes` can be had beside the blocks that the task still lacks, without an eviction. O(accesses).
bool Residency::have_room_beside(const Task& task, std::size_t bytes) noexcept {
    const MemoryIndex m = task.memory;
    const Space& space = spaces_[m];
    for (const Access& a : task.accesses) {
        const bool needs_block = a.chunk != nullptr && a.first_of_chunk && !a.is_piece && !a.gathers;
        if (needs_block && a.chunk->replicas[m].address == 0) bytes += space.heap.round_up(a.chunk->block_bytes());
    }
    const std::size_t left = space.counters.limit_bytes - space.counters.capacity_bytes;
    return bytes <= space.heap.free_bytes() + (may_grow(m, 1) ? left : 0);
}

/// Marks the pieces of which only the part that is read is fetched, as a ghost: chunks of which the task reads little,
/// and which are on another device, or on the host and written by other devices alone. False: gathering the region is
/// better than reading it in place. O(pieces * accesses).
bool Residency::find_ghosts(Task& task, const Across& across) noexcept {
    const MemoryIndex m = task.memory;
    std::size_t bytes_in_place = 0;  // read of chunks that are here, or are fetched as a whole
    std::size_t places_bytes = 0;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        Access& a = task.accesses[across.first_piece + i];
        const Chunk& c = *a.chunk;
        const std::size_t part_bytes = task.boxes()[across.first_box + i].size_bytes();
        a.is_ghost = false;
        if (c.is_in_parts()) return false;  // the host holds these parts alone
        const MemoryIndex source = source_for(c, m);
        const bool comes_whole = 2 * part_bytes >= c.size_bytes || (source.is_host() && !has_home_elsewhere(c, m));
        if (is_valid(c, m) || comes_whole) {
            bytes_in_place += part_bytes;
            continue;
        }
        const auto is_same_chunk = [&c](const Access& other) { return other.chunk == &c; };
        if (source == m || std::count_if(task.accesses.begin(), task.accesses.end(), is_same_chunk) != 1) return false;
        a.is_ghost = true;
        if (c.replicas[m].address == 0) places_bytes += c.size_bytes;
    }
    if (places_bytes == 0) return true;
    // A gather takes the region's bytes each time. Ghosts may take twice that, because they save the copy.
    return places_bytes <= 2 * bytes_in_place && have_room_beside(task, places_bytes);
}

std::size_t Residency::missing_across(const Task& task, const Across& across) const noexcept {
    if (holds_region(task, across)) return 0;
    std::size_t bytes = lie_side_by_side(task, across) ? 0 : temporary(task, across).size_bytes;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i)
        if (const graph::BoxTransfer& part = task.boxes()[across.first_box + i];
            !holds_part(piece(task, across, i), task.memory, part.box))
            bytes += part.size_bytes();
    return bytes;
}

/// Whether the chosen forms still hold after the allocation, which may have evicted the task's own chunks.
bool Residency::forms_hold(const Task& task) const noexcept {
    return std::all_of(task.across().begin(), task.across().end(), [&](const Across& a) {
        switch (a.form) {
        case Across::Form::in_place: return lie_side_by_side(task, a) && ghosts_have_places(task, a);
        case Across::Form::gathered: return is_valid(temporary(task, a), task.memory);
        case Across::Form::gather: break;
        }
        return true;
    });
}

// ------------------------------------------------------------------------------------------------------------- choice

/// O(pieces), plus laying chunks side by side, mostly once for each array and memory.
Residency::Found Residency::choose_forms(Task& task) {
    for (Across& across : task.across()) {
        if (holds_region(task, across)) {
            set_form(task, across, Across::Form::gathered);
            continue;
        }
        Found found = Found::none;
        try {
            if (across.may_be_in_place && find_ghosts(task, across)) {
                const bool lie = lie_side_by_side(task, across) || take_gaps(task, across);
                found = lie ? Found::yes : lay_side_by_side(task, across);
            }
            if (found == Found::yes)
                for_each_piece(task, across, [&](const Access& a) {
                    if (a.is_ghost) make_ghosts(a.chunk->replicas.at(task.memory));
                });
        } catch (const std::bad_alloc&) {
            found = Found::starved;
        }
        if (found == Found::growing || found == Found::starved) return found;
        set_form(task, across, found == Found::yes ? Across::Form::in_place : Across::Form::gather);
    }
    return Found::yes;
}

/// Switches regions to be read in place, and gathered ones that were evicted, to a gather. False: there is none.
bool Residency::gather_instead(Task& task) noexcept {
    bool any = false;
    for (Across& across : task.across()) {
        if (across.form == Across::Form::gather) continue;
        if (across.form == Across::Form::gathered && is_valid(temporary(task, across), task.memory)) continue;
        set_form(task, across, Across::Form::gather);
        any = true;
    }
    return any;
}

/// Lays the region's chunks side by side, together with all resident neighbours that tasks in this memory read across:
/// else the next task would move chunks again. After a few times, only if there are twice as many chunks as the last
/// time: an array that arrives chunk by chunk is not moved as a whole for each chunk.
Residency::Found Residency::lay_side_by_side(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Array& array = *piece(task, across, 0).array;
    Neighbours& neighbours = array.neighbours[m];
    const ChunkRange wanted = pieces(task, across);
    const Space& space = spaces_[m];
    const auto often = [&](std::uint32_t count) {
        return neighbours.times_laid >= most_times_laid && count < 2 * neighbours.num_laid;
    };
    if (space.has_sealed || neighbours.times_in_vain >= most_times_in_vain || often(neighbours.chunks.size()))
        return Found::none;
    // The range stops growing beyond what one block could hold.
    std::size_t most_bytes = std::min(space.heap.free_bytes(), space.unfit_bytes - 1);
    if (neighbours.times_asked < most_times_asked && may_grow(m, 1))
        most_bytes = std::max(most_bytes, space.counters.limit_bytes - space.counters.capacity_bytes);
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
Residency::Found Residency::lay_range(Task& task, Array& array, const ChunkRange& range, std::size_t total) {
    const MemoryIndex m = task.memory;
    Space& space = spaces_[m];
    for (std::uint32_t i = range.first; i <= range.last; ++i)
        if (array.chunks[i].replicas[m].pinned()) return Found::none;
    rmm::heap::block block;
    FenceSet fences;
    try {
        tell_again(space);
        block = take_free(space, total);
        if (block) {
            fences = graph_fences(block.fences);
            // Before `reserve_records`: a release after it could free a slab whose room was counted.
            for (std::uint32_t i = range.first; i <= range.last; ++i)
                if (Replica* const r = array.chunks[i].replicas.find(m); r != nullptr && !is_valid(array.chunks[i], m))
                    release(*r);
            reserve_records(space, range.size());
            space.ghosts.reserve(range.size());
            space.heap.expect_frees(range.size() - 1);
        }
    } catch (const std::bad_alloc&) {
        if (block) give(space, block.address, total, graph_fences(block.fences));
        return Found::starved;
    }
    if (!block) {
        Neighbours& neighbours = array.neighbours[m];
        const bool may_ask = total <= space.counters.limit_bytes - space.counters.capacity_bytes && may_grow(m, total);
        if (neighbours.times_asked >= most_times_asked || !may_ask) return Found::none;
        ++neighbours.times_asked;
        if (!space.growing) grow(m, total);
        return Found::growing;
    }
    std::uintptr_t at = block.address;
    for (std::uint32_t i = range.first; i <= range.last; ++i) {
        Chunk& c = array.chunks[i];
        const std::size_t bytes = space.heap.round_up(c.block_bytes());
        if (is_valid(c, m)) {
            move_to(c, at, fences, task);
        } else {
            take(c, m, {at, bytes, {}});
            Replica& r = c.replicas.at(m);
            for (const Fence& f : fences) add_user(r, UserKind::arrival, f);
            make_ghosts(r);  // keeps the place when the chunk is written elsewhere
            notify(c, m);    // ghosts that were here are gone
        }
        at += bytes;
    }
    return Found::yes;
}

/// Takes the free gaps between the pieces' blocks, which evicted pieces have left, for the pieces without a block.
/// False: not all gaps are free; nothing has changed. Not tried again after `most_times_in_vain` partial
/// failures. O(pieces). Throws std::bad_alloc, with nothing changed.
bool Residency::take_gaps(const Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Space& space = spaces_[m];
    Neighbours& neighbours = piece(task, across, 0).array->neighbours[m];
    if (space.has_sealed || neighbours.gaps_in_vain >= most_times_in_vain) return false;
    const auto block_of = [&](std::uint32_t i) { return piece(task, across, i).replicas[m].block(); };
    std::uint32_t first = 0;
    while (first < across.num_pieces && block_of(first) == 0) ++first;
    if (first == across.num_pieces) return false;
    std::uintptr_t begin = block_of(first);
    for (std::uint32_t i = first; i > 0; --i) begin -= piece(task, across, i - 1).size_bytes;
    std::uintptr_t at = begin;
    for (std::uint32_t i = 0; i < across.num_pieces; at += piece(task, across, i++).size_bytes)
        if (block_of(i) != 0 && block_of(i) != at) return false;  // no gaps: they lie elsewhere
    tell_again(space);
    reserve_records(space, across.num_pieces);
    std::uint64_t taken = 0;  // a bit for each of the pieces
    const auto give_back = [&] {
        for (std::uint32_t i = 0; i < across.num_pieces; ++i)
            if ((taken >> i & 1) != 0) release(task.accesses[across.first_piece + i].chunk->replicas.at(m));
    };
    at = begin;
    try {
        for (std::uint32_t i = 0; i < across.num_pieces; at += piece(task, across, i++).size_bytes) {
            Chunk& c = *task.accesses[across.first_piece + i].chunk;
            if (block_of(i) != 0) continue;
            const rmm::heap::block gap = space.heap.take(at, space.heap.round_up(c.block_bytes()));
            if (!gap) {
                neighbours.gaps_in_vain += taken != 0;
                give_back();
                return false;
            }
            take(c, m, gap);
            taken |= std::uint64_t{1} << i;
        }
    } catch (const std::bad_alloc&) {
        give_back();
        throw;
    }
    for (std::uint32_t i = 0; i < across.num_pieces; ++i)
        if ((taken >> i & 1) != 0) notify(piece(task, across, i), m);
    return true;
}

/// Of a replica that is not valid. Throws std::bad_alloc where no record was reserved, and nothing has changed.
void Residency::make_ghosts(Replica& replica) {
    if (!replica.has_ghosts()) spaces_[replica.memory()].ghosts.take().link_to(replica);
}

/// To another place in the same memory, behind all that uses either.
void Residency::move_to(Chunk& chunk, std::uintptr_t block, const FenceSet& users_of_block, Task& task) {
    const MemoryIndex m = task.memory;
    Space& space = spaces_[m];
    Replica& r = chunk.replicas.at(m);
    FenceSet waits;
    r.add_writers_to(waits);
    waits.add(users_of_block);
    chunk.copied_at = ++tick_;
    const Fence fence = requests_.copy(chunk, m, m, r.address, chunk.first_aligned(block), waits, &task);
    FenceSet users;
    r.add_all_users_to(users);
    users.add(fence);
    give(space, r.block(), space.heap.round_up(chunk.block_bytes()), std::move(users));
    space.unfit_bytes = ~std::size_t{0};
    r.set_block(block, chunk.first_aligned(block));
    r.content_at = chunk.copied_at;
    forget_users(r);
    add_user(r, UserKind::arrival, fence);
    notify(chunk, m);
}

/// Memory for a chunk whose array is read across chunks: beside a neighbour, or with room for those that tasks have
/// read together with it. Empty if there is none. Throws std::bad_alloc, and nothing has changed.
rmm::heap::block Residency::take_beside(Chunk& chunk, MemoryIndex m) {
    // The chunks of a task that found no room have all left: room for neighbours would cut what they come back to.
    if (exchange_bytes_ != 0) return {};
    Array& array = *chunk.array;
    if (!array.is_stack || !array.neighbours[m].chunks.contains(chunk.index)) return {};
    Space& space = spaces_[m];
    if (space.has_sealed) return {};  // what lies beside the neighbour may be another allocation of the driver
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
    block = take_free(space, total);
    if (!block) return {};
    const std::uintptr_t begin = block.address;
    give(space, begin, total, graph_fences(block.fences));
    return space.heap.take(begin + offset, size);
}

// ---------------------------------------------------------------------------------------------------------- placement

/// The task has its memory: what is gathered is requested, and who is not used any more is told so.
void Residency::finish_forms(Task& task) {
    task.addresses.resize(task.accesses.size());
    for (Across& across : task.across()) {
        if (across.form == Across::Form::in_place) {
            const Access& whole = task.accesses[across.access];
            remove_next_use(*whole.chunk, use_of(task, whole));
            fetch_ghosts(task, across);
            continue;
        }
        if (across.form == Across::Form::gather) gather(task, across);
        const Replica& filled = temporary(task, across).replicas[task.memory];
        for_each_piece(task, across, [&](Access& a) {
            // By these it is told whether the task may have taken what a failed copy left (may_have_taken).
            a.content_at = filled.content_at;
            a.replaced_at = a.chunk->replaced_at;
            a.in_use = false;
            remove_next_use(*a.chunk, use_of(task, a));
        });
    }
}

/// What reads chunks in their places has the address of the first one.
void Residency::address_in_place(Task& task) noexcept {
    for (const Across& across : task.across()) {
        if (across.form != Across::Form::in_place) continue;
        auto* const first = static_cast<std::byte*>(task.addresses[across.first_piece]);
        for (std::size_t i = 0; i < across.first_piece; ++i)
            if (task.accesses[i].chunk == task.accesses[across.access].chunk)
                task.addresses[i] = first + across.offset_from_first_piece;
    }
}

void Residency::fetch_ghosts(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        const Access& a = task.accesses[across.first_piece + i];
        Chunk& c = *a.chunk;
        if (!a.is_ghost || !lacks_part(task, a)) continue;
        const MemoryIndex from = source_for(c, m);
        if (from == m) continue;  // as in `fetch`
        graph::BoxTransfer part = part_of(task, a);
        const graph::Box box = box_to_fetch(c, part.box);
        if (!graph::equal(box, part.box)) {
            part.box = box;
            part.set_shape(c.array->rank, c.array->box(c.index), c.array->box(c.index), c.array->element_bytes);
        }
        Replica& s = c.replicas.at(from);
        Replica& d = c.replicas.at(m);
        // Beside other parts it comes after what these came after, and those who read them go on.
        const bool is_beside = comes_beside(c, m, box);
        FenceSet waits;
        s.add_writers_to(waits);
        d.for_each_user([&](UserKind kind, const Fence& f) {
            if (!is_beside || kind == UserKind::arrival) waits.add(f);
        });
        c.copied_at = ++tick_;
        const Fence fence = requests_.copy_part(c, from, m, s.address, d.address, waits, task, part);
        d.content_at = c.copied_at;
        if (!is_beside) forget_users(d);
        add_user(d, UserKind::arrival, fence);
        Ghosts& ghosts = Ghosts::of(d);
        if (d.version != c.version) ghosts.clear();
        d.version = c.version;
        ghosts.add(box);
        add_user(s, UserKind::copy_read, fence);
        s.tick = ++tick_;
        reindex_all(c);
        notify(c, m);
    }
}

void Residency::gather(Task& task, const Across& across) {
    const MemoryIndex m = task.memory;
    Chunk& to = *task.accesses[across.access].chunk;
    Replica& d = to.replicas.at(m);
    FenceSet waits;
    d.add_all_users_to(waits);
    task.addresses[across.access] = reinterpret_cast<void*>(d.address);
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        Access& a = task.accesses[across.first_piece + i];
        a.memory = read_from(*a.chunk, m);
        const Replica& s = a.chunk->replicas[a.memory];
        task.addresses[across.first_piece + i] = reinterpret_cast<void*>(s.address);
        s.add_writers_to(waits);
    }
    if (to.version == 0) to.version = 1;
    to.copied_at = ++tick_;
    const Fence fence = requests_.gather(task, across, waits);
    d.content_at = to.copied_at;
    forget_users(d);
    add_user(d, UserKind::arrival, fence);
    d.version = to.version;
    for_each_piece(task, across, [&](Access& a) {
        if (Replica* const s = a.chunk->replicas.find(a.memory)) {
            add_user(*s, UserKind::copy_read, fence);
            s->tick = ++tick_;
        }
        reindex_all(*a.chunk);
    });
    reindex_all(to);
    notify(to, m);
}

}  // namespace kmm::memory
