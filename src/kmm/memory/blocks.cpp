#include "kmm/memory/blocks.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "kmm/graph/room.hpp"

namespace kmm::memory {

namespace {

using eviction::rank_parts;
using eviction::rank_useless;
constexpr std::uint64_t is_being_saved = ~0ull;  // Chunk::hold, while a place for it is looked for

}  // namespace

Found Blocks::allocate(Chunk& chunk, MemoryIndex m) {
    Space& space = residents_.space(m);
    const std::size_t size = space.heap.round_up(chunk.block_bytes());
    space.tell_again();
    for (;;) {
        if (size < space.unfit_bytes) {
            rmm::heap::block block;
            try {
                residents_.records(m).reserve(1);
                // The chunks of a task that found no room have all left: room for neighbours would cut what they come
                // back to.
                if (exchange_bytes_ == 0) block = forms_.take_beside(chunk, m);
                if (!block) block = space.take_free(size);
            } catch (const std::bad_alloc&) {
                return Found::starved;  // and nothing has changed
            }
            if (block) {
                if (!Tiers::is_last(m) && !block.fences.empty()) space.grow_ahead(block);
                residents_.take(chunk, m, block);
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

// ------------------------------------------------------------------------------------------------------------- leaving

Found Blocks::evict(Chunk& chunk, MemoryIndex m, Saves saves) {
    Replica& r = chunk.replicas.at(m);
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = residents_.victim_rank(chunk, m);
    Space& space = residents_.space(m);
    std::optional<Fence> saved;
    if (rank != rank_useless && !is_clean(chunk, m)) {
        MemoryIndex to;
        const Found found = find_place_to_save(chunk, m, &to);
        if (found != Found::yes) return found;
        saved = save(chunk, m, to, to == Tiers::below(m) && saves == Saves::what_is_read && rank == rank_parts);
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
        residents_.note_evicted(chunk, m, false, chunk.size_bytes);
    }
    if (rank != rank_useless) chunk.set_evicted_from(m, true);
    space.may_save_again();
    // An empty place that a task took since the last exchange and loses again is no reason for another.
    if (is_valid(chunk, m) || !space.came_since_exchange(r.tick)) space.may_exchange_again();
    residents_.release(r, saved ? &*saved : nullptr);
    residents_.reindex_all(chunk);
    residents_.notify(chunk, m);
    return Found::yes;
}

/// A block in the memory below. For the front, if there is none, a block in any other memory with room.
Found Blocks::find_place_to_save(Chunk& chunk, MemoryIndex m, MemoryIndex* to) {
    Found found = Found::none;
    // The chunk that is being saved must not be a victim of the search for its own place.
    const std::uint64_t held = std::exchange(chunk.hold, is_being_saved);
    if (const std::optional<MemoryIndex> below = Tiers::below(m)) {
        *to = *below;
        const Replica* const h = chunk.replicas.find(*below);
        if (h != nullptr)
            found = h->pinned() ? Found::pinned : Found::yes;
        else if (residents_.rounded(chunk.block_bytes()) <=
                 residents_.space(*below).counters.limit_bytes)  // else it never fits: evict nothing for it
            found = allocate(chunk, *below);
    }
    if (room_ == Room::any && (found == Found::none || found == Found::pinned)) {
        for (const MemoryIndex other : residents_.memories()) {
            if (other == m || other == placed_in_ || other == Tiers::below(m)) continue;
            const Found there = allocate_spare(chunk, other);
            if (there == Found::none) continue;
            *to = other;
            found = there;
            break;
        }
    }
    chunk.hold = held;
    return found;
}

/// A block in `m` for a chunk that is evicted from another memory. Only clean chunks leave for it: if one were saved in
/// turn, evictions could go in a circle.
Found Blocks::allocate_spare(Chunk& chunk, MemoryIndex m) {
    if (const Replica* const r = chunk.replicas.find(m)) return r->pinned() ? Found::none : Found::yes;
    const Room before = std::exchange(room_, Room::spare);
    const Found found = allocate(chunk, m);
    room_ = before;
    return found == Found::pinned ? Found::none : found;
}

/// The largest room for chunks evicted from `m` on one device, except the one where the task is being placed.
std::size_t Blocks::largest_spare_room_beside(MemoryIndex m) const noexcept {
    std::size_t largest = 0;
    for (const MemoryIndex other : residents_.device_memories())
        if (other != m && other != placed_in_)
            largest = std::max(largest, residents_.space(other).free_bytes() + residents_.records(other).spare_bytes);
    return largest;
}

/// Copies the chunk to its replica in `to`. The replica in `m` is in use until the fence.
Fence Blocks::save(Chunk& chunk, MemoryIndex m, MemoryIndex to, bool in_parts) {
    const Replica& r = chunk.replicas.at(m);
    Replica& h = chunk.replicas.at(to);
    FenceSet waits;
    r.add_writers_to(waits);
    h.add_all_users_to(waits);
    part_readers_.clear();
    if (in_parts)
        chunk.next_uses.for_each_first(chunk.next_uses.num_parts_until_replaced(), [this](const NextUses::Use& use) {
            if (const graph::Task* const reader = requests_.find(use.task)) part_readers_.push_back(reader);
        });
    const Transfer transfer = in_parts ? parts_transfer(chunk, r, h, part_readers_, boxes_)
                                       : chunk_transfer(chunk, m, to, r.address, h.address);
    chunk.copied_at = residents_.next_tick();
    const Fence fence = requests_.transfer(transfer, waits);
    graph::clear_and_keep_few(boxes_);  // there may have been very many
    residents_.set_version(h, chunk.version);
    if (in_parts) h.holds = Holds::last_parts;
    h.content_at = chunk.copied_at;
    residents_.forget_users(h);
    residents_.add_user(h, UserKind::arrival, fence);
    h.tick = residents_.next_tick();
    MemoryCounters& counters = residents_.space(m).counters;
    ++counters.evictions;
    counters.evicted_bytes += transfer.bytes;
    residents_.note_evicted(chunk, m, true, transfer.bytes);
    residents_.notify(chunk, to);
    return fence;
}

Found Blocks::make_room(MemoryIndex m) {
    Space& space = residents_.space(m);
    MemoryRecords& records = residents_.records(m);
    if (!records.indexed && !residents_.begin_order(m)) return Found::starved;
    // Dirty chunks of at least this size cannot be saved elsewhere. A chunk that is valid in the last memory alone is
    // evicted only for the front.
    const std::optional<MemoryIndex> below = Tiers::below(m);
    std::size_t too_large = below ? residents_.space(*below).refuses_from() : 1;
    const std::size_t elsewhere = room_ == Room::any ? largest_spare_room_beside(m) : 0;
    too_large = room_ == Room::spare ? 1 : std::max(too_large, elsewhere + 1);
    bool growing_below = false;
    bool pins = false;
    VictimKey after{0, 0, nullptr};
    for (;;) {
        const Victim* const victim = records.victims.next(after, growing_below ? 1 : too_large, &num_steps_);
        if (victim == nullptr) break;
        // A search for a place below may drop copies of others there, and so change this order: remember the key.
        after = VictimOrder::key_of(*victim);
        if (room_ == Room::idle && victim->rank >= eviction::rank_used) break;
        if (room_ == Room::idle && victim->rank == rank_parts) continue;
        if (room_ == Room::spare && !victim->is_spare) continue;
        const bool saves = victim->place_bytes != 0;
        Chunk& chunk = *after.chunk;
        ++space.counters.victims_tried;
        // The front's own chunks may leave other memories than its own if another copy is valid.
        const bool is_of_front = room_ == Room::any || room_ == Room::spare;
        const bool leaves_other = is_of_front && m != placed_in_ && victim->is_spare && chunk.hold != is_being_saved;
        if (chunk.hold != 0 && !leaves_other) {
            passed_over_held_ = true;
            continue;
        }
        if (below) passed_over_held_ = false;
        const Found found = evict(chunk, m, Saves::what_is_read);
        if (found == Found::yes) return Found::yes;
        if (found == Found::starved) return Found::starved;
        if (found == Found::growing) growing_below = true;
        if (found == Found::pinned) pins = true;
        if (!saves || (found != Found::none && found != Found::pinned)) continue;
        const std::size_t lacking =
            below ? residents_.space(*below).lacks_from(chunk.block_bytes(), found == Found::pinned) : 1;
        too_large = std::min(too_large, std::max(lacking, std::min(elsewhere + 1, chunk.block_bytes())));
        // Not cached if chunks held for this task were passed over: another task may evict them.
        if (below && room_ >= Room::as_usual && !passed_over_held_) residents_.space(*below).refuse_from(lacking);
    }
    if (growing_below) return Found::growing;
    // What is pinned is not in the order of victims.
    if (pins || records.num_pinned != 0) return Found::pinned;
    if (below && too_large != ~std::size_t{0} && residents_.records(*below).num_pinned != 0) return Found::pinned;
    return Found::none;
}

// ---------------------------------------------------------------------------------------------------------- for others

Reclaimed Blocks::reclaim(MemoryIndex memory, const std::vector<AddressRange>& regions, std::size_t wanted_bytes,
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
    Space& space = residents_.space(memory);
    residents_.records(memory).replicas.for_each_made([&](const Replica& r) {
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
            at->busy = at->busy || !residents_.is_idle(r);
            at->rank = std::max(at->rank, residents_.victim_rank(c, memory));
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

}  // namespace kmm::memory
