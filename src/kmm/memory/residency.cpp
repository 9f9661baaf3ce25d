#include "kmm/memory/residency.hpp"

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>

namespace kmm::memory {

namespace {

using graph::Access;
using graph::Task;

constexpr std::uint64_t rank_useless = 0;  // stale, or about to be replaced: costs nothing to lose
constexpr std::uint64_t rank_clean = 1;    // nobody will use it and another copy is valid
constexpr std::uint64_t rank_dirty = 2;    // nobody will use it, but it must be written down
constexpr std::uint64_t rank_used = 1ull << 62;
constexpr std::uint64_t rank_never = ~0ull;

rmm::heap::fence_set heap_fences(const FenceSet& set) {
    rmm::heap::fence_set out;
    for (const Fence& f : set) out.add({static_cast<std::uint64_t>(f.lane), f.position});
    return out;
}

void add_heap_fences(FenceSet& out, const rmm::heap::fence_set& set) {
    for (const rmm::heap::fence& f : set) out.add({static_cast<graph::LaneId>(f.timeline), f.position});
}

bool has_next_use(const Chunk& c) noexcept { return c.next_use_head < c.next_uses.size(); }

template<typename F> void for_each_chunk(Task& task, F&& f) {
    for (Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk) f(a, *a.chunk);
}

}  // namespace

Residency::Residency(Requests& requests, std::vector<std::size_t> limits_bytes, bool find_unset)
    : requests_(requests), find_unset_(find_unset), spaces_(limits_bytes.size()) {
    for (std::size_t m = 0; m < spaces_.size(); ++m) spaces_[m].counters.limit_bytes = limits_bytes[m];
}

void Residency::grown(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    Space& space = spaces_[memory];
    space.growing = false;
    if (memory == 0) host_has_changed();
    const bool exchanged = std::exchange(space.exchanging, false);
    const bool freed_meanwhile = std::exchange(space.freed_meanwhile, false);
    if (bytes == 0) {
        if (exchanged)
            space.no_exchange = !freed_meanwhile;
        else if (space.refusals++ == 0 || space.asked_bytes < space.refused_bytes)
            space.refused_bytes = space.asked_bytes;
        return;
    }
    space.refusals = 0;
    space.no_exchange = false;
    given_again(memory, address, bytes, sealed);
}

void Residency::awaited(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    spaces_[memory].no_exchange = false;
    given_again(memory, address, bytes, sealed);
}

void Residency::given_again(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, bool sealed) {
    Space& space = spaces_[memory];
    space.counters.capacity_bytes += bytes;
    may_fit_again(space);
    add(space, address, bytes, sealed);
}

void Residency::add(Space& space, std::uintptr_t address, std::size_t bytes, bool sealed) {
    try {
        space.heap.add_region(address, bytes, sealed ? rmm::heap::border::sealed : rmm::heap::border::open);
    } catch (const std::bad_alloc&) {
        space.unadded.push_back({address, bytes, sealed});
    }
}

void Residency::give(Space& space, std::uintptr_t address, std::size_t bytes, FenceSet&& users) {
    try {
        space.heap.free(address, bytes, heap_fences(users));
    } catch (const std::bad_alloc&) {
        space.unfreed.push_back({address, bytes, std::move(users)});
    }
}

void Residency::tell_again(Space& space) {
    if (space.unfreed.empty() && space.unadded.empty()) return;
    may_fit_again(space);
    for (auto late = std::exchange(space.unadded, {}); const Unadded& u : late)
        add(space, u.address, u.bytes, u.sealed);
    for (auto late = std::exchange(space.unfreed, {}); Unfreed & u : late)
        give(space, u.address, u.bytes, std::move(u.users));
}

bool Residency::take_back(MemoryIndex memory, std::uintptr_t address, std::size_t bytes, FenceSet* users) {
    Space& space = spaces_[memory];
    tell_again(space);
    rmm::heap::fence_set left;
    try {
        space.heap.prune([this](const rmm::heap::fence& f) {
            return requests_.passed({static_cast<graph::LaneId>(f.timeline), f.position});
        });
        if (!space.heap.remove_region(address, bytes, users != nullptr ? &left : nullptr)) return false;
    } catch (const std::bad_alloc&) {
        return false;  // and nothing has changed
    }
    if (users != nullptr) add_heap_fences(*users, left);
    space.counters.capacity_bytes -= bytes;
    if (memory == 0) host_has_changed();
    // While an exchange is under way its answer decides whether the driver may be asked again.
    if (!space.growing) {
        space.refusals = 0;
        space.no_exchange = false;
    }
    return true;
}

bool Residency::is_idle(const Replica& replica) const noexcept {
    for (const FenceSet* users : {&replica.arrivals, &replica.task_writes, &replica.task_reads, &replica.copy_reads})
        for (const Fence& f : *users)
            if (!requests_.passed(f)) return false;
    return true;
}

Reclaimed Residency::reclaim(MemoryIndex memory, const std::vector<Region>& regions, std::size_t wanted_bytes,
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
    for (Chunk* c : space.resident) {
        const Replica& r = c->replicas[memory];
        const std::uintptr_t end = r.block + space.heap.round_up(c->block_bytes());
        auto at = std::upper_bound(candidates.begin(), candidates.end(), r.block,
                                   [&](std::uintptr_t address, const Candidate& k) { return address < address_of(k); });
        if (at != candidates.begin()) --at;
        for (; at != candidates.end() && address_of(*at) < end; ++at) {
            if (address_of(*at) + regions[at->index].bytes <= r.block) continue;
            at->pinned = at->pinned || r.pinned();
            at->busy = at->busy || !is_idle(r);
            at->rank = std::max(at->rank, victim_rank(*c, memory));
            at->tick = std::max(at->tick, r.tick);
            at->chunks.push_back(c);
        }
    }
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
            if (found == Found::yes && c->replicas[memory].address != 0) found = evict(*c, memory);
        if (found == Found::growing) result.host_growing = true;
        const Region& region = regions[k.index];
        FenceSet users;
        if (found != Found::yes || !take_back(memory, region.address, region.bytes, &users)) continue;
        result.taken.push_back({k.index, users});
        taken_bytes += region.bytes;
    }
    if (!result.taken.empty() && space.refusals == 0) {
        space.refusals = 1;
        space.refused_bytes = 0;
    }
    return result;
}

// ---------------------------------------------------------------------------------------------------- the future

void Residency::add_next_use(Chunk& chunk, graph::TaskNumber task, bool replaces) {
    const std::uint64_t use = 2 * task + (replaces ? 1 : 0);
    auto at = chunk.next_uses.end();
    // Nearly always the latest; tasks published by several threads may arrive a little out of order.
    while (at != chunk.next_uses.begin() + static_cast<std::ptrdiff_t>(chunk.next_use_head) && *(at - 1) > use) --at;
    const bool first = at == chunk.next_uses.begin() + static_cast<std::ptrdiff_t>(chunk.next_use_head);
    chunk.next_uses.insert(at, use);
    if (first) reindex_all(chunk);
}

void Residency::remove_next_use(Chunk& chunk, graph::TaskNumber task) {
    // Tasks are issued nearly in order: what stands before this one moves up, not the long rest behind it.
    auto& uses = chunk.next_uses;
    const auto head = uses.begin() + static_cast<std::ptrdiff_t>(chunk.next_use_head);
    const auto at = std::find_if(head, uses.end(), [task](std::uint64_t use) { return use >> 1 == task; });
    if (at == uses.end()) return;
    const bool was_first = at == head;
    std::move_backward(head, at, at + 1);
    ++chunk.next_use_head;
    if (chunk.next_use_head == uses.size()) {
        uses.clear();
        chunk.next_use_head = 0;
    } else if (chunk.next_use_head >= 1024 && 2 * chunk.next_use_head >= uses.size()) {
        uses.erase(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(chunk.next_use_head));
        chunk.next_use_head = 0;
    }
    if (was_first) reindex_all(chunk);
}

// ---------------------------------------------------------------------------------------------------- questions

bool Residency::needs_copy(const Chunk& chunk, MemoryIndex m) const noexcept {
    const Replica& r = chunk.replicas[m];
    return chunk.version != 0 && (r.address == 0 || r.version != chunk.version);
}

bool Residency::valid_elsewhere(const Chunk& chunk, MemoryIndex m) const noexcept {
    for (MemoryIndex i = 0; i < chunk.replicas.size(); ++i)
        if (i != m && chunk.replicas[i].address != 0 && chunk.replicas[i].version == chunk.version) return true;
    return false;
}

// A linked device first (NVLink is faster than the way through the host), then the host, then any device.
MemoryIndex Residency::source_for(const Chunk& chunk, MemoryIndex to) const noexcept {
    MemoryIndex best = to;
    int best_score = 0;
    for (MemoryIndex i = 0; i < chunk.replicas.size(); ++i) {
        const Replica& r = chunk.replicas[i];
        if (i == to || r.address == 0 || r.version != chunk.version) continue;
        const int score = (i == 0 ? 2 : requests_.linked(i, to) ? 3 : 1) * 2 + (r.writer_pins == 0 ? 1 : 0);
        if (score > best_score) best = i, best_score = score;
    }
    return best;
}

std::size_t Residency::missing_bytes(const Task& task) const noexcept {
    std::size_t bytes = 0;
    for (const Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk) continue;
        if (a.chunk->replicas[task.memory].address == 0 || (a.needs_content && needs_copy(*a.chunk, task.memory)))
            bytes += a.chunk->size_bytes;
    }
    return bytes;
}

std::size_t Residency::evictable_bytes(MemoryIndex m) const {
    std::size_t bytes = 0;
    for (const Chunk* c : spaces_[m].resident)
        if (!c->replicas[m].pinned()) bytes += spaces_[m].heap.round_up(c->block_bytes());
    return bytes;
}

// ---------------------------------------------------------------------------------------------------- victims

std::uint64_t Residency::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const Replica& r = chunk.replicas[m];
    if (r.version != chunk.version || chunk.version == 0) return rank_useless;
    if (chunk.array->released && !has_next_use(chunk))
        return rank_useless;  // no handle is left and no task will read it
    const bool clean = valid_elsewhere(chunk, m);
    if (m == 0 && !clean) return rank_never;  // there is no tier below to save it in
    if (!has_next_use(chunk)) return clean ? rank_clean : rank_dirty;
    const std::uint64_t use = chunk.next_uses[chunk.next_use_head];
    if ((use & 1) != 0) return rank_useless;
    return rank_used + ((1ull << 50) - (use >> 1)) * 2 + (clean ? 0 : 1);
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
    const bool placeless =
        m != 0 && rank != rank_useless && chunk.replicas[0].address == 0 && !valid_elsewhere(chunk, m);
    if (r.indexed && r.key_rank == rank && r.key_tick == r.tick && r.key_placeless == placeless) return;
    unindex(chunk, m);
    if (m == 0) host_has_changed();
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
    for (MemoryIndex m = 0; m < spaces_.size(); ++m) reindex(chunk, m);
}

void Residency::notify(Chunk& chunk) {
    for (Task* t : chunk.ready_tasks) requests_.residency_changed(*t);
}

void Residency::wake(Chunk& chunk) {
    if (chunk.waiting.empty()) return;
    graph::TaskList tasks;
    tasks.swap(chunk.waiting);
    for (Task* t : tasks) requests_.unblocked(*t);
}

void Residency::release(Chunk& chunk, MemoryIndex m) {
    Space& space = spaces_[m];
    Replica& r = chunk.replicas[m];
    unindex(chunk, m);
    FenceSet users;
    r.add_all_users(users);
    users.prune([&](const Fence& f) { return requests_.passed(f); });
    const std::size_t size = space.heap.round_up(chunk.block_bytes());
    give(space, r.block, size, std::move(users));
    space.counters.current_bytes -= size;
    ++space.counters.frees;
    space.resident.erase(&chunk);
    r.address = 0;
    r.block = 0;
    r.version = 0;
    r.forget_users();
    space.unfit_bytes = ~std::size_t{0};
    if (m != 0) return;
    host_has_changed();
    for (MemoryIndex d = 1; d < spaces_.size(); ++d) reindex(chunk, d);  // what is dirty has lost its place
}

void Residency::take(Chunk& chunk, MemoryIndex m, rmm::heap::block block) {
    Space& space = spaces_[m];
    Replica& r = chunk.replicas[m];
    r.block = block.address;
    r.address = chunk.first_aligned(block.address);
    r.version = 0;
    r.forget_users();
    add_heap_fences(r.arrivals, block.fences);
    r.tick = ++tick_;
    space.counters.current_bytes += space.heap.round_up(chunk.block_bytes());
    space.counters.peak_bytes = std::max(space.counters.peak_bytes, space.counters.current_bytes);
    ++space.counters.allocations;
    space.resident.insert(&chunk);
    if (m == 0)
        reindex_all(chunk);  // what is dirty elsewhere has a place now
    else
        reindex(chunk, m);
}

Residency::Found Residency::evict(Chunk& chunk, MemoryIndex m) {
    Replica& r = chunk.replicas[m];
    if (r.pinned()) return Found::pinned;
    const std::uint64_t rank = victim_rank(chunk, m);
    Space& space = spaces_[m];
    if (rank != rank_useless && !valid_elsewhere(chunk, m)) {
        if (m == 0) return Found::none;
        Replica& h = chunk.replicas[0];
        if (h.pinned()) return Found::pinned;
        // What can never be saved must not cost others their copies on the host.
        if (h.address == 0 && spaces_[0].heap.round_up(chunk.block_bytes()) > spaces_[0].counters.limit_bytes)
            return Found::none;
        // The chunk that is being saved must not be a victim of the search for its own place.
        const std::uint64_t held = std::exchange(chunk.hold, ~0ull);
        const Found found = h.address != 0 ? Found::yes : allocate(chunk, 0);
        chunk.hold = held;
        if (found != Found::yes) return found;
        FenceSet waits = r.arrivals;
        waits.add(r.task_writes);
        h.add_all_users(waits);
        chunk.copied_at = ++tick_;
        const Fence fence = requests_.copy(chunk, m, 0, r.address, h.address, waits, nullptr);
        h.content_at = chunk.copied_at;
        h.forget_users();
        h.arrivals.add(fence);
        h.version = chunk.version;
        h.tick = ++tick_;
        r.copy_reads.add(fence);
        ++space.counters.evictions;
        space.counters.evicted_bytes += chunk.size_bytes;
    } else {
        ++space.counters.evictions;
        space.counters.dropped_bytes += chunk.size_bytes;
    }
    if (rank != rank_useless) r.evicted_version = chunk.version;
    may_exchange_again(space);
    release(chunk, m);
    reindex_all(chunk);
    notify(chunk);
    return Found::yes;
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
    if (spaces_[0].growing || may_grow(0, host_refuses_bytes_)) host_has_changed();
    return host_refuses_bytes_;
}

Residency::Found Residency::make_room(MemoryIndex m) {
    Space& space = spaces_[m];
    if (!space.indexed) {
        space.indexed = true;
        for (Chunk* c : space.resident) reindex(*c, m);
    }
    // Dirty chunks from this size on find no place on the host; smaller ones may.
    std::size_t too_large = m == 0 ? ~std::size_t{0} : host_refuses_from();
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
        if (m != 0) passed_over_held_ = false;
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
    if (m != 0 && too_large != ~std::size_t{0} && spaces_[0].num_pinned != 0) return Found::pinned;
    return Found::none;
}

// On the host what cannot be saved elsewhere stays: nothing else is left to try there. On a device a task's own chunks
// are tried first, because they may lie in each other's way in memory that could be used as one.
bool Residency::exchange(MemoryIndex m, std::size_t bytes) {
    Space& space = spaces_[m];
    if (space.growing || space.no_exchange || (m != 0 && exchange_bytes_ == 0)) return false;
    const std::size_t left = space.counters.limit_bytes - space.counters.capacity_bytes;
    if (space.heap.free_bytes() + left < bytes) return false;
    if (!requests_.exchange(m, m == 0 ? bytes : std::max(bytes, exchange_bytes_))) return false;
    space.growing = true;
    space.exchanging = true;
    return true;
}

Residency::Found Residency::allocate(Chunk& chunk, MemoryIndex m) {
    Space& space = spaces_[m];
    const std::size_t size = space.heap.round_up(chunk.block_bytes());
    tell_again(space);
    for (;;) {
        if (size < space.unfit_bytes) {
            rmm::heap::block block;
            try {
                block = space.heap.try_allocate(size);
            } catch (const std::bad_alloc&) {
                return Found::starved;  // and nothing has changed
            }
            if (block) {
                take(chunk, m, std::move(block));
                return Found::yes;
            }
            if (size != 0) space.unfit_bytes = size;
        }
        if (may_grow(m, size)) {
            if (!space.growing) grow(m, size);
            return Found::growing;
        }
        Found found = make_room(m);
        if (found == Found::none && (space.growing || exchange(m, size) || ask_once_more(m, size)))
            found = Found::growing;
        if (found != Found::yes) return found;
    }
}

bool Residency::may_grow(MemoryIndex m, std::size_t bytes) noexcept {
    const Space& space = spaces_[m];
    if (space.counters.capacity_bytes >= space.counters.limit_bytes) return false;
    return space.refusals == 0 || (!space.growing && (bytes < space.refused_bytes || requests_.may_ask_again(m)));
}

void Residency::grow(MemoryIndex m, std::size_t bytes) {
    Space& space = spaces_[m];
    space.asked_bytes = std::min(bytes, space.counters.limit_bytes - space.counters.capacity_bytes);
    space.growing = true;
    requests_.grow(m, space.asked_bytes);
}

// The driver refused before (others hold the memory), and nothing can leave.
bool Residency::ask_once_more(MemoryIndex m, std::size_t bytes) {
    const Space& space = spaces_[m];
    if (space.refusals != 1 || space.counters.capacity_bytes >= space.counters.limit_bytes) return false;
    grow(m, bytes);
    return true;
}

// ---------------------------------------------------------------------------------------------------- tasks

void Residency::fetch(Chunk& chunk, MemoryIndex to, Task& task) {
    const MemoryIndex from = source_for(chunk, to);
    if (from == to)
        return;  // nobody holds it any more: its content was about to be replaced and the one to do so failed
    Replica& s = chunk.replicas[from];
    Replica& d = chunk.replicas[to];
    FenceSet waits = s.arrivals;
    waits.add(s.task_writes);
    d.add_all_users(waits);
    chunk.copied_at = ++tick_;
    if (d.evicted_version == chunk.version) {
        MemoryCounters& counters = spaces_[to].counters;
        ++counters.refetches;
        counters.refetched_bytes += chunk.size_bytes;
        chunk.array->refetched_bytes += chunk.size_bytes;
    }
    d.evicted_version = 0;
    const Fence fence = requests_.copy(chunk, from, to, s.address, d.address, waits, &task);
    d.content_at = chunk.copied_at;
    d.forget_users();
    d.arrivals.add(fence);
    d.version = chunk.version;
    s.copy_reads.add(fence);
    reindex_all(chunk);
    notify(chunk);
}

/// It needs more than there is in all, and the driver need not be asked for more: nobody has to leave to find that out.
bool Residency::lacks_for_sure(const Task& task) {
    const MemoryIndex m = task.memory;
    const Space& space = spaces_[m];
    if (m == 0 || space.refusals < 2 || space.growing) return false;
    std::size_t needed_bytes = 0;
    std::size_t largest_bytes = 0;
    for (const Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk) continue;
        const std::size_t bytes = space.heap.round_up(a.chunk->block_bytes());
        needed_bytes += bytes;
        largest_bytes = std::max(largest_bytes, bytes);
        if (a.chunk->replicas[m].address == 0 && may_grow(m, bytes)) return false;
    }
    const std::size_t capacity = space.counters.capacity_bytes;
    if (needed_bytes <= capacity) return false;
    lacking_bytes_ = std::min(space.counters.limit_bytes - capacity, std::max(needed_bytes - capacity, largest_bytes));
    return lacking_bytes_ != 0;
}

Placement Residency::place(Task& task) {
    const MemoryIndex m = task.memory;
    for (Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk || !a.needs_content) continue;
        Chunk& c = *a.chunk;
        if (c.lost != nullptr) {
            lost_cause_ = c.lost;
            return Placement::lost;
        }
        if (!needs_copy(c, m)) continue;
        const MemoryIndex from = source_for(c, m);
        if (from != m && (c.replicas[from].writer_pins != 0 || c.replicas[m].pinned())) {
            c.waiting.push_back(&task);
            return Placement::busy_chunk;
        }
    }
    lacking_bytes_ = 0;
    if (lacks_for_sure(task)) return Placement::lacks;
    for_each_chunk(task, [&](Access&, Chunk& c) { c.hold = task.number; });
    Found found = Found::yes;
    graph::Vector<Chunk*> taken;
    for_each_chunk(task, [&](Access&, Chunk& c) {
        if (found != Found::yes || c.replicas[m].address != 0) return;
        found = allocate(c, m);
        if (found == Found::yes) taken.push_back(&c);
    });
    if (found == Found::none && m != 0) {
        // All that is left are the task's own chunks, and they lie in each other's way: they leave too, and all of them
        // come back side by side. What is dirty among them is written down and fetched again.
        bool moved = !taken.empty();
        for (Chunk* c : taken) release(*c, m);
        taken.clear();
        found = Found::yes;
        std::size_t needed_bytes = 0;
        std::size_t largest_bytes = 0;
        for_each_chunk(task, [&](Access&, Chunk& c) {
            needed_bytes += spaces_[m].heap.round_up(c.block_bytes());
            largest_bytes = std::max(largest_bytes, spaces_[m].heap.round_up(c.block_bytes()));
            if (found != Found::yes || c.replicas[m].address == 0) return;
            c.hold = 0;
            found = evict(c, m);
            c.hold = task.number;
            moved = true;
        });
        try {
            if (moved) spaces_[m].heap.merge_all();
        } catch (const std::bad_alloc&) {
            found = Found::starved;  // what it merged is as good as what it did not
        }
        exchange_bytes_ = needed_bytes;
        const Space& space = spaces_[m];
        const std::size_t left = space.counters.limit_bytes - space.counters.capacity_bytes;
        const std::size_t free_bytes = space.heap.free_bytes();
        // In memory that is not one range the largest chunk may fit nowhere else.
        if (needed_bytes > free_bytes)
            lacking_bytes_ = std::min(left, std::max(needed_bytes - free_bytes, largest_bytes));
        for_each_chunk(task, [&](Access&, Chunk& c) {
            if (found != Found::yes || c.replicas[m].address != 0) return;
            found = allocate(c, m);
            if (found == Found::yes) taken.push_back(&c);
        });
        exchange_bytes_ = 0;
    }
    if (found != Found::yes)
        for (Chunk* c : taken) release(*c, m);
    for_each_chunk(task, [&](Access&, Chunk& c) { c.hold = 0; });
    if (found == Found::growing) return Placement::wait_growth;
    if (found == Found::pinned) return Placement::wait_pins;
    if (found == Found::starved) return Placement::starved;
    if (found == Found::none) return lacking_bytes_ != 0 && refused(m) ? Placement::lacks : Placement::full;

    for_each_chunk(task, [&](Access& a, Chunk& c) {
        if (a.needs_content && needs_copy(c, m)) fetch(c, m, task);
    });
    task.addresses.resize(task.accesses.size());
    for (std::size_t i = 0; i < task.accesses.size(); ++i) {
        const Access& a = task.accesses[i];
        if (a.chunk == nullptr) {
            task.addresses[i] = nullptr;
            continue;
        }
        const Replica& r = a.chunk->replicas[m];
        task.addresses[i] = reinterpret_cast<void*>(r.address + a.offset_bytes);
        if (!a.first_of_chunk) continue;
        if (find_unset_ && (a.chunk->version == 0 || needs_copy(*a.chunk, m)))
            task.unset.push_back({static_cast<std::uint32_t>(i), true, {}});
        task.waits.add(r.arrivals);
        if (a.writes_chunk) task.waits.add(r.copy_reads);
    }
    return Placement::granted;
}

void Residency::written(Chunk& chunk, MemoryIndex m, bool owes_nothing) {
    ++chunk.version;
    chunk.written_at = ++tick_;
    if (owes_nothing) {
        chunk.replaced_at = tick_;
        chunk.lost.reset();
    }
    chunk.replicas[m].version = chunk.version;
    // A stale replica of a device is given back at once; on the host it keeps the place for the next write-back.
    for (MemoryIndex i = 1; i < chunk.replicas.size(); ++i)
        if (i != m && chunk.replicas[i].address != 0 && !chunk.replicas[i].pinned()) release(chunk, i);
}

void Residency::issued(Task& task, Fence fence) {
    for_each_chunk(task, [&](Access& a, Chunk& c) {
        Replica& r = c.replicas[task.memory];
        r.tick = ++tick_;
        if (a.writes_chunk) {
            written(c, task.memory, a.replaces_chunk && !a.needs_content);
            if (a.replaces_chunk) {
                r.forget_users();
            }
            r.task_writes.add(fence);
        } else {
            r.task_reads.add(fence);
        }
        remove_next_use(c, task.number);
        reindex_all(c);
        if (a.writes_chunk) notify(c);
    });
}

void Residency::pin(Task& task) {
    for_each_chunk(task, [&](Access& a, Chunk& c) {
        Replica& r = c.replicas[task.memory];
        r.tick = ++tick_;
        if (!r.pinned()) ++spaces_[task.memory].num_pinned;
        if (a.writes_chunk) {
            written(c, task.memory, a.replaces_chunk && !a.needs_content);
            if (a.replaces_chunk) {
                // What was there must still be waited for by nobody else: the task itself waits for it.
                r.forget_users();
            }
            ++r.writer_pins;
        } else {
            ++r.reader_pins;
        }
        remove_next_use(c, task.number);
        reindex_all(c);
        if (a.writes_chunk) notify(c);
    });
}

void Residency::unpin(Task& task, const Fence* fence) {
    for_each_chunk(task, [&](Access& a, Chunk& c) {
        Replica& r = c.replicas[task.memory];
        if (a.writes_chunk)
            --r.writer_pins;
        else
            --r.reader_pins;
        if (!r.pinned()) --spaces_[task.memory].num_pinned;
        if (fence != nullptr) (a.writes_chunk ? r.task_writes : r.task_reads).add(*fence);
        if (!r.pinned() && r.version != c.version && task.memory != 0 && r.address != 0) release(c, task.memory);
        reindex_all(c);
        wake(c);
    });
    may_exchange_again(spaces_[task.memory]);
}

void Residency::may_exchange_again(Space& space) noexcept {
    if (&space == &spaces_[0]) host_has_changed();
    // The answer to one that is under way is about what was free when it was asked for.
    if (space.exchanging)
        space.freed_meanwhile = true;
    else
        space.no_exchange = false;
}

Spoiled Residency::copy_failed(Chunk& chunk, MemoryIndex from, MemoryIndex, std::uint64_t copied_at,
                               const std::shared_ptr<graph::RootFailure>& cause) {
    if (chunk.replaced_at > copied_at) return Spoiled::destination;  // only tasks from before may still look at it
    const Replica& source = chunk.replicas[from];
    // An eviction gives its source away at once; and a write since may stand on what never arrived.
    const bool source_is_good = chunk.written_at < copied_at && source.address != 0 &&
                                source.version == chunk.version && source.content_at < copied_at;
    if (source_is_good) {
        // Other replicas may be copies of the one that never came: they are fetched again.
        for (MemoryIndex m = 0; m < chunk.replicas.size(); ++m)
            if (m != from) chunk.replicas[m].version = 0;
    } else {
        chunk.lost = cause;
    }
    reindex_all(chunk);
    notify(chunk);
    return source_is_good ? Spoiled::all_but_source : Spoiled::everywhere;
}

void Residency::free_array(Array& array) {
    for (Space& s : spaces_) {  // much may have changed: the driver may be asked again
        s.refusals = 0;
        may_exchange_again(s);
    }
    for (Chunk& c : array.chunks)
        for (MemoryIndex m = 0; m < c.replicas.size(); ++m)
            if (c.replicas[m].address != 0) release(c, m);
}

}  // namespace kmm::memory
