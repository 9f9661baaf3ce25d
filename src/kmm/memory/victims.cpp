// Who leaves a memory: the order of victims, and the search that goes through it.
#include <algorithm>
#include <utility>

#include "kmm/memory/residency.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

namespace {

using eviction::rank_parts;
using eviction::rank_useless;
constexpr std::uint64_t rank_never = ~0ull;

}  // namespace

/// Empty: it is the only copy, and there is nowhere to save it.
std::optional<Prospect> Residency::prospect_of(const Chunk& chunk, MemoryIndex m) const noexcept {
    using Need = Prospect::Need;
    if (chunk.lost != nullptr) return Prospect{};  // nobody reads it before it is replaced
    const bool is_read = !chunk.next_uses.empty() && !chunk.next_uses.first().replaces();
    if (m.is_host() && chunk.is_in_parts() && is_read) return std::nullopt;
    if (!is_valid(chunk, m)) return Prospect{};
    if (chunk.array->released && chunk.array->uses_to_come == 0 && chunk.next_uses.empty())
        return Prospect{};  // no handle is left and no task will read it
    const bool clean = is_clean(chunk, m);
    if (!clean && !Tiers::below(m)) return std::nullopt;
    if (chunk.next_uses.empty()) return Prospect{Need::no_task, clean};
    const NextUses::Use use = chunk.next_uses.first();
    if (use.replaces()) return Prospect{};
    if (m.is_device() && use.kind == NextUses::Kind::part && chunk.next_uses.num_parts_until_replaced() != 0)
        return Prospect{Need::in_parts, clean};
    if (const Demand* const demand = chunk.demands.find(m); demand != nullptr && !demand->planned.empty())
        return Prospect{Need::whole, clean, demand->planned.first()};
    // Who needs a small part finds it where the chunk goes.
    return Prospect{Need::whole, clean, eviction::beyond_plans + chunk.next_uses.first_whole().task};
}

std::uint64_t Residency::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const std::optional<Prospect> prospect = prospect_of(chunk, m);
    return prospect ? eviction::rank_of(policy_, *prospect) : rank_never;
}

void Residency::attach_victim(Space& space, Replica& replica) {
    replica.victim = &space.victim_records.take();
    replica.victim->chunk = replica.chunk;
}

/// Whether the host has memory for it. O(replicas * log replicas), once for each memory.
bool Residency::begin_order(Space& space) {
    try {
        space.victim_records.reserve(space.replicas.num_used());
    } catch (const std::bad_alloc&) {
        return false;
    }
    space.indexed = any_indexed_ = true;
    space.replicas.for_each_made([&](Replica& r) {
        if (r.address == 0) return;
        attach_victim(space, r);
        reindex(r);
    });
    return true;
}

void Residency::unindex(Replica& replica) noexcept {
    Victim* const v = replica.victim;
    if (v == nullptr || !v->indexed) return;
    spaces_[replica.memory()].victims.erase(*v);
    v->indexed = false;
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
    const bool placeless = below && rank != rank_useless && chunk.replicas[*below].address == 0 && !is_clean(chunk, m);
    const std::size_t place_bytes = placeless ? std::max<std::size_t>(1, chunk.block_bytes()) : 0;
    Victim& v = *replica.victim;
    if (v.indexed && v.rank == rank && v.tick == replica.tick && v.place_bytes == place_bytes) return;
    unindex(replica);
    if (m.is_host()) host_has_changed();
    v.rank = rank;
    v.tick = replica.tick;
    v.place_bytes = place_bytes;
    v.indexed = true;
    spaces_[m].victims.insert(v);
}

void Residency::list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out) {
    VictimKey after{0, 0, nullptr};
    for (; count != 0; --count) {
        const Victim* const victim = spaces_[m].victims.next(after, ~std::size_t{0}, &num_steps_);
        if (victim == nullptr) return;
        after = VictimOrder::key_of(*victim);
        out.push_back(after.chunk);
    }
}

// ------------------------------------------------------------------------------------------------------------ leaving

/// `all`: what only needs parts of it may find the whole chunk in its place again.
Residency::Found Residency::evict(Chunk& chunk, MemoryIndex m, Saves saves) {
    Replica& r = chunk.replicas.at(m);
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = victim_rank(chunk, m);
    Space& space = spaces_[m];
    std::optional<Fence> saved;
    if (rank != rank_useless && !is_clean(chunk, m)) {
        const std::optional<MemoryIndex> below = Tiers::below(m);
        if (!below) return Found::none;
        const Replica* const h = chunk.replicas.find(*below);
        if (h != nullptr && h->pinned()) return Found::pinned;
        // What can never be saved must not cost others their copies on the host.
        if (h == nullptr && rounded(chunk.block_bytes()) > limit(*below)) return Found::none;
        // The chunk that is being saved must not be a victim of the search for its own place.
        const std::uint64_t held = std::exchange(chunk.hold, ~0ull);
        const Found found = h != nullptr ? Found::yes : allocate(chunk, *below);
        chunk.hold = held;
        if (found != Found::yes) return found;
        saved = save(chunk, m, *below, saves == Saves::what_is_read && rank == rank_parts);
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
        note_evicted(chunk, m, false, chunk.size_bytes);
    }
    if (rank != rank_useless) chunk.set_evicted_from(m, true);
    may_exchange_again(space);
    release(r, saved ? &*saved : nullptr);
    reindex_all(chunk);
    notify(chunk, m);
    return Found::yes;
}

/// To the place that the chunk has in the memory below. The replica is used until the fence.
Fence Residency::save(Chunk& chunk, MemoryIndex m, MemoryIndex below, bool in_parts) {
    const Replica& r = chunk.replicas.at(m);
    Replica& h = chunk.replicas.at(below);
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
        fence = requests_.copy_parts(chunk, m, below, r.address, h.address, waits, part_readers_, &bytes);
        chunk.parts_version = chunk.version;
    } else {
        chunk.copied_at = ++tick_;
        fence = requests_.copy(chunk, m, below, r.address, h.address, waits, nullptr);
        h.version = chunk.version;
    }
    h.content_at = chunk.copied_at;
    forget_users(h);
    add_user(h, Use::arrival, fence);
    h.tick = ++tick_;
    MemoryCounters& counters = spaces_[m].counters;
    ++counters.evictions;
    counters.evicted_bytes += bytes;
    note_evicted(chunk, m, true, bytes);
    notify(chunk, below);
    return fence;
}

void Residency::note_evicted(const Chunk& chunk, MemoryIndex m, bool saved, std::size_t bytes) const noexcept {
    if (trace::Sink* const s = trace_.sink()) [[unlikely]]
        s->note({.what = trace::What::evict,
                 .flag = saved,
                 .chunk = chunk.index,
                 .from = m,
                 .array = chunk.array->number,
                 .bytes = bytes});
}

std::size_t Residency::host_refuses_from() noexcept {
    constexpr MemoryIndex host = MemoryIndex::host();
    if (growing(host) || may_grow(host, host_refuses_bytes_)) host_has_changed();
    return host_refuses_bytes_;
}

/// A search on the host for so many bytes has found nothing (`why`: none or pinned), and all that could leave has left:
/// from which size on others would find no more.
std::size_t Residency::host_lacks_from(std::size_t bytes, Found why) const noexcept {
    const Space& host = spaces_[MemoryIndex::host()];
    const std::size_t limit = host.counters.limit_bytes;
    if (rounded(bytes) > limit) return limit / heap_alignment * heap_alignment + 1;
    const std::size_t left = limit - host.counters.capacity_bytes;
    if (left != 0 && host.refusals == 0) return bytes;
    // Less may fit, may not have been asked for yet, or may be had for what is free in pieces.
    std::size_t fits = host.heap.largest_free_bytes();
    if (left != 0) fits = std::max(fits, host.refused_bytes);
    if (why == Found::none && !host.no_exchange) fits = std::max(fits, host.heap.free_bytes() + left);
    return std::min(bytes, fits + 1);
}

Residency::Found Residency::make_room(MemoryIndex m) {
    Space& space = spaces_[m];
    if (!space.indexed && !begin_order(space)) return Found::starved;
    // Dirty chunks from this size on find no place on the host; smaller ones may.
    std::size_t too_large = m.is_host() ? ~std::size_t{0} : host_refuses_from();
    bool host_growing = false;
    bool pins = false;
    VictimKey after{0, 0, nullptr};
    for (;;) {
        const Victim* const victim = space.victims.next(after, host_growing ? 1 : too_large, &num_steps_);
        if (victim == nullptr) break;
        // The search for a place on the host may cost others their host copies, and their places in this order.
        after = VictimOrder::key_of(*victim);
        const bool saves = victim->place_bytes != 0;
        Chunk& chunk = *after.chunk;
        ++space.counters.victims_tried;
        if (chunk.hold != 0) {
            passed_over_held_ = true;
            continue;
        }
        if (m.is_device()) passed_over_held_ = false;
        const Found found = evict(chunk, m, Saves::what_is_read);
        if (found == Found::yes) return Found::yes;
        if (found == Found::starved) return Found::starved;
        if (found == Found::growing) host_growing = true;
        if (found == Found::pinned) pins = true;
        if (!saves || (found != Found::none && found != Found::pinned)) continue;
        too_large = std::min(too_large, host_lacks_from(chunk.block_bytes(), found));
        // What was left out for this task's sake may make room for another's.
        if (!passed_over_held_) host_refuses_bytes_ = std::min(host_refuses_bytes_, too_large);
    }
    if (host_growing) return Found::growing;
    // What is pinned is not in the order of victims.
    if (pins || space.num_pinned != 0) return Found::pinned;
    if (m.is_device() && too_large != ~std::size_t{0} && spaces_[MemoryIndex::host()].num_pinned != 0)
        return Found::pinned;
    return Found::none;
}

}  // namespace kmm::memory
