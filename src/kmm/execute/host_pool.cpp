#include "kmm/execute/host_pool.hpp"

#include "driver/check.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/device_access.hpp"

namespace kmm::execute {

namespace {

thread_local const void* current_runtime = nullptr;
thread_local HostPool* this_pool = nullptr;     // while this thread runs a host function
thread_local HostPool* helping_pool = nullptr;  // while it helps the planner

// So many threads of one pool may wait for other runtimes at the same time before it looks like a deadlock.
constexpr std::size_t most_waiting = 64;

}  // namespace

TaskScope::TaskScope(const void* runtime, bool device_views) noexcept
    : previous_(current_runtime), device_views_(device_views) {
    current_runtime = runtime;
    if (device_views_) ++detail::device_access_depth;
}

TaskScope::~TaskScope() {
    if (device_views_) --detail::device_access_depth;
    current_runtime = previous_;
}

const void* TaskScope::current() noexcept { return current_runtime; }

// ---------------------------------------------------------------------------------------------------- host functions

HostPool::HostPool(std::size_t num_threads, const void* runtime, bool device_views, Reports& reports)
    : runtime_(runtime), device_views_(device_views), reports_(reports) {
    for (std::size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

HostPool::~HostPool() {
    queue_.stop();
    for (std::thread& t : threads_) t.join();
}

void HostPool::push(graph::Task& task) {
    // A thread of the pool that pushes while it helps the planner takes the first task itself.
    queue_.push(task, helping_pool == this);
}

void HostPool::run() {
    const RuntimeThread mark(runtime_);
    while (graph::Task* task = queue_.take()) {
        execute(*task);
        helping_pool = this;
        reports_.help();
        helping_pool = nullptr;
    }
}

void HostPool::execute(graph::Task& task) {
    if (task.state.load(std::memory_order_relaxed) == graph::TaskState::settled) {
        task.drop_payload();  // it was cancelled: only what the user's function captured is left
        reports_.discard(task);
        return;
    }
    Message m;
    m.what = Message::What::host_done;
    m.task = &task;
    try {
        TaskScope scope(runtime_, device_views_);
        this_pool = this;
        HostResource resource;
        detail::TaskContext context;
        context.resource = &resource;
        context.addresses = task.addresses.data();
        context.layouts = task.layouts.data();
        context.chunk = &task.chunk;
        task.body.run(task.payload, context);
    } catch (...) {
        m.error = std::current_exception();
    }
    this_pool = nullptr;
    task.drop_payload();  // what the user's function captured ends here, on a thread where user code may run
    reports_.post(std::move(m));
}

HostPool* HostPool::of_this_thread() noexcept { return this_pool; }

bool HostPool::begin_wait() {
    std::lock_guard<std::mutex> guard(threads_mutex_);
    if (waiting_ >= most_waiting) return false;
    if (!queue_.keep_one()) threads_.emplace_back([this] { run(); });
    ++waiting_;
    return true;
}

void HostPool::end_wait() noexcept {
    std::lock_guard<std::mutex> guard(threads_mutex_);
    --waiting_;
    queue_.drop_one();
}

// ---------------------------------------------------------------------------------------------------- device functions

Launchers::Launchers(std::uint32_t device, const std::vector<LaneId>& lanes_of_threads, Lanes& lanes,
                     FailedTasks& failed, const void* runtime, bool device_views, Runner& runner, Reports& reports)
    : device_(device),
      lanes_(lanes),
      failed_(failed),
      runtime_(runtime),
      device_views_(device_views),
      runner_(runner),
      reports_(reports) {
    for (const LaneId lane : lanes_of_threads) threads_.emplace_back([this, lane] { run(lane); });
}

Launchers::~Launchers() {
    queue_.stop();
    for (std::thread& t : threads_) t.join();
}

void Launchers::push(graph::Task& task) { queue_.push(task, false); }

void Launchers::run(LaneId lane) {
    const RuntimeThread mark(runtime_);
    (void)lanes_.driver().set_current_device(lanes_.ordinal(device_));
    Lanes::Scratch scratch(lanes_);
    graph::Position position = 0;
    while (graph::Task* task = queue_.take()) {
        Message m;
        m.what = Message::What::launched;
        m.task = task;
        m.lane = lane;
        m.error = execute(*task, lane, scratch);
        if (m.error != nullptr) failed_.add(task->number);
        m.position = ++position;
        lanes_.enqueued(lane, position);
        reports_.post(std::move(m));
        reports_.help();
    }
}

std::exception_ptr Launchers::execute(graph::Task& task, LaneId lane, Lanes::Scratch& scratch) {
    try {
        Status status;
        const StreamHandle stream = lanes_.stream(lane, &status);
        driver::check(lanes_.driver(), status, "creating a stream for a device function");
        driver::check(lanes_.driver(), lanes_.come_after(lane, task.waits, scratch),
                      "ordering a device function after its inputs");
        TaskScope scope(runtime_, device_views_);
        runner_.run_device_function(task, device_, stream);
        task.drop_payload();
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }
}

}  // namespace kmm::execute
