#include "kmm/api/plan_batch.hpp"

#include <algorithm>

namespace kmm::detail {

using graph::Task;
using graph::TaskNumber;
using graph::Use;

static_assert(plan::most_late_pieces <= graph::Across::most_parts);

// ---------------------------------------------------------------------------------------------------- records

void PlanBatch::check() {
    if (!planned->temporaries.empty()) make_temporaries();
    describe_tasks();
}

void PlanBatch::make_temporaries() {
    temporaries_.reserve(planned->temporaries.size());
    for (const plan::Temporary& t : planned->temporaries) {
        const memory::Array& array = *accesses[t.request].binding->data;
        Temporary& made = temporaries_.emplace_back();
        made.owned = std::make_unique<memory::Temporary>(wanted[t.request].region, array.rank, array.element_bytes,
                                                         array.alignment, t.num_pieces);
        made.data = made.owned.get();
        made.data->share_name(array);
        made.data->number = books().next_array_number();
        made.data->is_gathered = t.chosen_late;
    }
    if (planned->transfers.empty()) return;
    transfers_.reserve(planned->transfers.size());
    for (const plan::Transfer& t : planned->transfers) {
        if (t.what == plan::Transfer::What::gather)
            make_gather(t);
        else
            make_write_back(t);
    }
    reserve_helpers(transfers_.size());
    // What is written back is done after the task: the submit's own number waits for both.
    const bool any_written = planned->transfers.back().what == plan::Transfer::What::write_back;
    if (any_written && tasks().size() == 1) add_task().predecessors.reserve(1);
    held_changes_.assign(tasks().size() + 1, 0);
}

/// Errors name the task that needs it.
Task& PlanBatch::make_transfer(const plan::Transfer& of_plan, std::size_t num_uses) {
    Task& t = *transfers_.emplace_back(books().pool().take({num_uses, sizeof(graph::ColdPart)}));
    t.make_room(num_uses, false, 0, 1);  // it reads: it comes after the writer of each chunk
    t.uses.resize(num_uses);
    t.kind = graph::TaskKind::transfer;
    t.memory = of_plan.memory;
    t.where = SystemInfo::affinity_processor(of_plan.memory.id());
    const Task& made_for = *tasks()[of_plan.task];
    t.chunk_index = made_for.chunk_index;
    t.chunk = made_for.chunk;
    t.info.share(made_for.info);
    ++temporaries_[of_plan.temporary].data->uses_to_come;
    return t;
}

void PlanBatch::make_gather(const plan::Transfer& of_plan) {
    Task& t = make_transfer(of_plan, std::size_t{1} + of_plan.num_pieces);
    Temporary& temporary = temporaries_[of_plan.temporary];
    temporary.gather = &t;
    t.fills_temporary = true;
    t.for_snapshot = planned->temporaries[of_plan.temporary].is_snapshot;
    t.cold_part(graph::UseOfReserve::no);
    Use* use = t.uses.data();
    use->chunk = &temporary.data->chunk;
    use->writes = use->replaces = true;
    for (const plan::Piece& p : planned->pieces_of(of_plan)) {
        ++use;
        use->chunk = &binding_of(of_plan).touch(p.chunk);
        use->copy_from_anywhere();
    }
}

void PlanBatch::make_write_back(const plan::Transfer& of_plan) {
    Task& t = make_transfer(of_plan, 2);
    const plan::Piece& piece = planned->pieces_of(of_plan).front();
    Use& to = t.uses[0];
    to.chunk = &binding_of(of_plan).touch(piece.chunk);
    to.writes = true;
    to.replaces = piece.whole_chunk;
    to.needs_content = !to.replaces;
    Use& from = t.uses[1];
    from.chunk = &temporaries_[of_plan.temporary].data->chunk;
    from.copy_from_anywhere();
}

void PlanBatch::give_back_temporaries() noexcept {
    for (; num_given_ < transfers_.size(); ++num_given_) books().pool().give(transfers_[num_given_]);
    transfers_.clear();
    temporaries_.clear();
    num_given_ = 0;
}

// No other thread sees the tasks yet.
void PlanBatch::describe_tasks() {
    const bool debug_mode = core->platform().config().debug_mode;
    const std::size_t count = wanted.size();
    for (std::size_t i = 0; i < count;) {
        const std::size_t first = i;
        const std::uint32_t number = wanted[i].task;
        Task& t = *tasks()[number];
        for (; i < count && wanted[i].task == number; ++i) {
            describe_view(t, i);
            if (debug_mode && wanted[i].kind == AccessKind::overwrite && !wanted[i].empty)
                fill_before(t, accesses[i].view, wanted[i].region);
        }
        if (!temporaries_.empty()) describe_across(t, first, i);
    }
}

// Debug mode: what an overwrite finds is filled with a pattern.
void PlanBatch::fill_before(Task& t, std::uint32_t view, const Box& region) {
    graph::Unset& unset = t.cold_part(graph::UseOfReserve::no).unset.emplace_back();
    unset.index = view;
    for (std::size_t k = 0; k < max_rank; ++k) unset.extents[k] = region.end[k] - region.begin[k];
}

/// What residency and the kernels need to know of an access.
void PlanBatch::describe_view(Task& t, std::size_t request) {
    const plan::Need& need = planned->needs[request];
    if (need.form == plan::Form::nothing) return;
    const DraftAccess& a = accesses[request];
    graph::View& view = t.views[a.view];
    view.use = need.use;
    if (need.form == plan::Form::in_place) view.offset_bytes = need.offset * a.array->element_bytes();
    if (!need.first_of_chunk) return;
    Use& use = t.uses.emplace_back();
    static_cast<plan::ContentNeeds&>(use) = need;
    if (need.form == plan::Form::in_place) {
        use.chunk = &a.binding->touch(need.chunk);
        return;
    }
    use.chunk = &temporaries_[need.temporary].data->chunk;
    if (planned->temporaries[need.temporary].chosen_late) use.role = Use::Role::region;
    count_use(need.temporary, wanted[request].task);
}

/// A task uses the temporary, which stays until all that were counted are settled.
void PlanBatch::count_use(std::uint32_t temporary, std::uint32_t task) noexcept {
    Temporary& t = temporaries_[temporary];
    ++t.data->uses_to_come;
    t.first_task = std::min(t.first_task, task);
    t.last_task = task;
}

// Regions whose form is chosen late: the chunks that they lie in are uses as well, behind all others.
void PlanBatch::describe_across(Task& t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        const plan::Need& need = planned->needs[i];
        if (need.form == plan::Form::temporary && need.first_of_chunk &&
            planned->temporaries[need.temporary].chosen_late)
            add_across(t, i);
    }
}

/// Adds the chunks that the region lies in to the task's uses. Placement chooses between them and a copy.
void PlanBatch::add_across(Task& t, std::size_t request) {
    const plan::Temporary& of_plan = planned->temporaries[planned->needs[request].temporary];
    Binding& binding = *accesses[request].binding;
    graph::ColdPart& cold =
        t.cold_part(graph::UseOfReserve::no, sizeof(graph::Across) + of_plan.num_pieces * sizeof(std::uint32_t));
    cold.parts.reserve_more(of_plan.num_pieces);
    t.uses.reserve_more(of_plan.num_pieces);
    graph::Across& across = cold.across.emplace_back();
    across.region = wanted[request].region;
    across.use = planned->needs[request].use;
    across.num_parts = of_plan.num_pieces;
    across.first_part = static_cast<std::uint32_t>(cold.parts.size());
    across.may_be_in_place = of_plan.may_be_in_place;
    const std::span<const plan::Piece> pieces = planned->pieces_of(of_plan);
    if (across.may_be_in_place)
        across.offset_from_first_part =
            offset_in(binding.layout->box(pieces.front().chunk), across.region, binding.layout->rank()) *
            binding.data->element_bytes;
    for (const plan::Piece& p : pieces) cold.parts.emplace_back() = use_of_part(t, binding.touch(p.chunk));
}

/// The task's use of the chunk, added if there is none yet. O(uses).
std::uint32_t PlanBatch::use_of_part(Task& task, memory::Chunk& chunk) {
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

void PlanBatch::bind() {
    for (const Temporary& t : temporaries_) core->listeners().tell_bound(*t.data, t.data->region, false);
}

// ---------------------------------------------------------------------------------------------------- the order

void PlanBatch::connect() {
    if (!temporaries_.empty()) [[unlikely]]
        connect_gathers();
    const std::size_t count = wanted.size();
    for (std::size_t i = 0; i < count;) {
        const std::uint32_t number = wanted[i].task;
        Task& t = *tasks()[number];
        connects(t.number);
        t.held_bytes = books().held().now();
        for (; i < count && wanted[i].task == number; ++i)
            if (!wanted[i].empty) connect_access(t, i);
        graph::drop_duplicates(t.predecessors);
    }
    if (!transfers_.empty()) [[unlikely]]
        connect_write_backs();
    Task& all = *tasks().back();
    if (all.kind != graph::TaskKind::join) return;
    for (TaskNumber n = first(); n != all.number; ++n) all.predecessors.push_back({n, true});
}

void PlanBatch::connect_access(Task& t, std::size_t request) {
    const plan::Request& r = wanted[request];
    const plan::Need& need = planned->needs[request];
    Binding& binding = *accesses[request].binding;
    if (need.form == plan::Form::temporary) {
        const plan::Temporary& temporary = planned->temporaries[need.temporary];
        if (const Task* const gather = temporaries_[need.temporary].gather; gather != nullptr)
            graph::add_predecessor(t.predecessors, gather->number, true);
        if (!temporary.chosen_late || !need.first_of_chunk) return;
        for (const plan::Piece& p : planned->pieces_of(temporary)) binding.read(p, t.number, t.predecessors, *this);
        return;
    }
    void* const record = planned_by != nullptr ? planned_by->record_of(request) : nullptr;
    graph::CompactHistory& history =
        record != nullptr ? *static_cast<graph::CompactHistory*>(record) : binding.histories[need.chunk];
    const auto box = binding.box_of(need.chunk);
    if (r.kind == AccessKind::read) {
        history.read(r.region, need.whole_chunk, box, t.number, t.predecessors, *this);
        return;
    }
    if (!history.any_content()) binding.count_made(need.chunk_elements);
    history.write(r.region, need.whole_chunk, box, t.number, r.kind == AccessKind::write, t.predecessors, *this);
}

void PlanBatch::connect_gathers() {
    for (Temporary& t : temporaries_) (void)t.owned.release();
    for (std::size_t i = 0; i < transfers_.size() && transfers_[i]->fills_temporary; ++i) {
        const plan::Transfer& of_plan = planned->transfers[i];
        const TaskNumber made_for = tasks()[of_plan.task]->number;
        Task& gather = *transfers_[i];
        connects_ahead(made_for);
        const TaskNumber number = add_helper_ahead(gather, made_for);
        ++num_given_;
        gather.comes_before = made_for;
        Binding& binding = binding_of(of_plan);
        for (const plan::Piece& p : planned->pieces_of(of_plan))
            if (binding.histories[p.chunk].any_content())  // a first write finds nothing
                binding.read(p, number, gather.predecessors, *this);
        graph::drop_duplicates(gather.predecessors);
    }
}

/// And what follows from the edges of all tasks: where transfers stand, and how many bytes are held.
void PlanBatch::connect_write_backs() {
    Task& all = *tasks().back();
    if (all.kind == graph::TaskKind::join) all.held_bytes = books().held().now();
    TaskSet gathers_of_joins;
    for (Task* const t : tasks())
        for (const graph::Predecessor& p : t->predecessors) place_gather(p.number, t->number, gathers_of_joins);
    Places joins;
    while (num_given_ < transfers_.size()) connect_write_back(num_given_, joins);
    add_to_held();
}

/// A gather stands in the order right before the first task that comes after it: no sooner, because what it fills takes
/// memory that the tasks before it need. Called for the tasks in their order. O(1), and O(edges) once for each join.
void PlanBatch::place_gather(TaskNumber helper, TaskNumber task, TaskSet& joins) {
    if (!graph::is_helper(helper) || !is_own(helper)) return;
    Task& h = *books().table().look_for(helper);
    if (h.fills_temporary)
        h.comes_before = std::min(h.comes_before, task);
    else if (h.kind == graph::TaskKind::join && joins.insert(helper).second)
        for (const graph::Predecessor& p : h.predecessors) place_gather(p.number, task, joins);
}

/// Where a write-back stands: behind the last task that it depends on, or with the last such gather. O(edges), each
/// join once.
TaskNumber PlanBatch::place_behind(const Task& helper, Places& joins) const {
    TaskNumber place = first();
    for (const graph::Predecessor& p : helper.predecessors) {
        if (!is_own(p.number)) continue;
        if (!graph::is_helper(p.number)) {
            place = std::max(place, p.number + 1);
            continue;
        }
        const Task& before = *books().table().look_for(p.number);
        if (before.kind != graph::TaskKind::join) {
            place = std::max(place, before.comes_before);
            continue;
        }
        auto known = joins.find(p.number);
        if (known == joins.end()) known = joins.emplace(p.number, place_behind(before, joins)).first;
        place = std::max(place, known->second);
    }
    return std::min(place, last());
}

void PlanBatch::connect_write_back(std::size_t transfer, Places& joins) {
    const plan::Transfer& of_plan = planned->transfers[transfer];
    const plan::Piece& p = planned->pieces_of(of_plan).front();
    Task& all = *tasks().back();
    Task& write_back = *transfers_[transfer];
    connects(all.number);
    const TaskNumber number = add_helper(write_back, all.number);
    ++num_given_;
    write_back.predecessors.push_back({tasks()[of_plan.task]->number, true});
    Binding& binding = binding_of(of_plan);
    graph::CompactHistory& history = binding.histories[p.chunk];
    const bool is_first = !history.any_content();
    history.write(p.box, p.whole_chunk, binding.box_of(p.chunk), number, false, write_back.predecessors, *this);
    graph::drop_duplicates(write_back.predecessors);
    all.predecessors.push_back({number, true});
    write_back.comes_before = place_behind(write_back, joins);
    const auto place = static_cast<std::uint32_t>(write_back.comes_before - first());
    Temporary& temporary = temporaries_[of_plan.temporary];
    temporary.last_task = std::max(temporary.last_task, place);
    if (!is_first) return;
    const std::size_t elements = binding.layout->num_elements(p.chunk);
    binding.count_made(elements);
    held_changes_[place] += static_cast<std::ptrdiff_t>(binding.block_bytes_of(elements));
}

/// After all transfers have their places: a temporary counts as held (graph::HeldBytes) from its gather to its last
/// use. O(tasks + temporaries).
void PlanBatch::add_to_held() noexcept {
    for (const Temporary& t : temporaries_) {
        if (t.data->is_gathered) continue;  // not held: it can be dropped, and gathered again
        const std::uint64_t from = t.gather != nullptr ? t.gather->comes_before - first() : t.first_task;
        const auto bytes = static_cast<std::ptrdiff_t>(memory::rounded(t.data->chunk.block_bytes()));
        held_changes_[from] += bytes;
        held_changes_[std::size_t{1} + t.last_task] -= bytes;
    }
    std::ptrdiff_t more = 0;
    for (std::size_t i = 0; i < tasks().size(); ++i)
        tasks()[i]->held_bytes += static_cast<std::size_t>(more += held_changes_[i]);
    for (Task* const t : transfers_) t->held_bytes = tasks()[t->comes_before - first()]->held_bytes;
}

}  // namespace kmm::detail
