// Plays memory service, devices and host pool for a scheduler: what it hands out is written down, and nothing happens
// before the test says so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../memory/cut_array.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule_test {

using kmm::MemoryId;
using kmm::ResourceId;
using kmm::graph::Failure;
using kmm::graph::Fence;
using kmm::graph::LaneId;
using kmm::graph::RootFailure;
using kmm::graph::Task;
using kmm::graph::TaskKind;
using kmm::graph::TaskNumber;
using kmm::graph::TaskTable;
using kmm::memory::Array;
using kmm::memory::Chunk;
using kmm::memory::MemoryIndex;
using kmm::memory::PerMemory;
using kmm::schedule::Instruction;
using kmm::schedule::LaneRole;
using kmm::schedule::Outbox;
using kmm::schedule::Scheduler;
using kmm::schedule::SchedulerOptions;

inline constexpr std::size_t unit = 4096;
inline constexpr MemoryIndex host = MemoryIndex::host();
inline constexpr MemoryIndex gpu = MemoryIndex::of_device(0);

class Stage : public Outbox {
  public:
    explicit Stage(PerMemory<std::size_t> limits, SchedulerOptions options = {}) {
        options.num_devices = static_cast<std::uint32_t>(limits.num_devices());
        options.compute_lanes = 2;
        options.launcher_lanes = 1;
        num_devices_ = limits.num_devices();
        scheduler = std::make_unique<Scheduler>(*this, table, options, limits);
    }

    Array& make_array(std::size_t chunks, std::size_t bytes = unit) {
        arrays_.push_back(std::make_unique<Array>());
        Array& a = *arrays_.back();
        a.element_bytes = 4;
        kmm_test::cut(a, chunks, bytes, num_devices_);
        return a;
    }
    struct Wanted {
        Chunk* chunk;
        bool writes = false;
        bool replaces = false;
    };
    Task& make_task(TaskKind kind, MemoryIndex memory, const std::vector<Wanted>& uses,
                    const std::vector<TaskNumber>& after = {}) {
        tasks_.push_back(std::make_unique<Task>());
        Task& t = *tasks_.back();
        t.kind = kind;
        if (kind == TaskKind::kernel) t.set_kernel({});
        t.memory = memory;
        for (const Wanted& w : uses) {
            t.views.emplace_back().use = static_cast<std::uint32_t>(t.uses.size());
            kmm::graph::Use& use = t.uses.emplace_back();
            use.chunk = w.chunk;
            use.writes = w.writes;
            use.replaces = w.replaces;
            use.needs_content = !w.replaces;
        }
        for (const TaskNumber n : after) t.predecessors.push_back({n, true});
        table.add(&t);
        return t;
    }
    Task& submit(TaskKind kind, MemoryIndex memory, const std::vector<Wanted>& uses,
                 const std::vector<TaskNumber>& after = {}) {
        Task& t = make_task(kind, memory, uses, after);
        scheduler->submit(t);
        return t;
    }
    /// Lets the scheduler issue, with all the memory that it asks for.
    void dispatch() {
        scheduler->dispatch();
        while (!growths.empty() || bounce_asked != 0) {
            if (bounce_asked != 0) {
                scheduler->bounce_came(std::uintptr_t{77} << 40, std::exchange(bounce_asked, 0));
                scheduler->dispatch();
                continue;
            }
            const auto [memory, bytes] = growths.back();
            growths.pop_back();
            if (bytes > driver_has) {
                scheduler->grown(memory, 0, 0);
                scheduler->dispatch();
                continue;
            }
            if (memory.is_device()) driver_has -= bytes;
            next_address_[memory] = std::max(next_address_[memory], (std::uintptr_t{memory.index()} + 1) << 32);
            scheduler->grown(memory, next_address_[memory], bytes);
            next_address_[memory] += bytes;
            scheduler->dispatch();
        }
    }
    /// Completes everything on the lanes, in the order in which it was handed out, until nothing more comes.
    void finish() {
        dispatch();
        while (finished_ < instructions.size() || !on_host.empty()) {
            if (finished_ < instructions.size()) {
                const Instruction& i = instructions[finished_++];
                for (const Fence& f : i.waits) EXPECT_TRUE(done(f)) << "work was handed out before what it waits for";
                completed[i.lane] = i.position;
                if (i.op == Instruction::Op::kernel) ran.push_back(i.task);
                scheduler->advance(i.lane, i.position);
            } else {
                Task* t = on_host.front();
                on_host.erase(on_host.begin());
                ran.push_back(t->number);
                scheduler->host_done(*t, nullptr);
            }
            dispatch();
        }
    }
    /// The oldest instruction on the lanes, if there is any.
    void complete_one() {
        if (finished_ == instructions.size()) return;
        const Instruction& i = instructions[finished_++];
        completed[i.lane] = i.position;
        if (i.op == Instruction::Op::kernel) ran.push_back(i.task);
        scheduler->advance(i.lane, i.position);
        dispatch();
    }
    std::size_t num_finished() const noexcept { return finished_; }  ///< of `instructions`
    bool done(Fence f) const {
        const auto it = completed.find(f.lane);
        return it != completed.end() && it->second >= f.position;
    }
    std::size_t copies(MemoryIndex from, MemoryIndex to) const {
        return static_cast<std::size_t>(
            std::count_if(instructions.begin(), instructions.end(),
                          [&](const Instruction& i) { return i.is_whole_chunk() && i.from == from && i.to == to; }));
    }

    // Outbox
    void instruct(std::uint32_t, const Instruction& i) override {
        instructions.push_back(i);
        instructions.back().waits = fences_.emplace_back(i.waits.begin(), i.waits.end());
        instructions.back().boxes = boxes_.emplace_back(i.boxes.begin(), i.boxes.end());
    }
    void launch(std::uint32_t, Task& t) override { launches.push_back(&t); }
    void run_on_host(Task& t) override { on_host.push_back(&t); }
    void grow(MemoryIndex memory, std::size_t bytes) override { growths.emplace_back(memory, bytes); }
    bool ask_for_bounce(std::size_t bytes) override {
        if (has_bounce) bounce_asked = bytes;
        return has_bounce;
    }
    bool await_memory(MemoryIndex, const kmm::memory::Lacking& lacking, bool patient) override {
        waits.emplace_back(lacking.bytes, patient);
        return true;
    }
    bool linked(MemoryIndex, MemoryIndex) const noexcept override { return false; }
    void settled(Task& t) noexcept override {
        if (t.failure != nullptr) failures[t.number] = t.failure;
        table.remove(t.number);
    }
    void recycle(Task&) noexcept override {}
    std::shared_ptr<Failure> make_failure(Task& task, std::exception_ptr thrown,
                                          const std::shared_ptr<RootFailure>& root) override {
        auto failure = std::make_shared<Failure>();
        failure->root = root;
        if (thrown != nullptr) {
            failure->root = std::make_shared<RootFailure>();
            failure->root->number = task.number;
            failure->root->cause = thrown;
        }
        failure->error = failure->root->cause;
        return failure;
    }
    std::shared_ptr<Failure> find_failure(TaskNumber number) override {
        const auto it = failures.find(number);
        return it == failures.end() ? nullptr : it->second;
    }
    void out_of_memory(Task& task) override {
        task.thrown = std::make_exception_ptr(std::runtime_error("out of memory"));
    }
    void memory_wait_begins(Task& task) noexcept override { waits_began.push_back(task.number); }
    void memory_wait_ends(Task& task) noexcept override { waits_ended.push_back(task.number); }
    void kernel_failed(Task& task, std::exception_ptr thrown) override {
        if (task.thrown == nullptr) task.thrown = thrown;
    }

    TaskTable table;
    std::unique_ptr<Scheduler> scheduler;
    std::vector<Instruction> instructions;
    std::vector<Task*> launches;
    std::vector<Task*> on_host;
    std::vector<std::pair<MemoryIndex, std::size_t>> growths;
    std::size_t driver_has = ~std::size_t{0};  ///< for the devices
    bool has_bounce = false;                   ///< memory outside the budget by way of which content changes its place
    std::size_t bounce_asked = 0;              ///< of it, and not given yet
    std::vector<std::pair<std::size_t, bool>> waits;
    std::map<TaskNumber, std::shared_ptr<Failure>> failures;
    std::map<LaneId, kmm::graph::Position> completed;
    std::vector<TaskNumber> ran;
    std::vector<TaskNumber> waits_began;
    std::vector<TaskNumber> waits_ended;

  private:
    std::deque<std::vector<Fence>> fences_;  // that instructions point to
    std::deque<std::vector<kmm::schedule::BoxMove>> boxes_;
    std::size_t num_devices_ = 0;
    std::size_t finished_ = 0;
    std::map<MemoryIndex, std::uintptr_t> next_address_;
    std::vector<std::unique_ptr<Array>> arrays_;
    std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace kmm::schedule_test
