// Who leaves a memory: the order of victims, and the search that goes through it.
#include <algorithm>
#include <utility>

#include "kmm/memory/residency.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

namespace {

constexpr std::uint64_t rank_useless = 0;  // stale, or replaced next and not the host's only copy
constexpr std::uint64_t rank_clean = 1;    // nobody will use it and another copy is valid
constexpr std::uint64_t rank_dirty = 2;    // nobody will use it, but it must be written down
constexpr std::uint64_t rank_used = 1ull << 62;
constexpr std::uint64_t rank_never = ~0ull;

}  // namespace

std::uint64_t Residency::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const Replica& r = chunk.replicas[m];
    if (r.version != chunk.version || chunk.version == 0) return rank_useless;
    if (chunk.lost != nullptr) return rank_useless;  // nobody reads it before it is replaced
    if (chunk.array->released && chunk.next_uses.empty())
        return rank_useless;  // no handle is left and no task will read it
    const bool clean = valid_elsewhere(chunk, m);
    if (!clean && !Tiers::below(m)) return rank_never;
    if (chunk.next_uses.empty()) return clean ? rank_clean : rank_dirty;
    const NextUses::Use use = chunk.next_uses.first();
    if (use.replaces) return rank_useless;
    return rank_used + ((1ull << 50) - use.task) * 2 + (clean ? 0 : 1);
}

std::size_t Residency::evictable_bytes(MemoryIndex m) const {
    std::size_t bytes = 0;
    for (const Chunk* c : spaces_[m].resident)
        if (!c->replicas[m].pinned()) bytes += spaces_[m].heap.round_up(c->block_bytes());
    return bytes;
}

void Residency::unindex(Chunk& chunk, MemoryIndex m) noexcept {
    Space& space = spaces_[m];
    Replica& r = chunk.replicas[m];
    if (!r.indexed) return;
    const VictimKey key{r.key_rank, r.key_tick, &chunk};
    if (r.key_placeless) {
        space.placeless.erase(key);
        if (space.indexed_by_size) space.placeless_by_size.erase({chunk.block_bytes(), key});
    } else {
        space.victims.erase(key);
    }
    r.indexed = false;
}

void Residency::reindex(Chunk& chunk, MemoryIndex m) {
    Space& space = spaces_[m];
    if (!space.indexed) return;
    Replica& r = chunk.replicas[m];
    const std::uint64_t rank = r.address == 0 || r.pinned() ? rank_never : victim_rank(chunk, m);
    if (rank == rank_never) {
        unindex(chunk, m);
        return;
    }
    const std::optional<MemoryIndex> below = Tiers::below(m);
    const bool placeless =
        below && rank != rank_useless && chunk.replicas[*below].address == 0 && !valid_elsewhere(chunk, m);
    if (r.indexed && r.key_rank == rank && r.key_tick == r.tick && r.key_placeless == placeless) return;
    unindex(chunk, m);
    if (m.is_host()) host_has_changed();
    r.key_rank = rank;
    r.key_tick = r.tick;
    r.key_placeless = placeless;
    r.indexed = true;
    const VictimKey key{rank, r.tick, &chunk};
    if (!placeless) {
        space.victims.insert(key);
        return;
    }
    space.placeless.insert(key);
    if (space.indexed_by_size) space.placeless_by_size.insert({chunk.block_bytes(), key});
}

void Residency::reindex_all(Chunk& chunk) {
    for (const MemoryIndex m : memories()) reindex(chunk, m);
}

// ------------------------------------------------------------------------------------------------------------ leaving

Residency::Found Residency::evict(Chunk& chunk, MemoryIndex m) {
    Replica& r = chunk.replicas[m];
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = victim_rank(chunk, m);
    Space& space = spaces_[m];
    if (rank != rank_useless && !valid_elsewhere(chunk, m)) {
        const std::optional<MemoryIndex> below = Tiers::below(m);
        if (!below) return Found::none;
        Replica& h = chunk.replicas[*below];
        if (h.pinned()) return Found::pinned;
        // What can never be saved must not cost others their copies on the host.
        if (h.address == 0 && rounded(chunk.block_bytes()) > limit(*below)) return Found::none;
        // The chunk that is being saved must not be a victim of the search for its own place.
        const std::uint64_t held = std::exchange(chunk.hold, ~0ull);
        const Found found = h.address != 0 ? Found::yes : allocate(chunk, *below);
        chunk.hold = held;
        if (found != Found::yes) return found;
        FenceSet waits = r.arrivals;
        waits.add(r.task_writes);
        h.add_all_users(waits);
        chunk.copied_at = ++tick_;
        const Fence fence = requests_.copy(chunk, m, *below, r.address, h.address, waits, nullptr);
        h.content_at = chunk.copied_at;
        h.forget_users();
        h.arrivals.add(fence);
        h.version = chunk.version;
        h.tick = ++tick_;
        r.copy_reads.add(fence);
        ++space.counters.evictions;
        space.counters.evicted_bytes += chunk.size_bytes;
        note_evicted(chunk, m, true);
        notify(chunk, *below);
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
        note_evicted(chunk, m, false);
    }
    if (rank != rank_useless) r.evicted_version = chunk.version;
    may_exchange_again(space);
    release(chunk, m);
    reindex_all(chunk);
    notify(chunk, m);
    return Found::yes;
}

void Residency::note_evicted(const Chunk& chunk, MemoryIndex m, bool saved) const noexcept {
    if (trace::Sink* const s = trace_.sink()) [[unlikely]]
        s->note({.what = trace::What::evict,
                 .flag = saved,
                 .chunk = chunk.index,
                 .from = m,
                 .array = chunk.array->number,
                 .bytes = chunk.size_bytes});
}

/// The first victim after `after` that needs a place of less than `below_bytes` on the host; null: none. O(log
/// replicas), and where the host has refused a size already, for each smaller size.
const Residency::VictimKey* Residency::next_placeless(Space& space, const VictimKey& after, std::size_t below_bytes) {
    if (below_bytes == ~std::size_t{0}) {
        const auto it = space.placeless.upper_bound(after);
        return it == space.placeless.end() ? nullptr : &*it;
    }
    if (!space.indexed_by_size) {
        space.indexed_by_size = true;
        for (const VictimKey& k : space.placeless) space.placeless_by_size.insert({k.chunk->block_bytes(), k});
    }
    const VictimKey first{0, 0, nullptr};
    const VictimKey* best = nullptr;
    for (auto it = space.placeless_by_size.begin();
         it != space.placeless_by_size.end() && it->size_bytes < below_bytes;) {
        const std::size_t size = it->size_bytes;
        const auto of_size = space.placeless_by_size.upper_bound({size, after});
        if (of_size != space.placeless_by_size.end() && of_size->size_bytes == size &&
            (best == nullptr || of_size->key < *best))
            best = &of_size->key;
        it = space.placeless_by_size.lower_bound({size + 1, first});
    }
    return best;
}

std::size_t Residency::host_refuses_from() noexcept {
    constexpr MemoryIndex host = MemoryIndex::host();
    if (growing(host) || may_grow(host, host_refuses_bytes_)) host_has_changed();
    return host_refuses_bytes_;
}

Residency::Found Residency::make_room(MemoryIndex m) {
    Space& space = spaces_[m];
    if (!space.indexed) {
        space.indexed = true;
        for (Chunk* c : space.resident) reindex(*c, m);
    }
    // Dirty chunks from this size on find no place on the host; smaller ones may.
    std::size_t too_large = m.is_host() ? ~std::size_t{0} : host_refuses_from();
    bool host_growing = false;
    bool pins = false;
    VictimKey after{0, 0, nullptr};
    for (;;) {
        const auto as_it_is = space.victims.upper_bound(after);
        const VictimKey* const placeless = host_growing ? nullptr : next_placeless(space, after, too_large);
        if (as_it_is == space.victims.end() && placeless == nullptr) break;
        const bool saves = as_it_is == space.victims.end() || (placeless != nullptr && *placeless < *as_it_is);
        // The search for a place on the host may cost others their host copies, and their places in this order.
        after = saves ? *placeless : *as_it_is;
        Chunk& chunk = *after.chunk;
        ++space.counters.victims_tried;
        if (chunk.hold != 0) {
            passed_over_held_ = true;
            continue;
        }
        if (m.is_device()) passed_over_held_ = false;
        const Found found = evict(chunk, m);
        if (found == Found::yes) return Found::yes;
        if (found == Found::starved) return Found::starved;
        if (found == Found::growing) host_growing = true;
        if (found == Found::pinned) pins = true;
        if (found != Found::none) continue;
        too_large = std::min(too_large, chunk.block_bytes());
        // What was left out for this task's sake may make room for another's.
        if (saves && !passed_over_held_) host_refuses_bytes_ = std::min(host_refuses_bytes_, chunk.block_bytes());
    }
    if (host_growing) return Found::growing;
    // What is pinned is not in the order of victims.
    if (pins || space.num_pinned != 0) return Found::pinned;
    if (m.is_device() && too_large != ~std::size_t{0} && spaces_[MemoryIndex::host()].num_pinned != 0)
        return Found::pinned;
    return Found::none;
}

}  // namespace kmm::memory
