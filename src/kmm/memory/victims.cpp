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
    if (chunk.replicas[m].version != chunk.version || chunk.version == 0) return Prospect{};
    if (chunk.array->released && chunk.array->uses_to_come == 0 && chunk.next_uses.empty())
        return Prospect{};  // no handle is left and no task will read it
    const bool clean = is_clean(chunk, m);
    if (!clean && !Tiers::below(m)) return std::nullopt;
    if (chunk.next_uses.empty()) return Prospect{Need::no_task, clean};
    const NextUses::Use use = chunk.next_uses.first();
    if (use.replaces()) return Prospect{};
    if (m.is_device() && use.kind == NextUses::Kind::part && chunk.next_uses.num_parts_until_replaced() != 0)
        return Prospect{Need::in_parts, clean};
    const PlannedUses& planned = chunk.replicas[m].planned;
    if (!planned.empty()) return Prospect{Need::whole, clean, planned.first()};
    // Who needs a small part finds it where the chunk goes.
    return Prospect{Need::whole, clean, eviction::beyond_plans + chunk.next_uses.first_whole().task};
}

std::uint64_t Residency::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const std::optional<Prospect> prospect = prospect_of(chunk, m);
    return prospect ? eviction::rank_of(policy_, *prospect) : rank_never;
}

void Residency::unindex(Chunk& chunk, MemoryIndex m) noexcept {
    Replica& r = chunk.replicas[m];
    if (!r.indexed) return;
    spaces_[m].victims.erase(r);
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
    const bool placeless = below && rank != rank_useless && chunk.replicas[*below].address == 0 && !is_clean(chunk, m);
    const std::size_t place_bytes = placeless ? std::max<std::size_t>(1, chunk.block_bytes()) : 0;
    if (r.indexed && r.key_rank == rank && r.key_tick == r.tick && r.key_place_bytes == place_bytes) return;
    unindex(chunk, m);
    if (m.is_host()) host_has_changed();
    r.key_chunk = &chunk;
    r.key_rank = rank;
    r.key_tick = r.tick;
    r.key_place_bytes = place_bytes;
    r.indexed = true;
    space.victims.insert(r);
}

void Residency::reindex_all(Chunk& chunk) {
    for (const MemoryIndex m : memories()) reindex(chunk, m);
}

void Residency::list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out) {
    VictimKey after{0, 0, nullptr};
    for (; count != 0; --count) {
        const Replica* const victim = spaces_[m].victims.next(after, ~std::size_t{0}, &num_steps_);
        if (victim == nullptr) return;
        after = VictimOrder::key_of(*victim);
        out.push_back(after.chunk);
    }
}

// ------------------------------------------------------------------------------------------------------------ leaving

/// `all`: what only needs parts of it may find the whole chunk in its place again.
Residency::Found Residency::evict(Chunk& chunk, MemoryIndex m, Saves saves) {
    Replica& r = chunk.replicas[m];
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = victim_rank(chunk, m);
    Space& space = spaces_[m];
    if (rank != rank_useless && !is_clean(chunk, m)) {
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
        save(chunk, m, *below, saves == Saves::what_is_read && rank == rank_parts);
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
        note_evicted(chunk, m, false, chunk.size_bytes);
    }
    if (rank != rank_useless) r.evicted_version = chunk.version;
    may_exchange_again(space);
    release(chunk, m);
    reindex_all(chunk);
    notify(chunk, m);
    return Found::yes;
}

/// To the place that the chunk has in the memory below.
void Residency::save(Chunk& chunk, MemoryIndex m, MemoryIndex below, bool in_parts) {
    Replica& r = chunk.replicas[m];
    Replica& h = chunk.replicas[below];
    FenceSet waits = r.arrivals;
    waits.add(r.task_writes);
    h.add_all_users(waits);
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
    h.forget_users();
    h.arrivals.add(fence);
    h.tick = ++tick_;
    r.copy_reads.add(fence);
    MemoryCounters& counters = spaces_[m].counters;
    ++counters.evictions;
    counters.evicted_bytes += bytes;
    note_evicted(chunk, m, true, bytes);
    notify(chunk, below);
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
        const Replica* const victim = space.victims.next(after, host_growing ? 1 : too_large, &num_steps_);
        if (victim == nullptr) break;
        // The search for a place on the host may cost others their host copies, and their places in this order.
        after = VictimOrder::key_of(*victim);
        const bool saves = victim->key_place_bytes != 0;
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
