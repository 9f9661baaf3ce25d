// Plays a program: its tasks go through the real schedule and residency, and devices that are simulated.
//
// Owns: arrays and records of tasks. Must not know: what time things take, which devices.hpp or timed_devices.hpp say.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kmm/plan/layout.hpp"
#include "kmm/schedule/scheduler.hpp"
#include "simulate/devices.hpp"
#include "simulate/program.hpp"

namespace kmm::simulate {

struct PlayOptions {
    /// So much later each task is submitted than the one before.
    std::int64_t submit_ns = 0;
    schedule::OrderPolicy order = schedule::OrderPolicy::fewest_bytes_a_task;
    memory::EvictionPolicy eviction = memory::EvictionPolicy::farthest_next_use;
};

class Player final : private schedule::Outbox, private trace::Sink {
  public:
    /// `consumer` is told what is bound, submitted and issued; may be null. All of these outlive the player.
    Player(const Program& program, Devices& devices, trace::Consumer* consumer, const PlayOptions& options = {});
    ~Player();
    /// Until every task is settled. False: the schedule stands still before that.
    bool play();
    const schedule::SchedulerCounters& counters() const noexcept { return scheduler_->counters(); }
    /// Over such a link, since the program has waited for all for the first time, if it does.
    std::uint64_t bytes_moved(memory::Link link) const noexcept {
        const auto i = static_cast<std::size_t>(link);
        return counters().transfers.bytes[i] - counted_from_.bytes[i];
    }
    std::int64_t counted_from_ns() const noexcept { return counted_from_ns_; }
    const memory::MemoryCounters& counters(memory::MemoryIndex m) const noexcept {
        return scheduler_->residency().space(m).counters;
    }

  private:
    bool begins_run(std::size_t i) const { return program_.waited_for_all.count(program_.tasks[i].number) != 0; }
    void begin_run(std::int64_t* submit_at_ns);
    void drop_arrays(std::size_t num_submitted);
    void find_places();
    std::size_t end_of_submit(std::size_t first) const noexcept;
    void add(const trace::Task& task);
    void submit(graph::Task& task) { scheduler_->submit(task); }
    void count_held(graph::Task& task);
    std::uint32_t use_of(graph::Task& task, const trace::Use& told);
    void add_use(graph::Task& task, const trace::Use& told);
    void add_across(graph::Task& task, const trace::Task& told);
    void handle(const Done& done);
    void returned(graph::Task& task);

    // schedule::Outbox
    void instruct(std::uint32_t, const schedule::Instruction& instruction) override { devices_.instruct(instruction); }
    void launch(std::uint32_t, graph::Task& task) override { devices_.run(task); }
    void run_on_host(graph::Task& task) override { devices_.run(task); }
    void grow(memory::MemoryIndex memory, std::size_t bytes) override { devices_.grow(memory, bytes); }
    bool ask_for_bounce(std::size_t bytes) override {
        wanted_bounce_bytes_ = bytes;
        return true;
    }
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
    // trace::Sink: the schedule tells nothing else.
    void bound(const trace::Array&) noexcept override {}
    void named(trace::Number, const std::string&) noexcept override {}
    void submitted(trace::Task&&) noexcept override {}
    void note(const trace::Event& event, const graph::FenceSet* fences) noexcept override;
    void lost(std::uint64_t) noexcept override {}

    const Program& program_;
    Devices& devices_;
    trace::Consumer* consumer_;
    PlayOptions options_;
    trace::Emitter emitter_;
    graph::TaskTable table_;
    std::map<trace::Number, memory::OwnerPtr> arrays_;  ///< and temporaries
    std::map<trace::Number, trace::Number> places_;     ///< of helpers in the order of submission
    std::vector<std::size_t> ends_;                     ///< of each task: behind it and all that it names
    std::vector<std::unique_ptr<graph::Task>> tasks_;
    std::map<graph::TaskNumber, std::shared_ptr<graph::Failure>> failures_;
    memory::PerMemory<std::uintptr_t> next_address_;
    std::map<graph::LaneId, graph::Position> launched_;  ///< positions that functions have taken
    std::unique_ptr<schedule::Scheduler> scheduler_;
    std::size_t num_drops_ = 0;            ///< of the program's, so far
    std::set<const memory::Chunk*> made_;  ///< that a submitted task writes
    std::size_t held_bytes_ = 0;           ///< graph::HeldBytes
    std::size_t temporary_bytes_ = 0;      ///< of these, of the submit that is added
    std::size_t wanted_bounce_bytes_ = 0;
    bool has_waited_ = false;
    memory::LinkCounts counted_from_;
    std::int64_t counted_from_ns_ = 0;
};

}  // namespace kmm::simulate
