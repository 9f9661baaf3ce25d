#include "kmm/api/temporaries.hpp"

#include <algorithm>

namespace kmm::detail {

using graph::Task;
using graph::Use;

/// What a temporary is a copy of.
struct Temporaries::Source {
    Binding& binding;
    const plan::Request& request;
    const Task& task;  ///< the first that uses it
    std::span<const plan::Piece> pieces;
    const plan::Temporary& plan;
    std::size_t element_bytes;

    Box box_of(const plan::Piece& p) const { return binding.layout->box(p.chunk); }
    std::size_t rank() const { return binding.layout->rank(); }
};

void Temporaries::make(RuntimeCore& core, const plan::SubmitPlan& plan, const std::vector<plan::Request>& requests,
                       const std::vector<DraftAccess>& accesses, const graph::TaskList& tasks) {
    pool_ = &core.books().pool();
    entries_.reserve(plan.temporaries().size());
    for (const plan::Temporary& t : plan.temporaries()) {
        const plan::Request& request = requests[t.request];
        const DraftAccess& access = accesses[t.request];
        Entry& entry = entries_.emplace_back();
        make_memory(core, entry, access, request.region, t);
        if (t.chosen_late) continue;
        const Source source{*access.binding, request, *tasks[request.task],
                            plan.pieces(t),  t,       access.array->element_bytes()};
        if (t.is_filled) make_gather(entry, source);
        if (t.is_written) make_write_backs(core, entry, source);
    }
}

void Temporaries::make_memory(RuntimeCore& core, Entry& entry, const DraftAccess& access, const Box& region,
                              const plan::Temporary& plan) {
    const memory::Array& array = *access.binding->data;
    entry.data =
        std::make_unique<memory::Temporary>(region, array.rank, array.element_bytes, array.alignment, plan.num_pieces);
    entry.temporary = entry.data.get();
    memory::Temporary& data = *entry.data;
    data.share_name(array);
    data.number = core.books().next_array_number();
    data.is_gathered = plan.chosen_late;
}

/// Errors name the task that needs it.
Task& Temporaries::make_transfer(const Task& made_for, memory::MemoryIndex memory, std::size_t num_uses) {
    Task& t = *pool_->take({num_uses, sizeof(graph::ColdPart)});
    t.make_room(num_uses, false, 0, 1);  // it reads: it comes after the writer of each chunk
    t.kind = graph::TaskKind::transfer;
    t.memory = memory;
    t.where = SystemInfo::affinity_processor(memory.id());
    t.chunk_index = made_for.chunk_index;
    t.chunk = made_for.chunk;
    t.info.share(made_for.info);
    ++num_transfers_;
    return t;
}

void Temporaries::make_gather(Entry& entry, const Source& source) {
    entry.gather = &make_transfer(source.task, source.request.memory, std::size_t{1} + source.plan.num_pieces);
    Task& t = *entry.gather;
    t.fills_temporary = true;
    t.for_snapshot = source.plan.is_snapshot;
    t.uses.resize(std::size_t{1} + source.plan.num_pieces);
    t.cold_part(graph::UseOfReserve::no);
    Use& to = t.uses.front();
    to.chunk = &entry.chunk();
    to.writes = to.replaces = true;
    ++entry.temporary->uses_to_come;
    for (std::uint32_t i = 0; i < source.plan.num_pieces; ++i) {
        Use& from = t.uses[1 + i];
        from.chunk = &source.binding.touch(source.pieces[i].chunk);
        from.copy_from_anywhere();
    }
}

/// Where a piece is written back: where its writers are, if the chunk fits there, else on the host, else anywhere. If
/// it fits nowhere the write-back fails for memory when it is placed.
memory::MemoryIndex Temporaries::memory_for(RuntimeCore& core, const Source& source, const plan::Piece& piece) {
    const std::size_t bytes = Platform::rounded(source.binding.block_bytes(piece.chunk));
    const auto fits = [&](memory::MemoryIndex m) { return bytes <= core.platform().limit_bytes(m); };
    if (fits(piece.memory)) return piece.memory;
    for (const memory::MemoryIndex m : core.platform().limits_bytes().memories())
        if (fits(m)) return m;
    return piece.memory;
}

/// The task's use of the chunk, added if there is none yet. O(uses).
std::uint32_t Temporaries::use_of_part(Task& task, memory::Chunk& chunk) {
    const auto known = std::ranges::find(task.uses, &chunk, &Use::chunk);
    const auto index = static_cast<std::uint32_t>(known - task.uses.begin());
    if (known == task.uses.end()) {
        Use& use = task.uses.emplace_back();
        use.chunk = &chunk;
        use.role = Use::Role::part;
    } else if (known->role == Use::Role::part) {
        known->role = Use::Role::parts;
    }
    task.uses[index].needs_content = true;
    return index;
}

/// Adds the chunks that the region lies in to the task's uses. Placement chooses between them and a copy.
void Temporaries::add_across(Task& task, std::uint32_t use, std::uint32_t temporary, const plan::SubmitPlan& plan,
                             const plan::Request& request, const DraftAccess& draft) {
    const plan::Temporary& t = plan.temporaries()[temporary];
    const Source source{*draft.binding, request, task, plan.pieces(t), t, draft.array->element_bytes()};
    graph::ColdPart& cold =
        task.cold_part(graph::UseOfReserve::no, sizeof(graph::Across) + t.num_pieces * sizeof(std::uint32_t));
    cold.parts.reserve_more(t.num_pieces);
    task.uses.reserve_more(t.num_pieces);
    graph::Across& across = cold.across.emplace_back();
    across.region = request.region;
    across.use = use;
    across.num_parts = t.num_pieces;
    across.first_part = static_cast<std::uint32_t>(cold.parts.size());
    const memory::Array& data = *source.binding.data;
    across.may_be_in_place = t.may_be_in_place && data.is_stack;
    if (across.may_be_in_place)
        across.offset_from_first_part =
            offset_in(source.box_of(source.pieces.front()), request.region, source.rank()) * source.element_bytes;
    for (const plan::Piece& p : source.pieces)
        cold.parts.emplace_back() = use_of_part(task, source.binding.touch(p.chunk));
}

/// One for each piece: beside the temporary only one chunk must find room at a time.
void Temporaries::make_write_backs(RuntimeCore& core, Entry& entry, const Source& source) {
    any_written_ = true;
    entry.write_backs.reserve(source.plan.num_pieces);
    for (std::uint32_t i = 0; i < source.plan.num_pieces; ++i) {
        const plan::Piece& piece = source.pieces[i];
        entry.write_backs.push_back(&make_transfer(source.task, memory_for(core, source, piece), 2));
        Task& t = *entry.write_backs.back();
        t.uses.resize(2);
        Use& to = t.uses[0];
        to.chunk = &source.binding.touch(piece.chunk);
        to.writes = true;
        to.replaces = piece.whole_chunk;
        to.needs_content = !to.replaces;
        Use& from = t.uses[1];
        from.chunk = &entry.chunk();
        from.copy_from_anywhere();
        ++entry.temporary->uses_to_come;
    }
}

void Temporaries::add_to_held(const graph::TaskList& tasks, graph::TaskNumber first) noexcept {
    for (const Entry& e : entries_) {
        if (e.temporary->is_gathered) continue;  // not held: it can be dropped, and gathered again
        std::uint64_t from = e.first_task;
        if (e.given_gather != nullptr) {
            given_.push_back(e.given_gather);
            from = e.given_gather->comes_before - first;
        }
        const auto bytes = static_cast<std::ptrdiff_t>(Platform::rounded(e.chunk().block_bytes()));
        held_changes_[from] += bytes;
        held_changes_[std::size_t{1} + e.last_task] -= bytes;
    }
    std::ptrdiff_t more = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i)
        tasks[i]->held_bytes += static_cast<std::size_t>(more += held_changes_[i]);
    for (Task* const t : given_) t->held_bytes = tasks[t->comes_before - first]->held_bytes;
}

void Temporaries::drop_entries() noexcept {
    for (Entry& e : entries_) {
        if (e.gather != nullptr) pool_->give(e.gather);
        for (Task* t : e.write_backs)
            if (t != nullptr) pool_->give(t);
    }
    entries_.clear();
    given_.clear();
    num_transfers_ = 0;
    any_written_ = false;
}

}  // namespace kmm::detail
