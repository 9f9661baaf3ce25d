// Evictions: the order of victims, and the search through it.
#include <algorithm>
#include <utility>

#include "kmm/memory/residency.hpp"

namespace kmm::memory {

namespace {

using eviction::rank_parts;
using eviction::rank_useless;
constexpr std::uint64_t rank_never = ~0ull;
constexpr std::uint64_t is_being_saved = ~0ull;  // Chunk::hold, while a place for it is looked for

}  // namespace

/// Empty: the replica is the only copy, and cannot be saved elsewhere.
std::optional<Prospect> Residency::prospect_of(const Chunk& chunk, MemoryIndex m) const noexcept {
    using Need = Prospect::Need;
    if (chunk.lost != nullptr) return Prospect{};  // no task reads it before it is replaced
    const bool is_read = !chunk.next_uses.empty() && !chunk.next_uses.first().replaces();
    const Replica& here = chunk.replicas[m];
    if (is_read && here.holds_parts_of(chunk.version)) return std::nullopt;
    if (chunk.version == 0 || !here.holds_all_of(chunk.version)) return Prospect{};
    if (chunk.owner->released && chunk.owner->uses_to_come == 0 && chunk.next_uses.empty())
        return Prospect{};  // no handle is left and no task will read it
    const bool clean = is_clean(chunk, m);
    if (chunk.next_uses.empty()) return Prospect{Need::no_task, clean};
    const NextUses::Use use = chunk.next_uses.first();
    if (use.replaces()) return Prospect{};
    if (!Tiers::is_last(m) && use.kind == NextUses::Kind::part && chunk.next_uses.num_parts_until_replaced() != 0)
        return Prospect{Need::in_parts, clean};
    if (const Demand* const demand = chunk.demands.find(m); demand != nullptr && !demand->planned.empty())
        return Prospect{Need::whole, clean, demand->planned.first()};
    // Small parts can be read from any memory: only the first larger use counts.
    return Prospect{Need::whole, clean, eviction::beyond_plans + chunk.next_uses.first_whole().task};
}

std::uint64_t Residency::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const std::optional<Prospect> prospect = prospect_of(chunk, m);
    return prospect ? eviction::rank_of(policy_, *prospect) : rank_never;
}

void Residency::attach_victim(Replica& replica) {
    replica.victim = &residents_[replica.memory()].victim_records.take();
    replica.victim->chunk = replica.chunk;
}

/// Starts the memory's order. False: no host memory for it. O(replicas * log replicas), once for each memory.
bool Residency::begin_order(MemoryIndex m) {
    Residents& residents = residents_[m];
    try {
        residents.victim_records.reserve(residents.replicas.num_used());
    } catch (const std::bad_alloc&) {
        return false;
    }
    residents.indexed = any_indexed_ = true;
    residents.replicas.for_each_made([&](Replica& r) {
        if (r.address == 0) return;
        attach_victim(r);
        reindex(r);
    });
    return true;
}

void Residency::unindex(Replica& replica) noexcept {
    Victim* const v = replica.victim;
    if (v == nullptr || !v->indexed) return;
    residents_[replica.memory()].victims.erase(*v);
    v->indexed = false;
    count_victim(*v, replica.memory(), false);
}

void Residency::count_victim(const Victim& victim, MemoryIndex m, bool is_added) noexcept {
    Residents& residents = residents_[m];
    // A dirty chunk in the last memory cannot be saved.
    const bool is_idle =
        victim.rank <= eviction::rank_clean || (victim.rank == eviction::rank_dirty && !Tiers::is_last(m));
    const std::size_t bytes = rounded(victim.chunk->block_bytes());
    if (is_idle) residents.idle_bytes += is_added ? bytes : -bytes;
    if (victim.is_spare) residents.spare_bytes += is_added ? bytes : -bytes;
}

void Residency::reindex_in_order(Replica& replica) {
    const Chunk& chunk = *replica.chunk;
    const MemoryIndex m = replica.memory();
    const std::uint64_t rank = replica.pinned() ? rank_never : victim_rank(chunk, m);
    if (rank == rank_never) {
        unindex(replica);
        return;
    }
    const std::optional<MemoryIndex> below = Tiers::below(m);
    const bool has_place = below && chunk.replicas[*below].address != 0;
    const bool is_spare = rank == rank_useless || is_clean(chunk, m);
    const bool placeless = !has_place && !is_spare;
    const std::size_t place_bytes = placeless ? std::max<std::size_t>(1, chunk.block_bytes()) : 0;
    Victim& v = *replica.victim;
    const bool is_same = v.rank == rank && v.tick == replica.tick && v.place_bytes == place_bytes;
    if (v.indexed && is_same && v.is_spare == is_spare) return;
    unindex(replica);
    if (place_bytes == 0) spaces_[m].may_save_again();
    v.rank = rank;
    v.tick = replica.tick;
    v.place_bytes = place_bytes;
    v.indexed = true;
    v.is_spare = is_spare;
    residents_[m].victims.insert(v);
    count_victim(v, m, true);
}

void Residency::list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out) {
    VictimKey after{0, 0, nullptr};
    for (; count != 0; --count) {
        const Victim* const victim = residents_[m].victims.next(after, ~std::size_t{0}, &num_steps_);
        if (victim == nullptr) return;
        after = VictimOrder::key_of(*victim);
        out.push_back(after.chunk);
    }
}

// ------------------------------------------------------------------------------------------------------------ leaving

/// `all`: saves the whole chunk even if only parts of it will be read.
Residency::Found Residency::evict(Chunk& chunk, MemoryIndex m, Saves saves) {
    Replica& r = chunk.replicas.at(m);
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = victim_rank(chunk, m);
    Space& space = spaces_[m];
    std::optional<Fence> saved;
    if (rank != rank_useless && !is_clean(chunk, m)) {
        MemoryIndex to;
        const Found found = find_place_to_save(chunk, m, &to);
        if (found != Found::yes) return found;
        saved = save(chunk, m, to, to == Tiers::below(m) && saves == Saves::what_is_read && rank == rank_parts);
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
        note_evicted(chunk, m, false, chunk.size_bytes);
    }
    if (rank != rank_useless) chunk.set_evicted_from(m, true);
    space.may_save_again();
    // An empty place that a task took since the last exchange and loses again is no reason for another.
    if (is_valid(chunk, m) || !space.came_since_exchange(r.tick)) space.may_exchange_again();
    release(r, saved ? &*saved : nullptr);
    reindex_all(chunk);
    notify(chunk, m);
    return Found::yes;
}

/// A block in the memory below. For the front, if there is none, a block in any other memory with room.
Residency::Found Residency::find_place_to_save(Chunk& chunk, MemoryIndex m, MemoryIndex* to) {
    Found found = Found::none;
    // The chunk that is being saved must not be a victim of the search for its own place.
    const std::uint64_t held = std::exchange(chunk.hold, is_being_saved);
    if (const std::optional<MemoryIndex> below = Tiers::below(m)) {
        *to = *below;
        const Replica* const h = chunk.replicas.find(*below);
        if (h != nullptr)
            found = h->pinned() ? Found::pinned : Found::yes;
        else if (rounded(chunk.block_bytes()) <=
                 spaces_[*below].counters.limit_bytes)  // else it never fits: evict nothing for it
            found = allocate(chunk, *below);
    }
    if (room_ == Room::any && (found == Found::none || found == Found::pinned)) {
        for (const MemoryIndex other : memories()) {
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
Residency::Found Residency::allocate_spare(Chunk& chunk, MemoryIndex m) {
    if (const Replica* const r = chunk.replicas.find(m)) return r->pinned() ? Found::none : Found::yes;
    const Room before = std::exchange(room_, Room::spare);
    const Found found = allocate(chunk, m);
    room_ = before;
    return found == Found::pinned ? Found::none : found;
}

/// The largest room for chunks evicted from `m` on one device, except the one where the task is being placed.
std::size_t Residency::largest_spare_room_beside(MemoryIndex m) const noexcept {
    std::size_t largest = 0;
    for (const MemoryIndex other : spaces_.device_memories())
        if (other != m && other != placed_in_)
            largest = std::max(largest, spaces_[other].free_bytes() + residents_[other].spare_bytes);
    return largest;
}

/// Copies the chunk to its replica in `to`. The replica in `m` is in use until the fence.
Fence Residency::save(Chunk& chunk, MemoryIndex m, MemoryIndex to, bool in_parts) {
    const Replica& r = chunk.replicas.at(m);
    Replica& h = chunk.replicas.at(to);
    FenceSet waits;
    r.add_writers_to(waits);
    h.add_all_users_to(waits);
    Fence fence;
    std::size_t bytes = chunk.size_bytes;
    if (in_parts) {
        part_readers_.clear();
        chunk.next_uses.for_each_first(chunk.next_uses.num_parts_until_replaced(),
                                       [this](const NextUses::Use& use) { part_readers_.push_back(use.task); });
        bytes = 0;
        chunk.copied_at = ++tick_;
        fence = requests_.copy_parts(chunk, m, to, r.address, h.address, waits, part_readers_, &bytes);
        set_version(h, chunk.version);
        h.holds = Holds::last_parts;
    } else {
        chunk.copied_at = ++tick_;
        fence = requests_.copy(chunk, m, to, r.address, h.address, waits, nullptr);
        set_version(h, chunk.version);
    }
    h.content_at = chunk.copied_at;
    forget_users(h);
    add_user(h, UserKind::arrival, fence);
    h.tick = ++tick_;
    MemoryCounters& counters = spaces_[m].counters;
    ++counters.evictions;
    counters.evicted_bytes += bytes;
    note_evicted(chunk, m, true, bytes);
    notify(chunk, to);
    return fence;
}

void Residency::note_evicted(const Chunk& chunk, MemoryIndex m, bool saved, std::size_t bytes) const noexcept {
    if (trace::Sink* const s = trace_.sink()) [[unlikely]]
        s->note({.what = trace::What::evict,
                 .flag = saved,
                 .chunk = chunk.index,
                 .from = m,
                 .array = chunk.owner->number,
                 .bytes = bytes});
}

Residency::Found Residency::make_room(MemoryIndex m) {
    Space& space = spaces_[m];
    Residents& residents = residents_[m];
    if (!residents.indexed && !begin_order(m)) return Found::starved;
    // Dirty chunks of at least this size cannot be saved elsewhere. A chunk that is valid in the last memory alone is
    // evicted only for the front.
    const std::optional<MemoryIndex> below = Tiers::below(m);
    std::size_t too_large = below ? spaces_[*below].refuses_from() : 1;
    const std::size_t elsewhere = room_ == Room::any ? largest_spare_room_beside(m) : 0;
    too_large = room_ == Room::spare ? 1 : std::max(too_large, elsewhere + 1);
    bool growing_below = false;
    bool pins = false;
    VictimKey after{0, 0, nullptr};
    for (;;) {
        const Victim* const victim = residents.victims.next(after, growing_below ? 1 : too_large, &num_steps_);
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
        const std::size_t lacking = below ? spaces_[*below].lacks_from(chunk.block_bytes(), found == Found::pinned) : 1;
        too_large = std::min(too_large, std::max(lacking, std::min(elsewhere + 1, chunk.block_bytes())));
        // Not cached if chunks held for this task were passed over: another task may evict them.
        if (below && room_ >= Room::as_usual && !passed_over_held_) spaces_[*below].refuse_from(lacking);
    }
    if (growing_below) return Found::growing;
    // What is pinned is not in the order of victims.
    if (pins || residents.num_pinned != 0) return Found::pinned;
    if (below && too_large != ~std::size_t{0} && residents_[*below].num_pinned != 0) return Found::pinned;
    return Found::none;
}

}  // namespace kmm::memory
