#include "kmm/schedule/admission.hpp"

#include <algorithm>
#include <utility>

namespace kmm::schedule {

using graph::Task;
using graph::Use;
using memory::MemoryIndex;
using memory::Room;

namespace {

/// Whether the task keeps chunks where they are until it is done, so that the front may find no room in its memory.
/// What kernels use may leave in stream order.
bool pins_beside(const Task& front, const Task& task) noexcept {
    if (task.uses.empty()) return false;
    // What must leave a device goes to the host.
    return task.kind == graph::TaskKind::host ||
           (task.kind == graph::TaskKind::device_function && task.memory == front.memory);
}

constexpr bool is_little(std::size_t bytes, std::size_t of_bytes) noexcept { return bytes <= of_bytes / 256; }

}  // namespace

void Admission::add(Task& task) {
    if (task.is_unplaced || task.kind == graph::TaskKind::join) return;
    std::size_t needed = 0;
    for (const Use& u : task.uses) {
        const std::size_t bytes = residency_.residents().rounded(u.chunk->block_bytes());
        if (bytes > u.chunk->owner->largest_block_bytes) note_block(*u.chunk->owner, bytes);
        if (u.takes_room()) needed += bytes;
    }
    ahead_.add(task.place(), task.held_bytes + needed);
    task.is_unplaced = true;
    Memory& m = memories_[task.memory];
    m.largest_needed_bytes = std::max(m.largest_needed_bytes, needed);
    ++m.num_unplaced;
}

void Admission::leave(Task& task, std::size_t made_bytes) {
    if (closed_for_ == &task) closed_for_ = nullptr;
    gives_way_ = false;  // what was placed may let go of memory
    if (std::exchange(any_urgent_, false))
        for (Memory& m : memories_) m.is_urgent = false;
    if (!task.is_unplaced) return;
    task.is_unplaced = false;
    ahead_.placed(task.place(), made_bytes);
    Memory& m = memories_[task.memory];
    if (--m.num_unplaced == 0) m.largest_needed_bytes = 0;
}

void Admission::note_block(memory::Owner& owner, std::size_t bytes) {
    ++largest_blocks_[bytes];
    forget_block(owner);
    owner.largest_block_bytes = bytes;
}

void Admission::forget_block(memory::Owner& owner) noexcept {
    if (owner.largest_block_bytes == 0) return;
    const auto owners = largest_blocks_.find(owner.largest_block_bytes);
    if (--owners->second == 0) largest_blocks_.erase(owners);
    owner.largest_block_bytes = 0;
}

void Admission::cancelled(Task& task) { leave(task, 0); }

void Admission::close_for(Task& front) noexcept {
    if (closed_for_ != &front) num_passed_ = 0;
    closed_for_ = &front;
}

void Admission::placed(Task& task) {
    if (const Task* const front = closed_for(); front != nullptr && pins_beside(*front, task)) ++num_passed_;
    if (is_front(task) || !task.is_unplaced) return leave(task, 0);
    const std::size_t made_bytes = residency_.made_bytes(task);
    if (made_bytes != 0)
        for (const Use& u : task.uses)
            if (u.writes && u.chunk->version == 0) u.chunk->made_at = task.place() & memory::Chunk::most_made_at;
    leave(task, made_bytes);
}

void Admission::gone(memory::Owner& owner) noexcept {
    forget_block(owner);
    if (ahead_.made_bytes() == 0) return;
    owner.for_each_chunk([&](const memory::Chunk& c) {
        if (c.made_at != 0) ahead_.gone(c.made_at, residency_.residents().rounded(c.block_bytes()));
    });
}

/// Sum of all memories, less one largest chunk in each: free memory may be in pieces.
std::size_t Admission::capacity_bytes() const noexcept {
    const std::size_t largest = largest_blocks_.empty() ? 0 : largest_blocks_.rbegin()->first;
    std::size_t bytes = 0;
    for (const MemoryIndex m : residency_.residents().memories()) {
        const std::size_t usable = residency_.space(m).usable_bytes();
        bytes += usable - std::min(usable, largest);
    }
    return bytes;
}

/// Whether the task reads at least as much as it makes; or else no earlier task of its memory is held back, and it
/// finds room that is free or holds unneeded chunks and leaves the headroom.
bool Admission::leaves_headroom(const Task& task, std::size_t made_bytes) {
    if (residency_.read_bytes(task) >= made_bytes) return true;
    const Memory& m = memories_[task.memory];
    if (!m.held_back.empty() && m.held_back.begin()->place < task.place()) return false;
    // With a quarter instead of a little more than half the worst of random programs moves up to five times as many
    // bytes. Small content evicts next to nothing, and its task is often the last reader of something large.
    const std::size_t usable = residency_.space(task.memory).usable_bytes();
    const std::size_t left =
        is_little(made_bytes, usable) ? 0 : std::max(usable / 2 + usable / 16, m.largest_needed_bytes);
    return residency_.has_idle_room(task, left);
}

std::optional<Room> Admission::room_for(const Task& task) {
    if (is_front(task)) return Room::any;
    if (const std::size_t made_bytes = residency_.made_bytes(task); made_bytes != 0) {
        const bool is_urgent = nothing_moves_ || memories_[task.memory].is_urgent;
        if (closed_for() != nullptr || (!is_urgent && !leaves_headroom(task, made_bytes))) return std::nullopt;
        const std::size_t capacity = capacity_bytes();
        const bool may_make = ahead_.may_make(task.place(), made_bytes, capacity) ||
                              (nothing_moves_ && !ahead_.all_fit_before(task.place(), capacity));
        if (!may_make) return std::nullopt;
        return is_urgent ? Room::in_a_hurry : Room::idle;
    }
    const Task* const front = closed_for();
    const bool must_wait = front != nullptr && (residency_.missing_bytes(task) != 0 ||
                                                (num_passed_ >= most_passing && pins_beside(*front, task)));
    return must_wait ? std::nullopt : std::optional(Room::as_usual);
}

void Admission::hold_back(Task& task, bool found_none) {
    Memory& m = memories_[task.memory];
    (residency_.made_bytes(task) != 0 ? m.held_back : m.behind_front).insert(PlacedTask(task));
    m.found_none = m.found_none || found_none;
}

Task* Admission::take_held_back(MemoryIndex memory) {
    Memory& m = memories_[memory];
    if (const auto next = m.behind_front.begin(); next != m.behind_front.end()) {
        Task* const task = next->task;
        ++num_steps_;
        if (closed_for() == nullptr || is_front(*task) || task->has_failed()) {
            m.behind_front.erase(next);
            return task;
        }
    }
    if (nothing_moves_) return take_in_turn(m);
    const auto first = m.held_back.begin();
    if (first == m.held_back.end() || (m.found_none && !is_front(*first->task))) return nullptr;
    Task* const task = first->task;
    ++num_steps_;
    if (!task->has_failed() && !room_for(*task)) return nullptr;
    m.held_back.erase(first);
    return task;
}

Task* Admission::take_in_turn(Memory& m) {
    while (m.tries_left != 0 && !m.held_back.empty()) {
        --m.tries_left;
        ++num_steps_;
        auto at = m.held_back.upper_bound(m.tried_last);
        if (at == m.held_back.end()) at = m.held_back.begin();
        Task* const task = at->task;
        m.tried_last = *at;
        if (!task->has_failed() && !room_for(*task)) continue;
        m.held_back.erase(at);
        return task;
    }
    return nullptr;
}

bool Admission::hurry(MemoryIndex memory) noexcept {
    Memory& m = memories_[memory];
    if (m.held_back.empty() || m.is_urgent) return false;
    m.is_urgent = any_urgent_ = true;
    m.found_none = false;
    return true;
}

bool Admission::any_held_back() const noexcept {
    return std::any_of(memories_.begin(), memories_.end(),
                       [](const Memory& m) { return !m.held_back.empty() || !m.behind_front.empty(); });
}

}  // namespace kmm::schedule
