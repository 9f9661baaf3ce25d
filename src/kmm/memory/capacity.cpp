// How much memory there is: blocks for replicas, growth, exchange, and what is given to others.
#include <algorithm>
#include <new>
#include <tuple>
#include <utility>

#include "kmm/memory/heap_fences.hpp"
#include "kmm/memory/places.hpp"
#include "kmm/memory/residency.hpp"

namespace kmm::memory {

// ------------------------------------------------------------------------------------------------------------- blocks

Residency::Found Residency::allocate(Chunk& chunk, MemoryIndex m) {
    Space& space = spaces_[m];
    const std::size_t size = space.heap.round_up(chunk.block_bytes());
    space.tell_again();
    for (;;) {
        if (size < space.unfit_bytes) {
            rmm::heap::block block;
            try {
                residents_[m].reserve(1);
                block = take_beside(chunk, m);
                if (!block) block = space.take_free(size);
            } catch (const std::bad_alloc&) {
                return Found::starved;  // and nothing has changed
            }
            if (block) {
                if (!Tiers::is_last(m) && !block.fences.empty()) space.grow_ahead(block);
                take(chunk, m, block);
                return Found::yes;
            }
            if (size != 0) space.unfit_bytes = size;
        }
        if (space.may_grow(size)) {
            if (!space.is_growing()) space.grow(size);
            return Found::growing;
        }
        Found found = make_room(m);
        if (found == Found::none && (space.is_growing() || exchange(space, size) || space.ask_once_more(size)))
            found = Found::growing;
        if (found != Found::yes) return found;
    }
}

void Residency::trim_records() noexcept {
    for (Residents& r : residents_) r.trim();
    busy_.trim();
    demands_.trim();
    next_uses_.trim();
}

void Residency::take(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block) {
    Space& space = spaces_[m];
    Residents& residents = residents_[m];
    Replica& r = residents.replicas.take();
    r.order = Replica::order_of(m);
    r.chunk = &chunk;
    r.set_block(block.address, chunk.first_aligned(block.address));
    for (const rmm::heap::fence& f : block.fences)
        add_user(r, UserKind::arrival, {static_cast<graph::LaneId>(f.timeline), f.position});
    r.tick = ++tick_;
    if (residents.indexed) attach_victim(r);
    chunk.replicas.insert(r);
    space.counters.current_bytes += space.heap.round_up(chunk.block_bytes());
    space.counters.peak_bytes = std::max(space.counters.peak_bytes, space.counters.current_bytes);
    ++space.counters.allocations;
    space.tell();
    if (Tiers::is_first(m))
        reindex(r);
    else
        reindex_all(chunk);  // what is dirty above has a place now
}

/// Frees the replica's block behind its users. `last`: one more user, which was not added to the replica.
void Residency::release(Replica& replica, const Fence* last) {
    const MemoryIndex m = replica.memory();
    Space& space = spaces_[m];
    FenceSet users;
    const auto add = [&](const Fence& f) {
        if (!requests_.passed(f)) users.add(f);
    };
    replica.for_each_user([&](UserKind, const Fence& f) { add(f); });
    if (last != nullptr) add(*last);
    const std::uintptr_t block = replica.block();
    const std::size_t size = space.heap.round_up(replica.chunk->block_bytes());
    forget(replica);
    space.give(block, size, std::move(users));
    space.tell();
    space.unfit_bytes = ~std::size_t{0};
}

/// Removes the record of a replica, without freeing its block.
void Residency::forget(Replica& replica) {
    Chunk& chunk = *replica.chunk;
    const MemoryIndex m = replica.memory();
    Space& space = spaces_[m];
    unindex(replica);
    if (replica.victim != nullptr) residents_[m].victim_records.give(*replica.victim);
    if (replica.is_busy()) busy_.drop(replica);
    set_version(replica, 0);
    chunk.replicas.erase(replica);
    residents_[m].replicas.give(replica);
    space.counters.current_bytes -= space.heap.round_up(chunk.block_bytes());
    ++space.counters.frees;
    if (Tiers::is_first(m)) return;
    space.may_save_again();
    reindex_all(chunk);  // what is dirty above has lost its place
}

/// Undoes an allocation for a task whose other chunks found no room; counters as if it had not been made.
void Residency::take_back_block(Chunk& chunk, MemoryIndex m) {
    release(chunk.replicas.at(m));
    --spaces_[m].counters.allocations;
    --spaces_[m].counters.frees;
}

// --------------------------------------------------------------------------------------------------------- for others

bool Residency::is_idle(const Replica& replica) const noexcept {
    bool is_idle = true;
    replica.for_each_user([&](UserKind, const Fence& f) { is_idle = is_idle && requests_.passed(f); });
    return is_idle;
}

Reclaimed Residency::reclaim(MemoryIndex memory, const std::vector<AddressRange>& regions, std::size_t wanted_bytes,
                             bool at_once) {
    struct Candidate {
        std::size_t index = 0;
        bool pinned = false;
        bool busy = false;
        std::uint64_t rank = 0;  // of the chunk there that should stay most
        std::uint64_t tick = 0;  // of the one that was used last
        std::vector<Chunk*> chunks;
    };
    std::vector<Candidate> candidates(regions.size());
    for (std::size_t i = 0; i < regions.size(); ++i) candidates[i].index = i;
    const auto address_of = [&](const Candidate& c) { return regions[c.index].address; };
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) { return address_of(a) < address_of(b); });
    Space& space = spaces_[memory];
    residents_[memory].replicas.for_each_made([&](const Replica& r) {
        if (r.address == 0) return;
        Chunk& c = *r.chunk;
        const std::uintptr_t begin = r.block();
        const std::uintptr_t end = begin + space.heap.round_up(c.block_bytes());
        auto at = std::upper_bound(candidates.begin(), candidates.end(), begin,
                                   [&](std::uintptr_t address, const Candidate& k) { return address < address_of(k); });
        if (at != candidates.begin()) --at;
        for (; at != candidates.end() && address_of(*at) < end; ++at) {
            if (address_of(*at) + regions[at->index].bytes <= begin) continue;
            at->pinned = at->pinned || r.pinned();
            at->busy = at->busy || !is_idle(r);
            at->rank = std::max(at->rank, victim_rank(c, memory));
            at->tick = std::max(at->tick, r.tick);
            at->chunks.push_back(&c);
        }
    });
    const auto order = [&](const Candidate& c) {
        return std::tuple(c.busy, !c.chunks.empty(), c.rank, c.tick, regions[c.index].bytes);
    };
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
    Reclaimed result;
    result.taken.reserve(regions.size());
    std::size_t taken_bytes = 0;
    for (const Candidate& k : candidates) {
        if (taken_bytes >= wanted_bytes) break;
        if (k.pinned || (k.busy && at_once)) continue;
        Found found = Found::yes;
        for (Chunk* c : k.chunks)
            if (found == Found::yes && c->replicas[memory].address != 0) found = evict(*c, memory, Saves::what_is_read);
        if (found == Found::growing) result.host_growing = true;
        const AddressRange& region = regions[k.index];
        FenceSet users;
        if (found != Found::yes || !space.take_back(region.address, region.bytes, &users)) continue;
        result.taken.push_back({k.index, users});
        taken_bytes += region.bytes;
    }
    if (result.taken.empty()) return result;
    space.leave_to_others();
    return result;
}

// --------------------------------------------------------------------------------------------------------- compaction

/// New addresses of replicas after compaction towards the start of each region (or of adjacent regions that may be used
/// as one). A replica of more than `most_overlapping_bytes` stays if its new place overlaps the old one.
graph::Vector<Residency::Shift> Residency::list_shifts(MemoryIndex m, std::size_t most_overlapping_bytes) {
    const Space& space = spaces_[m];
    Residents& residents = residents_[m];
    struct Piece {
        std::uintptr_t address;
        std::size_t bytes;
        Replica* replica;  // null: free
    };
    graph::Vector<Piece> pieces;
    pieces.reserve(residents.replicas.num_used() + space.heap.num_free_pieces());
    residents.replicas.for_each_made([&](Replica& r) {
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
        if (to != p.address && (is_too_large || p.replica->pinned() || !is_idle(*p.replica))) to = p.address;
        if (to != p.address) shifts.push_back(shift);
        to += p.bytes;
    }
    return shifts;
}

void Residency::set_bounce(std::uintptr_t address, std::size_t bytes) noexcept {
    bounce_address_ = address;
    bounce_bytes_ = bytes;
    bounce_users_.clear();
}

std::size_t Residency::bounce_bytes_to_compact(MemoryIndex m) {
    Space& space = spaces_[m];
    std::size_t bytes = 0;
    if (space.heap.num_free_pieces() < 2) return 0;
    for (const Shift& s : list_shifts(m, ~std::size_t{0}))
        if (s.overlaps()) bytes = std::max(bytes, s.replica->chunk->size_bytes);
    return bytes;
}

/// In a device, behind `after`.
Fence Residency::shift(const Shift& shift, MemoryIndex m, const FenceSet& after) {
    Replica& r = *shift.replica;
    Chunk& chunk = *r.chunk;
    const std::uintptr_t to = chunk.first_aligned(shift.to);
    chunk.copied_at = ++tick_;
    r.content_at = chunk.copied_at;
    if (!shift.overlaps()) return requests_.copy(chunk, m, m, r.address, to, after, nullptr);
    FenceSet waits(after);
    waits.add(bounce_users_);
    FenceSet out;
    out.add(requests_.copy(chunk, m, MemoryIndex::host(), r.address, bounce_address_, waits, nullptr));
    const Fence in = requests_.copy(chunk, MemoryIndex::host(), m, bounce_address_, to, out, nullptr);
    bounce_users_.clear();
    bounce_users_.add(in);
    return in;
}

bool Residency::compact(MemoryIndex m) {
    Space& space = spaces_[m];
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
        forget_users(r);
        for (const Fence& f : last) add_user(r, UserKind::arrival, f);
        notify(*r.chunk, m);
    }
    space.may_fit_again();
    spaces_[Tiers::below(m).value_or(m)].may_save_again();
    return !shifts.empty();
}

// --------------------------------------------------------------------------------------------------------------- swap

/// The first of the task's chunks without a block in its memory for which there is another to exchange it with. One of
/// `from` and `to` is below the other: between two devices it takes two swaps.
Residency::Swap Residency::find_swap(graph::Task& task) {
    Swap swap;
    std::size_t new_bytes = 0;  // of blocks whose content does not exist yet: no swap makes room for these
    for_each_place(task, [&](graph::Use&, Chunk& c) {
        if (c.replicas[task.memory].address == 0 && source_for(c, task.memory) == task.memory)
            new_bytes += rounded(c.block_bytes());
    });
    if (new_bytes > spaces_[task.memory].heap.free_bytes()) return swap;
    for_each_place(task, [&](graph::Use&, Chunk& c) { c.hold = task.number; });
    for_each_place(task, [&](graph::Use& u, Chunk& c) {
        if (swap.chunk != nullptr || u.role != graph::Use::Role::chunk || c.replicas[task.memory].address != 0) return;
        const MemoryIndex from = source_for(c, task.memory);
        if (from == task.memory || c.lost != nullptr || !is_idle(c.replicas.at(from))) return;
        const MemoryIndex to = Tiers::next_on_way(from, task.memory);
        if (c.replicas.at(from).pinned() || c.replicas[to].address != 0) return;
        Chunk* const other = last_needed_of_size(to, rounded(c.block_bytes()), from);
        if (other != nullptr) swap = {&c, other, from, to};
    });
    for_each_place(task, [](graph::Use&, Chunk& c) { c.hold = 0; });
    return swap;
}

/// Chunk of that block size with the farthest next use that is valid and idle in `m`, and has no block in `other`.
/// Null: there is none. O(victims * log victims).
Chunk* Residency::last_needed_of_size(MemoryIndex m, std::size_t bytes, MemoryIndex other) {
    VictimKey after{0, 0, nullptr};
    while (const Victim* const v = residents_[m].victims.next(after, ~std::size_t{0}, &num_steps_)) {
        after = VictimOrder::key_of(*v);
        Chunk& c = *v->chunk;
        if (c.hold == 0 && rounded(c.block_bytes()) == bytes && is_valid(c, m) && c.lost == nullptr &&
            c.replicas[other].address == 0 && is_idle(c.replicas.at(m)))
            return &c;
    }
    return nullptr;
}

std::size_t Residency::bounce_bytes_to_swap(graph::Task& task) {
    const Swap swap = find_swap(task);
    if (swap.chunk == nullptr) return 0;
    return swap.lower().size_bytes;
}

/// Three copies: the host's chunk to the bounce buffer, before this returns; the device's chunk to the host; the buffer
/// to the device.
bool Residency::swap_for(graph::Task& task) {
    const Swap swap = find_swap(task);
    if (swap.chunk == nullptr) return false;
    const auto [host, device] = swap.comes_up() ? std::pair(swap.from, swap.to) : std::pair(swap.to, swap.from);
    Chunk& on_host = swap.lower();
    Chunk& on_device = swap.upper();
    const bool is_empty =
        std::all_of(bounce_users_.begin(), bounce_users_.end(), [this](const Fence& f) { return requests_.passed(f); });
    if (on_host.size_bytes > bounce_bytes_ || !is_empty) return false;
    try {
        residents_[host].reserve(1);
        residents_[device].reserve(1);
    } catch (const std::bad_alloc&) {
        return false;  // and nothing has changed
    }
    Replica& up = on_host.replicas.at(host);
    Replica& down = on_device.replicas.at(device);
    const std::uintptr_t host_block = up.block(), device_block = down.block();
    requests_.move_on_host(bounce_address_, up.address, on_host.size_bytes);
    on_device.copied_at = ++tick_;
    FenceSet out;
    out.add(requests_.copy(on_device, device, host, down.address, on_device.first_aligned(host_block), {}, nullptr));
    on_host.copied_at = ++tick_;
    const Fence in =
        requests_.copy(on_host, host, device, bounce_address_, on_host.first_aligned(device_block), out, nullptr);
    bounce_users_.clear();
    bounce_users_.add(in);
    forget(up);
    forget(down);
    const std::size_t bytes = rounded(on_host.block_bytes());
    arrive(on_device, host, {host_block, bytes, {}}, *out.begin());
    arrive(on_host, device, {device_block, bytes, {}}, in);
    MemoryCounters& counters = spaces_[swap.to].counters;
    ++counters.evictions;
    counters.evicted_bytes += swap.other->size_bytes;
    note_evicted(*swap.other, swap.to, true, swap.other->size_bytes);
    swap.other->set_evicted_from(swap.to, true);
    return true;
}

/// Records a replica in `block`, which the copy at `fence` fills with the chunk's content.
void Residency::arrive(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block, Fence fence) {
    take(chunk, m, block);
    Replica& r = chunk.replicas.at(m);
    r.content_at = chunk.copied_at;
    add_user(r, UserKind::arrival, fence);
    set_version(r, chunk.version);
    count_fetch(chunk, m);
    reindex_all(chunk);
    for (const MemoryIndex each : memories()) notify(chunk, each);
}

}  // namespace kmm::memory
