// Simulates ("plays") the next tasks of one memory on a light copy of its state: under a rule, or in a given order.
//
// Owns: the copy. Must not know: records of tasks, arrays, lanes, time. Pure; one thread.
//
// A rollout (Bertsekas, Tsitsiklis, Wu 1997) says of a rule of thumb what comes of it. Rules:
// * fewest_bytes: what the schedule does without a plan, with victims by next use in the order of submission;
// * affinity: each missing chunk costs its bytes by the number of tasks that could share it, weighed by how much of
//   their other chunks is there, so that tasks gather around what is kept (of the kind of DARTS: Gonthier, Marchal,
//   Thibault 2022); the least recently used leaves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kmm/memory/eviction_policy.hpp"
#include "kmm/schedule/order_policy.hpp"

namespace kmm::schedule {

class Rollout {
  public:
    using Index = std::uint32_t;
    static constexpr Index none = ~Index{0};
    static constexpr std::size_t most_uses = 8;        ///< of a task
    static constexpr std::size_t most_next_uses = 16;  ///< of a chunk: later ones are not looked at
    /// Ready tasks of a play that are weighed: others wait behind them.
    static constexpr std::size_t most_ready = 128;
    /// Bound on list entries visited by a play, and by a count of its bytes: less than a millisecond each.
    static constexpr std::uint64_t most_steps = 300'000;

    enum class Rule : std::uint8_t { fewest_bytes, affinity };

    struct NextUse {
        std::uint64_t place = 0;  ///< of the task in the order of submission
        bool replaces = false;
        Index task = none;  ///< once it is added
    };
    struct Chunk {
        std::size_t bytes = 0;
        bool is_here = false;
        bool is_dirty = false;
        bool has_more_uses = false;
        bool is_released = false;  ///< no handle is left: behind its last use nothing of it is saved
        std::uint8_t num_next_uses = 0;
        std::uint64_t last_use = 0;                     ///< any clock's: the lower the longer ago
        std::array<NextUse, most_next_uses> next_uses;  ///< the first ones, in the order of submission
    };
    struct Use {
        Index chunk = none;
        bool needs_content = false;
        bool writes = false;
    };
    struct Task {
        std::uint64_t ready_at = 0;
        std::uint64_t place = 0;
        std::uint32_t open_predecessors = 0;  ///< 0: ready
        bool makes = false;                   ///< content that no task has made before
        bool is_join = false;                 ///< runs nowhere: done when it becomes ready
        std::uint8_t num_uses = 0;
        std::array<Use, most_uses> uses;
        std::span<const Use> used() const noexcept { return {uses.data(), num_uses}; }
    };

    /// Tells what comes after a task when it is needed: a play looks at few of all tasks.
    class Source {
      public:
        /// Adds tasks, and edges from `task` to them (`add_edge`). Once for each task.
        virtual void add_successors(Index task) = 0;

      protected:
        ~Source() = default;
    };

    /// Begins a new copy. `free_bytes`: of `limit_bytes` in the memory. `now`: above every Chunk::last_use.
    void clear(std::size_t free_bytes, std::size_t limit_bytes, std::uint64_t now);
    Index add_chunk(const Chunk& chunk);
    Index add_task(const Task& task);
    /// Counts among the open predecessors of `after`.
    void add_edge(Index after) { edges_.push_back(after); }
    std::size_t num_tasks() const noexcept { return tasks_.size(); }

    /// Plays tasks of `first` in this order, up to one that is not ready, then under the rule, until `num_tasks` tasks
    /// are played, none is ready or has room, or `most_steps` were taken. The order is valid until the next call.
    /// O(tasks played * (most_ready * uses + chunks here + 16 candidates)), and O(most_steps).
    std::span<const Index> play(Rule rule, std::span<const Index> first, std::size_t num_tasks, Source& source);
    /// Bytes over links for each task of the order, with victims by next use in it (Belady 1966), and with half of what
    /// has still to be saved in the end; of the first tasks alone where there is no room, or `most_steps` were taken.
    /// O(tasks * chunks here), and O(most_steps).
    double bytes_a_task(std::span<const Index> order, Source& source);
    /// As enabling::count and enabling::is_last_of_any, where the last play ended. What comes after a task counts once
    /// that task was ready in some play.
    std::size_t count_enabled(Index task);
    bool enables(Index task);
    /// Entries of lists that were looked at in all.
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    class TaskGraph;
    enum class Leaves : std::uint8_t { farthest_as_submitted, least_recently_used, farthest_in_order };
    struct ChunkState {
        std::size_t bytes = 0;
        bool is_here = false;
        bool is_dirty = false;
        bool is_affinity_known = false;
        bool is_rank_known = false;
        std::uint8_t first_use = 0;  ///< those before are over
        std::uint32_t place_here = 0;
        float affinity = 0;
        std::uint64_t rank = 0;
        std::uint64_t last_use = 0;
        std::uint64_t next_in_order = 0;  ///< 0: none
    };
    struct TaskState {
        bool is_done = false;
        std::uint32_t open_predecessors = 0;
        std::uint64_t ready_at = 0;
    };
    struct Edges {
        Index first = none;  ///< none: not asked for yet
        Index count = 0;
    };

    void reset(Source& source);
    void begin(ChunkState& state, const Chunk& chunk) noexcept;
    void make_ready(Index task, Source& source);
    void issue(Index task, Source& source);
    bool make_room(const Task& task);
    Index victim(const Task& task);
    void set_here(Index chunk, bool is_here);
    memory::Prospect prospect(Index chunk);
    std::uint64_t rank(Index chunk);
    bool misses_nothing(const Task& task) const noexcept;
    ReadyTask weigh(Index task) const noexcept;
    std::span<const Index> successors(Index task) const noexcept;
    Index choose(Rule rule);
    Index choose_fewest_bytes();
    Index choose_by_affinity();
    float share_here(const Task& task, Index but) const noexcept;
    float affinity(Index chunk);

    // The copy.
    std::vector<Chunk> chunks_;
    std::vector<Task> tasks_;
    std::vector<Edges> edges_of_;
    std::vector<Index> edges_;
    std::ptrdiff_t free_bytes_ = 0;
    std::size_t limit_bytes_ = 0;
    // The play.
    std::vector<ChunkState> chunk_states_;
    std::vector<TaskState> task_states_;
    std::vector<Index> ready_;  ///< at most `most_ready`
    std::vector<Index> later_;  ///< ready ones, in the order in which they became ready; from `first_later_` on
    std::size_t first_later_ = 0;
    std::vector<Index> here_;
    Leaves leaves_ = Leaves::farthest_as_submitted;
    std::ptrdiff_t room_bytes_ = 0;
    std::size_t moved_bytes_ = 0;
    std::uint64_t now_ = 0;
    std::uint64_t tick_ = 0;
    std::uint64_t num_ready_ = 0;
    // Keep their memory.
    std::vector<Index> order_;
    std::vector<Index> made_ready_;
    std::vector<Index> enabled_;
    struct Candidate {
        OrderKey key;
        Index task;
        friend bool operator<(const Candidate& a, const Candidate& b) noexcept { return a.key < b.key; }
    };
    std::vector<ReadyTask> weighed_;
    std::vector<Candidate> candidates_;
    std::vector<std::uint64_t> next_positions_;
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
