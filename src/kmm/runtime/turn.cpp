// The scheduler's turn: messages in, decisions, instructions out.
#include "kmm/runtime/runtime_core.hpp"

#include <algorithm>

#include "driver/check.hpp"
#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/engine/device_resource.hpp"
#include "kmm/graph/room.hpp"

namespace kmm::detail {

using engine::Message;

namespace {

// After so many messages what was decided goes out, so that devices start while a long batch is still being scheduled.
constexpr std::size_t messages_per_dispatch = 32;
// So long the driver is not asked for more while a runtime gets on with what it has.
constexpr std::int64_t refusal_counts_ns = 1'000'000'000;

}  // namespace

bool RuntimeCore::take_turn() noexcept {
    if (message_queue_.empty() || !baton_.try_take()) return false;
    turn_or_give_up();
    let_go_of_baton();
    return true;
}

// What is to be said is said when nobody waits for this thread any more: making the words asks the driver and the
// system.
void RuntimeCore::let_go_of_baton() noexcept {
    graph::Vector<std::shared_ptr<graph::RootFailure>> news;
    news.swap(news_);
    Task* dropped = std::exchange(dropped_payloads_, nullptr);
    const std::uint64_t more = std::exchange(more_news_, 0);
    baton_.let_go();
    for (Task* next = nullptr; dropped != nullptr; dropped = next) {
        next = dropped->next_published;
        const engine::TaskScope scope(this, false);  // a wait in a destructor of the program's is refused, not begun
        dropped->drop_payload();
    }
    if (news.empty()) return;
    try {
        for (const auto& root : news) log::post(log::Level::error, text_of(cause_of(*root)));
        if (more != 0)
            log::post(log::Level::error, std::to_string(more) + " more tasks of runtime " + std::to_string(number_) +
                                             " found no memory; their events say which");
    } catch (const std::exception&) {
        log::post(log::Level::error, "tasks found no memory, and there is none on the host to say more");
    }
}

// Whoever lets go of the baton looks at the message queue again, so that a message posted meanwhile is never left
// lying.
void RuntimeCore::help() noexcept {
    while (!message_queue_.empty())
        if (!take_turn()) return;
}

void RuntimeCore::scheduler_loop() {
    while (!stop_scheduler_.load()) {
        help();
        scheduler_sleeper_.wait(
            [this] { return (!message_queue_.empty() && !baton_.is_taken()) || stop_scheduler_.load(); });
    }
}

void RuntimeCore::turn() {
    trace::Sink* const listener = trace_.sink();
    const std::int64_t begin_ns = listener != nullptr ? trace::clock_ns() : 0;
    messages_.clear();
    next_message_ = 0;
    message_queue_.take(messages_);
    if (must_give_up_.load())
        return;  // a message before these may be lost, and they would tell another story without it
    std::size_t handled = 0;
    const auto count = [&]() KMM_REQUIRES(baton_) {
        if (++handled % messages_per_dispatch == 0) schedule_more();
    };
    for (Message& m : messages_) {
        if (m.what != Message::What::submit) {
            handle(m);
            ++next_message_;
            count();
            continue;
        }
        ++next_message_;
        scheduler_->foresee(*m.task);
        for (Task *t = m.task, *next = nullptr; t != nullptr; t = next) {
            next = t->next_published;  // its record may be somebody else's soon
            scheduler_->submit(*t);
            count();
        }
    }
    schedule_more();
    messages_.clear();
    for (memory::Array* a : scheduler_->freed_arrays()) delete a;
    scheduler_->freed_arrays().clear();
    if (failed_tasks_.any() && scheduler_->idle()) failed_tasks_.clear();
    if (listener != nullptr) [[unlikely]]
        listener->note({.what = trace::What::turn, .begin_ns = begin_ns, .end_ns = trace::clock_ns()});
}

void RuntimeCore::turn_or_give_up() noexcept {
    if (!has_given_up_) {
        try {
            turn();
            if (!must_give_up_.load()) return;
        } catch (...) {
            // Books are kept in reserved memory, and nothing else throws here: that is used up too.
        }
    }
    give_up();
}

void RuntimeCore::handle(Message& m) {
    switch (m.what) {
    case Message::What::submit: break;
    case Message::What::advance:
        if (m.error != nullptr) scheduler_->lane_failed(m.lane, m.position, m.error);
        scheduler_->advance(m.lane, m.position);
        memory_service_->device_advanced();
        break;
    case Message::What::launched:
        scheduler_->launched(*m.task, m.lane, m.position, m.error, m.finished);
        if (m.finished) memory_service_->device_advanced();
        break;
    case Message::What::host_done: scheduler_->host_done(*m.task, m.error); break;
    case Message::What::task_failed: scheduler_->task_failed(m.task_number, m.error); break;
    case Message::What::kernel_threw: scheduler_->kernel_threw(m.task_number, m.error); break;
    case Message::What::copy_failed:
        scheduler_->copy_failed(*static_cast<memory::Chunk*>(m.object), m.from, m.to, m.copied_at, m.error);
        break;
    case Message::What::grown:
        if (m.bytes == 0) refused_at_ns_[m.to] = engine::now_ns();
        scheduler_->grown(m.to, m.address, m.bytes, m.sealed);
        break;
    case Message::What::awaited: scheduler_->awaited(m.to, m.address, m.bytes, m.sealed); break;
    case Message::What::measured: scheduler_->measured(m.kernel_times, m.duration_ns); break;
    case Message::What::given_again: scheduler_->given_again(m.to, m.address, m.bytes, m.sealed); break;
    case Message::What::release: scheduler_->release(*static_cast<memory::Array*>(m.object)); break;
    case Message::What::look: break;
    }
}

void RuntimeCore::flush() {
    for (std::size_t d = 0; d < outgoing_.size(); ++d)
        if (!outgoing_[d].empty()) device_threads_[d]->push(outgoing_[d]);
    std::size_t pushed = 0;
    try {
        for (; pushed < to_host_.size(); ++pushed) host_pool_->push(*to_host_[pushed]);
    } catch (const std::bad_alloc&) {
        to_host_.erase(to_host_.begin(), to_host_.begin() + static_cast<std::ptrdiff_t>(pushed));
        throw;  // what is left in the lists was not handed out
    }
    to_host_.clear();
}

// ---------------------------------------------------------------------------------------------------- Outbox

void RuntimeCore::instruct(std::uint32_t device, const schedule::Instruction& instruction) {
    outgoing_[device].push(instruction);
}

void RuntimeCore::launch(std::uint32_t device, Task& task) {
    task.custody.store(graph::Custody::given_away, std::memory_order_relaxed);
    try {
        launchers_[device]->push(task);
    } catch (const std::bad_alloc&) {
        task.custody.store(graph::Custody::scheduler, std::memory_order_relaxed);
        throw;
    }
}

void RuntimeCore::run_on_host(Task& task) {
    to_host_.push_back(&task);
    task.custody.store(graph::Custody::given_away, std::memory_order_relaxed);
}

void RuntimeCore::grow(memory::MemoryIndex memory, std::size_t bytes) { memory_service_->grow(memory, bytes); }

bool RuntimeCore::exchange(memory::MemoryIndex memory, std::size_t bytes) {
    memory_service_->exchange(memory, bytes);
    return true;
}

bool RuntimeCore::await_memory(memory::MemoryIndex memory, std::size_t bytes, bool patient) {
    memory_service_->await(memory, bytes, patient);
    return true;
}

bool RuntimeCore::may_ask_again(memory::MemoryIndex memory) noexcept {
    return engine::now_ns() - refused_at_ns_[memory] > refusal_counts_ns;
}

bool RuntimeCore::linked(memory::MemoryIndex from, memory::MemoryIndex to) const noexcept {
    return from.is_device() && to.is_device() && peers_[to.device()][from.device()];
}

void RuntimeCore::settled(Task& task) noexcept {
    if (task.failure != nullptr) {
        try {
            failures_.add(task);
        } catch (const std::bad_alloc&) {
            begin_to_give_up();  // before anybody can find the task settled, and no failure of it
        }
    }
    const TaskNumber number = task.number;
    table_.remove(number);
    waits_.settled(number, task.waiters.load(std::memory_order_acquire));
    unfinished_.end_one();
}

void RuntimeCore::recycle(Task& task) noexcept {
    // Whatever the program's function captured or threw ends where the program's code may run.
    if ((task.payload == nullptr || task.body.destroy == nullptr) && task.thrown == nullptr) {
        pool_.give(&task);
        return;
    }
    try {
        to_host_.push_back(&task);
    } catch (const std::bad_alloc&) {
        must_give_up_.store(true);  // and the record stays until the runtime's end
    }
}

void RuntimeCore::memory_wait_begins(Task& task) noexcept { task.waits_for_memory_ns = engine::now_ns(); }

void RuntimeCore::memory_wait_ends(Task& task) noexcept {
    const std::int64_t waited = engine::now_ns() - task.waits_for_memory_ns;
    memory_wait_ns_ += waited;
    longest_memory_wait_ns_ = std::max(longest_memory_wait_ns_, waited);
    ++memory_waits_over_;
}

// ---------------------------------------------------------------------------------------------------- Mailbox

void RuntimeCore::post(Message&& message) {
    try {
        message_queue_.push(std::move(message));
    } catch (const std::bad_alloc&) {
        came_back(message);
        lost();
    }
}

void RuntimeCore::lost() noexcept {
    must_give_up_.store(true);
    message_queue_.ring();
    scheduler_sleeper_.wake();
}

bool RuntimeCore::take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes,
                            graph::FenceSet* users) {
    return with_baton([&]() KMM_REQUIRES(baton_) {
        if (!message_queue_.empty()) turn_or_give_up();  // arrays that were released just now
        if (gave_up_from_.load() != 0) return false;
        return scheduler_->residency().take_back(memory, reinterpret_cast<std::uintptr_t>(address), bytes, users);
    });
}

memory::Reclaimed RuntimeCore::reclaim(memory::MemoryIndex memory, const std::vector<memory::AddressRange>& regions,
                                       std::size_t wanted_bytes, bool at_once) {
    return with_baton([&]() KMM_REQUIRES(baton_) {
        if (!message_queue_.empty()) turn_or_give_up();  // arrays that were released just now
        memory::Reclaimed reclaimed;
        if (gave_up_from_.load() != 0 || ends_) return reclaimed;
        struct Flush {
            RuntimeCore& core;
            ~Flush() {
                try {
                    core.flush();
                } catch (const std::bad_alloc&) {
                    core.lost();  // copies stand in the books that no device gets
                }
            }
        } const copies_go_out{*this};
        reclaimed = scheduler_->residency().reclaim(memory, regions, wanted_bytes, at_once);
        refused_at_ns_[memory] = engine::now_ns();
        return reclaimed;
    });
}

supply::ShareFigures RuntimeCore::share_of(std::uint32_t device) {
    const auto m = memory::MemoryIndex::of_device(device);
    supply::ShareFigures share;
    if (driver::lost_in_fork()) return share;  // nothing of it can be had there
    share.held_bytes = memory_service_->figures().device_bytes[device];
    share.limit_bytes = limits_[m];
    with_baton([&]() KMM_REQUIRES(baton_) {
        const memory::Residency& r = scheduler_->residency();
        const memory::MemoryCounters& k = r.counters(m);
        share.in_use_bytes = k.current_bytes;
        share.evictable_bytes = std::min(k.current_bytes, r.evictable_bytes(m));
        share.largest_free_bytes = r.largest_free(m);
        share.peak_bytes = k.peak_bytes;
        share.num_chunks = r.num_resident(m);
    });
    return share;
}

std::size_t RuntimeCore::reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                            std::chrono::steady_clock::time_point deadline) noexcept {
    if (driver::lost_in_fork()) return 0;
    // Kernels may wait for what the task does next.
    const bool at_once = engine::TaskScope::current() != nullptr;
    return memory_service_->reclaim(memory::MemoryIndex::of_device(device), bytes, at_once, deadline);
}

void RuntimeCore::run_device_function(Task& task, std::uint32_t device, engine::StreamHandle stream) {
    // One for each lane that this thread has served. The thread is this runtime's for all its life.
    thread_local std::vector<std::unique_ptr<DeviceResource>> resources;
    const auto of_stream = [&](const auto& r) { return r->native_stream() == stream.native; };
    auto at = std::find_if(resources.begin(), resources.end(), of_stream);
    if (at == resources.end())
        at = resources.insert(at, DeviceResourceAccess::make(info_->device(DeviceId(device)), *driver_, stream));
    DeviceResource* const resource = at->get();
    driver::KernelHooks hooks;
    if (on_host_driver_) {
        using engine::KernelTicket;
        const auto ticket = std::allocate_shared<KernelTicket>(
            graph::ReservedAllocator<KernelTicket>(),
            KernelTicket{&failed_tasks_, task.number, task.open_data_predecessors, {}});
        hooks = ticket->hooks();
        task.kernel_failure = {ticket, &ticket->failure};
    }
    DeviceResourceAccess::begin_task(*resource, task.chunk, &hooks);
    TaskContext context;
    context.addresses = task.addresses.data();
    context.layouts = task.layouts.data();
    context.resource = resource;
    context.chunk = &task.chunk;
    // Work on the legacy default stream counts as the task's: it comes after the inputs, and the task waits for it.
    const bool capture_legacy = config_.legacy_stream_capture && !on_host_driver_;
    driver::EventHandle event;
    if (capture_legacy) {
        driver::check(*driver_, driver_->create_event(ordinals_[device], false, false, &event), "create an event");
    }
    struct DropEvent {
        driver::Driver& driver;
        driver::EventHandle event;
        ~DropEvent() {
            if (event.native != nullptr) (void)driver.destroy_event(event);
        }
    } drop{*driver_, event};
    if (capture_legacy) {
        driver::check(*driver_, driver_->record_event(event, stream), "order the legacy stream after a task's inputs");
        driver::check(*driver_, driver_->wait_event(driver::legacy_stream(), event),
                      "order the legacy stream after a task's inputs");
    }
    (void)driver_->take_last_error();
    task.body.run(task.payload, context);
    (void)driver_->set_current_device(ordinals_[device]);  // the function may have left another one current
    if (const driver::Status pending = driver_->take_last_error(); !pending.ok())
        std::rethrow_exception(device_error(device, pending, "a call in the device function left an error pending"));
    if (capture_legacy) {
        driver::check(*driver_, driver_->record_event(event, driver::legacy_stream()), "wait for the legacy stream");
        driver::check(*driver_, driver_->wait_event(stream, event), "wait for the legacy stream");
    }
}

// ---------------------------------------------------------------------------------------------------- submitting

void RuntimeCore::admit() {
    const std::size_t most = config_.max_pending_tasks;
    if (most == 0 || engine::TaskScope::current() != nullptr) return;
    unfinished_.wait_until_below(most);
}

graph::TaskNumber RuntimeCore::add_join(const graph::TaskNumbers& numbers, graph::TaskList& joins) noexcept {
    Task* t = nullptr;
    try {
        graph::room_for_one_more(joins);
        table_.reserve(1);
        t = pool_.take();
        t->predecessors.reserve(numbers.size());
    } catch (const std::bad_alloc&) {
        if (t != nullptr) pool_.give(t);
        return 0;
    }
    joins.push_back(t);
    for (const TaskNumber n : numbers) t->predecessors.push_back({n, false});
    return table_.add(t);
}

void RuntimeCore::lose_order(graph::TaskList& tasks) noexcept {
    const auto numbered = std::partition(tasks.begin(), tasks.end(), [](const Task* t) { return t->number == 0; });
    unfinished_.add(static_cast<std::uint64_t>(tasks.end() - numbered));
    tasks.erase(numbered, tasks.end());
    lost();
}

bool RuntimeCore::publish(graph::TaskList& tasks, graph::TaskList& joins, const plan::Request* requests,
                          std::int64_t begin_ns) {
    if (trace::Sink* const s = trace_.sink()) [[unlikely]]
        tell_submitted(*s, tasks, joins, requests, begin_ns);
    const std::uint64_t before = unfinished_.add(tasks.size() + joins.size());
    try {
        message_queue_.push(tasks, joins);
    } catch (const std::bad_alloc&) {
        lost();
    }
    tasks.clear();
    joins.clear();
    return before == 0;
}

void RuntimeCore::schedule_published(bool was_idle) {
    // An idle runtime schedules on the submitting thread, which saves two wake-ups; once at most, so that a submit
    // stays short.
    if (was_idle && take_turn() && message_queue_.empty()) return;
    scheduler_sleeper_.wake();
}

void RuntimeCore::release_array(memory::Array* array) noexcept {
    if (driver::lost_in_fork()) return;  // nobody reads messages there, and a lock may be held for ever
    Message m;
    m.what = Message::What::release;
    m.object = array;
    post(std::move(m));
    scheduler_sleeper_.wake();
}

graph::TaskNumber RuntimeCore::submit_join(const graph::Predecessors& predecessors, bool barrier) {
    check_open();
    struct Record {
        graph::TaskPool& pool;
        Task* task;
        ~Record() {
            if (task != nullptr) pool.give(task);
        }
    } record{pool_, pool_.take()};
    Task* const task = record.task;
    task->kind = graph::TaskKind::join;
    task->is_barrier = barrier;
    task->predecessors = predecessors;
    graph::TaskList tasks{task};
    TaskNumber number = 0;
    bool was_idle = false;
    {
        const locks::Guard guard(order_);
        check_open();
        begin_taking_places(1);
        number = table_.add(task);
        record.task = nullptr;
        was_idle = publish(tasks);
    }
    schedule_published(was_idle);
    return number;
}

void RuntimeCore::trim() {
    check_open();
    memory_service_->trim();
}

}  // namespace kmm::detail
