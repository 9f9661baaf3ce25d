// The machine of the model of residency (residency_model_test.cpp): memories whose content is remembered in units,
// lanes on which copies and tasks stand in order, and what the program's order says of each chunk. A test's own: one
// thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "../memory/cut_array.hpp"
#include "kmm/memory/residency.hpp"

namespace kmm::residency_model {

using kmm::detail::AccessKind;
using kmm::graph::Access;
using kmm::graph::Across;
using kmm::graph::BoxTransfer;
using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Position;
using kmm::graph::Task;
using kmm::memory::AddressRange;
using kmm::memory::Array;
using kmm::memory::Chunk;
using kmm::memory::MemoryIndex;
using kmm::memory::PerMemory;
using kmm::memory::Placement;
using kmm::memory::Requests;
using kmm::memory::Residency;

inline constexpr std::size_t unit = kmm::memory::heap_alignment;
inline constexpr MemoryIndex host = MemoryIndex::host();

/// What the program wrote last: one number for each write, 0 for none.
using Value = std::uint64_t;
inline constexpr Value garbage = ~Value{0};
/// What a copy that failed leaves, and a task that failed.
inline constexpr Value bad = garbage - 1;

/// The memories: a value for each unit that was ever given.
class Memories {
  public:
    explicit Memories(std::size_t num_devices) {
        bases_.resize_for_devices(num_devices);
        contents_.resize_for_devices(num_devices);
        for (const MemoryIndex m : bases_.memories()) bases_[m] = (std::uintptr_t{m.index()} + 1) << 32;
    }
    std::uintptr_t give(MemoryIndex m, std::size_t bytes) {
        const std::uintptr_t address = bases_[m] + contents_[m].size() * unit;
        contents_[m].resize(contents_[m].size() + bytes / unit, garbage);
        return address;
    }
    /// By unit.
    std::span<Value> range(MemoryIndex m, std::uintptr_t address, std::size_t bytes) {
        const std::size_t first = (address - bases_[m]) / unit;
        const std::size_t count = (bytes + unit - 1) / unit;
        EXPECT_LE(first + count, contents_[m].size()) << "an address that nobody gave";
        return std::span(contents_[m]).subspan(first, count);
    }

  private:
    PerMemory<std::uintptr_t> bases_;
    PerMemory<std::vector<Value>> contents_;
};

struct Dice {
    explicit Dice(std::uint64_t seed) : random(seed) {}
    std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); }
    bool one_in(std::size_t n) { return below(n) == 0; }
    std::mt19937_64 random;
};

/// What stands on lanes, and executes when its waits have passed.
class Lanes {
  public:
    Fence put(LaneId lane, const FenceSet& waits, std::function<void()> work) {
        Lane& l = lanes_[lane];
        const Fence fence{lane, l.completed + l.work.size() + 1};
        l.work.push_back({std::vector<Fence>(waits.begin(), waits.end()), std::move(work)});
        return fence;
    }
    bool passed(Fence fence) const {
        const auto at = lanes_.find(fence.lane);
        return at != lanes_.end() && at->second.completed >= fence.position;
    }
    bool passed(const FenceSet& fences) const {
        return std::all_of(fences.begin(), fences.end(), [&](const Fence& f) { return passed(f); });
    }
    bool empty() const {
        return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& entry) { return entry.second.work.empty(); });
    }
    /// The head of a lane that may execute now; its lane, none if there is none.
    LaneId execute_one(Dice& dice) {
        std::vector<LaneId> ready;
        for (auto& [id, lane] : lanes_)
            if (!lane.work.empty() && std::all_of(lane.work.front().waits.begin(), lane.work.front().waits.end(),
                                                  [&](const Fence& f) { return passed(f); }))
                ready.push_back(id);
        if (ready.empty()) return LaneId::none;
        const LaneId id = ready[dice.below(ready.size())];
        Lane& lane = lanes_[id];
        lane.work.front().work();
        lane.work.pop_front();
        ++lane.completed;
        return id;
    }

  private:
    struct Work {
        std::vector<Fence> waits;
        std::function<void()> work;
    };
    struct Lane {
        std::deque<Work> work;
        Position completed = 0;
    };
    std::map<LaneId, Lane> lanes_;
};

/// What the program's order says of a chunk.
struct Expected {
    struct Unit {
        Value value = 0;
        std::uint64_t writer = 0;    ///< the task that writes it
        std::vector<Fence> writers;  ///< of the latest write
        std::vector<Fence> readers;  ///< since
    };
    std::vector<Unit> units;
    bool is_poisoned = false;  ///< who was to write it gave up: nobody reads it before all of it is replaced

    bool was_written() const {
        return !is_poisoned && std::all_of(units.begin(), units.end(), [](const Unit& u) { return u.value != 0; });
    }
};

/// Of a chunk, in units.
struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
};

inline std::size_t num_units(const Chunk& chunk) { return (chunk.size_bytes + unit - 1) / unit; }

/// Of a stack, in units from its start.
struct Region {
    Array* array = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - begin; }
};
/// With it what a task uses in all is not more than a device has.
inline constexpr std::size_t most_region_units = 8;

/// Of a region, in one chunk.
struct Piece {
    Chunk* chunk = nullptr;
    Part part;  ///< of the chunk
};

inline kmm::graph::Box box_of(std::size_t begin, std::size_t end) {
    kmm::graph::Box box;
    box.begin[0] = static_cast<std::int64_t>(begin);
    box.end[0] = static_cast<std::int64_t>(end);
    return box;
}

inline std::vector<Piece> pieces_of(const Region& region) {
    std::vector<Piece> pieces;
    for (Chunk& c : region.array->chunks) {
        const kmm::graph::Box box = region.array->box(c.index);
        const auto begin = static_cast<std::size_t>(box.begin[0]), end = static_cast<std::size_t>(box.end[0]);
        if (region.end <= begin || end <= region.begin) continue;
        pieces.push_back({&c, {std::max(region.begin, begin) - begin, std::min(region.end, end) - begin}});
    }
    return pieces;
}

inline bool uses(const Task& task, const Chunk& chunk) {
    return std::any_of(task.accesses.begin(), task.accesses.end(), [&](const Access& a) { return a.chunk == &chunk; });
}

/// Of what will be used of the chunk until it is replaced no more than parts are needed, and the host has these.
inline bool has_parts_that_are_read(const Chunk& chunk) {
    if (!chunk.is_in_parts() || chunk.replicas[host].address == 0) return false;
    for (const auto& use : chunk.next_uses.open()) {
        if (use.replaces()) return true;
        if (use.kind != kmm::memory::NextUses::Kind::part) return false;
    }
    return false;
}

// ---- What the api and the schedule make of a region across chunks.

/// As Temporaries::make_memory.
inline std::unique_ptr<Array> make_temporary(const Region& region, std::size_t num_devices) {
    auto made = std::make_unique<Array>();
    Array& array = *made;
    array.rank = 1;
    array.element_bytes = unit;
    array.num_pieces = static_cast<std::uint32_t>(pieces_of(region).size());
    array.is_gathered = array.released = true;
    array.set_region(box_of(region.begin, region.end), num_devices);
    array.touch(0);
    return made;
}

/// That of a temporary has no part: it has no place in the program's order.
inline void add_access(Task& task, std::vector<Part>& parts, Array& temporary) {
    Access& a = task.accesses.emplace_back();
    a.chunk = &temporary.chunks[0];
    a.needs_content = a.gathers = true;
    ++temporary.uses_to_come;
    parts.push_back({});
}

/// As Temporaries::add_across.
inline void add_across(Task& task, std::vector<Part>& parts, std::size_t access, const Region& region,
                       bool may_be_in_place) {
    Across& across = task.cold_part(kmm::graph::UseOfReserve::no).across.emplace_back();
    across.access = static_cast<std::uint32_t>(access);
    across.first_piece = static_cast<std::uint32_t>(task.accesses.size());
    across.first_box = static_cast<std::uint32_t>(task.boxes().size());
    across.may_be_in_place = may_be_in_place;
    for (const Piece& piece : pieces_of(region)) {
        const kmm::graph::Box chunk_box = region.array->box(piece.chunk->index);
        const auto chunk_begin = static_cast<std::size_t>(chunk_box.begin[0]);
        if (across.num_pieces == 0) across.offset_from_first_piece = piece.part.begin * unit;
        BoxTransfer& box = task.cold_part(kmm::graph::UseOfReserve::no).boxes.emplace_back();
        box.source = across.first_piece + across.num_pieces++;
        box.destination = across.access;
        box.box = box_of(chunk_begin + piece.part.begin, chunk_begin + piece.part.end);
        box.set_shape(1, chunk_box, box_of(region.begin, region.end), unit);
        Access& a = task.accesses.emplace_back();
        a.chunk = piece.chunk;
        a.needs_content = a.is_piece = true;
        parts.push_back(piece.part);
    }
}

/// As the schedule does, but with chunks that are small: half a chunk is a small part.
inline void mark_small_parts(Task& task) {
    for (const BoxTransfer& box : task.boxes()) {
        Access& piece = task.accesses[box.source];
        piece.is_small_part = 2 * box.size_bytes() <= piece.chunk->size_bytes &&
                              std::count_if(task.accesses.begin(), task.accesses.end(),
                                            [&](const Access& a) { return a.chunk == piece.chunk; }) == 1;
    }
}

/// What was exercised.
struct Counts {
    std::size_t run = 0, evictions = 0, reclaimed = 0, refused = 0, gave_up = 0, copies_failed = 0, failed = 0;
    std::size_t planned = 0;
    std::size_t needless = 0;  ///< tasks that failed although they found nothing of a failed copy
    // Regions across chunks.
    std::size_t gather = 0, gathered = 0, in_place = 0;  ///< by form, of regions of placed tasks
    std::size_t gathers = 0;                             ///< that were executed
    std::size_t moves = 0;                               ///< of chunks, beside their neighbours
    std::size_t parts = 0;                               ///< chunks that were saved in parts
    std::size_t from_parts = 0;                          ///< pieces that were gathered from these
    std::size_t ghosts = 0;                              ///< parts that were brought to their places
    std::size_t ghosts_found = 0;                        ///< likewise for a task before
    std::size_t gathers_failed = 0, parts_failed = 0, ghosts_failed = 0;
};

class Machine final : public Requests {
  public:
    Machine(std::uint64_t seed, std::size_t num_devices, Counts& what_happened);

    /// Runs so many random steps, and then all that is left: every chunk is read where its newest version is.
    void run(std::size_t steps);

  private:
    struct Running {
        std::unique_ptr<Task> task;
        std::vector<Part> parts;  ///< by access; none of a temporary, which has no place in the program's order
        bool has_failed = false;
        std::vector<std::uint64_t> needed{};      ///< the tasks that wrote what it reads
        std::vector<std::vector<Value>> reads{};  ///< by access: what is there before; empty: nobody looks
        std::vector<Value> writes{};              ///< by access: what is there afterwards; 0: nothing is written
    };
    struct Waiting {
        std::unique_ptr<Task> task;
        std::vector<Part> parts;
    };
    /// What copies, gathers and parts of a chunk consist of.
    struct Move {
        Chunk* chunk;
        MemoryIndex from, to;
        std::uintptr_t source, destination;
        std::vector<Expected::Unit> units;  ///< what the order says of the source
        bool was_lost;                      ///< and is moved with its neighbours nevertheless
    };

    // ---- Requests
    Fence copy(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
               const FenceSet& waits, Task* task) override;
    Fence gather(Task& task, const Across& across, const FenceSet& waits) override;
    Fence copy_parts(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
                     const FenceSet& waits, const kmm::graph::Vector<kmm::graph::TaskNumber>& readers,
                     std::size_t* bytes) override;
    Fence copy_part(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
                    const FenceSet& waits, Task& task, const BoxTransfer& part) override;
    void grow(MemoryIndex memory, std::size_t bytes) override { growths_.emplace_back(memory, bytes); }
    bool passed(Fence fence) const noexcept override { return lanes_.passed(fence); }
    bool linked(MemoryIndex from, MemoryIndex to) const noexcept override {
        return all_linked_ && from.is_device() && to.is_device();
    }
    bool may_ask_again(MemoryIndex) noexcept override { return dice_.one_in(2); }
    void residency_changed(Task&) override {}
    void unblocked(Task&) override {}

    MemoryIndex random_device() {
        return MemoryIndex::of_device(static_cast<std::uint32_t>(dice_.below(num_devices_)));
    }
    bool move(const std::vector<Move>& moves, std::uint64_t copied_at, std::size_t fails_one_in);
    void fail_copy(Chunk& chunk, std::uint64_t copied_at);
    bool finds_bad(const Running& running);
    bool has_failed(std::uint64_t task) const { return failed_.count(task) != 0; }
    void step();
    void execute_one();
    void place_one();
    void plan_waiting();
    void make_array();
    void make_stack(Array& array, std::size_t chunks);
    bool is_used(const Array& array) const;
    void free_array();
    void free_temporaries();
    bool will_be_written(const Chunk& chunk) const;
    Waiting make_task(MemoryIndex memory);
    void make_tasks();
    void add_use(Waiting& waiting, Chunk& chunk, bool replaces);
    void add_random_use(Waiting& waiting, const std::vector<const Chunk*>& without);
    bool make_readers_across();
    Region random_region();
    MemoryIndex home_of(const std::vector<Piece>& pieces);
    Array& add_temporary(const Region& region);
    void add_use_beside(Waiting& waiting, const std::vector<Piece>& pieces);
    void tell_one();
    void submit(Waiting waiting);
    void give_up(Task& task);
    bool place(Waiting& waiting);
    void count_forms(const Task& task);
    void issue(Running running);
    void execute(const Running& running);
    void end_pinned();
    void answer_growth();
    void reclaim();
    void check() const;
    void drain();
    void read_all();
    static bool conflict(const Task& first, const std::vector<Part>& first_parts, const Waiting& second);
    bool is_ready(const Waiting& waiting) const;
    bool is_being_written(const Chunk& chunk, const Part& part) const;
    void note_position(const Running& running, Fence fence);

    Counts& counts_;
    Dice dice_;
    const bool copies_fail_;
    const std::size_t num_devices_;
    Memories memories_;
    const bool all_linked_;
    const bool has_room_;      ///< for ghosts beside chunks, for which nobody leaves
    const bool gives_sealed_;  ///< memory in which chunks never lie side by side
    Lanes lanes_;
    std::unique_ptr<Residency> residency_;
    std::deque<std::pair<MemoryIndex, std::size_t>> growths_;
    std::vector<std::pair<MemoryIndex, AddressRange>> given_;
    std::vector<std::unique_ptr<Array>> arrays_;
    std::vector<std::unique_ptr<Array>> temporaries_;
    std::vector<std::unique_ptr<Array>> gone_;  ///< copies that were told of them may still stand on lanes
    std::map<const Chunk*, Expected> expected_;
    std::deque<Waiting> told_later_;  ///< of one submit
    std::vector<Waiting> waiting_;    ///< submitted, in order, not placed
    std::vector<std::shared_ptr<Running>> pinned_;
    std::vector<std::shared_ptr<Running>> issued_;  ///< that have not executed, the pinned ones included
    std::set<std::uint64_t> failed_;                ///< tasks
    std::map<const Array*, std::size_t> copies_;    ///< that have not executed
    std::shared_ptr<kmm::graph::RootFailure> cause_ = std::make_shared<kmm::graph::RootFailure>();
    Value last_value_ = 0;
    std::uint64_t num_tasks_ = 0;
};

}  // namespace kmm::residency_model
