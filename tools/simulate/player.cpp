#include "simulate/player.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace kmm::simulate {

namespace {

std::uint32_t count_lanes(const trace::Machine& machine, graph::LaneRole role) {
    return static_cast<std::uint32_t>(
        std::count_if(machine.lanes.begin(), machine.lanes.end(),
                      [&](const graph::LaneInfo& l) { return l.device == 0 && l.role == role; }));
}

graph::TaskKind kind_of(trace::TaskKind kind) {
    switch (kind) {
    case trace::TaskKind::host: return graph::TaskKind::host;
    case trace::TaskKind::function: return graph::TaskKind::device_function;
    case trace::TaskKind::kernel: return graph::TaskKind::kernel;
    case trace::TaskKind::transfer: return graph::TaskKind::transfer;
    default: return graph::TaskKind::join;
    }
}

memory::OwnerPtr make_temporary(const trace::Array& told) {
    memory::OwnerPtr made(new memory::Temporary(told.chunks.at(0), told.rank, told.element_bytes,
                                                memory::heap_alignment, told.num_pieces));
    made->number = told.number;
    made->set_name(told.name);
    return made;
}

memory::OwnerPtr make_array(const trace::Array& told, std::size_t num_devices) {
    auto array = std::make_unique<memory::Array>();
    array->number = told.number;
    array->set_name(told.name);
    array->rank = told.rank;
    array->element_bytes = static_cast<std::uint32_t>(told.element_bytes);
    std::vector<detail::ChunkGeometry> geometry;
    for (const detail::Box& box : told.chunks) geometry.push_back({MemoryId::host(), box});
    array->set_layout(std::make_shared<plan::Layout>(told.rank, told.box, std::move(geometry)), num_devices);
    return memory::OwnerPtr(array.release());
}

}  // namespace

Player::Player(const Program& program, Devices& devices, trace::Consumer* consumer, const PlayOptions& play)
    : program_(program), devices_(devices), consumer_(consumer), options_(play) {
    const trace::Machine& machine = program.machine;
    schedule::SchedulerOptions options;
    options.num_devices = static_cast<std::uint32_t>(machine.limits_bytes.num_devices());
    options.compute_lanes = count_lanes(machine, graph::LaneRole::compute);
    options.launcher_lanes = count_lanes(machine, graph::LaneRole::launcher);
    options.host_threads = 1;
    options.order = play.order;
    options.eviction = play.eviction;
    options.trace = &emitter_;
    if (consumer_ != nullptr) emitter_.listen(this);
    next_address_.resize_for_devices(options.num_devices);
    for (const memory::MemoryIndex m : next_address_.memories()) next_address_[m] = first_address(m);
    scheduler_ = std::make_unique<schedule::Scheduler>(static_cast<schedule::Outbox&>(*this), table_, options,
                                                       machine.limits_bytes);
}

Player::~Player() = default;

bool Player::play() {
    for (const trace::Array& a : program_.arrays) {
        arrays_[a.number] =
            a.num_pieces != 0 ? make_temporary(a) : make_array(a, program_.machine.limits_bytes.num_devices());
        if (consumer_ != nullptr) consumer_->bound(a, 0);
    }
    for (const trace::Task& t : program_.tasks) {
        std::set<memory::Owner*> used;  // a temporary has one chunk
        for (const trace::Use& use : t.uses) {
            if (use.empty) continue;
            memory::Owner& owner = *arrays_.at(use.array);
            if (owner.is_temporary() && used.insert(&owner).second) ++owner.uses_to_come;
        }
    }
    find_places();
    drop_arrays(0);
    std::int64_t submit_at_ns = 0;
    for (std::size_t i = 0;;) {
        const bool all_submitted = i == program_.tasks.size();
        const bool waits = !all_submitted && !scheduler_->idle() && begins_run(i);
        Done done;
        if (devices_.next(done, all_submitted || waits ? Devices::never : submit_at_ns)) {
            handle(done);
        } else if (all_submitted || waits) {
            return scheduler_->idle();
        } else {
            if (begins_run(i)) begin_run(&submit_at_ns);
            const std::size_t end = end_of_submit(i);
            for (std::size_t k = i; k < end; ++k) add(program_.tasks[k]);
            for (; i < end; ++i) submit(*tasks_[i]);
            held_bytes_ -= std::exchange(temporary_bytes_, 0);
            drop_arrays(i);
            submit_at_ns += options_.submit_ns;
            if (options_.submit_ns == 0 && i != program_.tasks.size() && !begins_run(i)) continue;
        }
        scheduler_->dispatch();
        if (const std::size_t bytes = std::exchange(wanted_bounce_bytes_, 0); bytes != 0) {
            scheduler_->bounce_came(first_address(memory::MemoryIndex::host()) / 2, bytes);
            scheduler_->dispatch();
        }
    }
}

/// As graph::HeldBytes and detail::Temporaries count it, but that what a submit gathers counts until its end.
void Player::count_held(graph::Task& t) {
    t.held_bytes = held_bytes_;
    for (const graph::Use& u : t.uses) {
        if (!u.writes || !made_.insert(u.chunk).second) continue;
        memory::Array* const array = u.chunk->array();
        const std::size_t bytes = scheduler_->residency().residents().rounded(u.chunk->block_bytes());
        held_bytes_ += bytes;
        (array == nullptr ? temporary_bytes_ : array->held_bytes) += bytes;
    }
}

/// What is moved before the program has waited for the first time is not counted.
void Player::begin_run(std::int64_t* submit_at_ns) {
    *submit_at_ns = std::max(*submit_at_ns, devices_.now_ns());
    if (std::exchange(has_waited_, true)) return;
    counted_from_ = counters().transfers;
    counted_from_ns_ = devices_.now_ns();
}

/// Whose last handle the program drops behind so many tasks.
void Player::drop_arrays(std::size_t num_submitted) {
    for (; num_drops_ < program_.drops.size() && program_.drops[num_drops_].first <= num_submitted; ++num_drops_) {
        const trace::Number number = program_.drops[num_drops_].second;
        if (consumer_ != nullptr) consumer_->note({.what = trace::What::dropped, .array = number}, nullptr, 0, 0, 0);
        memory::Array* const array = arrays_.at(number)->as_array();
        if (array == nullptr) continue;  // a temporary goes by itself
        held_bytes_ -= array->held_bytes;
        scheduler_->release(*array);
    }
}

/// A helper stands before the first task of its submit, which follows in the record, or before the first task that
/// comes after it, which may be earlier there. In a record that is cut off both may be missing.
void Player::find_places() {
    const auto lower = [this](trace::Number helper, trace::Number place) {
        trace::Number& known = places_.emplace(helper, place).first->second;
        known = std::min(known, place);
    };
    trace::Number next = 1;
    for (const trace::Task& t : program_.tasks)
        if (!graph::is_helper(t.number)) next = std::max(next, t.number + 1);
    for (auto t = program_.tasks.rbegin(); t != program_.tasks.rend(); ++t) {
        if (!graph::is_helper(t->number))
            next = t->number;
        else
            lower(t->number, next);
    }
    for (const trace::Task& t : program_.tasks)
        for (const trace::Predecessor& p : t.predecessors)
            if (!graph::is_helper(t.number) && graph::is_helper(p.task)) lower(p.task, t.number);
    for (auto t = program_.tasks.rbegin(); t != program_.tasks.rend(); ++t)
        for (const trace::Predecessor& p : t->predecessors)
            if (graph::is_helper(t->number) && graph::is_helper(p.task) && places_.count(t->number) != 0)
                lower(p.task, places_[t->number]);
    std::map<trace::Number, std::size_t> indices;
    for (std::size_t i = 0; i < program_.tasks.size(); ++i) indices[program_.tasks[i].number] = i;
    ends_.resize(program_.tasks.size());
    for (std::size_t i = 0; i < program_.tasks.size(); ++i) {
        ends_[i] = i + 1;
        for (const trace::Predecessor& p : program_.tasks[i].predecessors)
            if (const auto at = indices.find(p.task); at != indices.end())
                ends_[i] = std::max(ends_[i], at->second + 1);
    }
}

/// Tasks are added together with those that come before them, even if the record names these later.
std::size_t Player::end_of_submit(std::size_t first) const noexcept {
    std::size_t end = ends_[first];
    for (std::size_t i = first; i < end; ++i) end = std::max(end, ends_[i]);
    return end;
}

void Player::add(const trace::Task& told) {
    tasks_.push_back(std::make_unique<graph::Task>());
    graph::Task& t = *tasks_.back();
    t.kind = kind_of(told.kind);
    if (t.kind == graph::TaskKind::kernel) t.set_kernel({});
    t.is_barrier = told.kind == trace::TaskKind::barrier;
    t.memory = told.memory;
    t.chunk_index = told.chunk_index;
    for (const trace::Use& use : told.uses)
        if (!use.is_piece) add_use(t, use);
    add_across(t, told);
    for (const trace::Predecessor& p : told.predecessors) t.predecessors.push_back({p.task, p.data});
    if ((graph::is_helper(told.number) ? table_.add_helper(&t) : table_.add(&t)) != told.number)
        throw std::runtime_error("the record leaves out a task before " + std::to_string(told.number));
    if (const auto at = places_.find(told.number); at != places_.end()) t.made_for = t.comes_before = at->second;
    count_held(t);
    if (consumer_ != nullptr) consumer_->submitted(told, 0);
}

/// The task's use of the chunk, added if there is none yet.
std::uint32_t Player::use_of(graph::Task& t, const trace::Use& told) {
    memory::Chunk& chunk = arrays_.at(told.array)->touch(told.chunk);
    const auto known = std::ranges::find(t.uses, &chunk, &graph::Use::chunk);
    const auto index = static_cast<std::uint32_t>(known - t.uses.begin());
    if (known != t.uses.end()) {
        if (known->role == graph::Use::Role::part) known->role = graph::Use::Role::parts;
        return index;
    }
    graph::Use& use = t.uses.emplace_back();
    use.chunk = &chunk;
    if (told.is_piece) use.role = graph::Use::Role::part;
    if (told.gathers) use.role = graph::Use::Role::region;
    if (told.anywhere) use.copy_from_anywhere();
    chunk.owner->is_gathered = chunk.owner->is_gathered || told.gathers;
    return index;
}

void Player::add_use(graph::Task& t, const trace::Use& told) {
    graph::View view;
    view.kind = told.kind;
    if (!told.empty) {
        view.use = use_of(t, told);
        graph::Use& use = t.uses[view.use];
        use.needs_content = use.needs_content || told.needs_content;
        use.writes = use.writes || told.writes_chunk;
        use.replaces = use.replaces || told.replaces_chunk;
    }
    if (t.kind == graph::TaskKind::transfer) return;
    t.views.push_back(view);
}

/// The parts of each region stand behind those of the region before.
void Player::add_across(graph::Task& t, const trace::Task& told) {
    auto next = told.uses.begin();
    for (std::uint32_t i = 0; i < t.uses.size(); ++i) {
        if (t.uses[i].role != graph::Use::Role::region) continue;
        const memory::Owner& temporary = *t.uses[i].chunk->owner;
        while (!next->is_piece) ++next;
        const memory::Array* const array = arrays_.at(next->array)->as_array();
        graph::ColdPart& cold = t.cold_part(graph::UseOfReserve::no);
        graph::Across& across = cold.across.emplace_back();
        across.use = i;
        across.num_parts = temporary.num_pieces;
        across.first_part = static_cast<std::uint32_t>(cold.parts.size());
        across.may_be_in_place =
            array != nullptr && array->is_stack && array->layout->may_be_read_in_place(temporary.box(0));
        across.region = next->region;
        for (std::uint32_t k = 0; k < across.num_parts; ++k, ++next) {
            across.region = boxes::around(across.region, next->region);
            const std::uint32_t part = use_of(t, *next);
            cold.parts.emplace_back() = part;
            t.uses[part].needs_content = true;
        }
    }
}

void Player::handle(const Done& done) {
    switch (done.what) {
    case Done::What::grown:
        scheduler_->grown(done.memory, next_address_[done.memory], done.bytes);
        next_address_[done.memory] += done.bytes;
        break;
    case Done::What::lane:
        if (done.task != 0 && program_.failed.count(done.task) != 0)
            scheduler_->task_failed(done.task, std::make_exception_ptr(std::runtime_error("as recorded")));
        scheduler_->advance(done.lane, done.position);
        break;
    case Done::What::function: returned(*done.function); break;
    }
}

void Player::returned(graph::Task& t) {
    std::exception_ptr thrown;
    if (program_.failed.count(t.number) != 0) thrown = std::make_exception_ptr(std::runtime_error("as recorded"));
    if (t.kind == graph::TaskKind::host || t.kind == graph::TaskKind::transfer) return scheduler_->host_done(t, thrown);
    const graph::LaneId lane = scheduler_->lanes().id(t.memory.device(), graph::LaneRole::launcher, 0);
    scheduler_->launched(t, lane, ++launched_[lane], thrown);
}

void Player::settled(graph::Task& task) noexcept {
    if (task.failure != nullptr) failures_[task.number] = task.failure;
    table_.remove(task.number);
}

std::shared_ptr<graph::Failure> Player::make_failure(graph::Task& task, std::exception_ptr thrown,
                                                     const std::shared_ptr<graph::RootFailure>& root) {
    auto failure = std::make_shared<graph::Failure>();
    failure->root = root;
    if (root == nullptr) {
        failure->root = std::make_shared<graph::RootFailure>();
        failure->root->number = task.number;
        failure->root->cause = thrown;
    }
    return failure;
}

std::shared_ptr<graph::Failure> Player::find_failure(graph::TaskNumber number) {
    const auto at = failures_.find(number);
    return at == failures_.end() ? nullptr : at->second;
}

void Player::out_of_memory(graph::Task& task) {
    task.thrown = std::make_exception_ptr(std::runtime_error("out of memory"));
}

void Player::note(const trace::Event& event, const graph::FenceSet* fences) noexcept {
    const std::vector<trace::Fence> list =
        fences == nullptr ? std::vector<trace::Fence>() : std::vector<trace::Fence>(fences->begin(), fences->end());
    consumer_->note(event, list.data(), list.size(), 0, 0);
}

}  // namespace kmm::simulate
