#include "kmm/runtime/texts/shortages.hpp"

#include <vector>

namespace kmm::detail {

namespace {

// Only tasks that were given memory hold any: they are known to the scheduler.
void add_running(Shortage& s, graph::TaskTable& table) {
    std::vector<const graph::Task*> found;
    found.reserve(Shortage::most_running);
    table.for_each([&](const graph::Task& t) {
        const graph::TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != graph::TaskState::launching && state != graph::TaskState::issued) return;
        if (t.memory != s.memory || t.uses.empty()) return;
        if (found.size() < Shortage::most_running)
            found.push_back(&t);
        else
            ++s.more_running;
    });
    for (const graph::Task* t : found) {
        s.running.push_back(std::make_unique<Shortage::Running>());
        t->trace(s.running.back()->task);
        s.running.back()->size_bytes = needed_bytes(*t);
    }
}

}  // namespace

// Cached until a sixteenth of the memory's replicas has changed, so that of thousands of tasks that fail in turn not
// each one scans all of them. Counters are cached too: a report's bytes are of one moment.
void Shortages::look_at_holders(const memory::Residency& r, memory::MemoryIndex m) {
    Known& known = known_[m];
    const std::uint64_t changes = r.residents().ticks() - known.ticks;
    if (known.holders != nullptr && (changes == 0 || changes < r.residents().num_resident(m) / 16)) return;
    known.holders = std::make_shared<const Holders>(holders_of(r, m));
    known.counters = r.space(m).counters;
    known.largest_free_bytes = r.space(m).heap.largest_free_bytes();
    known.ticks = r.residents().ticks();
}

// What a memory lacks may be what the one below has no room to save.
std::uint64_t Shortages::frees_for(const memory::Residency& r, memory::MemoryIndex m) noexcept {
    const auto below = memory::Tiers::below(m);
    return r.space(m).counters.frees + (below ? r.space(*below).counters.frees : 0);
}

std::shared_ptr<const graph::Unworded> Shortages::look(const graph::Task& task, const schedule::Scheduler& scheduler,
                                                       graph::TaskTable& table, const Engine& engine) {
    const memory::Residency& r = scheduler.residency();
    const memory::MemoryIndex m = task.memory;
    Known& known = known_[m];
    const std::uint64_t frees = frees_for(r, m);
    if (known.report != nullptr && known.frees == frees)
        return std::make_shared<SharedShortage>(words_, task, known.report);
    look_at_holders(r, m);
    auto s = std::make_shared<Shortage>(words_, platform_, task);
    s->refused = r.space(m).is_refused();
    s->host_refused = r.space(memory::MemoryIndex::host()).is_refused();
    // If other programs hold the memory, the capacity obtained so far is the upper bound, not the limit.
    if (s->refused) s->usable_bytes = known.counters.capacity_bytes;
    s->in_use_bytes = known.counters.current_bytes;
    s->capacity_bytes = known.counters.capacity_bytes;
    s->largest_free_bytes = known.largest_free_bytes;
    s->holders = known.holders;
    s->taken_bytes = m.is_device() ? engine.taken_bytes(m.device()) : known.counters.capacity_bytes;
    s->host_in_use_bytes = r.space(memory::MemoryIndex::host()).counters.current_bytes;
    if (scheduler.in_flight(m) != 0) add_running(*s, table);
    known.report = s;
    known.frees = frees;
    return s;
}

}  // namespace kmm::detail
