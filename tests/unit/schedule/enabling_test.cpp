// How many tasks become possible with one: of the schedule's tasks (Lookahead) and of a plan's copy of them (Rollout),
// which must agree.
//
// All chunks have content: for a chunk without any the schedule counts it as present, a plan as missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "kmm/memory/chunk.hpp"
#include "kmm/schedule/enabling.hpp"
#include "kmm/schedule/lookahead.hpp"
#include "kmm/schedule/rollout.hpp"

namespace kmm::schedule_test {
namespace {

using graph::Task;
using graph::TaskKind;
using memory::Chunk;
using memory::MemoryIndex;
using memory::Replica;
using schedule::Lookahead;
using schedule::Rollout;
using Index = Rollout::Index;

constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
constexpr MemoryIndex other_gpu = MemoryIndex::of_device(1);
constexpr std::size_t chunk_bytes = 1 << 20;

struct Wanted {
    std::size_t chunk = 0;
    bool needs_content = true;
    bool writes = false;
};

/// The same tasks and chunks twice: as the schedule has them, and as a plan of `gpu` copies them. As in a plan, tasks
/// that run elsewhere are not copied; what waits for them has an open predecessor.
class TwoGraphs final : private Rollout::Source {
  public:
    TwoGraphs() { rollout_.clear(64 * chunk_bytes, 128 * chunk_bytes, 1000); }

    /// Before any task.
    std::size_t add_chunk(bool is_here) {
        Chunk& chunk = chunks_.emplace_back();
        chunk.version = 1;
        if (is_here) make_valid(chunk);
        Rollout::Chunk copy;
        copy.bytes = chunk_bytes;
        copy.is_here = is_here;
        in_plan_.push_back(rollout_.add_chunk(copy));
        return chunks_.size() - 1;
    }
    std::size_t add_task(const std::vector<Wanted>& uses, const std::vector<std::size_t>& after,
                         TaskKind kind = TaskKind::kernel, MemoryIndex memory = gpu) {
        const std::size_t number = tasks_.size();
        Task& task = tasks_.emplace_back();
        task.number = number + 1;
        task.kind = kind;
        task.memory = memory;
        for (const Wanted& u : uses) {
            graph::Use& use = task.uses.emplace_back();
            use.chunk = &chunks_[u.chunk];
            use.needs_content = u.needs_content;
            use.writes = u.writes;
        }
        for (const std::size_t before : after) task.predecessors.push_back({before + 1, true});
        for (graph::Predecessor& p : task.predecessors) tasks_[p.number - 1].successors.add(p, task);
        task.unissued_predecessors = static_cast<std::uint32_t>(after.size());
        uses_.push_back(uses);
        copies_.push_back(Rollout::none);
        if (after.empty()) (void)copy_of(number);
        return number;
    }

    /// What comes after each task is known to the plan once the task was ready in a play: this is one of everything.
    void play_all() { (void)rollout_.play(Rollout::Rule::fewest_bytes, {}, tasks_.size(), *this); }
    /// The state after these tasks, of which `issue` was told all but the last ones before. Each is ready when its turn
    /// comes.
    void issue(const std::vector<std::size_t>& order) {
        for (; num_issued_ < order.size(); ++num_issued_) {
            const std::size_t number = order[num_issued_];
            for (const graph::Predecessor& s : tasks_[number].successors) --s.after->unissued_predecessors;
            for (const Wanted& u : uses_[number]) {
                if (u.writes) ++chunks_[u.chunk].version;
                make_valid(chunks_[u.chunk]);
            }
        }
        // A play begins anew, and takes all steps again.
        std::vector<Index> copies;
        for (const std::size_t number : order) copies.push_back(copies_[number]);
        const auto played = rollout_.play(Rollout::Rule::fewest_bytes, copies, copies.size(), *this);
        ASSERT_EQ(std::vector<Index>(played.begin(), played.end()), copies);
    }
    bool is_ready(std::size_t number) const {
        const Task& t = tasks_[number];
        return t.unissued_predecessors == 0 && t.memory == gpu && Lookahead::looks_at(t);
    }

    std::size_t count_in_schedule(std::size_t number) {
        std::uint64_t steps = 0;
        const std::size_t count = lookahead_.count_enabled(tasks_[number], &steps);
        note_steps(steps);
        return count;
    }
    std::size_t count_in_plan(std::size_t number) {
        const std::uint64_t before = rollout_.num_steps();
        const std::size_t count = rollout_.count_enabled(copies_[number]);
        note_steps(rollout_.num_steps() - before);
        return count;
    }
    /// Since the last call the bound on steps ended a count. The two graphs take different steps.
    bool was_bounded() { return std::exchange(was_bounded_, false); }
    bool enables_in_schedule(std::size_t number) const { return Lookahead::enables(tasks_[number]); }
    bool enables_in_plan(std::size_t number) { return rollout_.enables(copies_[number]); }

  private:
    void note_steps(std::uint64_t steps) { was_bounded_ = was_bounded_ || steps >= schedule::enabling::most_steps; }
    void make_valid(Chunk& chunk) {
        Replica* replica = chunk.replicas.find(gpu);
        if (replica == nullptr) {
            replica = &replicas_.emplace_back();
            replica->order = Replica::order_of(gpu);
            chunk.replicas.insert(*replica);
        }
        replica->version = chunk.version;
    }
    /// As Planner::add.
    Index copy_of(std::size_t number) {
        const Task& task = tasks_[number];
        if (copies_[number] != Rollout::none || task.memory != gpu || !Lookahead::looks_at(task))
            return copies_[number];
        Rollout::Task copy;
        copy.place = copy.ready_at = task.number;
        copy.open_predecessors = task.unissued_predecessors;
        for (const Wanted& u : uses_[number])
            copy.uses[copy.num_uses++] = {in_plan_[u.chunk], u.needs_content, u.writes};
        copies_[number] = rollout_.add_task(copy);
        numbers_.push_back(number);
        return copies_[number];
    }
    void add_successors(Index task) override {
        for (const graph::Predecessor& s : tasks_[numbers_[task]].successors) {
            const Index after = copy_of(s.after->number - 1);
            if (after != Rollout::none) rollout_.add_edge(after);
        }
    }

    std::deque<Chunk> chunks_;
    std::deque<Replica> replicas_;
    std::deque<Task> tasks_;
    std::vector<std::vector<Wanted>> uses_;
    Lookahead lookahead_;
    Rollout rollout_;
    std::vector<Index> in_plan_;        ///< of chunks
    std::vector<Index> copies_;         ///< of tasks
    std::vector<std::size_t> numbers_;  ///< by copy
    std::size_t num_issued_ = 0;
    bool was_bounded_ = false;
};

TEST(Enabling, a_chain_behind_a_task_is_counted_as_long_as_nothing_must_be_fetched) {
    TwoGraphs graphs;
    const std::size_t here = graphs.add_chunk(true), made = graphs.add_chunk(false), missing = graphs.add_chunk(false);
    const std::size_t first = graphs.add_task({{here}}, {});
    const std::size_t second = graphs.add_task({{here, true, true}}, {first});
    graphs.add_task({{made, false, true}}, {second});
    graphs.add_task({{here}, {made}}, {second});
    graphs.add_task({{here}, {missing}}, {second});
    graphs.play_all();
    graphs.issue({});
    EXPECT_EQ(graphs.count_in_schedule(first), 3u) << "nothing brings what the last one reads";
    EXPECT_EQ(graphs.count_in_plan(first), 3u);
    EXPECT_TRUE(graphs.enables_in_schedule(first) && graphs.enables_in_plan(first));
}

TEST(Enabling, a_plan_counts_what_comes_after_a_task_once_that_task_was_ready_in_a_play) {
    TwoGraphs graphs;
    const std::size_t here = graphs.add_chunk(true);
    const std::size_t first = graphs.add_task({{here}}, {});
    const std::size_t second = graphs.add_task({{here}}, {first});
    graphs.add_task({{here}}, {second});
    graphs.issue({});
    EXPECT_EQ(graphs.count_in_schedule(first), 2u);
    EXPECT_EQ(graphs.count_in_plan(first), 1u);
    graphs.play_all();
    graphs.issue({});
    EXPECT_EQ(graphs.count_in_plan(first), 2u);
}

TEST(Enabling, no_more_are_counted_than_the_bound_says) {
    TwoGraphs graphs;
    const std::size_t here = graphs.add_chunk(true);
    const std::size_t first = graphs.add_task({{here}}, {});
    for (std::size_t i = 0; i < schedule::enabling::most_counted + 3; i++) graphs.add_task({{here}}, {first});
    graphs.play_all();
    graphs.issue({});
    EXPECT_EQ(graphs.count_in_schedule(first), schedule::enabling::most_counted);
    EXPECT_EQ(graphs.count_in_plan(first), schedule::enabling::most_counted);
}

TEST(Enabling, the_schedule_and_a_plan_count_alike_at_every_step_of_random_graphs) {
    std::size_t counts[schedule::enabling::most_counted + 1] = {}, enabling = 0, looked_at = 0, bounded = 0;
    for (unsigned seed = 0; seed < 1500; seed++) {
        std::mt19937 random(seed);
        const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
        TwoGraphs graphs;
        const std::size_t num_chunks = 2 + pick(4), num_tasks = 3 + pick(10), missing = pick(4), elsewhere = pick(3);
        for (std::size_t c = 0; c < num_chunks; c++) graphs.add_chunk(pick(4) >= missing);
        for (std::size_t t = 0; t < num_tasks; t++) {
            std::vector<Wanted> uses;
            for (std::size_t c = 0; c < num_chunks && uses.size() < 3; c++)
                if (pick(3) == 0) uses.push_back({c, pick(4) != 0, pick(3) == 0});
            std::vector<std::size_t> after;
            for (std::size_t p = 0; p < t && after.size() < 3; p++)
                if (pick(t) < 2) after.push_back(p);
            const TaskKind kinds[] = {TaskKind::kernel, TaskKind::device_function, TaskKind::host, TaskKind::transfer};
            const bool is_elsewhere = pick(16) < elsewhere;
            graphs.add_task(uses, after, kinds[pick(12) < elsewhere ? 2 + pick(2) : pick(2)],
                            is_elsewhere ? other_gpu : gpu);
        }
        graphs.play_all();
        std::vector<bool> is_issued(num_tasks, false);
        std::vector<std::size_t> order;
        for (;;) {
            ASSERT_NO_FATAL_FAILURE(graphs.issue(order)) << "seed " << seed;
            std::vector<std::size_t> ready;
            for (std::size_t t = 0; t < num_tasks; t++)
                if (!is_issued[t] && graphs.is_ready(t)) ready.push_back(t);
            if (ready.empty()) break;
            for (const std::size_t t : ready) {
                const std::size_t count = graphs.count_in_schedule(t), in_plan = graphs.count_in_plan(t);
                if (graphs.was_bounded())
                    bounded++;
                else
                    ASSERT_EQ(in_plan, count) << "seed " << seed << ", task " << t;
                ASSERT_EQ(graphs.enables_in_plan(t), graphs.enables_in_schedule(t)) << "seed " << seed;
                counts[count]++;
                enabling += graphs.enables_in_schedule(t);
                looked_at++;
            }
            const std::size_t next = ready[pick(ready.size())];
            is_issued[next] = true;
            order.push_back(next);
        }
    }
    EXPECT_GT(counts[0], 500u);
    EXPECT_GT(counts[1], 500u);
    EXPECT_GT(counts[2] + counts[3], 200u);
    EXPECT_GT(counts[5] + counts[6] + counts[7] + counts[8], 10u) << "chains of some length";
    EXPECT_LT(bounded, looked_at / 20);
    EXPECT_GT(enabling, 500u);
    EXPECT_LT(enabling, looked_at - 500);
}

}  // namespace
}  // namespace kmm::schedule_test
