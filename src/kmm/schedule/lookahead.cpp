#include "kmm/schedule/lookahead.hpp"

#include <algorithm>

#include "kmm/memory/residency.hpp"

namespace kmm::schedule {

using graph::Access;
using graph::Task;

namespace {

constexpr std::size_t few_successors = 16;

bool is_of(const Task& task, memory::MemoryIndex m) noexcept { return task.memory == m && Lookahead::looks_at(task); }

}  // namespace

bool Lookahead::enables(const Task& task) noexcept {
    std::size_t looked_at = 0;
    for (const graph::Predecessor& s : task.successors) {
        if (s.after->unissued_predecessors == 1 && is_of(*s.after, task.memory)) return true;
        if (++looked_at == few_successors) break;
    }
    return false;
}

std::size_t Lookahead::count_enabled(const Task& first, std::uint64_t* steps) {
    issued_.clear();
    issued_.push_back(&first);
    steps_ = 0;
    for (std::size_t i = 0; i < issued_.size(); ++i)
        for (const graph::Predecessor& s : issued_[i]->successors) {
            if (++steps_ > most_steps || issued_.size() > most_enabled) break;
            if (is_of(*s.after, first.memory) && may_follow(*s.after)) issued_.push_back(s.after);
        }
    *steps += steps_;
    return issued_.size() - 1;
}

/// Everything that it comes after is issued, and what it reads is there or comes with these.
bool Lookahead::may_follow(const Task& task) noexcept {
    if (task.unissued_predecessors > issued_.size()) return false;
    steps_ += issued_.size();
    if (std::find(issued_.begin(), issued_.end(), &task) != issued_.end()) return false;
    std::uint32_t found = 0;
    for (const graph::Predecessor& p : task.predecessors) {
        if ((steps_ += issued_.size()) > most_steps) return false;
        found += std::any_of(issued_.begin(), issued_.end(), [&](const Task* t) { return t->number == p.number; });
    }
    if (found < task.unissued_predecessors) return false;
    return std::all_of(task.accesses.begin(), task.accesses.end(), [&](const Access& a) {
        if (a.chunk == nullptr || !a.needs_content || a.gathers || a.is_small_part) return true;
        return memory::Residency::is_here(*a.chunk, task.memory) || brings(*a.chunk);
    });
}

/// Of a region that crosses chunks only the parts are fetched.
bool Lookahead::brings(const memory::Chunk& chunk) noexcept {
    for (const Task* t : issued_)
        for (const Access& a : t->accesses) {
            if (++steps_ > most_steps) return false;
            if (a.chunk == &chunk && (a.writes_chunk || !a.is_piece)) return true;
        }
    return false;
}

}  // namespace kmm::schedule
