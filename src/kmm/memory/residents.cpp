#include "kmm/memory/residents.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kmm/memory/places.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

using graph::Task;
using graph::Use;
using eviction::rank_useless;

Residents::Residents(Requests& requests, const PerMemory<std::size_t>& limits_bytes, const trace::Emitter& trace,
                     EvictionPolicy policy)
    : requests_(requests),
      trace_(trace),
      policy_(policy),
      spaces_(PerMemory<Space>::of_devices(limits_bytes.num_devices())),
      records_(PerMemory<MemoryRecords>::of_devices(limits_bytes.num_devices())) {
    for (const MemoryIndex m : memories()) spaces_[m].open(requests, trace, m, limits_bytes[m]);
}

// -------------------------------------------------------------------------------------------------------------- blocks

void Residents::take(Chunk& chunk, MemoryIndex m, const rmm::heap::block& block) {
    Space& space = spaces_[m];
    MemoryRecords& records = records_[m];
    Replica& r = records.replicas.take();
    r.order = Replica::order_of(m);
    r.chunk = &chunk;
    r.set_block(block.address, chunk.first_aligned(block.address));
    for (const rmm::heap::fence& f : block.fences)
        add_user(r, UserKind::arrival, {static_cast<graph::LaneId>(f.timeline), f.position});
    r.tick = ++tick_;
    if (records.indexed) attach_victim(r);
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

void Residents::release(Replica& replica, const Fence* last) {
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

void Residents::forget(Replica& replica) {
    Chunk& chunk = *replica.chunk;
    const MemoryIndex m = replica.memory();
    Space& space = spaces_[m];
    unindex(replica);
    if (replica.victim != nullptr) records_[m].victim_records.give(*replica.victim);
    if (replica.is_busy()) busy_.drop(replica);
    set_version(replica, 0);
    chunk.replicas.erase(replica);
    records_[m].replicas.give(replica);
    space.counters.current_bytes -= space.heap.round_up(chunk.block_bytes());
    ++space.counters.frees;
    if (Tiers::is_first(m)) return;
    space.may_save_again();
    reindex_all(chunk);  // what is dirty above has lost its place
}

void Residents::take_back_block(Chunk& chunk, MemoryIndex m) {
    release(chunk.replicas.at(m));
    --spaces_[m].counters.allocations;
    --spaces_[m].counters.frees;
}

bool Residents::is_idle(const Replica& replica) const noexcept {
    bool is_idle = true;
    replica.for_each_user([&](UserKind, const Fence& f) { is_idle = is_idle && requests_.passed(f); });
    return is_idle;
}

void Residents::set_version(Replica& replica, std::uint64_t version) noexcept {
    if (replica.has_ghosts()) {
        Ghosts& ghosts = Ghosts::of(replica);
        ghosts.unlink_from(replica);
        records_[replica.memory()].ghosts.give(ghosts);
    }
    replica.holds = Holds::all;
    replica.version = version;
}

void Residents::make_ghosts(Replica& replica) {
    if (!replica.has_ghosts()) records_[replica.memory()].ghosts.take().link_to(replica);
}

void Residents::count_pinned(const Chunk& chunk, MemoryIndex m, bool is_pinned) noexcept {
    MemoryRecords& records = records_[m];
    const std::size_t bytes = rounded(chunk.block_bytes());
    records.num_pinned = is_pinned ? records.num_pinned + 1 : records.num_pinned - 1;
    records.pinned_bytes = is_pinned ? records.pinned_bytes + bytes : records.pinned_bytes - bytes;
}

void Residents::count_fetch(Chunk& chunk, MemoryIndex to) noexcept {
    if (chunk.was_evicted_from(to)) {
        MemoryCounters& counters = spaces_[to].counters;
        ++counters.refetches;
        counters.refetched_bytes += chunk.size_bytes;
        chunk.owner->refetched_bytes += chunk.size_bytes;
    }
    chunk.set_evicted_from(to, false);
}

void Residents::free_chunks(Owner& owner) {
    for (Space& s : spaces_) s.array_was_freed();
    owner.for_each_chunk([&](Chunk& c) {
        while (!c.replicas.empty()) release(*c.replicas.begin());
    });
}

void Residents::trim_records() noexcept {
    for (MemoryRecords& r : records_) r.trim();
    busy_.trim();
    demands_.trim();
    next_uses_.trim();
}

// ------------------------------------------------------------------------------------------------------------- content

MemoryIndex Residents::source_for(const Chunk& chunk, MemoryIndex to) const noexcept {
    MemoryIndex best = to;
    int best_score = 0;
    for (const Replica& r : chunk.replicas) {
        const MemoryIndex i = r.memory();
        if (i == to || !r.holds_all_of(chunk.version)) continue;
        const int way = i == Tiers::below(to) ? 2 : requests_.linked(i, to) ? 3 : 1;
        const int score = way * 2 + (r.writer_pins == 0 ? 1 : 0);
        if (score > best_score) best = i, best_score = score;
    }
    return best;
}

MemoryIndex Residents::read_from(const Chunk& chunk, MemoryIndex m) const noexcept {
    const Replica* const here = chunk.replicas.find(m);
    if (here != nullptr && here->holds_all_of(chunk.version)) return m;
    return chunk.is_in_parts() ? MemoryIndex::host() : source_for(chunk, m);
}

// --------------------------------------------------------------------------------------------------------------- users

/// Fences that have passed make room for others.
void Residents::add_user(Replica& replica, UserKind kind, Fence fence) {
    if (replica.add(kind, fence)) return;
    const auto passed = [this](const Fence& f) { return requests_.passed(f); };
    replica.prune_users(passed);
    if (replica.add(kind, fence)) return;
    busy_.make(replica, passed);
    (void)replica.add(kind, fence);
}

void Residents::forget_users(Replica& replica) noexcept {
    replica.clear_users();
    if (replica.is_busy()) (void)busy_.drop_if_idle(replica);
}

void Residents::wait_for(Replica& replica, Task& task) {
    if (!replica.is_busy()) busy_.make(replica, [this](const Fence& f) { return requests_.passed(f); });
    replica.busy().waiting.push_back(&task);
}

graph::TaskList Residents::take_waiting(Replica& replica) noexcept {
    graph::TaskList tasks;
    if (!replica.is_busy()) return tasks;
    tasks.swap(replica.busy().waiting);
    (void)busy_.drop_if_idle(replica);
    return tasks;
}

void Residents::notify(const Chunk& chunk, MemoryIndex m) {
    const Demand* const demand = chunk.demands.find(m);
    if (demand == nullptr) return;
    demand->ready.for_each([this](Task& task) {
        ++num_steps_;
        requests_.residency_changed(task);
    });
}

void Residents::wake(const graph::TaskList& tasks) {
    num_steps_ += tasks.size();
    for (Task* t : tasks) requests_.unblocked(*t);
}

// ---------------------------------------------------------------------------------------------------------- the future

void Residents::add_next_use(Chunk& chunk, const NextUses::Use& use) {
    const bool is_first = chunk.next_uses.add(use, next_uses_, &num_steps_);
    // Later uses count too if the first uses read parts.
    if (is_first || use.replaces() || chunk.next_uses.begins_with_part()) reindex_all(chunk);
}

void Residents::remove_next_use(Chunk& chunk, const NextUses::Use& use) {
    if (chunk.next_uses.remove(use, next_uses_, &num_steps_) || chunk.next_uses.begins_with_part()) reindex_all(chunk);
}

void Residents::listen(ReadyUse& use) {
    use.chunk->demands.find_or_make(use.task->memory, demands_).ready.push_back(use);
}

void Residents::stop_listening(ReadyUse& use) noexcept {
    Demands& demands = use.chunk->demands;
    Demand& demand = *demands.find(use.task->memory);
    demand.ready.erase(use);
    demands.drop_if_over(demand, demands_);
}

void Residents::plan(Task& task, std::uint16_t position) {
    task.order_position = position;
    for_each_place(task, [&](Use&, Chunk& c) {
        Demand& demand = c.demands.find_or_make(task.memory, demands_);
        try {
            demand.planned.push_front(position, planned_uses_);
        } catch (const std::bad_alloc&) {
            c.demands.drop_if_over(demand, demands_);
            throw;
        }
        if (Replica* const r = c.replicas.find(task.memory)) reindex(*r);
    });
}

void Residents::unplan(Task& task) {
    for_each_place(task, [&](Use&, Chunk& c) {
        forget_planned_use(task, c);
        if (Replica* const r = c.replicas.find(task.memory)) reindex(*r);
    });
    task.order_position = 0;
}

void Residents::forget_planned_use(const Task& task, Chunk& chunk) noexcept {
    if (task.order_position == 0) return;
    Demand* const demand = chunk.demands.find(task.memory);
    if (demand == nullptr) return;
    demand->planned.remove(task.order_position, planned_uses_, &num_steps_);
    chunk.demands.drop_if_over(*demand, demands_);
}

void Residents::released(Array& array) {
    for (Chunk& c : array.chunks)
        if (c.next_uses.empty()) reindex_all(c);
}

// ------------------------------------------------------------------------------------------------ the order of victims

/// Empty: the replica is the only copy, and cannot be saved elsewhere.
std::optional<Prospect> Residents::prospect_of(const Chunk& chunk, MemoryIndex m) const noexcept {
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
    return Prospect{Need::whole, clean, eviction::beyond_orders + chunk.next_uses.first_whole().task};
}

std::uint64_t Residents::victim_rank(const Chunk& chunk, MemoryIndex m) const noexcept {
    const std::optional<Prospect> prospect = prospect_of(chunk, m);
    return prospect ? eviction::rank_of(policy_, *prospect) : rank_never;
}

void Residents::attach_victim(Replica& replica) {
    replica.victim = &records_[replica.memory()].victim_records.take();
    replica.victim->chunk = replica.chunk;
}

bool Residents::begin_order(MemoryIndex m) {
    MemoryRecords& records = records_[m];
    try {
        records.victim_records.reserve(records.replicas.num_used());
    } catch (const std::bad_alloc&) {
        return false;
    }
    records.indexed = any_indexed_ = true;
    records.replicas.for_each_made([&](Replica& r) {
        if (r.address == 0) return;
        attach_victim(r);
        reindex(r);
    });
    return true;
}

void Residents::unindex(Replica& replica) noexcept {
    Victim* const v = replica.victim;
    if (v == nullptr || !v->indexed) return;
    records_[replica.memory()].victims.erase(*v);
    v->indexed = false;
    count_victim(*v, replica.memory(), false);
}

void Residents::count_victim(const Victim& victim, MemoryIndex m, bool is_added) noexcept {
    MemoryRecords& records = records_[m];
    // A dirty chunk in the last memory cannot be saved.
    const bool is_idle =
        victim.rank <= eviction::rank_clean || (victim.rank == eviction::rank_dirty && !Tiers::is_last(m));
    const std::size_t bytes = rounded(victim.chunk->block_bytes());
    if (is_idle) records.idle_bytes += is_added ? bytes : -bytes;
    if (victim.is_spare) records.spare_bytes += is_added ? bytes : -bytes;
}

void Residents::reindex_in_order(Replica& replica) {
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
    records_[m].victims.insert(v);
    count_victim(v, m, true);
}

void Residents::list_victims(MemoryIndex m, std::size_t count, std::vector<Chunk*>& out) {
    VictimKey after{0, 0, nullptr};
    for (; count != 0; --count) {
        const Victim* const victim = records_[m].victims.next(after, ~std::size_t{0}, &num_steps_);
        if (victim == nullptr) return;
        after = VictimOrder::key_of(*victim);
        out.push_back(after.chunk);
    }
}

void Residents::note_evicted(const Chunk& chunk, MemoryIndex m, bool saved, std::size_t bytes) const noexcept {
    if (trace::Sink* const s = trace_.sink()) [[unlikely]]
        s->note({.what = trace::What::evict,
                 .flag = saved,
                 .chunk = chunk.index,
                 .from = m,
                 .array = chunk.owner->number,
                 .bytes = bytes});
}

}  // namespace kmm::memory
