// Whether a ready task may be given memory now, and what may leave for it.
//
// Owns: the order of the tasks that are not placed (ahead.hpp), and those that are held back. Must not know: lanes,
// priorities among ready tasks. Runs under the scheduler's baton.
//
// What fits in the order of submission never fails (ADR 0024). A task that makes content ahead of its turn
//   * is placed only if every earlier task that is not placed still fits beside all that was made ahead;
//   * takes only room that is free or holds what no task needs;
//   * unless it reads as much as it makes, leaves a little more than half of its memory, at least the largest working
//     set there (the headroom), and waits while an earlier one of its memory is held back.
// While nothing but functions of the program runs, which may block until a held-back task is done, only the first
// rule applies (`hurry`). The front, the first task that is not placed, may push out anything. While it is refused room
// no other task is given any, so that pins drain. Tasks that miss nothing go on; of functions that pin chunks in its
// memory or on the host at most 64: not 0, because a running function may wait for a later one. Tasks that make nothing
// are free otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/ahead.hpp"
#include "kmm/schedule/tasks_by_place.hpp"

namespace kmm::schedule {

class Admission {
  public:
    explicit Admission(memory::Residency& residency)
        : residency_(residency),
          memories_(memory::PerMemory<Memory>::of_devices(residency.residents().num_devices())) {}

    /// Once for each task, in the order of submission; all tasks of a submit before one of them is placed. O(uses).
    void add(graph::Task& task);
    /// What may be evicted for the task; empty: it has to wait (`hold_back`). O(uses + memories), amortised.
    std::optional<memory::Room> room_for(const graph::Task& task);
    /// The task was given its memory and has not changed any content yet. O(uses + log tasks ahead of their turn).
    void placed(graph::Task& task);
    /// The task will never need memory.
    void cancelled(graph::Task& task);
    /// The task waits for memory that others in the process hold: later tasks do not wait for it.
    void stands_aside(graph::Task& task) { leave(task, 0); }
    /// No task before it waits for its memory.
    bool is_front(const graph::Task& task) const noexcept { return ahead_.is_front(task.place()); }

    /// Until `take_held_back` returns it. `found_none`: it was admitted and found no memory. O(log such tasks).
    void hold_back(graph::Task& task, bool found_none);
    /// The first task of the memory that waits behind a front, once that is placed; else the first that was held back
    /// otherwise, if it may go now; else null. O(log such tasks) and the cost of
    /// `room_for`; with `nothing_moves` any of them in turn, 64 for each time that the room has changed, and each
    /// once when that begins and at each later look.
    graph::Task* take_held_back(memory::MemoryIndex memory);
    bool is_held_back(const graph::Task& task) const noexcept {
        const Memory& m = memories_[task.memory];
        const PlacedTask placed(const_cast<graph::Task&>(task));
        return m.held_back.count(placed) != 0 || m.behind_front.count(placed) != 0;
    }
    bool any_held_back() const noexcept;
    /// The first place with a task that waits for its memory, if there is one.
    graph::TaskNumber front() const noexcept { return ahead_.front(); }
    /// Memory may have become free.
    void room_has_changed() noexcept {
        for (Memory& m : memories_) m.found_none = false, m.tries_left = std::max(m.tries_left, most_tries);
    }

    /// The front found no room: until it is placed no other task is given any, unless `give_way`.
    void close_for(graph::Task& front) noexcept;
    graph::Task* closed_for() const noexcept { return gives_way_ || nothing_moves_ ? nullptr : closed_for_; }
    /// Nothing runs that could release memory: until a task is placed the others retry instead of the front.
    void give_way() noexcept { gives_way_ = true; }
    void stop_giving_way() noexcept { gives_way_ = false; }
    bool gives_way(const graph::Task& task) const noexcept { return gives_way_ && closed_for_ == &task; }

    /// Tasks of the memory that make content may evict chunks that other tasks need, if every earlier task still fits.
    /// Until the next task is placed, cancelled or set aside. False: no change, or none of the memory is held back.
    bool hurry(memory::MemoryIndex memory) noexcept;
    /// The front has not moved for long, nor has a function ended that may wait for the program. Until `moves_again`
    /// the same holds for all memories, and no front closes them. Each held-back task is tried, also where an earlier
    /// task does not fit anyway.
    void nothing_moves() noexcept {
        nothing_moves_ = true;
        for (Memory& m : memories_) m.tries_left = m.held_back.size();
    }
    void moves_again() noexcept { nothing_moves_ = false; }

    /// No handle of the owner is left, and no task uses it. O(log sizes of chunks), and O(chunks that were touched)
    /// while any content is ahead of its turn.
    void gone(memory::Owner& owner) noexcept;

    /// Entries examined so far.
    std::uint64_t num_steps() const noexcept { return num_steps_ + ahead_.num_steps(); }

  private:
    struct Memory {
        TasksByPlace held_back;                ///< that make content
        TasksByPlace behind_front;             ///< others, while a front closes the memories
        bool found_none = false;               ///< the first found no memory, and none was freed since
        PlacedTask tried_last{0};              ///< with `nothing_moves`: to go on behind it, round and round
        std::size_t tries_left = 0;            ///< with `nothing_moves`: until the room changes
        bool is_urgent = false;                ///< see `hurry`
        std::uint64_t num_unplaced = 0;        ///< tasks
        std::size_t largest_needed_bytes = 0;  ///< by one task, since there was none
    };

    /// Functions that may pin what the front needs and are placed before it, once it has found no room.
    static constexpr std::uint32_t most_passing = 64;
    /// With `nothing_moves`: candidates examined for each change of the room, so that the end of a task costs O(1).
    static constexpr std::size_t most_tries = 64;

    void leave(graph::Task& task, std::size_t made_bytes);
    graph::Task* take_in_turn(Memory& m);
    void note_block(memory::Owner& owner, std::size_t bytes);
    void forget_block(memory::Owner& owner) noexcept;
    bool leaves_headroom(const graph::Task& task, std::size_t made_bytes);
    std::size_t capacity_bytes() const noexcept;

    memory::Residency& residency_;
    Ahead ahead_;
    memory::PerMemory<Memory> memories_;
    graph::Map<std::size_t, std::size_t>
        largest_blocks_;  ///< arrays and temporaries, by the size of their largest block
    graph::Task* closed_for_ = nullptr;
    std::uint32_t num_passed_ = 0;  ///< functions that pin chunks, placed since `closed_for_` was set
    bool gives_way_ = false;
    std::uint64_t num_steps_ = 0;
    bool any_urgent_ = false;
    bool nothing_moves_ = false;
};

}  // namespace kmm::schedule
