// One submit: drafts of tasks, their checks, and their place in the order.
//
// Runs on the submitting thread. A commit (runtime/batch.hpp) holds the runtime's order lock from the first check to
// the last edge, and no user code runs meanwhile. Everything that can be refused is refused before anything is changed.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "driver/format.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/api/submit_draft.hpp"
#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/detail/index_map.hpp"
#include "kmm/graph/room.hpp"
#include "kmm/runtime/kept_books.hpp"

namespace kmm::detail {

using graph::Task;
using graph::TaskKind;
using graph::TaskNumber;

namespace {

Region region_of(const Box& box, std::size_t rank) {
    Region r;
    for (std::size_t k = 0; k < rank; ++k) r.emplace_back(box.begin[k], box.end[k]);
    return r;
}

}  // namespace

/// One draft of each thread is kept: its vectors have grown to what the program's submits need.
class KeptDraft final : public KeptBooks {
  public:
    KeptDraft() noexcept { enter(); }
    ~KeptDraft() {
        leave();
        give_back();
    }
    Submission::Draft* take() {
        // None: the first submit, or a mapping of the program submits by itself.
        Submission::Draft* kept = draft_.exchange(nullptr, std::memory_order_acquire);
        if (kept == nullptr) {
            kept = new Submission::Draft;
            kept->keeper = this;
        }
        return kept;
    }
    void keep(Submission::Draft* draft) noexcept { delete draft_.exchange(draft, std::memory_order_acq_rel); }

  private:
    void give_back() noexcept override { delete draft_.exchange(nullptr, std::memory_order_acquire); }

    std::atomic<Submission::Draft*> draft_{nullptr};
};

namespace {

/// Of the process: where KMM_RANGE_CHECK has warned.
struct WarnedPlaces {
    locks::Mutex mutex;
    std::set<std::string> places KMM_GUARDED_BY(mutex);
};

KeptDraft& kept_draft() {
    thread_local KeptDraft kept;
    return kept;
}

}  // namespace

Submission::Submission(RuntimeCore& runtime, const LauncherInfo& launcher, bool of_any_thread)
    : draft_(of_any_thread ? new Draft : kept_draft().take()),
      logs_regions_(runtime.platform().config().debug_mode),
      checks_ranges_(runtime.platform().config().range_check) {
    draft_->core = &runtime;
    draft_->set_books(runtime.books());
    draft_->launcher = launcher;
}

Submission::~Submission() {
    KeptDraft* const keeper = draft_->is_large() ? nullptr : draft_->keeper;
    draft_->clear();
    if (keeper != nullptr) [[likely]]
        keeper->keep(draft_);
    else
        delete draft_;
}

void Submission::begin_task(ResourceId where, const DomainChunk& chunk, const TaskSize& size) {
    begin_task(where, chunk, draft_->launcher.kind, size);
}

void Submission::begin_task(ResourceId where, const DomainChunk& chunk, LauncherInfo::Kind kind, const TaskSize& size) {
    Task* const t = &draft_->add_task({.num_uses = size.num_accesses,
                                       .storage_bytes = size.storage_bytes,
                                       .has_layouts = kind != LauncherInfo::Kind::kernel,
                                       .num_fields = size.num_fields});
    t->make_room(size.num_accesses, true, size.num_fields);
    t->kind = kind == LauncherInfo::Kind::host              ? TaskKind::host
              : kind == LauncherInfo::Kind::device_function ? TaskKind::device_function
                                                            : TaskKind::kernel;
    if (t->kind == TaskKind::kernel) t->set_kernel({});  // of an empty chunk nothing else is set
    t->chunk_index = static_cast<std::uint32_t>(draft_->tasks().size() - 1);
    t->where = where;
    t->memory = memory::MemoryIndex::of(where.as_memory());
    t->chunk = chunk;
}

std::uint32_t Submission::add_access(const ArrayRef& array, AccessKind kind, const Box& region,
                                     std::uint32_t argument) {
    Task& t = draft_->current();
    const auto view = static_cast<std::uint32_t>(t.views.size());
    const bool is_empty = graph::is_empty(region, array->rank());
    draft_->accesses.push_back({array.get(), nullptr, view});
    draft_->wanted.push_back({region, kind, is_empty, 0, t.chunk_index, argument, t.memory});
    t.views.emplace_back().kind = kind;
    return view;
}

void Submission::log_outside(const ArrayRef& array, const Box& wanted, std::uint32_t argument) {
    const std::size_t rank = array->rank();
    const Task& t = draft_->current();
    log::write(
        log::warn,
        driver::format("argument {} of chunk {} of the {} asks for region {} of {}, whose indices are {}: it gets "
                       "the part inside",
                       argument, t.chunk_index, text_of(draft_->launcher), graph::to_text(wanted, rank), array->name(),
                       graph::to_text(array->box(), rank)));
}

void Submission::check_range(const ArrayRef& array, const IndexMap& map, std::uint32_t argument) {
    // Each task of a submit has the same mappings.
    if (draft_->current().chunk_index != 0 || !map.looks_closed()) return;
    const std::string range = map.text();
    const SourceLocation& at = draft_->launcher.location;
    {
        WarnedPlaces& warned = driver::never_destroyed<WarnedPlaces>();
        std::string place = driver::format("{}:{} {} {}", at.file(), at.line(), argument, range);
        const locks::Guard guard(warned.mutex);
        if (!warned.places.insert(std::move(place)).second) return;
    }
    log::write(
        log::warn,
        driver::format("argument {} of the {}: {} of {} ends before its second bound; in KMM 0.3 that belongs to "
                       "the range, which is closed_{} here (KMM_RANGE_CHECK warns once for each place)",
                       argument, text_of(draft_->launcher), range, array->name(), range));
}

void* Submission::allocate_payload(std::size_t bytes, std::size_t alignment) {
    return draft_->current().allocate_storage(bytes, alignment);
}

void Submission::set_body(void* payload, const TaskBody& body, bool sees_layouts) {
    Task& t = draft_->current();
    // A kernel with a body: a launcher thread builds its parameters and launches it.
    if (t.kind == TaskKind::kernel) t.kind = TaskKind::device_function;
    t.function = {body, payload};
    if (sees_layouts) t.make_layouts();
}

void* Submission::set_kernel(const KernelDraft& k) {
    Task& t = draft_->current();
    const std::size_t bytes = k.parameter_bytes == 0 ? 1 : k.parameter_bytes;
    auto* parameters = static_cast<std::byte*>(t.allocate_storage(bytes, 16));
    std::memset(parameters, 0, bytes);
    t.set_kernel({k.function,
                  {k.grid[0], k.grid[1], k.grid[2]},
                  {k.block[0], k.block[1], k.block[2]},
                  k.shared_bytes,
                  k.parameter_bytes,
                  parameters});
    return parameters;
}

void Submission::fail_task(std::exception_ptr error) { draft_->current().thrown = std::move(error); }

void Submission::add_field(ParameterField field) { draft_->current().fields.push_back(field); }

// ---------------------------------------------------------------------------------------------------- checks

ConflictParty Submission::Draft::party(const plan::Request& r) const {
    const Task& t = *tasks()[r.task];
    ConflictParty p;
    p.chunk_index = r.task;
    p.offset = t.chunk.offset;
    p.size = t.chunk.size;
    p.argument = r.argument;
    p.resource = t.where;
    return p;
}

// What the plan refused, as the program sees it.
void Submission::Draft::throw_refusal(const ArrayRecord& array) const {
    using Reason = plan::Refusal::Reason;
    const plan::Refusal& refusal = plan.refusal();
    const plan::Request& first = wanted[refusal.first];
    const plan::Request& second = wanted[refusal.second];
    const TaskLabel label = core->words().describe_failure(*tasks()[first.task]).task;
    const std::string region = driver::format("{} of {}", graph::to_text(refusal.region, array.rank()), array.name());
    switch (refusal.reason) {
    case Reason::conflict:
        throw ConflictingAccess(array.name(), party(first), party(second), region_of(refusal.region, array.rank()),
                                label);
    case Reason::unwritten: throw UninitializedRead(array.name(), region_of(refusal.region, array.rank()), label);
    case Reason::gap:
        throw InvalidArgument(driver::format("no task writes to region {}, whose first write is \"{}\" ({}): let the "
                                             "tasks cover the array, or make it with rt.array",
                                             region, label.task_name, driver::count_text(label.num_chunks, "chunk")));
    case Reason::none: break;
    }
    throw InternalError("a submit was refused without a reason", launcher.location);
}

// The first write binds: the distribution is the set of regions of the tasks.
Binding* Submission::Draft::bind_first_write(ArrayRecord& array, const std::vector<std::uint32_t>& positions) {
    std::vector<ChunkGeometry> chunks;
    if (!plan.first_write(array.box(), wanted, positions, chunks)) throw_refusal(array);
    auto layout = std::make_shared<plan::Layout>(array.rank(), array.box(), std::move(chunks));
    bindings.push_back({&array, std::make_unique<Binding>(core->shared_from_this(), array, std::move(layout))});
    return bindings.back().binding.get();
}

/// Those that the submit writes first, in the order in which it names them. There may be as many as accesses.
void Submission::Draft::bind_first_writes() {
    std::unordered_map<ArrayRecord*, std::size_t> numbers;
    std::vector<std::vector<std::uint32_t>> positions;
    for (std::size_t i = 0; i < accesses.size(); ++i) {
        if (accesses[i].array->binding() != nullptr) continue;
        const auto [at, is_new] = numbers.try_emplace(accesses[i].array, positions.size());
        if (is_new) positions.emplace_back();
        positions[at->second].push_back(static_cast<std::uint32_t>(i));
    }
    for (const std::vector<std::uint32_t>& of_array : positions) {
        Binding* const binding = bind_first_write(*accesses[of_array.front()].array, of_array);
        for (const std::uint32_t i : of_array) accesses[i].binding = binding;
    }
}

void Submission::Draft::find_bindings() {
    plan::Request* request = wanted.data();
    for (DraftAccess& a : accesses) {
        if (Binding* const bound = a.array->binding(); bound != nullptr) [[likely]]
            a.binding = bound;
        else if (a.binding == nullptr)
            bind_first_writes();
        if (a.binding == nullptr) a.binding = a.array->binding();  // another runtime has bound it meanwhile
        if (a.binding->runtime.get() != core)
            throw InvalidArgument(driver::format("{} belongs to runtime {}, but was used with runtime {}: copy its "
                                                 "content to an array of this runtime",
                                                 a.array->name(), a.binding->runtime->platform().number(),
                                                 core->platform().number()));
        request->array =
            &a != accesses.data() && a.binding == (&a)[-1].binding ? request[-1].array : number_of(*a.binding);
        ++request;
    }
}

/// Among the arrays of the submit. O(1): the array remembers a number, which counts if it is the array's now (Briggs,
/// Torczon: An efficient representation for sparse sets, 1993).
std::uint32_t Submission::Draft::number_of(Binding& binding) {
    const std::uint32_t known = binding.number_in_submit;
    if (known < arrays.size() && arrays[known].histories == &binding.histories) return known;
    binding.number_in_submit = static_cast<std::uint32_t>(arrays.size());
    arrays.push_back({binding.layout.get(), &binding.histories});
    return binding.number_in_submit;
}

void Submission::Draft::make_plan() {
    if (!plan.make(wanted, arrays)) throw_refusal(*accesses[plan.refusal().first].array);
}

// Debug mode: what an overwrite finds is filled with a pattern.
void Submission::Draft::fill_before(Task& t, std::uint32_t view, const Box& region) {
    graph::Unset& unset = t.cold_part(graph::UseOfReserve::no).unset.emplace_back();
    unset.index = view;
    for (std::size_t k = 0; k < max_rank; ++k) unset.extents[k] = region.end[k] - region.begin[k];
}

// What residency and the kernels need to know of an access; the bytes that it adds to what its task needs.
std::size_t Submission::Draft::describe_view(Task& t, std::size_t request) {
    const plan::Need& need = plan.needs()[request];
    if (need.form == plan::Form::nothing) return 0;
    const DraftAccess& a = accesses[request];
    Binding& binding = *a.binding;
    graph::View& view = t.views[a.view];
    view.use = need.use;
    graph::Use* const use = need.first_of_chunk ? &t.uses.emplace_back() : nullptr;
    if (need.form == plan::Form::temporary) {
        const plan::Temporary& planned = plan.temporaries()[need.temporary];
        if (use == nullptr) return 0;
        use->chunk = &temporaries.entries()[need.temporary].chunk();
        if (planned.chosen_late) use->role = graph::Use::Role::region;
        temporaries.count_use(need.temporary, wanted[request].task);
    } else {
        view.offset_bytes = need.offset * a.array->element_bytes();
        if (use == nullptr) return 0;
        use->chunk = &binding.touch(need.chunk);
    }
    static_cast<graph::ContentNeeds&>(*use) = need;
    return Platform::rounded(need.form == plan::Form::temporary ? use->chunk->block_bytes()
                                                                : binding.block_bytes_of(need.chunk_elements));
}

// Regions whose form is chosen late: the chunks that they lie in are uses as well, behind all others.
void Submission::Draft::describe_across(Task& t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        const plan::Need& need = plan.needs()[i];
        if (need.form == plan::Form::temporary && need.first_of_chunk && plan.temporaries()[need.temporary].chosen_late)
            Temporaries::add_across(t, need.use, need.temporary, plan, wanted[i], accesses[i]);
    }
}

// No other thread sees the tasks yet.
void Submission::Draft::describe_tasks() {
    const bool debug_mode = core->platform().config().debug_mode;
    const std::size_t count = wanted.size();
    for (std::size_t i = 0; i < count;) {
        const std::size_t first = i;
        const std::uint32_t number = wanted[i].task;
        Task& t = *tasks()[number];
        std::size_t bytes = 0;
        for (; i < count && wanted[i].task == number; ++i) {
            bytes = Platform::sum_bytes(bytes, describe_view(t, i));
            if (debug_mode && wanted[i].kind == AccessKind::overwrite && !wanted[i].empty)
                fill_before(t, accesses[i].view, wanted[i].region);
        }
        if (!plan.temporaries().empty()) describe_across(t, first, i);
        if (bytes > core->platform().limit_bytes(t.memory)) throw core->shortage_words().never_fits(t, bytes);
    }
}

void Submission::Draft::make_temporaries() {
    temporaries.make(*core, plan, wanted, accesses, tasks());
    if (temporaries.num_transfers() == 0) return;
    reserve_helpers(temporaries.num_transfers());
    // What is written back is done after the task: the submit's own number waits for both.
    if (temporaries.any_written() && tasks().size() == 1) add_task().predecessors.reserve(1);
    temporaries.count_tasks(tasks().size());
}

// ---------------------------------------------------------------------------------------------------- the order

void Submission::Draft::check() {
    find_bindings();
    make_plan();
    if (!plan.temporaries().empty()) make_temporaries();
    describe_tasks();
}

void Submission::Draft::bind_new() {
    for (NewBinding& n : bindings) {
        const memory::Array& data = *n.binding->data;
        if (!n.array->bind(n.binding))
            throw InvalidArgument(n.array->name() +
                                      " was bound to another runtime a moment ago: use one array for each",
                                  launcher.location);
        core->listeners().tell_bound(data, n.array->box(), n.array->is_named());
    }
    for (const Temporaries::Entry& e : temporaries.entries())
        core->listeners().tell_bound(*e.temporary, e.temporary->region, false);
}

// What is kept from before the submit is read first, what is written back comes last. A task that reads or writes in
// place what another one has in a temporary is thus before or behind the transfer, whichever of the tasks runs first.
void Submission::Draft::connect() {
    temporaries.give_away();
    const bool any_transfer = temporaries.num_transfers() != 0;
    if (any_transfer) connect_gathers();
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
    if (any_transfer) {
        if (tasks().back()->kind == TaskKind::join) tasks().back()->held_bytes = books().held().now();
        graph::UnorderedSet<TaskNumber> joins;
        for (Task* const t : tasks())
            for (const graph::Predecessor& p : t->predecessors) place_gather(p.number, t->number, joins);
        connect_write_backs();
        temporaries.add_to_held(tasks(), first());
    }
    Task& all = *tasks().back();
    if (all.kind != TaskKind::join) return;
    for (TaskNumber n = first(); n != all.number; ++n) all.predecessors.push_back({n, true});
}

void Submission::Draft::connect_access(Task& t, std::size_t request) {
    const plan::Request& r = wanted[request];
    const plan::Need& need = plan.needs()[request];
    if (need.form == plan::Form::temporary) {
        const plan::Temporary& temporary = plan.temporaries()[need.temporary];
        const TaskNumber gather = temporaries.entries()[need.temporary].gather_number;
        if (gather != 0) graph::add_predecessor(t.predecessors, gather, true);
        if (!temporary.chosen_late || !need.first_of_chunk) return;
        Binding& binding = *accesses[request].binding;
        for (const plan::Piece& p : plan.pieces(temporary)) binding.read(p, t.number, t.predecessors, *this);
        return;
    }
    Binding& binding = *accesses[request].binding;
    graph::CompactHistory& history = binding.histories[need.chunk];
    const auto box = binding.box_of(need.chunk);
    if (r.kind == AccessKind::read) {
        history.read(r.region, need.whole_chunk, box, t.number, t.predecessors, *this);
        return;
    }
    if (!history.any_content()) binding.count_made(need.chunk_elements);
    history.write(r.region, need.whole_chunk, box, t.number, r.kind == AccessKind::write, t.predecessors, *this);
}

void Submission::Draft::connect_gathers() {
    for (std::size_t i = 0; i < temporaries.entries().size(); ++i) {
        Temporaries::Entry& e = temporaries.entries()[i];
        if (e.gather == nullptr) continue;
        const plan::Temporary& t = plan.temporaries()[i];
        const plan::Request& r = wanted[t.request];
        Task& gather = *std::exchange(e.gather, nullptr);
        e.given_gather = &gather;
        connects_ahead(tasks()[r.task]->number);
        e.gather_number = add_helper_ahead(gather, tasks()[r.task]->number);
        gather.comes_before = tasks()[r.task]->number;
        Binding& binding = *accesses[t.request].binding;
        for (const plan::Piece& p : plan.pieces(t))
            if (binding.histories[p.chunk].any_content())  // a first write finds nothing
                binding.read(p, e.gather_number, gather.predecessors, *this);
        graph::drop_duplicates(gather.predecessors);
    }
}

/// A gather stands in the order right before the first task that comes after it: no sooner, because what it fills takes
/// memory that the tasks before it need. Called for the tasks in their order. O(1), and O(edges) once for each join.
void Submission::Draft::place_gather(TaskNumber helper, TaskNumber task, graph::UnorderedSet<TaskNumber>& joins) {
    if (!graph::is_helper(helper) || !is_own(helper)) return;
    Task& h = *books().table().look_for(helper);
    if (h.fills_temporary)
        h.comes_before = std::min(h.comes_before, task);
    else if (h.kind == TaskKind::join && joins.insert(helper).second)
        for (const graph::Predecessor& p : h.predecessors) place_gather(p.number, task, joins);
}

/// Where a write-back stands: behind the last task that it depends on, or with the last such gather. O(edges), each
/// join once.
TaskNumber Submission::Draft::place_behind(const Task& helper,
                                           graph::UnorderedMap<TaskNumber, TaskNumber>& joins) const {
    TaskNumber place = first();
    for (const graph::Predecessor& p : helper.predecessors) {
        if (!is_own(p.number)) continue;
        if (!graph::is_helper(p.number)) {
            place = std::max(place, p.number + 1);
            continue;
        }
        const Task& before = *books().table().look_for(p.number);
        if (before.kind != TaskKind::join) {
            place = std::max(place, before.comes_before);
            continue;
        }
        auto known = joins.find(p.number);
        if (known == joins.end()) known = joins.emplace(p.number, place_behind(before, joins)).first;
        place = std::max(place, known->second);
    }
    return std::min(place, last());
}

void Submission::Draft::connect_write_backs() {
    Task& all = *tasks().back();
    graph::UnorderedMap<TaskNumber, TaskNumber> joins;
    for (std::size_t i = 0; i < temporaries.entries().size(); ++i) {
        Temporaries::Entry& e = temporaries.entries()[i];
        const plan::Temporary& t = plan.temporaries()[i];
        const TaskNumber writer = tasks()[wanted[t.request].task]->number;
        for (std::size_t k = 0; k < e.write_backs.size(); ++k) {
            const plan::Piece& p = plan.pieces(t)[k];
            Task& write_back = *std::exchange(e.write_backs[k], nullptr);
            connects(all.number);
            const TaskNumber number = add_helper(write_back, all.number);
            write_back.predecessors.push_back({writer, true});
            Binding& binding = *accesses[t.request].binding;
            graph::CompactHistory& history = binding.histories[p.chunk];
            const bool is_first = !history.any_content();
            history.write(p.box, p.whole_chunk, binding.box_of(p.chunk), number, false, write_back.predecessors, *this);
            graph::drop_duplicates(write_back.predecessors);
            all.predecessors.push_back({number, true});
            write_back.comes_before = place_behind(write_back, joins);
            const std::size_t elements = binding.layout->num_elements(p.chunk);
            if (is_first) binding.count_made(elements);
            temporaries.count_write_back(e, write_back, write_back.comes_before - first(),
                                         is_first ? Platform::rounded(binding.block_bytes_of(elements)) : 0);
        }
    }
}

void Submission::Draft::share_info() {
    const std::string_view name =
        launcher.name == nullptr ? std::string_view() : std::string_view(launcher.name, launcher.name_length);
    const graph::SubmitInfo* const last = info.get();
    const bool same = last != nullptr && last->num_chunks == tasks().size() && last->launcher == launcher.kind &&
                      last->location.line() == launcher.location.line() &&
                      last->location.file() == launcher.location.file() &&
                      last->location.function() == launcher.location.function() && last->name == name;
    if (!same) {
        auto fresh = std::make_unique<graph::SubmitInfo>();
        fresh->name = name;
        fresh->location = launcher.location;
        fresh->num_chunks = static_cast<std::uint32_t>(tasks().size());
        fresh->launcher = launcher.kind;
        info.reset(std::move(fresh));
    }
    for (Task* t : tasks()) info.give_to(t->info);
}

EventId Submission::commit() {
    Draft& d = *draft_;
    RuntimeCore& core = *d.core;
    core.books().check_open();
    if (d.tasks().empty()) return EventId();
    d.submit_begin_ns = core.listeners().any() ? trace::clock_ns() : 0;
    core.admit();
    d.share_info();
    // Done when all tasks are; a single one stands for the submit itself.
    if (const std::size_t count = d.tasks().size(); count > 1)
        d.add_task({.num_edges = count}).predecessors.reserve(count);
    core.commit(d);
    return core.books().event_of(d.last());
}

}  // namespace kmm::detail
