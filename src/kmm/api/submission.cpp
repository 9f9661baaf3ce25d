// One submit: drafts of tasks, their checks, and their place in the order.
//
// Runs on the submitting thread. A commit (runtime/batch.hpp) holds the runtime's order lock from the first check to
// the last edge, and no user code runs meanwhile. Everything that can be refused is refused before anything is changed.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
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
    : draft_(of_any_thread ? new Draft : kept_draft().take()) {
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

// `along(k)`: what a mapping gives for axis k of the array. Null: the whole array.
template<typename F>
AddedAccess Submission::Draft::add_access(ArrayRecord& array, AccessKind kind, std::uint32_t argument, const F* along) {
    Task& t = current();
    plan::Request request{array.box(), kind, false, 0, t.chunk_index, argument, t.memory};
    Box& region = request.region;
    if (along != nullptr) {
        if (core->platform().config().debug_mode) log_outside(array, argument, *along);
        for (std::size_t k = 0; k < array.rank(); ++k) {
            const Range<> r = clipped((*along)(k), {region.begin[k], region.end[k]});
            region.begin[k] = r.begin;
            region.end[k] = r.end;
            request.empty = request.empty || r.is_empty();
        }
    } else {
        request.empty = boxes::is_empty(region, array.rank());
    }
    const auto view = static_cast<std::uint32_t>(t.views.size());
    accesses.push_back({&array, nullptr, view});
    wanted.push_back(request);
    t.views.emplace_back().kind = kind;
    return {view, wanted.back().region};
}

AddedAccess Submission::add_access(const ArrayRef& array, AccessKind kind, std::uint32_t argument, const Box* wanted) {
    const auto along = [wanted](std::size_t k) { return Range<>(wanted->begin[k], wanted->end[k]); };
    return draft_->add_access(*array, kind, argument, wanted != nullptr ? &along : nullptr);
}

AddedAccess Submission::add_access(const ArrayRef& array, AccessKind kind, std::uint32_t argument,
                                   const IndexMap* mapping, const DomainChunk& chunk) {
    const auto along = [&](std::size_t k) { return mapping[k].apply(chunk); };
    if (draft_->core->platform().config().range_check) draft_->check_ranges(mapping, *array, argument);
    return draft_->add_access(*array, kind, argument, &along);
}

void Submission::Draft::log_outside(const ArrayRecord& array, std::uint32_t argument,
                                    const std::function<Range<>(std::size_t)>& along) {
    const std::size_t rank = array.rank();
    const Box& indices = array.box();
    Box asked;
    bool is_inside = true;
    for (std::size_t k = 0; k < rank; ++k) {
        const auto [begin, end] = along(k);
        asked.begin[k] = begin;
        asked.end[k] = end;
        const bool is_open = end == std::numeric_limits<std::int64_t>::max();  // "the rest of the axis"
        is_inside = is_inside && begin >= indices.begin[k] && (end <= indices.end[k] || is_open);
    }
    if (is_inside) return;
    log::write(
        log::warn,
        driver::format("argument {} of chunk {} of the {} asks for region {} of {}, whose indices are {}: it gets "
                       "the part inside",
                       argument, current().chunk_index, text_of(launcher), boxes::to_text(asked, rank), array.name(),
                       boxes::to_text(indices, rank)));
}

void Submission::Draft::check_ranges(const IndexMap* mapping, const ArrayRecord& array, std::uint32_t argument) {
    // Each task of a submit has the same mappings.
    if (current().chunk_index != 0) return;
    for (std::size_t k = 0; k < array.rank(); ++k) {
        if (!mapping[k].looks_closed()) continue;
        const std::string range = mapping[k].text();
        const SourceLocation& at = launcher.location;
        {
            WarnedPlaces& warned = driver::never_destroyed<WarnedPlaces>();
            std::string place = driver::format("{}:{} {} {}", at.file(), at.line(), argument, range);
            const locks::Guard guard(warned.mutex);
            if (!warned.places.insert(std::move(place)).second) continue;
        }
        log::write(
            log::warn,
            driver::format("argument {} of the {}: {} of {} ends before its second bound; in KMM 0.3 that belongs to "
                           "the range, which is closed_{} here (KMM_RANGE_CHECK warns once for each place)",
                           argument, text_of(launcher), range, array.name(), range));
    }
}

void* Submission::allocate_payload(std::size_t bytes, std::size_t alignment) {
    return draft_->current().allocate_storage(bytes, alignment);
}

void Submission::set_body(void* payload, const TaskBody& body, bool sees_layouts) {
    Task& t = draft_->current();
    // A kernel with a body: a launcher thread builds its parameters and launches it.
    if (t.kind == TaskKind::kernel) t.kind = TaskKind::device_function, ++draft_->num_late;
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
    const plan::Refusal& refusal = planner.refusal();
    const plan::Request& first = wanted[refusal.first];
    const plan::Request& second = wanted[refusal.second];
    const TaskLabel label = core->words().describe_failure(*tasks()[first.task]).task;
    const std::string region = driver::format("{} of {}", boxes::to_text(refusal.region, array.rank()), array.name());
    switch (refusal.reason) {
    case Reason::conflict:
        throw ConflictingAccess(array.name(), party(first), party(second), region_of(refusal.region, array.rank()),
                                label);
    case Reason::unwritten: throw UninitializedRead(array.name(), region_of(refusal.region, array.rank()), label);
    case Reason::gap:
        throw InvalidArgument(driver::format("no task writes to region {}, whose first write is \"{}\" ({}): let the "
                                             "tasks cover the array, or make it with rt.array",
                                             region, label.task_name, driver::count_text(label.num_chunks, "chunk")));
    case Reason::too_large: throw_too_large();
    case Reason::none: break;
    }
    throw InternalError("a submit was refused without a reason", launcher.location);
}

void Submission::Draft::throw_too_large() const {
    const plan::Refusal& refusal = planner.refusal();
    const std::uint32_t task = wanted[refusal.first].task;
    std::vector<Shortage::Need> needs;
    for (std::size_t i = refusal.first; i < wanted.size() && wanted[i].task == task; ++i) {
        const plan::Need& need = planner.plan().needs[i];
        if (!need.first_of_chunk) continue;
        const Binding& binding = *accesses[i].binding;
        const std::size_t bytes = planner.bytes_of(wanted, arrays, i);
        const bool is_chunk = need.form == plan::Form::in_place;
        needs.push_back({wanted[i].kind, binding.data->name(), need.chunk,
                         is_chunk ? binding.layout->box(need.chunk) : wanted[i].region, binding.layout->rank(), bytes,
                         is_chunk ? 0 : planner.plan().temporaries[need.temporary].num_pieces});
    }
    throw core->shortage_words().never_fits(*tasks()[task], refusal.bytes, std::move(needs));
}

// The first write binds: the distribution is the set of regions of the tasks.
Binding* Submission::Draft::bind_first_write(ArrayRecord& array, const std::vector<std::uint32_t>& positions) {
    std::vector<ChunkGeometry> chunks;
    if (!planner.first_write(array.box(), wanted, positions, chunks)) throw_refusal(array);
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

// ---------------------------------------------------------------------------------------------------- the order

void Submission::Draft::check() {
    find_bindings();
    if (!planner.make(wanted, arrays, core->platform().limits_bytes()))
        throw_refusal(*accesses[planner.refusal().first].array);
    planned = &planner.plan();
    planned_by = &planner;
    PlanBatch::check();
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
    if (d.num_late != 0) core.late_kernels().count(d.launcher, d.num_late);
    return core.books().event_of(d.last());
}

}  // namespace kmm::detail
