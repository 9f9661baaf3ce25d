// Regions that lie in several chunks: whether a task reads the chunks where they are, or a copy of the region.
//
// The chunks themselves, where they lie side by side: nothing is copied. So they are laid side by side when a task
// reads across them and there is room without that anything must leave; what is taken for such an array later is taken
// beside its neighbours. Else the parts are gathered into a temporary, from wherever they are, which moves the region
// alone.
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
    });
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
    // Two allocations of a driver that happen to touch are no one piece of memory for its calls.
    if (!across.may_be_in_place || spaces_[task.memory].has_sealed) return false;
    std::uintptr_t expected = piece(task, across, 0).replicas[task.memory].address;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        const Chunk& c = piece(task, across, i);
        if (c.replicas[task.memory].address == 0 || c.replicas[task.memory].address != expected) return false;
        expected += c.size_bytes;
    }
    return true;
}

/// A chunk of which the task reads little is not worth being copied as a whole from another device, whose tasks will
/// write it again; from the host it is: tasks here will use it. Of one in parts there is no more than these.
bool Residency::are_worth_a_place(const Task& task, const Across& across) const noexcept {
    for (std::uint32_t i = 0; i < across.num_pieces; ++i) {
        const Chunk& c = piece(task, across, i);
        if (c.is_in_parts()) return false;
        if (is_valid(c, task.memory) || source_for(c, task.memory).is_host()) continue;
        if (2 * task.boxes()[across.first_box + i].size_bytes() < c.size_bytes) return false;
    }
    return true;
}

std::size_t Residency::missing_across(const Task& task, const Across& across) const noexcept {
    if (holds_region(task, across)) return 0;
    std::size_t bytes = lie_side_by_side(task, across) ? 0 : temporary(task, across).size_bytes;
    for (std::uint32_t i = 0; i < across.num_pieces; ++i)
        if (!is_valid(piece(task, across, i), task.memory)) bytes += task.boxes()[across.first_box + i].size_bytes();
    return bytes;
}

/// Whether what was chosen still holds after memory was taken, for which the task's own chunks may have had to leave.
bool Residency::forms_hold(const Task& task) const noexcept {
    return std::all_of(task.across().begin(), task.across().end(), [&](const Across& a) {
        switch (a.form) {
        case Across::Form::in_place: return lie_side_by_side(task, a);
        case Across::Form::gathered: return is_valid(temporary(task, a), task.memory);
        case Across::Form::gather: break;
        }
        return true;
    });
}

// ------------------------------------------------------------------------------------------------------------- choice

/// O(pieces), and what laying chunks side by side takes, once for each array and memory mostly.
Residency::Found Residency::choose_forms(Task& task) {
    for (Across& across : task.across()) {
        if (holds_region(task, across)) {
            set_form(task, across, Across::Form::gathered);
            continue;
        }
        Found found = Found::none;
        if (across.may_be_in_place && are_worth_a_place(task, across))
            found = lie_side_by_side(task, across) ? Found::yes : lay_side_by_side(task, across);
        if (found == Found::growing || found == Found::starved) return found;
        set_form(task, across, found == Found::yes ? Across::Form::in_place : Across::Form::gather);
    }
    return Found::yes;
}

/// Of what would be in place, and what was gathered and has left. False: there is no such region.
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

/// With all neighbours that are here and that tasks in this memory read across: else the next task's chunks would have
/// to be moved again. Each time twice as many as the time before, but for a few times: an array that comes chunk by
/// chunk is not moved as a whole for each.
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
    // More than could be had at once is not looked at.
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
        if (c == nullptr || !is_valid(*c, m) || c->replicas[m].pinned()) return false;
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

/// Takes one block for the chunks, which take so many bytes. Those that are there move, those that the task needs get
/// their places. Nobody leaves for it.
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
            // Now: what is given back between `reserve_records` and `take` may be records that were counted.
            for (std::uint32_t i = range.first; i <= range.last; ++i)
                if (Replica* const r = array.chunks[i].replicas.find(m); r != nullptr && !is_valid(array.chunks[i], m))
                    release(*r);
            reserve_records(space, range.size());
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
            for (const Fence& f : fences) add_user(c.replicas.at(m), Use::arrival, f);
        }
        at += bytes;
    }
    return Found::yes;
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
    add_user(r, Use::arrival, fence);
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
    add_user(d, Use::arrival, fence);
    d.version = to.version;
    for_each_piece(task, across, [&](Access& a) {
        if (Replica* const s = a.chunk->replicas.find(a.memory)) {
            add_user(*s, Use::copy_read, fence);
            s->tick = ++tick_;
        }
        reindex_all(*a.chunk);
    });
    reindex_all(to);
    notify(to, m);
}

}  // namespace kmm::memory
