// One submit: drafts of tasks, their checks, and their place in the order.
//
// Runs on the submitting thread. `commit` holds the runtime's order lock from the first check to the last number, and no
// user code runs meanwhile. Everything that can be refused is refused before anything is changed.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "kmm/api/array_record.hpp"
#include "kmm/values/log.hpp"

namespace kmm::detail {

using graph::Access;
using graph::Predecessor;
using graph::Task;
using graph::TaskKind;
using graph::TaskNumber;

namespace {

struct DraftAccess {
    ArrayRecord* array = nullptr;
    Binding* binding = nullptr;
    Box region;
    AccessKind kind = AccessKind::read;
    bool empty = false;
    std::uint32_t task = 0;    // position in the submit
    std::uint32_t access = 0;  // position in the task
    std::uint32_t argument = 0;
    std::uint32_t chunk = 0;
    bool whole = false;
};

struct Finish {
    FinishParameters function = nullptr;
    std::uint32_t task = 0;
    std::size_t recipe = 0;  // offset
};

struct NewBinding {
    ArrayRecord* array;
    std::unique_ptr<Binding> binding;
};

constexpr bool writes(AccessKind kind) noexcept { return kind != AccessKind::read; }

Region region_of(const Box& box, std::size_t rank) {
    Region r;
    for (std::size_t k = 0; k < rank; ++k) r.emplace_back(box.begin[k], box.end[k]);
    return r;
}

}  // namespace

struct Submission::Draft final : graph::JoinMaker {
    RuntimeCore* core = nullptr;
    LauncherInfo launcher;
    std::vector<Task*> tasks;
    std::vector<Task*> joins;
    std::vector<DraftAccess> accesses;
    std::vector<Finish> finishes;
    std::vector<std::max_align_t> recipes;
    std::size_t recipe_bytes = 0;
    std::vector<NewBinding> bindings;
    std::vector<DraftAccess*> order;
    graph::SubmitInfoSource info;  ///< of the submit before: a loop submits from one place
    bool in_use = false;

    Task& current() { return *tasks.back(); }
    void clear() noexcept {
        tasks.clear();
        joins.clear();
        accesses.clear();
        finishes.clear();
        recipe_bytes = 0;
        bindings.clear();
        order.clear();
    }
    ConflictParty party(const DraftAccess& a) const {
        const Task& t = *tasks[a.task];
        ConflictParty p;
        p.chunk_index = a.task;
        p.offset = t.chunk.offset;
        p.size = t.chunk.size;
        p.argument = a.argument;
        p.resource = t.where;
        return p;
    }
    [[noreturn]] void throw_conflict(const DraftAccess& a, const DraftAccess& b) const {
        throw ConflictingAccess(a.array->name(), party(a), party(b),
                                region_of(graph::intersection(a.region, b.region), a.array->rank()), launcher.location);
    }

    void bind_new_arrays();
    void find_chunks();
    void check_conflicts();
    void check_pair(const DraftAccess& a, const DraftAccess& b) const;
    void check_contents() const;
    void describe_accesses();
    void check_sizes() const;
    EventId take_places();
    void share_info();
    TaskNumber join(const std::vector<TaskNumber>& numbers) override;
};

namespace {

// One draft of each thread is kept: its vectors have grown to what the program's submits need.
thread_local Submission::Draft* kept_draft = nullptr;
struct DropKeptDraft {
    ~DropKeptDraft() {
        delete kept_draft;
        kept_draft = nullptr;
    }
};

Submission::Draft* take_draft() {
    thread_local DropKeptDraft drop;
    static_cast<void>(drop);
    if (kept_draft == nullptr) kept_draft = new Submission::Draft;
    if (kept_draft->in_use) return new Submission::Draft;  // a mapping of the program submits by itself
    kept_draft->in_use = true;
    return kept_draft;
}

}  // namespace

Submission::Submission(RuntimeCore& runtime, const LauncherInfo& launcher)
    : draft_(take_draft()), logs_regions_(runtime.config().debug_mode) {
    draft_->core = &runtime;
    draft_->launcher = launcher;
}

Submission::~Submission() {
    for (Task* t : draft_->tasks) draft_->core->pool().give(t);
    draft_->clear();
    if (draft_ == kept_draft)
        draft_->in_use = false;
    else
        delete draft_;
}

void Submission::begin_task(ResourceId where, const DomainChunk& chunk) {
    if (where.is_device() && where.as_device().get() >= draft_->core->num_devices())
        throw InvalidResourceException("GPU " + std::to_string(where.as_device().get()) + " is not one of the " +
                                           std::to_string(draft_->core->num_devices()) +
                                           " devices of the runtime (numbered from 0)",
                                       draft_->launcher.location);
    const bool host = draft_->launcher.kind == LauncherInfo::Kind::host;
    if (host != where.is_host())
        throw InvalidResourceException(host ? "a Host launcher cannot run on a device: use ResourceId::host()"
                                            : "a device launcher cannot run on the host: name a device",
                                       draft_->launcher.location);
    draft_->tasks.reserve(draft_->tasks.size() + 1);
    Task* t = draft_->core->pool().take();
    draft_->tasks.push_back(t);
    t->kind = draft_->launcher.kind == LauncherInfo::Kind::host              ? TaskKind::host
              : draft_->launcher.kind == LauncherInfo::Kind::device_function ? TaskKind::device_function
                                                                             : TaskKind::kernel;
    t->chunk_index = static_cast<std::uint32_t>(draft_->tasks.size() - 1);
    t->where = where;
    t->memory = where.is_host() ? 0u : 1u + where.as_device().get();
    t->chunk = chunk;
}

std::uint32_t Submission::add_access(const ArrayRef& array, AccessKind kind, const Box& region,
                                     std::uint32_t argument) {
    Task& t = draft_->current();
    DraftAccess& a = draft_->accesses.emplace_back();
    a.array = array.get();
    a.region = region;
    a.kind = kind;
    a.empty = graph::is_empty(region, array->rank());
    a.task = static_cast<std::uint32_t>(draft_->tasks.size() - 1);
    a.access = static_cast<std::uint32_t>(t.accesses.size());
    a.argument = argument;
    t.accesses.emplace_back();
    t.accesses.back().kind = kind;
    t.layouts.emplace_back();
    return a.access;
}

void Submission::log_outside(const ArrayRef& array, const Box& wanted, std::uint32_t argument) {
    const std::size_t rank = array->rank();
    const Task& t = draft_->current();
    std::string text = "argument " + std::to_string(argument) + " of chunk " + std::to_string(t.chunk_index);
    if (draft_->launcher.name != nullptr)
        text += " of '" + std::string(draft_->launcher.name, draft_->launcher.name_length) + "'";
    text += " asks for region " + graph::to_text(wanted, rank) + " of " + array->name() + ", whose indices are " +
            graph::to_text(array->box(), rank) + ": it gets the part inside";
    log::write(log::warn, text);
}

void* Submission::allocate_payload(std::size_t bytes, std::size_t alignment) {
    return draft_->current().allocate_storage(bytes, alignment);
}

void Submission::set_body(void* payload, const TaskBody& body) {
    draft_->current().payload = payload;
    draft_->current().body = body;
}

void* Submission::set_kernel(const KernelDraft& k) {
    Task& t = draft_->current();
    const std::size_t bytes = k.parameter_bytes == 0 ? 1 : k.parameter_bytes;
    auto* parameters = static_cast<std::byte*>(t.allocate_storage(bytes, 16));
    std::memset(parameters, 0, bytes);
    t.kernel.function = k.function;
    std::copy(k.grid, k.grid + 3, t.kernel.grid);
    std::copy(k.block, k.block + 3, t.kernel.block);
    t.kernel.shared_bytes = k.shared_bytes;
    t.kernel.parameter_bytes = k.parameter_bytes;
    t.kernel.parameters = parameters;
    return parameters;
}

void Submission::fail_task(std::exception_ptr error) { draft_->current().thrown = std::move(error); }

void Submission::set_finish(FinishParameters finish, const void* recipe, std::size_t recipe_bytes) {
    constexpr std::size_t unit = sizeof(std::max_align_t);
    Draft& d = *draft_;
    const std::size_t at = d.recipe_bytes;
    d.recipe_bytes += (recipe_bytes + unit - 1) / unit * unit;
    if (d.recipes.size() * unit < d.recipe_bytes) d.recipes.resize(2 * d.recipe_bytes / unit + 1);
    std::memcpy(reinterpret_cast<std::byte*>(d.recipes.data()) + at, recipe, recipe_bytes);
    d.finishes.push_back({finish, static_cast<std::uint32_t>(d.tasks.size() - 1), at});
}

void Submission::add_patch(AddressPatch patch) { draft_->current().patches.push_back(patch); }

// ---------------------------------------------------------------------------------------------------- checks

// The first write binds: the distribution is the set of regions of the tasks.
void Submission::Draft::bind_new_arrays() {
    for (DraftAccess& a : accesses) {
        a.binding = a.array->binding();
        if (a.binding == nullptr) {
            for (NewBinding& n : bindings)
                if (n.array == a.array) a.binding = n.binding.get();
        }
        if (a.binding != nullptr) continue;
        ArrayRecord& array = *a.array;
        std::vector<ChunkGeometry> chunks;
        std::vector<const DraftAccess*> from;
        bool written = false;
        for (const DraftAccess& b : accesses) {
            if (b.array != &array) continue;
            if (!writes(b.kind))
                throw UninitializedRead(array.name(), region_of(b.empty ? array.box() : b.region, array.rank()),
                                        launcher.location);
            written = true;
            if (b.empty) continue;
            const Task& t = *tasks[b.task];
            chunks.push_back({t.memory == 0 ? MemoryId::host() : MemoryId(t.where.as_device()), b.region});
            from.push_back(&b);
        }
        if (!written) continue;
        std::size_t first = 0, second = 0;
        if (plan::Layout::find_overlap(chunks, &first, &second)) throw_conflict(*from[first], *from[second]);
        Box gap;
        if (plan::Layout::find_gap(array.box(), chunks, &gap))
            throw InvalidArgument(
                "no task writes to region " + graph::to_text(gap, array.rank()) + " of " + array.name() +
                    ", whose first write this is: let the tasks cover the array, or make it with rt.array",
                launcher.location);
        bindings.push_back({&array, std::make_unique<Binding>(core->shared_from_this(), array, std::move(chunks))});
        a.binding = bindings.back().binding.get();
    }
}

void Submission::Draft::find_chunks() {
    for (DraftAccess& a : accesses) {
        if (a.binding->runtime.get() != core)
            throw InvalidArgument(a.array->name() + " belongs to runtime " +
                                      std::to_string(a.binding->runtime->number()) + ", but was used with runtime " +
                                      std::to_string(core->number()) + ": copy its content to an array of this runtime",
                                  launcher.location);
        if (a.empty) continue;
        const std::size_t i = a.binding->layout.find(a.region);
        if (i == plan::Layout::none)
            throw NotAvailable("argument " + std::to_string(a.argument) + " of chunk " + std::to_string(a.task) +
                                   " uses region " + graph::to_text(a.region, a.array->rank()) + " of " +
                                   a.array->name() +
                                   ", which crosses chunks of its distribution; this version of kmm runs tasks on "
                                   "regions inside one chunk: use tiles that "
                                   "match the array's chunks, or an array of one chunk",
                               launcher.location);
        a.chunk = static_cast<std::uint32_t>(i);
        a.whole = graph::equal(a.region, a.binding->layout.chunks()[i].box, a.array->rank());
    }
}

void Submission::Draft::check_pair(const DraftAccess& a, const DraftAccess& b) const {
    const bool both_write = writes(a.kind) && writes(b.kind);
    if (!writes(a.kind) && !writes(b.kind)) return;
    if (!graph::overlaps(a.region, b.region, a.array->rank())) {
        if (both_write && tasks[a.task]->memory != tasks[b.task]->memory)
            throw NotAvailable(
                "chunks " + std::to_string(a.task) + " and " + std::to_string(b.task) +
                    " of this submit write parts of one chunk of " + a.array->name() +
                    " from different memories, which this version of kmm does not merge: use tiles that match the "
                    "array's chunks, or several submits",
                launcher.location);
        return;
    }
    if (both_write) throw_conflict(a, b);
    throw NotAvailable(
        "argument " + std::to_string((writes(a.kind) ? b : a).argument) + " reads region " +
            graph::to_text(graph::intersection(a.region, b.region), a.array->rank()) + " of " + a.array->name() +
            ", which the same submit writes; this version of kmm takes no snapshots: for an in-place update pass "
            "write(...) alone, else read from another array",
        launcher.location);
}

void Submission::Draft::check_conflicts() {
    bool any_write = false;
    order.clear();
    for (DraftAccess& a : accesses) {
        any_write = any_write || writes(a.kind);
        if (!a.empty) order.push_back(&a);
    }
    if (!any_write || order.size() < 2) return;
    const auto same_chunk = [](const DraftAccess* a, const DraftAccess* b) {
        return a->binding == b->binding && a->chunk == b->chunk;
    };
    if (order.size() > 16) {
        std::sort(order.begin(), order.end(), [](const DraftAccess* a, const DraftAccess* b) {
            if (a->binding != b->binding) return a->binding < b->binding;
            if (a->chunk != b->chunk) return a->chunk < b->chunk;
            return a->task != b->task ? a->task < b->task : a->access < b->access;
        });
        for (std::size_t i = 0; i < order.size(); ++i)
            for (std::size_t j = i + 1; j < order.size() && same_chunk(order[i], order[j]); ++j)
                check_pair(*order[i], *order[j]);
        return;
    }
    for (std::size_t i = 0; i < order.size(); ++i)
        for (std::size_t j = i + 1; j < order.size(); ++j)
            if (same_chunk(order[i], order[j])) check_pair(*order[i], *order[j]);
}

void Submission::Draft::check_contents() const {
    for (const DraftAccess& a : accesses) {
        if (a.empty || writes(a.kind)) continue;
        Box missing;
        if (!a.binding->histories[a.chunk].covers(a.region, &missing))
            throw UninitializedRead(a.array->name(), region_of(graph::intersection(missing, a.region), a.array->rank()),
                                    launcher.location);
    }
}

// What residency and the kernels need to know of each access. The tasks are still nobody else's.
void Submission::Draft::describe_accesses() {
    for (const DraftAccess& a : accesses) {
        Task& t = *tasks[a.task];
        Access& access = t.accesses[a.access];
        if (a.empty) continue;
        const Box& box = a.binding->layout.chunks()[a.chunk].box;
        row_major_strides(box, t.layouts[a.access].strides, a.array->rank());
        std::int64_t offset = 0;
        for (std::size_t k = 0; k < a.array->rank(); ++k)
            offset += (a.region.begin[k] - box.begin[k]) * t.layouts[a.access].strides[k];
        access.chunk = &a.binding->data->chunks[a.chunk];
        if (core->config().debug_mode && a.kind == AccessKind::overwrite) {
            graph::Unset& unset = t.unset.emplace_back();
            unset.access = a.access;
            for (std::size_t k = 0; k < max_rank; ++k) unset.extents[k] = a.region.end[k] - a.region.begin[k];
        }
        access.offset_bytes = static_cast<std::size_t>(offset) * a.array->element_bytes();
        const graph::ChunkHistory& history = a.binding->histories[a.chunk];
        Access* first = &access;
        for (std::uint32_t i = 0; i < a.access; ++i) {
            if (t.accesses[i].chunk != access.chunk || !t.accesses[i].first_of_chunk) continue;
            first = &t.accesses[i];
            access.first_of_chunk = false;
        }
        switch (a.kind) {
        case AccessKind::read: first->needs_content = true; break;
        // What else the chunk holds must stay, even where other tasks will have written it only by the time this one runs.
        case AccessKind::write: first->needs_content = first->needs_content || !a.whole || history.any_content(); break;
        case AccessKind::overwrite: first->needs_content = first->needs_content || !a.whole; break;
        }
        if (writes(a.kind)) {
            first->writes_chunk = true;
            first->replaces_chunk = first->replaces_chunk || a.whole;
        }
    }
}

void Submission::Draft::check_sizes() const {
    for (std::size_t i = 0; i < accesses.size();) {
        const Task* const t = tasks[accesses[i].task];
        std::size_t bytes = 0;
        for (const std::uint32_t task = accesses[i].task; i < accesses.size() && accesses[i].task == task; ++i) {
            const DraftAccess& a = accesses[i];
            if (!a.empty && t->accesses[a.access].first_of_chunk)
                bytes += core->rounded(a.binding->chunk_bytes[a.chunk]);
        }
        if (bytes <= core->limit_bytes(t->memory)) continue;
        const MemoryId memory = t->memory == 0 ? MemoryId::host() : MemoryId(t->where.as_device());
        throw OutOfMemory(memory, bytes, 0, core->limit_bytes(t->memory), core->out_of_memory_text(*t, true),
                          launcher.location);
    }
}

// ---------------------------------------------------------------------------------------------------- the order

TaskNumber Submission::Draft::join(const std::vector<TaskNumber>& numbers) {
    Task* t = core->pool().take();
    joins.push_back(t);
    for (const TaskNumber n : numbers) t->predecessors.push_back({n, false});
    return core->table().add(t);
}

EventId Submission::Draft::take_places() {
    for (NewBinding& n : bindings)
        if (!n.array->bind(n.binding))
            throw InvalidArgument(n.array->name() +
                                      " was bound to another runtime a moment ago: use one array for each",
                                  launcher.location);
    for (Task* t : tasks) core->table().add(t);
    for (const DraftAccess& a : accesses) {
        if (a.empty) continue;
        Task& t = *tasks[a.task];
        graph::ChunkHistory& history = a.binding->histories[a.chunk];
        if (a.kind == AccessKind::read)
            history.read(a.region, t.number, t.predecessors, *this);
        else
            history.write(a.region, t.number, a.kind == AccessKind::write, t.predecessors);
    }
    if (tasks.size() == 1) return core->event_of(tasks.front()->number);
    Task* all = core->pool().take();
    joins.push_back(all);
    for (const Task* t : tasks) all->predecessors.push_back({t->number, true});
    return core->event_of(core->table().add(all));
}

void Submission::Draft::share_info() {
    const std::string_view name =
        launcher.name == nullptr ? std::string_view() : std::string_view(launcher.name, launcher.name_length);
    const graph::SubmitInfo* const last = info.get();
    const bool same = last != nullptr && last->num_chunks == tasks.size() && last->launcher == launcher.kind &&
                      last->location.line() == launcher.location.line() &&
                      last->location.file() == launcher.location.file() &&
                      last->location.function() == launcher.location.function() && last->name == name;
    if (!same) {
        auto fresh = std::make_unique<graph::SubmitInfo>();
        fresh->name = name;
        fresh->location = launcher.location;
        fresh->num_chunks = static_cast<std::uint32_t>(tasks.size());
        fresh->launcher = launcher.kind;
        info.reset(std::move(fresh));
    }
    for (Task* t : tasks) info.give_to(t->info);
}

EventId Submission::commit() {
    Draft& d = *draft_;
    RuntimeCore& core = *d.core;
    core.check_open();
    if (d.tasks.empty()) return EventId();
    core.admit();
    d.share_info();
    EventId event;
    bool was_idle = false;
    {
        std::lock_guard<std::mutex> guard(core.order());
        core.check_open();  // once more: close() takes its place in the order under the same lock
        d.bind_new_arrays();
        d.find_chunks();
        d.check_conflicts();
        d.check_contents();
        d.describe_accesses();
        d.check_sizes();
        for (const Finish& f : d.finishes) {
            Task& t = *d.tasks[f.task];
            f.function(reinterpret_cast<const std::byte*>(d.recipes.data()) + f.recipe, t.layouts.data(),
                       t.kernel.parameters);
        }
        event = d.take_places();
        d.tasks.insert(d.tasks.end(), d.joins.begin(), d.joins.end());
        was_idle = core.publish(d.tasks);
    }
    core.plan_published(was_idle);
    return event;
}

}  // namespace kmm::detail
