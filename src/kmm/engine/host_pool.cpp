#include "kmm/engine/host_pool.hpp"

#include <cxxabi.h>

#include <stdexcept>
#include <utility>

#include "driver/check.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/device_access.hpp"
#include "kmm/engine/debug_pattern.hpp"
#include "kmm/engine/named_range.hpp"

namespace kmm::engine {

namespace {

struct CurrentTask {
    const void* runtime = nullptr;
    const TaskStream* stream = nullptr;
};
thread_local CurrentTask current_task;

// Launchers are added if functions are queued and none has ended for this time.
constexpr std::chrono::milliseconds launchers_patience{100};

/// What a thread does that helps the scheduler.
struct Helping {
    const Workers* workers = nullptr;  ///< whose thread it is; null: it does not help
    graph::Task* task = nullptr;       ///< that it will run next; in no queue
    bool has_pushed = false;           ///< tasks, of which it will run one
};
thread_local Helping helping;

/// Of a thread with a HostPool::RunHere.
struct Own {
    graph::TaskNumber wanted = 0;  ///< by number, since records are used again
    graph::Task* task = nullptr;   ///< the same, once it was handed over; in no queue
};
thread_local Own own_task;

// What the program's function captured ends inside the task: its destructors are the program's code, and a wait in one
// of them must be refused, or give its place to another thread, like a wait in the function.
void end_payload(graph::Task& task, const void* runtime, bool device_views, Workers& workers) noexcept {
    if (!task.has_payload()) return;
    const TaskScope scope(runtime, device_views);
    const Workers::UserCode user_code(&workers);
    task.drop_payload();
}

/// Error of a task whose function ends its thread. The unwinding of pthread_exit must reach the end of the thread: a
/// handler that catches abi::__forced_unwind must rethrow it, else the process ends.
std::exception_ptr thread_was_ended() {
    return std::make_exception_ptr(
        std::runtime_error("the function ended the thread that ran it (pthread_exit, or a pthread_cancel "
                           "of that thread): return from the function, or throw, instead"));
}

}  // namespace

TaskScope::TaskScope(const void* runtime, bool device_views, const TaskStream* stream) noexcept
    : device_views_(device_views) {
    CurrentTask& current = current_task;
    previous_ = current.runtime;
    previous_stream_ = current.stream;
    current = {runtime, stream};
    if (device_views_) ++detail::device_access_depth;
}

TaskScope::~TaskScope() {
    if (device_views_) --detail::device_access_depth;
    current_task = {previous_, previous_stream_};
}

const void* TaskScope::current() noexcept { return current_task.runtime; }

const TaskStream* TaskScope::stream() noexcept { return current_task.stream; }

// ---------------------------------------------------------------------------------------------------- host functions

HostPool::HostPool(std::size_t num_threads, const void* runtime, bool device_views, Mailbox& mailbox,
                   const trace::Emitter& emitter, bool nvtx, bool leaves_turns)
    : runtime_(runtime),
      device_views_(device_views),
      mailbox_(mailbox),
      emitter_(emitter),
      nvtx_(nvtx),
      leaves_turns_(leaves_turns) {
    start_most(num_threads);
}

// A thread of the pool that pushes while it helps the scheduler keeps the first task for itself, so that a chain of
// tasks needs no queue and no wake-up. Exceptions: tasks that are queued already go first; and after a second push in
// the same turn, which may then be long, the kept task is queued for any thread.
void HostPool::push(std::span<graph::Task* const> tasks) {
    if (own_task.wanted != 0 && own_task.wanted == tasks.front()->number) {
        if (tasks.size() > 1) enqueue(tasks.subspan(1), Caller::goes_on);
        own_task = {.task = tasks.front()};
        return;
    }
    Helping& own = helping;
    if (own.workers != this) return enqueue(tasks, Caller::goes_on);
    own.has_pushed = true;
    if (own.task != nullptr) {
        enqueue({&own.task, 1}, Caller::takes_one);
        own.task = nullptr;
        return enqueue(tasks, Caller::takes_one);
    }
    if (has_queued()) return enqueue(tasks, Caller::takes_one);
    if (tasks.size() > 1) enqueue(tasks.subspan(1), Caller::has_another);
    own.task = tasks.front();
}

/// Until there is nothing to do for the scheduler, or a task to run, which begins at once, however fast others post.
/// Returns the one that was kept, or null.
graph::Task* HostPool::help() {
    Helping& own = helping;
    own = {.workers = this};
    while (mailbox_.help_once()) {
        if (!own.has_pushed) continue;
        mailbox_.leave_turn();
        break;
    }
    return std::exchange(own, Helping{}).task;
}

void HostPool::run() {
    const RuntimeThread mark(runtime_);
    while (graph::Task* task = take()) {
        for (; task != nullptr; task = help()) {
            execute(*task);
            while (leaves_turns_ && (task = take_another()) != nullptr) {
                mailbox_.leave_turn();
                execute(*task);
            }
        }
    }
}

void HostPool::execute(graph::Task& task) {
    if (task.state.load(std::memory_order_relaxed) == graph::TaskState::settled) {
        // It was cancelled: only what the program's function captured remains.
        end_payload(task, runtime_, device_views_, *this);
        mailbox_.discard(task);
        return;
    }
    run(task, this);
}

/// `workers`: whose thread gives its place to another while the function waits; null: none does.
void HostPool::run(graph::Task& task, Workers* workers) {
    const std::int64_t begin_ns = emitter_.sink() != nullptr ? trace::clock_ns() : 0;
    std::exception_ptr error;
    try {
        const UserCode user_code(workers);
        call(task);
    } catch (const abi::__forced_unwind&) {
        report_end(task, thread_was_ended(), begin_ns);
        mailbox_.leave_turn();
        if (workers == this) go_on_in_another_thread();
        throw;
    } catch (...) {
        error = std::current_exception();
    }
    report_end(task, std::move(error), begin_ns);
}

void HostPool::call(graph::Task& task) {
    const TaskScope scope(runtime_, device_views_);
    HostResource resource;
    detail::TaskContext context;
    context.resource = &resource;
    context.addresses = task.addresses;
    context.layouts = task.layouts;
    context.chunk = &task.chunk;
    fill_unset_on_host(task);
    const NamedRange range(nvtx_, task);
    task.in_user_code.store(true, std::memory_order_relaxed);
    task.function.body.run(task.function.payload, context);
}

void HostPool::report_end(graph::Task& task, std::exception_ptr error, std::int64_t begin_ns) {
    end_payload(task, runtime_, device_views_, *this);
    task.in_user_code.store(false, std::memory_order_relaxed);
    if (trace::Sink* const listener = emitter_.sink(); listener != nullptr && begin_ns != 0) [[unlikely]]
        listener->note(
            {.what = trace::What::function, .task = task.number, .begin_ns = begin_ns, .end_ns = trace::clock_ns()});
    Message m;
    m.what = Message::What::host_done;
    m.task = &task;
    m.error = std::move(error);
    mailbox_.post(std::move(m));
}

HostPool::RunHere::RunHere(HostPool& pool, graph::TaskNumber task) noexcept
    : pool_(pool), outer_wanted_(own_task.wanted), outer_task_(own_task.task) {
    own_task = {.wanted = task};
}

HostPool::RunHere::~RunHere() { own_task = {outer_wanted_, outer_task_}; }

void HostPool::RunHere::run() {
    graph::Task* const task = std::exchange(own_task, Own{}).task;
    if (task == nullptr) return;
    {
        const Unqueued running(pool_);
        if (!running.may_run()) return;
        if (task->state.load(std::memory_order_relaxed) == graph::TaskState::settled)
            pool_.execute(*task);
        else
            pool_.run(*task, of_this_thread());
    }
    if (pool_.mailbox_.help_once()) pool_.mailbox_.leave_turn();
}

// ---------------------------------------------------------------------------------------------------- device functions

LauncherThreads::LauncherThreads(std::uint32_t device, const std::vector<LaneId>& lanes, Lanes& streams,
                                 FailedTasks& failed, const void* runtime, bool device_views, Runner& runner,
                                 Mailbox& mailbox, const trace::Emitter& emitter, bool nvtx)
    : device_(device),
      lanes_(streams),
      failed_(failed),
      runtime_(runtime),
      device_views_(device_views),
      runner_(runner),
      mailbox_(mailbox),
      emitter_(emitter),
      nvtx_(nvtx) {
    for (const LaneId id : lanes) own_lanes_.push_back({id});
    start(lanes.size(), launchers_patience);
}

/// The lane with the fewest functions: more than one only where others wait, or seem to. A thread keeps to one while it
/// can, whose DeviceResource it has.
LauncherThreads::Turn LauncherThreads::begin_function(std::size_t preferred) noexcept {
    const locks::Guard guard(lanes_mutex_);
    Lane* best = &own_lanes_[preferred];
    for (Lane& l : own_lanes_)
        if (l.functions < best->functions) best = &l;
    ++best->functions;
    return {best, best->position};
}

/// The function's work ends at the lane's next position; ends are posted in the order of positions. On the host driver
/// the function itself is most of the work: if its stream is idle, the position is reported as completed at once.
void LauncherThreads::end_function(const Turn& turn, graph::Task& task, std::exception_ptr error) {
    if (error != nullptr) failed_.add(task.number);
    Lane& lane = *turn.lane;
    const bool idle = device_views_ && error == nullptr && is_idle(lane);
    Message launched;
    launched.what = Message::What::launched;
    launched.task = &task;
    launched.error = std::move(error);
    const locks::Guard guard(lanes_mutex_);
    --lane.functions;
    // Another function on this lane may have enqueued something since.
    launched.finished = idle && lane.functions == 0 && lane.position == turn.before;
    launched.lane = lane.id;
    launched.position = ++lane.position;
    lanes_.enqueued(lane.id, lane.position);
    if (launched.finished) lanes_.completed(lane.id, lane.position);
    mailbox_.post(std::move(launched));
}

bool LauncherThreads::is_idle(const Lane& lane) noexcept {
    Status status;
    const StreamHandle stream = lanes_.stream(lane.id, &status);
    return status.ok() && lanes_.driver().query_stream(stream).ok();
}

// On the host driver a launcher that has the baton takes the next function of a chain itself. On GPUs it may be
// scheduling for long, as completions come all the time, and the function should begin meanwhile: another launcher is
// woken.
void LauncherThreads::push(graph::Task& task) {
    enqueue(task, device_views_ && helping.workers == this ? Caller::takes_one : Caller::goes_on);
}

void LauncherThreads::run() {
    const RuntimeThread mark(runtime_);
    std::optional<Lanes::Scratch> scratch;
    std::size_t preferred = 0;
    {
        const locks::Guard guard(lanes_mutex_);
        preferred = next_preferred_++ % own_lanes_.size();
    }
    while (graph::Task* const task = take()) {
        const Turn turn = begin_function(preferred);
        try {
            end_function(turn, *task, execute(*task, turn.lane->id, scratch));
        } catch (const abi::__forced_unwind&) {
            task->in_user_code.store(false, std::memory_order_relaxed);
            end_function(turn, *task, thread_was_ended());
            mailbox_.leave_turn();
            scratch.reset();
            go_on_in_another_thread();
            throw;
        }
        helping.workers = this;
        mailbox_.help();
        helping.workers = nullptr;
    }
}

std::exception_ptr LauncherThreads::execute(graph::Task& task, LaneId lane, std::optional<Lanes::Scratch>& scratch) {
    try {
        // Here, where the task can fail: when the thread begins, the host may have no memory.
        if (!scratch) scratch.emplace(lanes_);
        Status status;
        // The function of the task before may have made another device current.
        driver::check(lanes_.driver(), lanes_.driver().set_current_device(lanes_.ordinal(device_)),
                      "making the device of a device function current");
        const StreamHandle stream = lanes_.stream(lane, &status);
        driver::check(lanes_.driver(), status, "creating a stream for a device function");
        driver::check(lanes_.driver(), lanes_.come_after(lane, task.fences.view(), *scratch),
                      "ordering a device function after its inputs");
        if (failed_.concern(task)) {
            // A failure known by now skips the function. On the host driver its kernels check again (KernelTicket).
            failed_.add(task.number);
            end_payload(task, runtime_, device_views_, *this);
            return nullptr;
        }
        // Where the function may touch its views, its inputs have arrived (schedule sees to it), and so must the
        // pattern.
        if (device_views_)
            fill_unset_on_host(task);
        else
            driver::check(lanes_.driver(), fill_unset(task, lanes_.driver(), stream), "filling memory in debug mode");
        if (trace::Sink* const s = emitter_.sink()) [[unlikely]]
            s->note({.what = trace::What::function,
                     .lane = lane,
                     .from = task.memory,
                     .task = task.number,
                     .begin_ns = trace::clock_ns()});
        const TaskStream own{&lanes_.driver(), lanes_.ordinal(device_), stream};
        const TaskScope scope(runtime_, device_views_, &own);
        const UserCode user_code(this);
        const NamedRange range(nvtx_, task);
        task.in_user_code.store(true, std::memory_order_relaxed);
        runner_.run_device_function(task, device_, stream);
        task.drop_payload();  // inside the scope: destructors of what it captured are the program's code too
        task.in_user_code.store(false, std::memory_order_relaxed);
        return nullptr;
    } catch (const abi::__forced_unwind&) {
        throw;
    } catch (...) {
        task.in_user_code.store(false, std::memory_order_relaxed);
        return std::current_exception();
    }
}

}  // namespace kmm::engine
