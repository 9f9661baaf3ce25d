// Plays a recorded program: its tasks go through the real schedule and residency, and devices that have no time.
//
// All tasks are submitted at once. Then, again and again, the oldest work on the lanes is done, and the oldest function
// is run, one at a time: two plays of one record issue the same, whatever the machine. Owns: arrays, tasks and the
// devices. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kmm/plan/layout.hpp"
#include "kmm/schedule/scheduler.hpp"
#include "kmm/trace/collector.hpp"

namespace kmm::testing {

/// What a record says of a program.
class Program final : public trace::Consumer {
  public:
    void bound(const trace::Array& array, std::int64_t) noexcept override { arrays.push_back(array); }
    void named(trace::Number array, const std::string& name, std::int64_t) noexcept override;
    void submitted(const trace::Task& task, std::int64_t) noexcept override { tasks.push_back(task); }
    void note(const trace::Event& event, const trace::Fence*, std::size_t, std::int64_t,
              std::uint32_t) noexcept override;
    void finish(std::uint64_t) noexcept override {}

    trace::Machine machine;
    std::vector<trace::Array> arrays;
    std::vector<trace::Task> tasks;
    std::set<trace::Number> failed;  ///< tasks that failed by themselves
};

class SchedulePlayer final : private schedule::Outbox, private trace::Sink {
  public:
    /// `consumer` is told what is bound, submitted and issued.
    SchedulePlayer(const Program& program, trace::Consumer& consumer);
    ~SchedulePlayer();
    /// Until every task is settled. False: the schedule stands still before that.
    bool play();

  private:
    void submit(const trace::Task& task);
    void add_boxes(graph::Task& task, const trace::Task& told);
    void add_across(graph::Task& task, const trace::Task& told);
    void answer_growth();
    bool complete_oldest();
    bool run_oldest();

    // schedule::Outbox
    void instruct(std::uint32_t device, const schedule::Instruction& instruction) override;
    void launch(std::uint32_t device, graph::Task& task) override;
    void run_on_host(graph::Task& task) override { functions_.push_back(&task); }
    void grow(memory::MemoryIndex memory, std::size_t bytes) override { growths_.emplace_back(memory, bytes); }
    bool linked(memory::MemoryIndex from, memory::MemoryIndex to) const noexcept override {
        return from.is_device() && to.is_device();
    }
    void settled(graph::Task& task) noexcept override;
    void recycle(graph::Task&) noexcept override {}
    std::shared_ptr<graph::Failure> make_failure(graph::Task& task, std::exception_ptr thrown,
                                                 const std::shared_ptr<graph::RootFailure>& root) override;
    std::shared_ptr<graph::Failure> find_failure(graph::TaskNumber number) override;
    void out_of_memory(graph::Task& task) override;
    void memory_wait_begins(graph::Task&) noexcept override {}
    void memory_wait_ends(graph::Task&) noexcept override {}
    void kernel_failed(graph::Task&, std::exception_ptr) override {}
    // trace::Sink
    void bound(const trace::Array& array) noexcept override { consumer_.bound(array, 0); }
    void named(trace::Number array, const std::string& name) noexcept override { consumer_.named(array, name, 0); }
    void submitted(trace::Task&& task) noexcept override { consumer_.submitted(task, 0); }
    void note(const trace::Event& event, const graph::FenceSet* fences) noexcept override;

    const Program& program_;
    trace::Consumer& consumer_;
    trace::Emitter emitter_;
    graph::TaskTable table_;
    std::map<trace::Number, std::unique_ptr<memory::Array>> arrays_;
    std::vector<std::unique_ptr<graph::Task>> tasks_;
    std::map<graph::TaskNumber, std::shared_ptr<graph::Failure>> failures_;
    std::deque<schedule::Instruction> instructions_;
    std::deque<graph::Task*> functions_;
    std::deque<std::pair<memory::MemoryIndex, std::size_t>> growths_;
    memory::PerMemory<std::uintptr_t> next_address_;
    std::map<graph::LaneId, graph::Position> launched_;  ///< positions that functions have taken
    std::unique_ptr<schedule::Scheduler> scheduler_;
};

}  // namespace kmm::testing
