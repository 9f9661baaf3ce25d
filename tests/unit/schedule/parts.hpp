// What a part of the schedule is built on in a test of that part alone: an outbox and requests that write down, and
// records of chunks and tasks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "../memory/cut_array.hpp"
#include "kmm/graph/task_table.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/lane_positions.hpp"
#include "kmm/schedule/outbox.hpp"

namespace kmm::parts_test {

using graph::Fence;
using graph::FenceSet;
using graph::LaneId;
using graph::LaneRole;
using graph::Position;
using graph::Task;
using graph::TaskKind;
using graph::TaskNumber;
using graph::TaskState;
using graph::TaskTable;
using graph::Use;
using memory::Array;
using memory::Chunk;
using memory::MemoryIndex;
using memory::PerMemory;
using memory::Replica;
using memory::Residency;
using memory::Transfer;
using schedule::Instruction;
using schedule::LanePositions;
using schedule::SchedulerCounters;
using schedule::SchedulerOptions;

inline constexpr std::size_t unit = 4096;
inline constexpr MemoryIndex host = MemoryIndex::host();
inline constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
inline constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);

inline bool is_same(Fence a, Fence b) { return a.lane == b.lane && a.position == b.position; }
inline FenceSet set_of(std::initializer_list<Fence> fences) {
    FenceSet set;
    for (const Fence& f : fences) set.add(f);
    return set;
}

/// Instructions and requests for memory are written down; the parts under test must not ask for anything else.
class NotedOutbox final : public schedule::Outbox {
  public:
    struct Given {
        std::uint32_t device;
        Instruction instruction;
        std::vector<Fence> waits;
        std::vector<schedule::BoxMove> boxes;
        std::vector<TaskNumber> needed_tasks;
    };
    struct Await {
        MemoryIndex memory;
        std::size_t bytes;
        bool is_patient;
    };

    void instruct(std::uint32_t device, const Instruction& i) override {
        given.push_back({device,
                         i,
                         {i.waits.begin(), i.waits.end()},
                         {i.boxes.begin(), i.boxes.end()},
                         {i.needed_tasks.begin(), i.needed_tasks.end()}});
    }
    void grow(MemoryIndex memory, std::size_t bytes) override { growths.emplace_back(memory, bytes); }
    bool exchange(MemoryIndex memory, std::size_t bytes) override {
        if (has_exchange) exchanges.emplace_back(memory, bytes);
        return has_exchange;
    }
    bool ask_for_bounce(std::size_t bytes) override {
        if (has_bounce) bounces.push_back(bytes);
        return has_bounce;
    }
    bool await_memory(MemoryIndex memory, const memory::Lacking& lacking, bool patient) override {
        if (has_others) awaits.push_back({memory, lacking.bytes, patient});
        return has_others;
    }
    bool linked(MemoryIndex, MemoryIndex) const noexcept override { return false; }
    void memory_wait_begins(Task& task) noexcept override { waits_began.push_back(&task); }
    void memory_wait_ends(Task& task) noexcept override { waits_ended.push_back(&task); }

    void launch(std::uint32_t, Task&) override { unexpected(); }
    void run_on_host(Task&) override { unexpected(); }
    void settled(Task&) noexcept override { unexpected(); }
    void recycle(Task&) noexcept override { unexpected(); }
    std::shared_ptr<graph::Failure> make_failure(Task&, std::exception_ptr,
                                                 const std::shared_ptr<graph::RootFailure>&) override {
        return unexpected(), nullptr;
    }
    std::shared_ptr<graph::Failure> find_failure(TaskNumber) override { return unexpected(), nullptr; }
    void out_of_memory(Task&) override { unexpected(); }
    void kernel_failed(Task&, std::exception_ptr) override { unexpected(); }

    std::vector<Given> given;
    std::vector<std::pair<MemoryIndex, std::size_t>> growths, exchanges;
    std::vector<std::size_t> bounces;
    std::vector<Await> awaits;
    std::vector<Task*> waits_began, waits_ended;
    bool has_exchange = false;
    bool has_bounce = false;
    bool has_others = false;  ///< memory may come from other users of the device

  private:
    static void unexpected() { ADD_FAILURE() << "the part has no business with this"; }
};

/// Writes down what residency requests. Each transfer is done at once.
class NotedRequests final : public memory::Requests {
  public:
    Fence transfer(const Transfer& t, const FenceSet&) override {
        transfers.push_back(t);
        return {static_cast<LaneId>(0), ++position};
    }
    const Task* find(TaskNumber) noexcept override { return nullptr; }
    void grow(MemoryIndex memory, std::size_t bytes) override { growths.emplace_back(memory, bytes); }
    bool passed(Fence) const noexcept override { return true; }
    bool linked(MemoryIndex, MemoryIndex) const noexcept override { return false; }
    void residency_changed(Task& task) override { changed.push_back(&task); }
    void unblocked(Task& task) override { unblocked_tasks.push_back(&task); }

    std::vector<Transfer> transfers;
    std::vector<std::pair<MemoryIndex, std::size_t>> growths;
    std::vector<Task*> changed, unblocked_tasks;
    Position position = 0;
};

/// Tables, lanes and residency, with all memory that the limits allow. The addresses are never read.
class Ground {
  public:
    explicit Ground(PerMemory<std::size_t> limits)
        : lanes(static_cast<std::uint32_t>(limits.num_devices()), 2, 1), residency(requests, limits) {
        options.num_devices = static_cast<std::uint32_t>(limits.num_devices());
        counters.by_device.resize(limits.num_devices());
        for (const MemoryIndex m : limits.memories()) residency.space(m).grown(base(m), limits[m]);
    }
    static std::uintptr_t base(MemoryIndex m) { return (std::uintptr_t{m.index()} + 1) << 40; }

    Array& make_array(std::size_t chunks, std::size_t bytes = unit) {
        arrays_.push_back(std::make_unique<Array>());
        kmm_test::cut(*arrays_.back(), chunks, bytes, options.num_devices);
        return *arrays_.back();
    }
    /// A block with all of the chunk's content, which is made if there is none yet.
    Replica& put(Chunk& c, MemoryIndex m) {
        const bool is_new = c.replicas[m].address == 0;
        if (is_new) {
            residency.residents().records(m).reserve(1);
            residency.residents().take(c, m, residency.space(m).take_free(c.block_bytes()));
        }
        c.version = std::max<std::uint64_t>(c.version, 1);
        Replica& r = c.replicas.at(m);
        residency.residents().set_version(r, c.version);
        residency.residents().reindex_all(c);
        residency.residents().notify(c, m);
        return r;
    }
    /// Of a chunk of an array of its own.
    Chunk& make_content(MemoryIndex m, std::size_t units = 1) {
        Chunk& c = make_array(1, units * unit).chunks[0];
        put(c, m);
        return c;
    }
    void drop(Chunk& c, MemoryIndex m) {
        residency.residents().release(c.replicas.at(m));
        residency.residents().reindex_all(c);
        residency.residents().notify(c, m);
    }

    struct Wanted {
        Chunk* chunk;
        bool writes = false;
        bool replaces = false;
    };
    /// In the table.
    Task& make_task(TaskKind kind, MemoryIndex memory, const std::vector<Wanted>& uses) {
        Task& t = make_record(kind, memory, uses);
        table.add(&t);
        return t;
    }
    /// One that stands right before another.
    Task& make_helper(TaskKind kind, MemoryIndex memory, TaskNumber comes_before) {
        Task& t = make_record(kind, memory, {});
        table.add_helper(&t);
        t.comes_before = comes_before;
        return t;
    }
    Task& make_kernel(const std::vector<Wanted>& uses, MemoryIndex memory = gpu) {
        return make_task(TaskKind::kernel, memory, uses);
    }
    Task& make_reader(Chunk& c, MemoryIndex memory = gpu) { return make_kernel({{&c}}, memory); }
    /// `after` waits for `before`, which has not been issued.
    void add_edge(Task& before, Task& after) {
        after.predecessors.push_back({before.number, true});
        ++after.unissued_predecessors;
    }
    /// Once the task has all its edges.
    void link(Task& after) {
        for (graph::Predecessor& p : after.predecessors) table.find(p.number)->successors.add(p, after);
    }

    SchedulerOptions options;
    SchedulerCounters counters;
    NotedOutbox outbox;
    NotedRequests requests;
    TaskTable table;
    LanePositions lanes;
    Residency residency;

  private:
    Task& make_record(TaskKind kind, MemoryIndex memory, const std::vector<Wanted>& uses) {
        tasks_.push_back(std::make_unique<Task>());
        Task& t = *tasks_.back();
        t.kind = kind;
        if (kind == TaskKind::kernel) t.set_kernel({});
        t.memory = memory;
        for (const Wanted& w : uses) {
            Use& use = t.uses.emplace_back();
            use.chunk = w.chunk;
            use.writes = w.writes;
            use.replaces = w.replaces;
            use.needs_content = !w.replaces;
        }
        return t;
    }

    std::vector<std::unique_ptr<Array>> arrays_;
    std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace kmm::parts_test
