#include "kmm/schedule/lookahead.hpp"

#include <algorithm>

#include "kmm/memory/residency.hpp"
#include "kmm/schedule/enabling.hpp"

namespace kmm::schedule {

using graph::Task;
using graph::Use;

namespace {

/// See enabling.hpp.
class TaskGraph {
  public:
    using Node = const Task*;
    using Nodes = graph::Vector<const Task*>;

    template<typename F> void each_successor(Node task, F&& f) const {
        for (const graph::Predecessor& s : task->successors)
            if (!f(s.after)) return;
    }
    bool is_counted(Node task, Node first) const noexcept {
        return task->memory == first->memory && Lookahead::looks_at(*task);
    }
    std::uint32_t num_open(Node task) const noexcept { return task->unissued_predecessors; }
    std::uint32_t num_edges_from(const Nodes& nodes, Node task) noexcept {
        std::uint32_t found = 0;
        for (const graph::Predecessor& p : task->predecessors) {
            add_steps(nodes.size());
            if (steps_ > enabling::most_steps) return 0;
            found += std::any_of(nodes.begin(), nodes.end(), [&](Node t) { return t->number == p.number; });
        }
        return found;
    }
    bool gets_all_it_reads(Node task, const Nodes& nodes) noexcept {
        return std::all_of(task->uses.begin(), task->uses.end(), [&](const Use& u) {
            if (!u.needs_content || u.role == Use::Role::region || u.is_small_part) return true;
            return memory::is_here(*u.chunk, task->memory) || comes(*u.chunk, nodes);
        });
    }
    bool may_step() noexcept { return ++steps_ <= enabling::most_steps; }
    void add_steps(std::size_t count) noexcept { steps_ += count; }
    std::uint64_t num_steps() const noexcept { return steps_; }

  private:
    /// Of a region that crosses chunks only the parts are fetched.
    bool comes(const memory::Chunk& chunk, const Nodes& nodes) noexcept {
        for (Node t : nodes)
            for (const Use& u : t->uses) {
                if (!may_step()) return false;
                if (u.chunk == &chunk && !u.is_part()) return true;
            }
        return false;
    }

    std::uint64_t steps_ = 0;
};

}  // namespace

bool Lookahead::enables(const Task& task) noexcept { return enabling::is_last_of_any(TaskGraph{}, &task); }

std::size_t Lookahead::count_enabled(const Task& first, std::uint64_t* steps) {
    TaskGraph tasks;
    const std::size_t count = enabling::count(tasks, &first, counted_);
    *steps += tasks.num_steps();
    return count;
}

}  // namespace kmm::schedule
