// Plans the order in which the next tasks of a memory are issued: several rules propose one, and the order with the
// fewest bytes a task is taken.
//
// Owns: the copy of what is ready, and of what is in the memory, that rollouts play on. Must not know: lanes, who
// follows the plan. Runs under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kmm/graph/task.hpp"
#include "kmm/memory/residency.hpp"
#include "kmm/schedule/rollout.hpp"

namespace kmm::schedule {

class OrderSearch final : private Rollout::Source {
  public:
    /// Tasks of a plan. As many as touch what fits into a memory of a few dozen chunks a few times.
    static constexpr std::size_t most_tasks = 256;
    static_assert(most_tasks < memory::eviction::beyond_orders && most_tasks <= 0xffff, "Task::order_position");
    /// Ready tasks that are looked at in the beginning.
    static constexpr std::size_t most_ready = Rollout::most_ready;

    explicit OrderSearch(memory::Residency& residency) noexcept : residency_(residency) {}
    /// Begins a plan for a device's memory.
    void begin(memory::MemoryIndex memory);
    /// Adds a ready task. False: it is of a kind that no plan can have, and there should be none.
    bool add_ready(graph::Task& task) { return add(task) != Rollout::none; }
    /// The best order that was found, no longer than `most_tasks`, of what comes of `before` (the rest of the plan so
    /// far) and of each rule. The rule by affinity must save a tenth of the bytes: what a plan leaves behind for those
    /// after it is not in its bytes, and with little to gain the usual rule leaves the better. Valid until the next
    /// call. Takes up to three plays and as many counts, each of which Rollout bounds: 1 to 3 ms. Its memory is not of
    /// the host's reserve, since the schedule can do without: throws std::bad_alloc.
    std::span<graph::Task* const> make(std::span<graph::Task* const> before);
    /// Entries of lists that were looked at in all.
    std::uint64_t num_steps() const noexcept { return rollout_.num_steps(); }

  private:
    static constexpr std::size_t most_looked_at = 1024;
    static_assert(most_looked_at <= 0xffff, "Task::index_in_search");
    static constexpr std::size_t most_successors = 16;
    static constexpr std::size_t most_victims = 128;  ///< of which no task that is looked at has any use

    Rollout::Index add(graph::Task& task);
    Rollout::Index add(memory::Chunk& chunk);
    void add_successors(Rollout::Index task) override;
    bool may_have(const graph::Task& task) const noexcept;
    void consider(Rollout::Rule rule, double least_share = 1);

    memory::Residency& residency_;
    Rollout rollout_;
    memory::MemoryIndex memory_;
    // By their index, which each knows: of one that is not there it may be anything (Briggs and Torczon 1993).
    std::vector<graph::Task*> tasks_;
    std::vector<memory::Chunk*> chunks_;
    // Keep their memory.
    std::vector<memory::Chunk*> victims_;
    std::vector<Rollout::Index> played_;
    std::vector<Rollout::Index> first_;
    std::vector<Rollout::Index> best_;
    double best_bytes_ = 0;
    std::vector<graph::Task*> order_;
};

}  // namespace kmm::schedule
