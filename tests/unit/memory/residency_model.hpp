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
#include "kmm/memory/places.hpp"
#include "residency_model_tasks.hpp"

namespace kmm::residency_model {

/// What the program wrote last: one number for each write, 0 for none.
using kmm::memory::Transfer;
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
        std::vector<Access> accesses;
        bool has_failed = false;
        std::vector<std::uintptr_t> chunks_at{};  ///< by use: where its chunk is
        std::vector<std::uint64_t> needed{};      ///< the tasks that wrote what it reads
        std::vector<std::vector<Value>> reads{};  ///< by access: what is there before; empty: nobody looks
        std::vector<Value> writes{};              ///< by access: what is there afterwards; 0: nothing is written
    };
    struct Waiting {
        std::unique_ptr<Task> task;
        std::vector<Access> accesses;
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
    Fence transfer(const Transfer& transfer, const FenceSet& waits) override;
    const Task* find(kmm::graph::TaskNumber number) noexcept override;
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
    Fence copy(const Transfer& transfer, const FenceSet& waits);
    Fence gather(const Transfer& transfer, const FenceSet& waits);
    Fence copy_parts(const Transfer& transfer, const FenceSet& waits);
    Fence copy_ghost(const Transfer& transfer, const FenceSet& waits);
    bool finds_bad(const Running& running);
    bool has_failed(std::uint64_t task) const { return failed_.count(task) != 0; }
    void step();
    void execute_one();
    void place_one();
    void plan_waiting();
    void make_array();
    void make_stack(Array& array, std::size_t chunks);
    bool is_used(const Owner& owner) const;
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
    Temporary& add_temporary(const Region& region);
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
    static bool conflict(const Task& first, const std::vector<Access>& accesses, const Waiting& second);
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
    std::vector<std::unique_ptr<Temporary>> temporaries_;
    std::vector<kmm::memory::OwnerPtr> gone_;  ///< copies that were told of them may still stand on lanes
    std::map<const Chunk*, Expected> expected_;
    std::deque<Waiting> told_later_;                  ///< of one submit
    std::vector<kmm::graph::TaskNumber> looked_for_;  ///< by `find`, since parts were copied last
    std::vector<Waiting> waiting_;                    ///< submitted, in order, not placed
    std::vector<std::shared_ptr<Running>> pinned_;
    std::vector<std::shared_ptr<Running>> issued_;  ///< that have not executed, the pinned ones included
    std::set<std::uint64_t> failed_;                ///< tasks
    std::map<const Owner*, std::size_t> copies_;    ///< that have not executed
    std::shared_ptr<kmm::graph::RootFailure> cause_ = std::make_shared<kmm::graph::RootFailure>();
    Value last_value_ = 0;
    std::uint64_t num_tasks_ = 0;
};

}  // namespace kmm::residency_model
