#include "kmm/memory/compaction.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kmm/memory/places.hpp"

namespace kmm::memory {

// ---------------------------------------------------------------------------------------------------------- compaction

void Compaction::set_bounce(std::uintptr_t address, std::size_t bytes) noexcept {
    bounce_address_ = address;
    bounce_bytes_ = bytes;
    bounce_users_.clear();
}

/// New addresses of replicas after compaction towards the start of each region (or of adjacent regions that may be used
/// as one). A replica of more than `most_overlapping_bytes` stays if its new place overlaps the old one.
graph::Vector<Compaction::Shift> Compaction::list_shifts(MemoryIndex m, std::size_t most_overlapping_bytes) {
    const Space& space = residents_.space(m);
    MemoryRecords& records = residents_.records(m);
    struct Piece {
        std::uintptr_t address;
        std::size_t bytes;
        Replica* replica;  // null: free
    };
    graph::Vector<Piece> pieces;
    pieces.reserve(records.replicas.num_used() + space.heap.num_free_pieces());
    records.replicas.for_each_made([&](Replica& r) {
        if (r.address != 0) pieces.push_back({r.block(), space.heap.round_up(r.chunk->block_bytes()), &r});
    });
    space.heap.for_each_free([&](std::uintptr_t address, std::size_t bytes, const rmm::heap::fence_set&) {
        pieces.push_back({address, bytes, nullptr});
    });
    num_steps_ += pieces.size();
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.address < b.address; });
    graph::Vector<Shift> shifts;
    std::uintptr_t end = 0;  // of the piece before
    std::uintptr_t to = 0;
    for (const Piece& p : pieces) {
        if (p.address != end || (space.has_sealed() && space.heap.begins_region(p.address))) to = p.address;
        end = p.address + p.bytes;
        if (p.replica == nullptr) continue;
        const Shift shift{p.replica, to};
        const bool is_too_large = shift.overlaps() && p.replica->chunk->size_bytes > most_overlapping_bytes;
        if (to != p.address && (is_too_large || p.replica->pinned() || !residents_.is_idle(*p.replica))) to = p.address;
        if (to != p.address) shifts.push_back(shift);
        to += p.bytes;
    }
    return shifts;
}

std::size_t Compaction::bounce_bytes_to_compact(MemoryIndex m) {
    Space& space = residents_.space(m);
    std::size_t bytes = 0;
    if (space.heap.num_free_pieces() < 2) return 0;
    for (const Shift& s : list_shifts(m, ~std::size_t{0}))
        if (s.overlaps()) bytes = std::max(bytes, s.replica->chunk->size_bytes);
    return bytes;
}

/// In a device, behind `after`.
Fence Compaction::shift(const Shift& shift, MemoryIndex m, const FenceSet& after) {
    Replica& r = *shift.replica;
    Chunk& chunk = *r.chunk;
    const std::uintptr_t to = chunk.first_aligned(shift.to);
    chunk.copied_at = residents_.next_tick();
    r.content_at = chunk.copied_at;
    if (!shift.overlaps()) return requests_.transfer(chunk_transfer(chunk, m, m, r.address, to), after);
    FenceSet waits(after);
    waits.add(bounce_users_);
    FenceSet out;
    out.add(requests_.transfer(chunk_transfer(chunk, m, MemoryIndex::host(), r.address, bounce_address_), waits));
    const Fence in = requests_.transfer(chunk_transfer(chunk, MemoryIndex::host(), m, bounce_address_, to), out);
    bounce_users_.clear();
    bounce_users_.add(in);
    return in;
}

bool Compaction::compact(MemoryIndex m) {
    Space& space = residents_.space(m);
    if (space.heap.num_free_pieces() < 2) return false;
    const bool by_lanes = Tiers::has_lanes(m);
    graph::Vector<Shift> shifts;
    try {
        space.tell_again();
        shifts = list_shifts(m, by_lanes ? bounce_bytes_ : ~std::size_t{0});
        space.heap.expect_frees(shifts.size());
    } catch (const std::bad_alloc&) {
        return false;  // and nothing has changed
    }
    FenceSet last;
    for (const Shift& s : shifts) {
        Replica& r = *s.replica;
        const bool has_content = r.has_ghosts() || (r.version != 0 && r.version == r.chunk->version);
        if (has_content && by_lanes) {
            const Fence fence = shift(s, m, last);
            last.clear();
            last.add(fence);
        } else if (has_content) {
            requests_.move_on_host(r.chunk->first_aligned(s.to), r.address, r.chunk->size_bytes);
        }
    }
    for (const Shift& s : shifts)
        space.give(s.replica->block(), space.heap.round_up(s.replica->chunk->block_bytes()), FenceSet(last));
    if (!space.knows_all()) throw std::bad_alloc();  // the heap is incomplete: the runtime is lost
    space.heap.merge_all();
    for (const Shift& s : shifts) {
        Replica& r = *s.replica;
        if (!space.heap.take(s.to, space.heap.round_up(r.chunk->block_bytes()))) throw std::bad_alloc();
        r.set_block(s.to, r.chunk->first_aligned(s.to));
        residents_.forget_users(r);
        for (const Fence& f : last) residents_.add_user(r, UserKind::arrival, f);
        residents_.notify(*r.chunk, m);
    }
    space.may_fit_again();
    residents_.space(Tiers::below(m).value_or(m)).may_save_again();
    return !shifts.empty();
}

// ---------------------------------------------------------------------------------------------------------------- swap

/// The first of the task's chunks without a block in its memory for which there is another to exchange it with. One of
/// `from` and `to` is below the other: between two devices it takes two swaps.
Compaction::Swap Compaction::find_swap(graph::Task& task) {
    Swap swap;
    std::size_t new_bytes = 0;  // of blocks whose content does not exist yet: no swap makes room for these
    for_each_place(task, [&](graph::Use&, Chunk& c) {
        if (c.replicas[task.memory].address == 0 && residents_.source_for(c, task.memory) == task.memory)
            new_bytes += residents_.rounded(c.block_bytes());
    });
    if (new_bytes > residents_.space(task.memory).heap.free_bytes()) return swap;
    for_each_place(task, [&](graph::Use&, Chunk& c) { c.hold = task.number; });
    for_each_place(task, [&](graph::Use& u, Chunk& c) {
        if (swap.chunk != nullptr || u.role != graph::Use::Role::chunk || c.replicas[task.memory].address != 0) return;
        const MemoryIndex from = residents_.source_for(c, task.memory);
        if (from == task.memory || c.lost != nullptr || !residents_.is_idle(c.replicas.at(from))) return;
        const MemoryIndex to = Tiers::next_on_way(from, task.memory);
        if (c.replicas.at(from).pinned() || c.replicas[to].address != 0) return;
        Chunk* const other = last_needed_of_size(to, residents_.rounded(c.block_bytes()), from);
        if (other != nullptr) swap = {&c, other, from, to};
    });
    for_each_place(task, [](graph::Use&, Chunk& c) { c.hold = 0; });
    return swap;
}

/// Chunk of that block size with the farthest next use that is valid and idle in `m`, and has no block in `other`.
/// Null: there is none. O(victims * log victims).
Chunk* Compaction::last_needed_of_size(MemoryIndex m, std::size_t bytes, MemoryIndex other) {
    VictimKey after{0, 0, nullptr};
    while (const Victim* const v = residents_.records(m).victims.next(after, ~std::size_t{0}, &num_steps_)) {
        after = VictimOrder::key_of(*v);
        Chunk& c = *v->chunk;
        if (c.hold == 0 && residents_.rounded(c.block_bytes()) == bytes && is_valid(c, m) && c.lost == nullptr &&
            c.replicas[other].address == 0 && residents_.is_idle(c.replicas.at(m)))
            return &c;
    }
    return nullptr;
}

std::size_t Compaction::bounce_bytes_to_swap(graph::Task& task) {
    const Swap swap = find_swap(task);
    if (swap.chunk == nullptr) return 0;
    return swap.lower().size_bytes;
}

/// Three copies: the host's chunk to the bounce buffer, before this returns; the device's chunk to the host; the buffer
/// to the device.
bool Compaction::swap_for(graph::Task& task) {
    const Swap swap = find_swap(task);
    if (swap.chunk == nullptr) return false;
    const auto [host, device] = swap.comes_up() ? std::pair(swap.from, swap.to) : std::pair(swap.to, swap.from);
    Chunk& on_host = swap.lower();
    Chunk& on_device = swap.upper();
    const bool is_empty =
        std::all_of(bounce_users_.begin(), bounce_users_.end(), [this](const Fence& f) { return requests_.passed(f); });
    if (on_host.size_bytes > bounce_bytes_ || !is_empty) return false;
    try {
        residents_.records(host).reserve(1);
        residents_.records(device).reserve(1);
    } catch (const std::bad_alloc&) {
        return false;  // and nothing has changed
    }
    Replica& up = on_host.replicas.at(host);
    Replica& down = on_device.replicas.at(device);
    const std::uintptr_t host_block = up.block(), device_block = down.block();
    requests_.move_on_host(bounce_address_, up.address, on_host.size_bytes);
    on_device.copied_at = residents_.next_tick();
    FenceSet out;
    out.add(requests_.transfer(
        chunk_transfer(on_device, device, host, down.address, on_device.first_aligned(host_block)), {}));
    on_host.copied_at = residents_.next_tick();
    const Fence in = requests_.transfer(
        chunk_transfer(on_host, host, device, bounce_address_, on_host.first_aligned(device_block)), out);
    bounce_users_.clear();
    bounce_users_.add(in);
    residents_.forget(up);
    residents_.forget(down);
    const std::size_t bytes = residents_.rounded(on_host.block_bytes());
    arrive(on_device, host, {host_block, bytes, {}}, *out.begin());
    arrive(on_host, device, {device_block, bytes, {}}, in);
    MemoryCounters& counters = residents_.space(swap.to).counters;
    ++counters.evictions;
    counters.evicted_bytes += swap.other->size_bytes;
    residents_.note_evicted(*swap.other, swap.to, true, swap.other->size_bytes);
    swap.other->set_evicted_from(swap.to, true);
    return true;
}

/// Records a replica in `block`, which the copy at `fence` fills with the chunk's content.
void Compaction::arrive(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block, Fence fence) {
    residents_.take(chunk, m, block);
    Replica& r = chunk.replicas.at(m);
    r.content_at = chunk.copied_at;
    residents_.add_user(r, UserKind::arrival, fence);
    residents_.set_version(r, chunk.version);
    residents_.count_fetch(chunk, m);
    residents_.reindex_all(chunk);
    for (const MemoryIndex each : residents_.memories()) residents_.notify(chunk, each);
}

}  // namespace kmm::memory
