// Residency against a machine that does what it is told, in any order that the fences allow: random tasks, growth,
// refusals, evictions, reclaims, failed copies and arrays that go, on one host and one or two devices. Few tasks fail
// without need: where good content was fetched again. KMM_TEST_PROGRAMS: how many seeds, 300 at least.
//
// The machine has memories whose content is remembered in units, lanes on which copies and tasks stand in order, and
// tasks without a position (host tasks, device functions). A step executes the head of any lane whose waits have
// passed. What a task or a copy finds at its source must be what the program's order says; so a wait that is missing, a
// block that is given to somebody else too early, and a newest version that is dropped all show as a wrong value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kmm/memory/residency.hpp"
#include "support/repeat.hpp"

namespace {

using kmm::detail::AccessKind;
using kmm::graph::Access;
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

constexpr std::size_t unit = kmm::memory::heap_alignment;
constexpr MemoryIndex host = MemoryIndex::host();

/// What the program wrote last: one number for each write, 0 for none.
using Value = std::uint64_t;
constexpr Value garbage = ~Value{0};
/// What a copy that failed leaves, and a task that failed.
constexpr Value bad = garbage - 1;

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
    /// The head of a lane that may execute now. False: there is none.
    bool execute_one(Dice& dice) {
        std::vector<Lane*> ready;
        for (auto& [id, lane] : lanes_)
            if (!lane.work.empty() && std::all_of(lane.work.front().waits.begin(), lane.work.front().waits.end(),
                                                  [&](const Fence& f) { return passed(f); }))
                ready.push_back(&lane);
        if (ready.empty()) return false;
        Lane& lane = *ready[dice.below(ready.size())];
        lane.work.front().work();
        lane.work.pop_front();
        ++lane.completed;
        return true;
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

std::size_t num_units(const Chunk& chunk) { return (chunk.size_bytes + unit - 1) / unit; }

class Machine final : public Requests {
  public:
    Machine(std::uint64_t seed, std::size_t num_devices)
        : dice_(seed),
          copies_fail_(dice_.one_in(2)),
          num_devices_(num_devices),
          memories_(num_devices),
          all_linked_(dice_.one_in(2)) {
        PerMemory<std::size_t> limits;
        limits.resize_for_devices(num_devices);
        for (const MemoryIndex m : limits.memories())
            limits[m] = (m.is_host() ? 128 + dice_.below(64) : 18 + dice_.below(24)) * unit;
        residency_ = std::make_unique<Residency>(*this, limits);
    }

    /// Runs so many random steps, and then all that is left: every chunk is read where its newest version is.
    void run(std::size_t steps);

    std::size_t num_evictions() const {
        std::size_t count = 0;
        for (const MemoryIndex m : residency_->memories()) count += residency_->counters(m).evictions;
        return count;
    }
    std::size_t num_run = 0, num_reclaimed = 0, num_refused = 0, num_gave_up = 0, num_copies_failed = 0, num_failed = 0,
                num_needless = 0;

  private:
    struct Running {
        std::unique_ptr<Task> task;
        std::vector<Part> parts;  ///< by access
        bool has_failed = false;
        std::vector<std::uint64_t> needed{};      ///< the tasks that wrote what it reads
        std::vector<std::vector<Value>> reads{};  ///< by access: what is there before; empty: nobody looks
        std::vector<Value> writes{};              ///< by access: what is there afterwards; 0: nothing is written
    };
    struct Waiting {
        std::unique_ptr<Task> task;
        std::vector<Part> parts;
    };

    // ---- Requests
    Fence copy(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
               const FenceSet& waits, Task*) override {
        const std::vector<Expected::Unit> units = expected_[&chunk].units;
        const std::uint64_t copied_at = chunk.copied_at;
        const auto lane = static_cast<LaneId>(1000 + 16 * from.index() + to.index());
        ++copies_[chunk.array];
        return lanes_.put(lane, waits, [this, &chunk, from, to, source, destination, units, copied_at] {
            --copies_[chunk.array];
            const auto found = memories_.range(from, source, chunk.size_bytes);
            const auto left = memories_.range(to, destination, chunk.size_bytes);
            for (std::size_t i = 0; i < units.size(); ++i) {
                // From before the failure of a copy was known, or by a task that failed.
                const bool may_be_bad = copied_at <= failed_at_[&chunk] || has_failed(units[i].writer);
                EXPECT_TRUE(found[i] == units[i].value || (found[i] == bad && may_be_bad)) << "at the source of a copy";
            }
            if (copies_fail_ && dice_.one_in(40)) {
                std::fill(left.begin(), left.end(), bad);
                fail_copy(chunk, copied_at);
            } else {
                std::copy(found.begin(), found.end(), left.begin());
            }
        });
    }
    Fence copy_parts(Chunk&, MemoryIndex, MemoryIndex, std::uintptr_t, std::uintptr_t, const FenceSet&,
                     const kmm::graph::Vector<kmm::graph::TaskNumber>&, std::size_t*) override {
        ADD_FAILURE() << "no task reads parts";
        return {};
    }
    Fence gather(Task& task, const kmm::graph::Across& across, const FenceSet& waits) override {
        return (void)across, lanes_.put(static_cast<LaneId>(1000 + task.memory.index()), waits, [] {});
    }
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
    void fail_copy(Chunk& chunk, std::uint64_t copied_at);
    bool finds_bad(const Running& running);
    bool has_failed(std::uint64_t task) const { return failed_.count(task) != 0; }
    void step();
    void place_one();
    void make_array();
    void free_array();
    void submit(Waiting waiting);
    Waiting random_task();
    void give_up(const Task& task);
    bool place(Waiting& waiting);
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
    void note_position(const Running& running, Fence fence);

    Dice dice_;
    const bool copies_fail_;
    const std::size_t num_devices_;
    Memories memories_;
    const bool all_linked_;
    Lanes lanes_;
    std::unique_ptr<Residency> residency_;
    std::deque<std::pair<MemoryIndex, std::size_t>> growths_;
    std::vector<std::pair<MemoryIndex, AddressRange>> given_;
    std::vector<std::unique_ptr<Array>> arrays_;
    std::vector<std::unique_ptr<Array>> gone_;  ///< copies that were told of them may still stand on lanes
    std::map<const Chunk*, Expected> expected_;
    std::vector<Waiting> waiting_;  ///< submitted, in order, not placed
    std::vector<std::shared_ptr<Running>> pinned_;
    std::vector<std::shared_ptr<Running>> issued_;     ///< that have not executed, the pinned ones included
    std::set<std::uint64_t> failed_;                   ///< tasks
    std::map<const Array*, std::size_t> copies_;       ///< that have not executed
    std::map<const Chunk*, std::uint64_t> failed_at_;  ///< the latest copy when one of it was known to have failed
    std::shared_ptr<kmm::graph::RootFailure> cause_ = std::make_shared<kmm::graph::RootFailure>();
    Value last_value_ = 0;
    std::uint64_t num_tasks_ = 0;
};

void Machine::make_array() {
    auto array = std::make_unique<Array>();
    array->chunks = std::vector<Chunk>(1 + dice_.below(6));
    const std::size_t bytes = (1 + dice_.below(6)) * unit - (dice_.one_in(3) ? dice_.below(unit) : 0);
    for (std::size_t i = 0; i < array->chunks.size(); ++i) {
        Chunk& c = array->chunks[i];
        c.array = array.get();
        c.index = static_cast<std::uint32_t>(i);
        c.size_bytes = bytes;
        c.replicas.resize_for_devices(num_devices_);
        expected_[&c].units.resize(num_units(c));
    }
    arrays_.push_back(std::move(array));
}

/// One that no task uses any more.
void Machine::free_array() {
    if (arrays_.size() < 2) return;
    const std::size_t at = dice_.below(arrays_.size());
    Array& array = *arrays_[at];
    const auto uses = [&](const Task& t) {
        return std::any_of(t.accesses.begin(), t.accesses.end(),
                           [&](const Access& a) { return a.chunk->array == &array; });
    };
    for (const Waiting& w : waiting_)
        if (uses(*w.task)) return;
    for (const auto& r : issued_)
        if (uses(*r->task)) return;
    if (copies_[&array] != 0) return;
    for (const Chunk& c : array.chunks) {
        for (const Expected::Unit& u : expected_[&c].units)
            for (const auto* fences : {&u.writers, &u.readers})
                for (const Fence& f : *fences)
                    if (!lanes_.passed(f)) return;
    }
    residency_->free_array(array);
    for (const Chunk& c : array.chunks) expected_.erase(&c);
    gone_.push_back(std::move(arrays_[at]));
    arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(at));
}

Machine::Waiting Machine::random_task() {
    auto task = std::make_unique<Task>();
    std::vector<Part> parts;
    task->number = ++num_tasks_;
    task->memory = dice_.one_in(num_devices_ + 1) ? host : random_device();
    const std::size_t num_uses = 1 + dice_.below(3);
    for (std::size_t i = 0; i < num_uses; ++i) {
        Array& array = *arrays_[dice_.below(arrays_.size())];
        Chunk& chunk = array.chunks[dice_.below(array.chunks.size())];
        const bool twice = std::any_of(task->accesses.begin(), task->accesses.end(),
                                       [&](const Access& a) { return a.chunk == &chunk; });
        if (twice) continue;
        // In the program's order, which is that of the submits.
        bool was_written = expected_[&chunk].was_written();
        for (const Waiting& w : waiting_)
            for (const Access& a : w.task->accesses) was_written |= a.chunk == &chunk && a.replaces_chunk;
        Part part{0, num_units(chunk)};
        if (was_written && dice_.one_in(2)) {
            part.begin = dice_.below(part.end);
            part.end = part.begin + 1 + dice_.below(part.end - part.begin);
        }
        const bool is_whole = part.end - part.begin == num_units(chunk);
        const bool overwrites = !was_written || dice_.one_in(4);
        Access& a = task->accesses.emplace_back();
        a.chunk = &chunk;
        a.offset_bytes = part.begin * unit;
        a.replaces_chunk = overwrites && is_whole;
        a.writes_chunk = overwrites || dice_.one_in(2);
        a.needs_content = !a.replaces_chunk;
        a.kind = !a.writes_chunk ? AccessKind::read : overwrites ? AccessKind::overwrite : AccessKind::write;
        parts.push_back(part);
    }
    return {std::move(task), std::move(parts)};
}

void Machine::submit(Waiting waiting) {
    for (const Access& a : waiting.task->accesses)
        residency_->add_next_use(*a.chunk, Residency::use_of(*waiting.task, a));
    waiting_.push_back(std::move(waiting));
}

bool Machine::conflict(const Task& first, const std::vector<Part>& first_parts, const Waiting& second) {
    for (std::size_t i = 0; i < first_parts.size(); ++i)
        for (std::size_t k = 0; k < second.parts.size(); ++k) {
            const Access& a = first.accesses[i];
            const Access& b = second.task->accesses[k];
            if (a.chunk == b.chunk && (a.writes_chunk || b.writes_chunk) &&
                first_parts[i].begin < second.parts[k].end && second.parts[k].begin < first_parts[i].end)
                return true;
        }
    return false;
}

/// What it comes after has a position.
bool Machine::is_ready(const Waiting& waiting) const {
    for (const Waiting& before : waiting_) {
        if (before.task->number >= waiting.task->number) break;
        if (conflict(*before.task, before.parts, waiting)) return false;
    }
    return std::none_of(pinned_.begin(), pinned_.end(),
                        [&](const auto& r) { return conflict(*r->task, r->parts, waiting); });
}

/// What it was to write cannot be read: tasks that were to read it are cancelled, as are those that read what these
/// were to write.
void Machine::give_up(const Task& task) {
    ++num_gave_up;
    std::set<const Chunk*> poisoned;
    const auto cancel = [&](const Task& t) {
        for (const Access& a : t.accesses) {
            residency_->remove_next_use(*a.chunk, Residency::use_of(t, a));
            if (!a.writes_chunk) continue;
            poisoned.insert(a.chunk);
            expected_.at(a.chunk).is_poisoned = true;
        }
    };
    cancel(task);
    std::erase_if(waiting_, [&](const Waiting& w) {
        const Task& t = *w.task;
        if (t.number <= task.number) return false;
        for (const Access& a : t.accesses)
            if (a.needs_content && poisoned.count(a.chunk) != 0) {
                cancel(t);
                return true;
            }
        for (const Access& a : t.accesses) poisoned.erase(a.chunk);  // it replaces it
        return false;
    });
}

/// A task that is ready, in any order.
bool Machine::place(Waiting& waiting) {
    Task& task = *waiting.task;
    // What is known of failures cancels it.
    for (std::size_t i = 0; i < waiting.parts.size(); ++i)
        for (std::size_t k = waiting.parts[i].begin; k < waiting.parts[i].end; ++k)
            if (task.accesses[i].kind != AccessKind::overwrite &&
                has_failed(expected_.at(task.accesses[i].chunk).units[k].writer)) {
                give_up(task);
                return true;
            }
    switch (residency_->place(task)) {
    case Placement::granted: break;
    case Placement::wait_growth:
    case Placement::wait_pins:
    case Placement::busy_chunk: return false;
    case Placement::full:
    case Placement::lacks:
        // As the schedule does: only when nothing is on its way that may free memory.
        if (!lanes_.empty() || !pinned_.empty() || !growths_.empty()) return false;
        give_up(task);
        return true;
    case Placement::lost:
        EXPECT_TRUE(copies_fail_) << "nothing was lost";
        give_up(task);
        return true;
    case Placement::starved: ADD_FAILURE(); return true;
    }
    for (std::size_t i = 0; i < waiting.parts.size(); ++i)
        for (std::size_t k = waiting.parts[i].begin; k < waiting.parts[i].end; ++k) {
            const Expected::Unit& u = expected_.at(task.accesses[i].chunk).units[k];
            for (const Fence& f : u.writers) task.waits.add(f);
            if (!task.accesses[i].writes_chunk) continue;
            for (const Fence& f : u.readers) task.waits.add(f);
        }
    return true;
}

void Machine::issue(Running one) {
    const auto running = std::make_shared<Running>(std::move(one));
    Task& task = *running->task;
    const bool has_position = task.memory.is_device() && !dice_.one_in(4);
    for (std::size_t i = 0; i < running->parts.size(); ++i) {
        const Access& a = task.accesses[i];
        const Part part = running->parts[i];
        Expected& e = expected_.at(a.chunk);
        std::vector<Value>& reads = running->reads.emplace_back();
        for (std::size_t k = part.begin; k < part.end && a.kind != AccessKind::overwrite; ++k) {
            reads.push_back(e.units[k].value);
            running->needed.push_back(e.units[k].writer);
        }
        running->writes.push_back(a.writes_chunk ? ++last_value_ : 0);
        if (!a.writes_chunk) continue;
        if (a.replaces_chunk) e.is_poisoned = false;
        for (std::size_t k = part.begin; k < part.end; ++k) e.units[k] = {last_value_, task.number, {}, {}};
    }
    issued_.push_back(running);
    if (!has_position) {
        residency_->pin(task);
        pinned_.push_back(running);
        return;
    }
    const auto lane = static_cast<LaneId>(8 * task.memory.index() + dice_.below(3));
    const Fence fence = lanes_.put(lane, task.waits, [this, running] { execute(*running); });
    residency_->issued(task, fence);
    note_position(*running, fence);
}

/// Tasks that were issued behind it take what never arrived for the content: they fail (Scheduler::copy_failed).
void Machine::fail_copy(Chunk& chunk, std::uint64_t copied_at) {
    ++num_copies_failed;
    failed_at_[&chunk] = chunk.copied_at;
    residency_->copy_failed(chunk, copied_at, cause_);
    for (const auto& r : issued_)
        for (const Access& a : r->task->accesses)
            r->has_failed |= a.chunk == &chunk && Residency::may_have_taken(a, copied_at);
}

void Machine::note_position(const Running& running, Fence fence) {
    for (std::size_t i = 0; i < running.parts.size(); ++i) {
        const Access& a = running.task->accesses[i];
        for (std::size_t k = running.parts[i].begin; k < running.parts[i].end; ++k) {
            Expected::Unit& u = expected_.at(a.chunk).units[k];
            (a.writes_chunk ? u.writers : u.readers).push_back(fence);
        }
    }
}

/// Whether a chunk whose content the task needs has what a failed copy left, in any part.
bool Machine::finds_bad(const Running& running) {
    const Task& task = *running.task;
    for (std::size_t i = 0; i < running.parts.size(); ++i) {
        const Access& a = task.accesses[i];
        if (!a.needs_content) continue;
        const auto address = reinterpret_cast<std::uintptr_t>(task.addresses[i]) - a.offset_bytes;
        const auto found = memories_.range(task.memory, address, a.chunk->size_bytes);
        if (std::find(found.begin(), found.end(), bad) != found.end()) return true;
    }
    return false;
}

void Machine::execute(const Running& running) {
    const Task& task = *running.task;
    ++num_run;
    std::erase_if(issued_, [&](const auto& r) { return r.get() == &running; });
    if (running.has_failed && !finds_bad(running)) ++num_needless;
    const bool fails = running.has_failed || std::any_of(running.needed.begin(), running.needed.end(),
                                                         [&](std::uint64_t n) { return has_failed(n); });
    if (fails) {
        ++num_failed;
        failed_.insert(task.number);
    }
    for (std::size_t i = 0; i < running.parts.size(); ++i) {
        const auto address = reinterpret_cast<std::uintptr_t>(task.addresses[i]);
        const auto found =
            memories_.range(task.memory, address, (running.parts[i].end - running.parts[i].begin) * unit);
        if (!running.reads[i].empty() && !fails) {
            EXPECT_EQ(std::vector<Value>(found.begin(), found.end()), running.reads[i])
                << "task " << task.number << " in memory " << task.memory.index();
        }
        if (running.writes[i] != 0) std::fill(found.begin(), found.end(), fails ? bad : running.writes[i]);
    }
}

/// A host task whose inputs are there runs; a device function has put its work on a lane.
void Machine::end_pinned() {
    if (pinned_.empty()) return;
    const std::size_t at = dice_.below(pinned_.size());
    const auto running = pinned_[at];
    Task& task = *running->task;
    if (task.memory.is_host() && !lanes_.passed(task.waits)) return;
    pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(at));
    if (task.memory.is_host()) {
        execute(*running);
        residency_->unpin(task, nullptr);
        return;
    }
    const auto lane = static_cast<LaneId>(8 * task.memory.index() + 4);
    const Fence fence = lanes_.put(lane, task.waits, [this, running] { execute(*running); });
    residency_->unpin(task, &fence);
    note_position(*running, fence);
}

void Machine::answer_growth() {
    if (growths_.empty()) return;
    const auto [memory, asked] = growths_.front();
    growths_.pop_front();
    if (dice_.one_in(6)) {
        ++num_refused;
        residency_->grown(memory, 0, 0);
        return;
    }
    const std::size_t bytes = (asked + unit - 1) / unit * unit;
    const std::uintptr_t address = memories_.give(memory, bytes);
    given_.push_back({memory, {address, bytes}});
    residency_->grown(memory, address, bytes, dice_.one_in(3));
}

/// Others need a device's memory more: what is taken is used by them as soon as its users have passed, and may come
/// back later.
void Machine::reclaim() {
    const MemoryIndex m = random_device();
    std::vector<AddressRange> regions;
    for (const auto& [memory, range] : given_)
        if (memory == m) regions.push_back(range);
    if (regions.empty()) return;
    const auto reclaimed = residency_->reclaim(m, regions, (1 + dice_.below(16)) * unit, dice_.one_in(2));
    for (const auto& taken : reclaimed.taken) {
        const AddressRange range = regions[taken.region];
        std::erase_if(given_, [&](const auto& g) { return g.first == m && g.second.address == range.address; });
        ++num_reclaimed;
        (void)lanes_.put(static_cast<LaneId>(2000 + m.index()), taken.users, [this, m = m, range] {
            for (Value& v : memories_.range(m, range.address, range.bytes)) v = garbage;
            const bool has_room = residency_->counters(m).capacity_bytes + range.bytes <= residency_->limit(m);
            if (!has_room || residency_->growing(m) || dice_.one_in(2)) return;
            given_.push_back({m, range});
            residency_->given_again(m, range.address, range.bytes, false);
        });
    }
}

/// Of every chunk that was written the newest version is somewhere, unless what comes next replaces it; nothing is
/// above its limit, no two blocks overlap, and what may leave is counted right.
void Machine::check() const {
    for (const MemoryIndex m : residency_->memories()) {
        EXPECT_LE(residency_->counters(m).capacity_bytes, residency_->limit(m));
        std::map<std::uintptr_t, std::uintptr_t> blocks;
        std::size_t evictable_bytes = 0;
        residency_->for_each_resident(m, [&](const Chunk& c) {
            const auto begin = c.replicas[m].block;
            EXPECT_TRUE(blocks.emplace(begin, begin + residency_->rounded(c.block_bytes())).second);
            if (!c.replicas[m].pinned()) evictable_bytes += residency_->rounded(c.block_bytes());
        });
        EXPECT_EQ(residency_->evictable_bytes(m), evictable_bytes);
        std::uintptr_t end = 0;
        for (const auto& [begin, block_end] : blocks) {
            EXPECT_GE(begin, end) << "two blocks of memory " << m.index() << " overlap";
            end = block_end;
        }
    }
    for (const auto& array : arrays_)
        for (const Chunk& c : array->chunks) {
            if (c.version == 0 || c.lost != nullptr || expected_.at(&c).is_poisoned) continue;
            bool somewhere = false;
            for (const MemoryIndex m : residency_->memories())
                somewhere |= c.replicas[m].address != 0 && c.replicas[m].version == c.version;
            const bool is_replaced = !c.next_uses.empty() && c.next_uses.first().replaces();
            EXPECT_TRUE(somewhere || is_replaced) << "nobody has the newest version of a chunk";
        }
}

/// One of the tasks that are ready.
void Machine::place_one() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < waiting_.size(); ++i)
        if (is_ready(waiting_[i])) ready.push_back(i);
    if (ready.empty()) return;
    const std::size_t at = ready[dice_.below(ready.size())];
    const std::size_t gave_up = num_gave_up;
    if (!place(waiting_[at])) return;
    Waiting waiting = std::move(waiting_[at]);  // those before it are where they were
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    if (gave_up == num_gave_up) issue({std::move(waiting.task), std::move(waiting.parts)});
}

void Machine::step() {
    switch (dice_.below(12)) {
    case 0: dice_.one_in(4) ? make_array() : free_array(); break;
    case 1:
    case 2:
        if (waiting_.size() < 12) submit(random_task());
        break;
    case 3:
    case 4:
    case 5: place_one(); break;
    case 6:
    case 7: end_pinned(); break;
    case 8: answer_growth(); break;
    case 9:
        if (dice_.one_in(6)) reclaim();
        break;
    default: (void)lanes_.execute_one(dice_); break;
    }
}

/// Whatever was submitted comes to its end, in so many steps.
void Machine::drain() {
    for (int i = 0; i < 20'000; ++i) {
        if (waiting_.empty() && pinned_.empty() && lanes_.empty()) return;
        switch (dice_.below(4)) {
        case 0: place_one(); break;
        case 1: end_pinned(); break;
        case 2: answer_growth(); break;
        default: (void)lanes_.execute_one(dice_); break;
        }
        if (i % 64 == 0) check();
    }
    ADD_FAILURE() << "stuck with " << waiting_.size() << " tasks";
}

void Machine::read_all() {
    for (const auto& array : arrays_)
        for (Chunk& c : array->chunks) {
            const bool is_failed = std::any_of(expected_[&c].units.begin(), expected_[&c].units.end(),
                                               [&](const Expected::Unit& u) { return has_failed(u.writer); });
            if (!expected_[&c].was_written() || is_failed || c.lost != nullptr) continue;
            auto task = std::make_unique<Task>();
            task->number = ++num_tasks_;
            for (const MemoryIndex m : residency_->memories())
                if (c.replicas[m].address != 0 && c.replicas[m].version == c.version) task->memory = m;
            Access& a = task->accesses.emplace_back();
            a.chunk = &c;
            a.needs_content = true;
            submit({std::move(task), {{0, num_units(c)}}});
        }
}

void Machine::run(std::size_t steps) {
    for (int i = 0; i < 3; ++i) make_array();
    for (std::size_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
        step();
        check();
    }
    drain();
    const std::size_t gave_up = num_gave_up;
    read_all();
    drain();
    EXPECT_EQ(num_gave_up, gave_up) << "a chunk cannot be read although nothing else runs";
}

TEST(ResidencyModel, every_task_and_copy_finds_what_the_programs_order_says) {
    std::size_t num_run = 0, evictions = 0, reclaimed = 0, refused = 0, gave_up = 0, copies_failed = 0, failed = 0,
                needless = 0;
    const char* const count = std::getenv("KMM_TEST_PROGRAMS");
    const auto fewest = static_cast<unsigned long long>(repeat(300, 100));
    const std::uint64_t last_seed = std::max(fewest, count != nullptr ? std::strtoull(count, nullptr, 10) : 0);
    for (std::uint64_t seed = 1; seed <= last_seed && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Machine machine(seed, 1 + seed % 2);
        machine.run(1500);
        num_run += machine.num_run;
        evictions += machine.num_evictions();
        reclaimed += machine.num_reclaimed;
        refused += machine.num_refused;
        gave_up += machine.num_gave_up;
        copies_failed += machine.num_copies_failed;
        failed += machine.num_failed;
        needless += machine.num_needless;
    }
    // It was not for want of anything to do.
    EXPECT_GT(num_run, 10'000u);
    EXPECT_GT(evictions, 3'000u);
    EXPECT_GT(reclaimed, 100u);
    EXPECT_GT(refused, 100u);
    EXPECT_GT(copies_failed, 100u);
    EXPECT_GT(failed, 100u);
    EXPECT_LT(needless, failed / 20) << "tasks that found nothing of a failed copy";
    RecordProperty("tasks", static_cast<int>(num_run));
    RecordProperty("gave_up", static_cast<int>(gave_up));
    RecordProperty("copies_failed", static_cast<int>(copies_failed));
    RecordProperty("tasks_failed", static_cast<int>(failed));
    RecordProperty("failed_needlessly", static_cast<int>(needless));
}

}  // namespace
