#include "kmm/memory/residency.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kmm/memory/move_cost.hpp"
#include "kmm/memory/places.hpp"
#include "kmm/memory/regions.hpp"

namespace kmm::memory {

using graph::Task;
using graph::Use;

namespace {

/// Calls `f(use, chunk)` for each chunk of which the task uses a replica.
template<typename F>
void for_each_chunk(Task& task, F&& f) {
    for (Use& u : task.uses)
        if (u.place != Use::Place::none) f(u, *u.chunk);
}

bool will_gather(const Task& task, const Use& region) noexcept {
    return std::any_of(task.across().begin(), task.across().end(), [&](const graph::Across& across) {
        return &task.uses[across.use] == &region && across.form == graph::Across::Form::gather;
    });
}

/// Whether the task uses the chunk by itself: not as a part of regions, or as a temporary for them, of which
/// `Forms::missing_bytes_of` knows more.
bool is_used_itself(const Use& use) noexcept { return use.role == Use::Role::chunk; }

}  // namespace

Residency::Residency(Requests& requests, const PerMemory<std::size_t>& limits_bytes, bool find_unset,
                     const trace::Emitter& trace, EvictionPolicy policy)
    : requests_(requests),
      find_unset_(find_unset),
      residents_(requests, limits_bytes, trace, policy),
      forms_(requests, residents_),
      blocks_(requests, residents_, forms_),
      compaction_(requests, residents_) {}

// ----------------------------------------------------------------------------------------------------------- questions

std::size_t Residency::missing_bytes(const Task& task) const noexcept {
    std::size_t bytes = 0;
    for (const Use& u : task.uses) {
        if (!is_used_itself(u)) continue;
        const Replica& r = u.chunk->replicas[task.memory];
        if (r.address == 0 || (u.needs_content && !r.holds_all_of(u.chunk->version))) bytes += u.chunk->size_bytes;
    }
    for (const graph::Across& across : task.across()) bytes += forms_.missing_bytes_of(task, across);
    return bytes;
}

std::size_t Residency::moved_bytes(const Task& task) const noexcept {
    // A gather makes work that waits for its task: those that can run come first.
    if (task.fills_temporary) return std::max<std::size_t>(1, missing_bytes(task));
    const MemoryIndex m = task.memory;
    MoveCost cost;
    for (const Use& u : task.uses) {
        if (!is_used_itself(u)) continue;
        const Chunk& c = *u.chunk;
        const bool is_dirty = !u.owes_nothing() && is_valid(c, m) && !is_clean(c, m);
        cost.add(c.size_bytes, u.needs_content && needs_copy(c, m), u.writes && !Tiers::is_last(m) && !is_dirty);
    }
    for (const graph::Across& across : task.across()) {
        if (holds_region(task, across)) continue;
        for (const std::uint32_t use : task.parts_of(across)) {
            const Use& u = task.uses[use];
            cost.add(part_bytes(across, *u.chunk), !u.is_small_part && !holds_part(*u.chunk, m, across), false);
        }
    }
    return cost.bytes();
}

std::size_t Residency::made_bytes(const Task& task) const noexcept {
    std::size_t bytes = 0;
    for (const Use& u : task.uses)
        if (u.writes && u.chunk->version == 0) bytes += residents_.rounded(u.chunk->block_bytes());
    return bytes;
}

std::size_t Residency::read_bytes(const Task& task) const noexcept {
    std::size_t bytes = 0;
    for (const Use& u : task.uses)
        if (u.needs_block() && u.needs_content) bytes += residents_.rounded(u.chunk->block_bytes());
    return bytes;
}

std::size_t Residency::block_bytes_missing(const Task& task) const noexcept {
    std::size_t bytes = 0;
    for (const Use& u : task.uses)
        if (u.needs_block() && !u.is_part() && u.chunk->replicas[task.memory].address == 0)
            bytes += residents_.rounded(u.chunk->block_bytes());
    return bytes;
}

bool Residency::has_idle_room(const Task& task, std::size_t left_bytes) const noexcept {
    const MemoryIndex m = task.memory;
    const std::size_t needed = block_bytes_missing(task);
    return needed == 0 || needed + left_bytes <= residents_.space(m).free_bytes() + residents_.records(m).idle_bytes;
}

// ----------------------------------------------------------------------------------------------------------- placement

Placement Residency::place(Task& task, Room room) {
    blocks_.begin_search(room, task.memory);
    const Placement placement = place_with_forms(task);
    blocks_.end_search();
    return placement;
}

Placement Residency::place_with_forms(Task& task) {
    if (task.across().empty()) return place_in_forms(task);
    switch (forms_.choose(task)) {
    case Found::growing: return Placement::wait_growth;
    case Found::starved: return Placement::starved;
    default: break;
    }
    const Placement placement = place_in_forms(task);
    const bool lacks_room =
        placement == Placement::wait_pins || placement == Placement::full || placement == Placement::lacks;
    // A gather of the parts needs less room than the chunks side by side.
    return lacks_room && forms_.gather_instead(task) ? place_in_forms(task) : placement;
}

/// Places the task in the chosen forms.
Placement Residency::place_in_forms(Task& task) {
    const MemoryIndex m = task.memory;
    if (const Placement content = check_content(task); content != Placement::granted) return content;
    lacking_ = {};
    if (lacks_for_sure(task)) return Placement::lacks;
    for_each_place(task, [&](Use&, Chunk& c) { c.hold = task.number; });
    graph::Vector<Chunk*> taken;
    Found found = allocate_missing(task, &taken);
    if (found == Found::none && !Tiers::is_last(m) && blocks_.room() >= Room::as_usual)
        found = allocate_side_by_side(task, &taken);
    if (found != Found::yes)
        for (Chunk* c : taken) residents_.take_back_block(*c, m);
    for_each_place(task, [&](Use&, Chunk& c) { c.hold = 0; });
    switch (found) {
    case Found::yes: break;
    case Found::growing: return Placement::wait_growth;
    case Found::pinned: return Placement::wait_pins;
    case Found::starved: return Placement::starved;
    case Found::none:
        return lacking_.bytes != 0 && residents_.space(m).is_refused() ? Placement::lacks : Placement::full;
    }
    // Its own chunks may have been evicted and allocated elsewhere.
    if (!task.across().empty() && !forms_.hold(task) && forms_.gather_instead(task)) return place_in_forms(task);
    for_each_place(task, [&](Use& u, Chunk& c) {
        const bool is_filled = u.role == Use::Role::region || u.place == Use::Place::ghost;
        if (u.needs_content && !is_filled && needs_copy(c, m)) fetch(c, m, task);
    });
    if (!task.across().empty()) forms_.finish(task);
    finish_placement(task);
    return Placement::granted;
}

/// Whether the task needs more than the whole capacity, and the driver need not be asked: known without evictions.
bool Residency::lacks_for_sure(const Task& task) {
    const MemoryIndex m = task.memory;
    const Space& space = residents_.space(m);
    if (m.is_host() || space.num_refusals() < 2 || space.is_growing()) return false;
    std::size_t needed_bytes = 0;
    std::size_t largest_bytes = 0;
    for (const Use& u : task.uses) {
        if (!u.needs_block()) continue;
        const std::size_t bytes = space.heap.round_up(u.chunk->block_bytes());
        needed_bytes += bytes;
        largest_bytes = std::max(largest_bytes, bytes);
        if (u.chunk->replicas[m].address == 0 && space.may_grow(bytes)) return false;
    }
    const std::size_t capacity = space.counters.capacity_bytes;
    if (needed_bytes <= capacity) return false;
    const std::size_t left = space.counters.limit_bytes - capacity;
    const std::size_t least = needed_bytes - capacity;
    lacking_ = {std::min(left, std::max(least, largest_bytes)), std::min(left, least)};
    return lacking_.bytes != 0;
}

/// Whether the content that the task needs is available: `granted`, `lost`, or `busy_chunk`, and the task is queued.
Placement Residency::check_content(Task& task) {
    const MemoryIndex m = task.memory;
    for (const Use& u : task.uses) {
        if (u.place == Use::Place::none || !u.needs_content) continue;
        Chunk& c = *u.chunk;
        if (c.lost != nullptr) {
            lost_cause_ = c.lost;
            return Placement::lost;
        }
        // It reads a box, which no task writes that the order allows at the same time.
        if (u.place == Use::Place::anywhere) continue;
        if (u.role == Use::Role::region) {
            if (!c.replicas[m].pinned() || !will_gather(task, u)) continue;
            residents_.wait_for(c.replicas.at(m), task);  // no gather into a pinned replica
            return Placement::busy_chunk;
        }
        const bool is_ghost = u.place == Use::Place::ghost;
        if (!needs_copy(c, m) || (is_ghost && !lacks_part(task, u))) continue;
        const MemoryIndex from = residents_.source_for(c, m);
        if (from == m) continue;
        // No copy into a pinned replica. Its pins only decrease, because no new task may use stale content.
        Replica* const here = c.replicas.find(m);
        Replica& source = c.replicas.at(from);
        const bool is_here_pinned = here != nullptr && here->pinned() && !(is_ghost && part_comes_beside(task, u));
        if (!is_here_pinned && source.writer_pins == 0) continue;
        residents_.wait_for(is_here_pinned ? *here : source, task);
        return Placement::busy_chunk;
    }
    return Placement::granted;
}

/// Allocates blocks for the task's chunks that have none; lists them in `*taken`. Largest first: a smaller chunk could
/// take a piece of the space that was evicted for a larger one, so that more would be evicted than needed.
Found Residency::allocate_missing(Task& task, graph::Vector<Chunk*>* taken) {
    const MemoryIndex m = task.memory;
    for_each_place(task, [&](Use&, Chunk& c) {
        if (c.replicas[m].address == 0) taken->push_back(&c);
    });
    const auto is_larger = [](const Chunk* a, const Chunk* b) { return a->size_bytes > b->size_bytes; };
    if (!std::is_sorted(taken->begin(), taken->end(), is_larger)) {
        num_steps_ += taken->size();
        std::sort(taken->begin(), taken->end(), [&](const Chunk* a, const Chunk* b) {
            if (a->size_bytes != b->size_bytes) return is_larger(a, b);
            return std::pair(a->owner->number, a->index) < std::pair(b->owner->number, b->index);
        });
    }
    Found found = Found::yes;
    std::size_t count = 0;
    for (std::size_t i = 0; i < taken->size() && found == Found::yes; ++i) {
        found = blocks_.allocate(*(*taken)[i], m);
        if (found == Found::yes) ++count;
    }
    taken->resize(count);
    return found;
}

/// Last resort when only the task's own chunks remain and fragment the memory: evicts them too, and allocates all side
/// by side. Dirty ones are saved and fetched again.
Found Residency::allocate_side_by_side(Task& task, graph::Vector<Chunk*>* taken) {
    const MemoryIndex m = task.memory;
    Space& space = residents_.space(m);
    bool moved = !taken->empty();
    for (Chunk* c : *taken) residents_.take_back_block(*c, m);
    taken->clear();
    Found found = Found::yes;
    std::size_t needed_bytes = 0;
    std::size_t largest_bytes = 0;
    for_each_place(task, [&](Use&, Chunk& c) {
        const std::size_t bytes = space.heap.round_up(c.block_bytes());
        needed_bytes += bytes;
        largest_bytes = std::max(largest_bytes, bytes);
        if (found != Found::yes || c.replicas[m].address == 0) return;
        moved = true;
        Replica& r = c.replicas.at(m);
        // A block without content was allocated for this task: releasing it gains nothing for an exchange.
        if (!is_valid(c, m) && !r.pinned()) return residents_.release(r);
        c.hold = 0;
        found = blocks_.evict(c, m, Blocks::Saves::all);
        c.hold = task.number;
    });
    // Merges free pieces only if the chunks could fit afterwards: merging visits all pieces.
    if (moved && needed_bytes <= space.heap.free_bytes() && largest_bytes <= space.heap.largest_free_bytes()) {
        num_steps_ += space.heap.num_free_pieces();
        try {
            space.heap.merge_all();
        } catch (const std::bad_alloc&) {
            found = Found::starved;  // a partial merge is harmless
        }
    }
    blocks_.set_exchange(needed_bytes);
    const std::size_t left = space.left_bytes();
    const std::size_t free_bytes = space.heap.free_bytes();
    // The new region must hold the largest chunk: free memory may be in pieces, and an exchange does not join them
    // where chunks stay.
    if (needed_bytes > free_bytes) {
        lacking_.bytes = std::min(left, std::max(needed_bytes - free_bytes, largest_bytes));
        const bool any_stays = space.counters.current_bytes != 0;
        lacking_.least_bytes = any_stays ? lacking_.bytes : std::min(left, needed_bytes - free_bytes);
    }
    if (found == Found::yes) found = allocate_missing(task, taken);
    blocks_.set_exchange(0);
    return found;
}

void Residency::fetch(Chunk& chunk, MemoryIndex to, Task& task) {
    const MemoryIndex from = residents_.source_for(chunk, to);
    if (from == to) return;  // no valid copy: the content was to be replaced, and the task to do so failed
    Replica& s = chunk.replicas.at(from);
    Replica& d = chunk.replicas.at(to);
    FenceSet waits;
    s.add_writers_to(waits);
    d.add_all_users_to(waits);
    chunk.copied_at = residents_.next_tick();
    residents_.count_fetch(chunk, to);
    const Fence fence = requests_.transfer(chunk_transfer(chunk, from, to, s.address, d.address, &task), waits);
    d.content_at = chunk.copied_at;
    residents_.forget_users(d);
    residents_.add_user(d, UserKind::arrival, fence);
    residents_.set_version(d, chunk.version);
    residents_.add_user(s, UserKind::copy_read, fence);
    residents_.reindex_all(chunk);
    residents_.notify(chunk, to);
}

/// Sets addresses and fences of a task whose chunks have blocks and whose copies are requested.
void Residency::finish_placement(Task& task) {
    const MemoryIndex m = task.memory;
    for (std::uint32_t i = 0; i < task.uses.size(); ++i) {
        Use& u = task.uses[i];
        if (u.place == Use::Place::none) continue;
        const bool is_anywhere = u.place == Use::Place::anywhere;
        u.memory = is_anywhere ? residents_.read_from(*u.chunk, m) : m;
        const Replica& r = u.chunk->replicas[u.memory];
        u.content_at = r.content_at;
        u.replaced_at = u.chunk->replaced_at;
        const bool comes_without_content =
            u.chunk->version == 0 || (needs_copy(*u.chunk, m) && (u.place != Use::Place::ghost || lacks_part(task, u)));
        if (find_unset_ && !is_anywhere && comes_without_content)
            task.cold_part(graph::UseOfReserve::yes).unset.push_back({i, true, {}});
        r.add_what_a_task_awaits_to(task.fences, u.writes);
    }
    if (!task.across().empty()) note_gathered(task);
    if (find_unset_) address_unset(task);
    if (task.kind == graph::TaskKind::kernel) return write_fields(task);
    const bool is_transfer = task.kind == graph::TaskKind::transfer;
    const std::size_t count = is_transfer ? task.uses.size() : task.views.size();
    task.addresses = task.allocate_addresses(count);
    for (std::size_t i = 0; i < count; ++i) {
        task.addresses[i] = is_transfer ? address_of(task.uses[i]) : address_of(task, task.views[i]);
        if (task.layouts != nullptr) set_strides(task, task.views[i], task.layouts[i].strides);
    }
}

/// Debug mode.
void Residency::address_unset(Task& task) noexcept {
    if (task.cold == nullptr) return;
    for (graph::Unset& u : task.cold->unset) {
        u.address = reinterpret_cast<std::uintptr_t>(u.whole_chunk ? address_of(task.uses[u.index])
                                                                   : address_of(task, task.views[u.index]));
        if (!u.whole_chunk) set_strides(task, task.views[u.index], u.strides);
    }
}

// ----------------------------------------------------------------------------------------------------------------- use

void Residency::issued(Task& task, Fence fence) {
    for_each_chunk(task, [&](Use& u, Chunk&) {
        if (Replica* const r = used(u))
            residents_.add_user(*r, u.writes ? UserKind::task_write : UserKind::task_read, fence);
        use_is_over(task, u);
    });
    task.order_position = 0;
}

void Residency::pin(Task& task) {
    for_each_chunk(task, [&](Use& u, Chunk& c) {
        Replica* const r = used(u);
        if (r != nullptr) {
            if (!r->pinned()) residents_.count_pinned(c, u.memory, true);
            ++(u.writes ? r->writer_pins : r->reader_pins);
        }
        use_is_over(task, u);
        if (r == nullptr) u.place = Use::Place::none;  // it is not unpinned either
    });
    task.order_position = 0;
}

void Residency::unpin(Task& task, const Fence* fence) {
    for_each_chunk(task, [&](Use& u, Chunk& c) {
        Replica& r = c.replicas.at(u.memory);
        (u.writes ? r.writer_pins : r.reader_pins) -= 1;
        // One reader of several does not end the wait of a queued task.
        const bool lets_go = !r.pinned() || (u.writes && r.writer_pins == 0);
        if (!r.pinned()) residents_.count_pinned(c, u.memory, false);
        if (fence != nullptr) residents_.add_user(r, u.writes ? UserKind::task_write : UserKind::task_read, *fence);
        graph::TaskList waiting;
        if (lets_go) waiting = residents_.take_waiting(r);
        if (!r.pinned() && r.version != c.version && Tiers::is_first(u.memory) && !r.has_ghosts())
            residents_.release(r);
        residents_.reindex_all(c);
        residents_.wake(waiting);
        residents_.space(u.memory)
            .may_exchange_again();  // a host task that copies data out had pinned chunks on devices
    });
}

/// Records the task's use of its replica, and returns that; null if there is none, because no memory has the content.
Replica* Residency::used(const Use& use) {
    Chunk& chunk = *use.chunk;
    Replica* const r = chunk.replicas.find(use.memory);
    if (r != nullptr) {
        r->tick = residents_.next_tick();
        if (use.writes) {
            written(chunk, *r, use.owes_nothing());
            // Later users wait for this task, which waits for the earlier users itself.
            if (use.replaces) residents_.forget_users(*r);
        }
    }
    return r;
}

void Residency::written(Chunk& chunk, Replica& at, bool owes_nothing) {
    const std::uint64_t before = chunk.version;
    ++chunk.version;
    const std::uint64_t now = residents_.next_tick();
    chunk.evicted_from = 0;
    if (owes_nothing) {
        chunk.replaced_at = now;
        chunk.lost.reset();
    }
    const bool had_all = at.holds_all_of(before);
    residents_.set_version(at, chunk.version);
    // Tasks that write parts of one chunk, one after the other where it is, change nothing for each other.
    if (before == 0 || !had_all) residents_.notify(chunk, at.memory());
    for (auto next = chunk.replicas.begin(); next != chunk.replicas.end();) {
        Replica& r = *next;
        ++next;
        if (&r == &at) continue;
        // A device's stale replica is freed at once. The host's keeps its block for the next write-back, and one beside
        // neighbours for the next ghosts.
        const bool leaves = Tiers::is_first(r.memory()) && !r.pinned() && !r.has_ghosts();
        if (leaves || r.has_ghosts() || r.version == before) residents_.notify(chunk, r.memory());
        if (leaves) residents_.release(r);
    }
}

/// The task's use is no next use of the chunk any more.
void Residency::use_is_over(Task& task, const Use& use) {
    residents_.forget_planned_use(task, *use.chunk);
    residents_.remove_next_use(*use.chunk, next_use_of(task, use));
    residents_.reindex_all(*use.chunk);
}

// ------------------------------------------------------------------------------------------------------------ failures

// A replica's content stems from the latest copy into it. One that was filled before the failed copy was requested does
// not depend on that, whatever tasks wrote there since; all others may.
void Residency::copy_failed(Chunk& chunk, std::uint64_t copied_at, const std::shared_ptr<graph::RootFailure>& cause) {
    chunk.spoiled_at = residents_.next_tick();
    if (chunk.replaced_at > copied_at) return;  // only earlier tasks may still use it
    bool any_good = false;
    for (Replica& r : chunk.replicas) any_good |= r.holds_all_of(chunk.version) && r.content_at < copied_at;
    if (any_good) {
        for (Replica& r : chunk.replicas)
            if (r.content_at >= copied_at) residents_.set_version(r, 0);  // fetched again
    } else {
        chunk.lost = cause;
    }
    residents_.reindex_all(chunk);
    for (const MemoryIndex m : residents_.memories()) residents_.notify(chunk, m);
}

void Residency::part_failed(Chunk& chunk, MemoryIndex m, std::uint64_t copied_at) {
    Replica* const r = chunk.replicas.find(m);
    if (r == nullptr || !r->has_ghosts() || r->content_at < copied_at) return;
    Ghosts::of(*r).clear();
    r->version = 0;  // what comes next waits for those who may still read the failed parts
    residents_.notify(chunk, m);
}

}  // namespace kmm::memory
