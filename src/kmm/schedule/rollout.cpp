#include "kmm/schedule/rollout.hpp"

#include <algorithm>

#include "kmm/memory/move_cost.hpp"
#include "kmm/schedule/enabling.hpp"

namespace kmm::schedule {

using memory::Prospect;

// ---------------------------------------------------------------------------------------------------------- the copy

void Rollout::clear(std::size_t free_bytes, std::size_t limit_bytes, std::uint64_t now) {
    chunks_.clear();
    tasks_.clear();
    edges_of_.clear();
    edges_.clear();
    chunk_states_.clear();
    task_states_.clear();
    here_.clear();
    now_ = now;
    free_bytes_ = static_cast<std::ptrdiff_t>(free_bytes);
    limit_bytes_ = limit_bytes;
}

Rollout::Index Rollout::add_chunk(const Chunk& chunk) {
    const auto index = static_cast<Index>(chunks_.size());
    chunks_.push_back(chunk);
    chunk_states_.emplace_back();
    begin(chunk_states_.back(), chunk);
    if (chunk.is_here) {
        chunk_states_.back().place_here = static_cast<std::uint32_t>(here_.size());
        here_.push_back(index);
    }
    return index;
}

Rollout::Index Rollout::add_task(const Task& task) {
    const auto index = static_cast<Index>(tasks_.size());
    tasks_.push_back(task);
    edges_of_.emplace_back();
    task_states_.push_back({false, task.open_predecessors, task.ready_at});
    for (const Use& u : task.used()) {
        Chunk& chunk = chunks_[u.chunk];
        for (std::uint8_t i = 0; i < chunk.num_next_uses; ++i) {
            ++num_steps_;
            if (chunk.next_uses[i].place == task.place) chunk.next_uses[i].task = index;
        }
        chunk_states_[u.chunk].is_affinity_known = false;
    }
    return index;
}

void Rollout::begin(ChunkState& state, const Chunk& chunk) noexcept {
    state = {};
    state.bytes = chunk.bytes;
    state.is_here = chunk.is_here;
    state.is_dirty = chunk.is_dirty;
    state.last_use = chunk.last_use;
}

std::span<const Rollout::Index> Rollout::successors(Index task) const noexcept {
    const Edges& edges = edges_of_[task];
    if (edges.first == none) return {};
    return {edges_.data() + edges.first, edges.count};
}

// ---------------------------------------------------------------------------------------------------------- the play

void Rollout::reset(Source& source) {
    num_steps_ += chunks_.size() + tasks_.size();
    tick_ = now_;
    here_.clear();
    ready_.clear();
    later_.clear();
    first_later_ = 0;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
        begin(chunk_states_[i], chunks_[i]);
        if (!chunks_[i].is_here) continue;
        chunk_states_[i].place_here = static_cast<std::uint32_t>(here_.size());
        here_.push_back(static_cast<Index>(i));
    }
    num_ready_ = 0;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
        task_states_[i] = {false, tasks_[i].open_predecessors, tasks_[i].ready_at};
        num_ready_ = std::max(num_ready_, tasks_[i].ready_at + 1);
    }
    room_bytes_ = free_bytes_;
    moved_bytes_ = 0;
    const std::size_t num_tasks = tasks_.size();  // those that are added meanwhile have predecessors
    for (std::size_t i = 0; i < num_tasks; ++i)
        if (task_states_[i].open_predecessors == 0) make_ready(static_cast<Index>(i), source);
}

/// Joins, and what they were the last before, at once. What comes next is known from here on.
void Rollout::make_ready(Index task, Source& source) {
    made_ready_.assign(1, task);
    while (!made_ready_.empty()) {
        const Index t = made_ready_.back();
        made_ready_.pop_back();
        ++num_steps_;
        if (edges_of_[t].first == none) {
            const auto first = static_cast<Index>(edges_.size());
            source.add_successors(t);
            edges_of_[t] = {first, static_cast<Index>(edges_.size()) - first};
        }
        if (!tasks_[t].is_join) {
            (ready_.size() < most_ready ? ready_ : later_).push_back(t);
            continue;
        }
        task_states_[t].is_done = true;
        for (const Index s : successors(t)) {
            if (--task_states_[s].open_predecessors != 0) continue;
            task_states_[s].ready_at = num_ready_++;
            made_ready_.push_back(s);
        }
    }
}

void Rollout::issue(Index index, Source& source) {
    const Task task = tasks_[index];
    for (const Use& u : task.used()) {
        if (!chunk_states_[u.chunk].is_here) {
            set_here(u.chunk, true);
            room_bytes_ -= static_cast<std::ptrdiff_t>(chunks_[u.chunk].bytes);
            if (u.needs_content) moved_bytes_ += chunks_[u.chunk].bytes;
        }
        ChunkState& state = chunk_states_[u.chunk];
        state.is_dirty = state.is_dirty || u.writes;
        state.last_use = ++tick_;
        state.is_affinity_known = state.is_rank_known = false;
    }
    task_states_[index].is_done = true;
    ready_.erase(std::find(ready_.begin(), ready_.end(), index));
    if (first_later_ < later_.size()) ready_.push_back(later_[first_later_++]);
    num_steps_ += ready_.size();
    for (std::size_t i = 0; i < edges_of_[index].count; ++i) {
        const Index s = edges_[edges_of_[index].first + i];
        for (const Use& u : tasks_[s].used()) chunk_states_[u.chunk].is_affinity_known = false;
        if (--task_states_[s].open_predecessors != 0) continue;
        task_states_[s].ready_at = num_ready_++;
        make_ready(s, source);
    }
}

void Rollout::set_here(Index chunk, bool is_here) {
    ChunkState& state = chunk_states_[chunk];
    state.is_here = is_here;
    if (is_here) {
        state.place_here = static_cast<std::uint32_t>(here_.size());
        here_.push_back(chunk);
    } else {
        state.is_dirty = false;
        here_[state.place_here] = here_.back();
        chunk_states_[here_.back()].place_here = state.place_here;
        here_.pop_back();
    }
    // This changes the affinity of each chunk that shares a task with it.
    const Chunk& c = chunks_[chunk];
    for (std::uint8_t i = state.first_use; i < c.num_next_uses; ++i) {
        if (c.next_uses[i].task == none) continue;
        for (const Use& u : tasks_[c.next_uses[i].task].used()) {
            ++num_steps_;
            chunk_states_[u.chunk].is_affinity_known = false;
        }
    }
}

// ------------------------------------------------------------------------------------------------------- who leaves

Prospect Rollout::prospect(Index index) {
    using Need = Prospect::Need;
    const Chunk& chunk = chunks_[index];
    ChunkState& state = chunk_states_[index];
    const bool clean = !state.is_dirty;
    const auto is_over = [&](const NextUse& use) { return use.task != none && task_states_[use.task].is_done; };
    while (state.first_use < chunk.num_next_uses && is_over(chunk.next_uses[state.first_use]))
        ++state.first_use, ++num_steps_;
    const bool has_use = state.first_use < chunk.num_next_uses;
    if (has_use && chunk.next_uses[state.first_use].replaces) return {};
    if (state.next_in_order != 0) return {Need::whole, clean, state.next_in_order};
    if (has_use) {
        const NextUse& next = chunk.next_uses[state.first_use];
        return {Need::whole, clean, memory::eviction::beyond_orders + next.place};
    }
    if (!chunk.has_more_uses) return chunk.is_released ? Prospect{} : Prospect{Need::no_task, clean};
    return {Need::whole, clean, memory::eviction::beyond_orders + chunk.next_uses[chunk.num_next_uses - 1].place + 1};
}

std::uint64_t Rollout::rank(Index chunk) {
    using memory::EvictionPolicy;
    ChunkState& state = chunk_states_[chunk];
    if (state.is_rank_known) return state.rank;
    const EvictionPolicy policy = leaves_ == Leaves::least_recently_used ? EvictionPolicy::least_recently_used
                                                                         : EvictionPolicy::farthest_next_use;
    state.rank = memory::eviction::rank_of(policy, prospect(chunk));
    state.is_rank_known = true;
    return state.rank;
}

Rollout::Index Rollout::victim(const Task& task) {
    Index best = none;
    std::uint64_t best_rank = ~std::uint64_t{0};
    std::uint64_t best_use = ~std::uint64_t{0};
    num_steps_ += here_.size();
    for (const Index i : here_) {
        const std::uint64_t r = rank(i);
        if (r > best_rank || (r == best_rank && chunk_states_[i].last_use >= best_use)) continue;
        const auto used = task.used();
        if (std::any_of(used.begin(), used.end(), [i](const Use& u) { return u.chunk == i; })) continue;
        best = i;
        best_rank = r;
        best_use = chunk_states_[i].last_use;
    }
    return best;
}

/// Evicts chunks that the task does not use until it fits. False: it does not.
bool Rollout::make_room(const Task& task) {
    std::ptrdiff_t needed = 0;
    for (const Use& u : task.used())
        if (!chunk_states_[u.chunk].is_here) needed += static_cast<std::ptrdiff_t>(chunks_[u.chunk].bytes);
    while (room_bytes_ < needed) {
        const Index leaving = victim(task);
        if (leaving == none) return false;
        const std::size_t bytes = chunks_[leaving].bytes;
        if (chunk_states_[leaving].is_dirty && rank(leaving) != memory::eviction::rank_useless) moved_bytes_ += bytes;
        set_here(leaving, false);
        room_bytes_ += static_cast<std::ptrdiff_t>(bytes);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------- who runs

bool Rollout::misses_nothing(const Task& task) const noexcept {
    const auto used = task.used();
    return std::all_of(used.begin(), used.end(), [this](const Use& u) { return chunk_states_[u.chunk].is_here; });
}

/// As memory::Residency::missing_bytes and moved_bytes.
ReadyTask Rollout::weigh(Index index) const noexcept {
    const Task& task = tasks_[index];
    ReadyTask known;
    memory::MoveCost cost;
    for (const Use& u : task.used()) {
        const ChunkState& state = chunk_states_[u.chunk];
        if (!state.is_here) known.missing_bytes += state.bytes;
        cost.add(state.bytes, u.needs_content && !state.is_here,
                 u.writes && !(u.needs_content && state.is_here && state.is_dirty));
    }
    known.moved_bytes = cost.bytes();
    known.needs_room = needs_room(known.missing_bytes, limit_bytes_);
    known.makes = task.makes;
    known.ready_at = task_states_[index].ready_at;
    known.place = task.place;
    known.number = index;
    return known;
}

/// See enabling.hpp. A plan has tasks of its memory, and joins, which are counted too: they cost nothing.
class Rollout::TaskGraph {
  public:
    using Node = Index;
    explicit TaskGraph(Rollout& rollout) noexcept
        : rollout_(rollout), last_step_(rollout.num_steps_ + enabling::most_steps) {}

    template<typename F> void each_successor(Index task, F&& f) const {
        for (const Index s : rollout_.successors(task))
            if (!f(s)) return;
    }
    bool is_counted(Index, Index) const noexcept { return true; }
    std::uint32_t num_open(Index task) const noexcept { return rollout_.task_states_[task].open_predecessors; }
    std::uint32_t num_edges_from(const std::vector<Index>& tasks, Index task) noexcept {
        std::uint32_t found = 0;
        for (const Index before : tasks) {
            const auto next = rollout_.successors(before);
            add_steps(next.size());
            found += static_cast<std::uint32_t>(std::count(next.begin(), next.end(), task));
        }
        return found;
    }
    bool gets_all_it_reads(Index task, const std::vector<Index>& tasks) noexcept {
        const auto reads = rollout_.tasks_[task].used();
        return std::all_of(reads.begin(), reads.end(), [&](const Use& u) {
            if (!u.needs_content || rollout_.chunk_states_[u.chunk].is_here) return true;
            add_steps(1);
            return std::any_of(tasks.begin(), tasks.end(), [&](Index t) {
                const auto used = rollout_.tasks_[t].used();
                return std::any_of(used.begin(), used.end(), [&](const Use& other) { return other.chunk == u.chunk; });
            });
        });
    }
    bool may_step() noexcept { return ++rollout_.num_steps_ <= last_step_; }
    void add_steps(std::size_t count) noexcept { rollout_.num_steps_ += count; }

  private:
    Rollout& rollout_;
    const std::uint64_t last_step_;
};

std::size_t Rollout::count_enabled(Index task) {
    TaskGraph tasks(*this);
    return enabling::count(tasks, task, enabled_);
}

bool Rollout::enables(Index task) { return enabling::is_last_of_any(TaskGraph(*this), task); }

Rollout::Index Rollout::choose(Rule rule) {
    Index first = none;
    num_steps_ += ready_.size();
    for (const Index t : ready_) {
        if (first != none && task_states_[t].ready_at > task_states_[first].ready_at) continue;
        if (misses_nothing(tasks_[t])) first = t;
    }
    if (first != none || ready_.empty()) return first;
    return rule == Rule::affinity ? choose_by_affinity() : choose_fewest_bytes();
}

/// As the scheduler does without a plan.
Rollout::Index Rollout::choose_fewest_bytes() {
    constexpr OrderPolicy policy = OrderPolicy::fewest_bytes_a_task;
    weighed_.clear();
    std::size_t least = ~std::size_t{0};
    for (const Index t : ready_) {
        num_steps_ += tasks_[t].num_uses;
        weighed_.push_back(weigh(t));
        least = std::min(least, weighed_.back().moved_bytes);
    }
    candidates_.clear();
    for (ReadyTask& t : weighed_) {
        if (t.moved_bytes > 2 * least) continue;
        const auto index = static_cast<Index>(t.number);
        t.enables = enables(index);
        candidates_.push_back({key_of(policy, t), index});
    }
    const std::size_t count = std::min(num_candidates, candidates_.size());
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(candidates_.begin(), end, candidates_.end());
    Index best = candidates_.front().task;
    if (!looks_ahead(policy, least, limit_bytes_)) return best;
    BestWorth worth;
    for (auto at = candidates_.begin(); at != end; ++at)
        if (worth.takes(count_enabled(at->task), at->key.first)) best = at->task;
    return best;
}

/// Of what the task uses besides that chunk, how much is there.
float Rollout::share_here(const Task& task, Index but) const noexcept {
    float all = 0, here = 0;
    for (const Use& u : task.used()) {
        if (u.chunk == but) continue;
        const auto bytes = static_cast<float>(chunk_states_[u.chunk].bytes);
        all += bytes;
        if (chunk_states_[u.chunk].is_here || !u.needs_content) here += bytes;
    }
    return all > 0 ? here / all : 1;
}

/// Of a task that lacks half of its other chunks little is to be had of this one.
static float weight_of(float share) noexcept { return share * share; }

/// How many tasks could use the chunk soon, by how much of their other chunks is there.
float Rollout::affinity(Index index) {
    ChunkState& state = chunk_states_[index];
    if (state.is_affinity_known) return state.affinity;
    const Chunk& chunk = chunks_[index];
    float sum = 0;
    num_steps_ += chunk.num_next_uses;
    for (std::uint8_t i = state.first_use; i < chunk.num_next_uses; ++i) {
        const Index t = chunk.next_uses[i].task;
        if (t == none || task_states_[t].is_done || task_states_[t].open_predecessors > 1) continue;
        sum += weight_of(share_here(tasks_[t], index));
    }
    state.affinity = sum;
    state.is_affinity_known = true;
    return sum;
}

Rollout::Index Rollout::choose_by_affinity() {
    Index best = none;
    float best_cost = 0;
    for (const Index t : ready_) {
        num_steps_ += tasks_[t].num_uses;
        float cost = 0;
        for (const Use& u : tasks_[t].used()) {
            if (!u.needs_content || chunk_states_[u.chunk].is_here) continue;
            ++num_steps_;
            // The task itself has all of it once it is chosen.
            const float others = affinity(u.chunk) - weight_of(share_here(tasks_[t], u.chunk));
            cost += static_cast<float>(chunk_states_[u.chunk].bytes) / (1 + std::max(0.0f, others));
        }
        if (best != none && cost > 0.999f * best_cost &&
            (cost > 1.001f * best_cost || tasks_[t].place > tasks_[best].place))
            continue;
        best = t;
        best_cost = cost;
    }
    return best;
}

// ------------------------------------------------------------------------------------------------------------- plays

std::span<const Rollout::Index> Rollout::play(Rule rule, std::span<const Index> first, std::size_t num_tasks,
                                              Source& source) {
    leaves_ = rule == Rule::affinity ? Leaves::least_recently_used : Leaves::farthest_as_submitted;
    reset(source);
    order_.clear();
    bool follows = true;
    const std::uint64_t last_step = num_steps_ + most_steps;
    while (order_.size() < num_tasks && num_steps_ <= last_step) {
        Index next = none;
        follows = follows && order_.size() < first.size();
        if (follows) {
            next = first[order_.size()];
            follows = std::find(ready_.begin(), ready_.end(), next) != ready_.end();
            num_steps_ += ready_.size();
        }
        if (!follows) next = choose(rule);
        if (next == none || !make_room(tasks_[next])) break;
        order_.push_back(next);
        issue(next, source);
    }
    return order_;
}

double Rollout::bytes_a_task(std::span<const Index> order, Source& source) {
    leaves_ = Leaves::farthest_in_order;
    reset(source);
    // Backwards: where each use's chunk is used next.
    next_positions_.clear();
    for (std::size_t i = order.size(); i > 0; --i)
        for (const Use& u : tasks_[order[i - 1]].used()) {
            next_positions_.push_back(chunk_states_[u.chunk].next_in_order);
            chunk_states_[u.chunk].next_in_order = i;
        }
    std::size_t num_counted = 0;
    const std::uint64_t last_step = num_steps_ + most_steps;
    for (const Index index : order) {
        const Task task = tasks_[index];
        if (num_steps_ > last_step || !make_room(task)) break;
        ++num_counted;
        for (std::size_t i = task.num_uses; i > 0; --i) {
            chunk_states_[task.uses[i - 1].chunk].next_in_order = next_positions_.back();
            next_positions_.pop_back();
        }
        issue(index, source);
    }
    std::size_t to_save = 0;
    for (const Index i : here_)
        if (chunk_states_[i].is_dirty && rank(i) != memory::eviction::rank_useless) to_save += chunks_[i].bytes;
    return (static_cast<double>(moved_bytes_) + 0.5 * static_cast<double>(to_save)) /
           static_cast<double>(std::max<std::size_t>(1, num_counted));
}

}  // namespace kmm::schedule
