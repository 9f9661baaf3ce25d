#include "kmm/schedule/order_search.hpp"

#include <algorithm>

#include "kmm/schedule/lookahead.hpp"

namespace kmm::schedule {

using graph::Task;
using Index = Rollout::Index;

void OrderSearch::begin(memory::MemoryIndex memory) {
    memory_ = memory;
    tasks_.clear();
    chunks_.clear();
    const memory::MemoryCounters& counters = residency_.space(memory).counters;
    const std::size_t limit = residency_.space(memory).is_refused() ? counters.capacity_bytes : counters.limit_bytes;
    rollout_.clear(limit - std::min(limit, counters.current_bytes), counters.limit_bytes,
                   residency_.residents().ticks());
}

bool OrderSearch::may_have(const Task& task) const noexcept {
    if (task.kind == graph::TaskKind::join) return !task.is_barrier;
    // Regions across chunks have parts, and forms that are chosen when the task is placed.
    if (task.memory != memory_ || !Lookahead::looks_at(task) || !task.across().empty()) return false;
    const auto works_on_it = [](const graph::Use& u) { return u.role == graph::Use::Role::chunk; };
    return task.uses.size() <= Rollout::most_uses && std::ranges::all_of(task.uses, works_on_it);
}

Index OrderSearch::add(Task& task) {
    if (task.index_in_search < tasks_.size() && tasks_[task.index_in_search] == &task) return task.index_in_search;
    if (tasks_.size() == most_looked_at || !may_have(task)) return Rollout::none;
    Rollout::Task copy;
    copy.ready_at = task.ready_at;
    copy.makes = residency_.made_bytes(task) != 0;
    copy.place = task.place();
    copy.open_predecessors = task.unissued_predecessors;
    copy.is_join = task.kind == graph::TaskKind::join;
    for (const graph::Use& u : task.uses) copy.uses[copy.num_uses++] = {add(*u.chunk), u.needs_content, u.writes};
    const Index index = rollout_.add_task(copy);
    task.index_in_search = static_cast<std::uint16_t>(index);
    tasks_.push_back(&task);
    return index;
}

Index OrderSearch::add(memory::Chunk& chunk) {
    if (chunk.index_in_search < chunks_.size() && chunks_[chunk.index_in_search] == &chunk)
        return chunk.index_in_search;
    const memory::Replica& replica = chunk.replicas[memory_];
    Rollout::Chunk copy;
    copy.bytes = residency_.residents().rounded(chunk.block_bytes());
    copy.is_here = replica.address != 0 && memory::is_here(chunk, memory_);
    copy.is_dirty = memory::must_be_saved(chunk, memory_);
    copy.last_use = replica.tick;
    copy.is_released = chunk.owner->released && chunk.owner->uses_to_come == 0;
    chunk.next_uses.for_each_first(Rollout::most_next_uses + 1, [&](const memory::NextUses::Use& use) {
        if (copy.num_next_uses == Rollout::most_next_uses)
            copy.has_more_uses = true;
        else
            copy.next_uses[copy.num_next_uses++] = {use.task, use.replaces(), Rollout::none};
    });
    chunk.index_in_search = rollout_.add_chunk(copy);
    chunks_.push_back(&chunk);
    return chunk.index_in_search;
}

void OrderSearch::add_successors(Index index) {
    std::size_t count = 0;
    for (const graph::Predecessor& s : tasks_[index]->successors) {
        if (++count > most_successors) break;
        if (s.after->failure != nullptr) continue;
        const Index after = add(*s.after);
        if (after != Rollout::none) rollout_.add_edge(after);
    }
}

/// It is better with fewer than `least_share` of the best one's bytes.
void OrderSearch::consider(Rollout::Rule rule, double least_share) {
    const auto played = rollout_.play(rule, first_, most_tasks, *this);
    if (played.empty()) return;
    played_.assign(played.begin(), played.end());
    const double bytes = rollout_.bytes_a_task(played_, *this);
    if (!best_.empty() && bytes >= least_share * best_bytes_) return;
    best_.swap(played_);
    best_bytes_ = bytes;
}

std::span<Task* const> OrderSearch::make(std::span<Task* const> before) {
    victims_.clear();
    residency_.residents().list_victims(memory_, most_victims, victims_);
    for (memory::Chunk* const c : victims_) add(*c);
    best_.clear();
    first_.clear();
    for (Task* t : before) {
        const Index index = add(*t);
        if (index == Rollout::none) break;
        first_.push_back(index);
    }
    if (!first_.empty()) consider(Rollout::Rule::fewest_bytes);
    first_.clear();
    consider(Rollout::Rule::fewest_bytes);
    constexpr double worth_a_change = 0.9;
    consider(Rollout::Rule::affinity, worth_a_change);
    order_.clear();
    for (const Index i : best_) order_.push_back(tasks_[i]);
    return order_;
}

}  // namespace kmm::schedule
