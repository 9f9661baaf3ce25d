#include "kmm/execute/host_pool.hpp"

#include <algorithm>

#include "driver/check.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/device_access.hpp"
#include "kmm/execute/debug_pattern.hpp"

namespace kmm::execute {

namespace {

thread_local const void* current_runtime = nullptr;
thread_local HostPool* this_pool = nullptr;     // while this thread runs a host function
thread_local HostPool* helping_pool = nullptr;  // while it helps the planner

// So many threads of one pool may wait for other runtimes at the same time before it looks like a deadlock.
constexpr std::size_t most_waiting = 64;

// Where the system gives no more threads, so many are left to whoever asks next.
constexpr std::size_t most_left_to_others = 16;

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
    std::lock_guard<std::mutex> guard(mutex_);
    try {
        for (std::size_t i = 0; i < num_threads; ++i, ++started_) threads_.emplace_back([this] { run(); });
    } catch (const std::exception&) {
        if (threads_.empty()) throw;
        // Libraries and the program need threads too.
        surplus_ = std::min(threads_.size() / 2, most_left_to_others);
        wake_.notify_all();
    }
    size_ = threads_.size() - surplus_;
}

void HostPool::end_threads() noexcept {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
    for (std::thread& t : gone_) t.join();
}

void HostPool::push(graph::Task& task) {
    bool wake = false;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        queue_.push_back(&task);
        // A thread of the pool that pushes while it helps the planner takes the first task itself.
        const bool own = helping_pool == this;
        wake = sleeping_ > 0 && (!own || queue_.size() > 1);
    }
    if (wake) wake_.notify_one();
}

void HostPool::run() {
    const RuntimeThread mark(runtime_);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        while (queue_.empty() && !stop_ && surplus_ == 0) {
            ++sleeping_;
            wake_.wait(lock);
            --sleeping_;
        }
        if (surplus_ > 0 && queue_.empty() && !stop_) {
            --surplus_;
            const auto self = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& t) {
                return t.get_id() == std::this_thread::get_id();
            });
            gone_.splice(gone_.end(), threads_, self);
            return;
        }
        if (queue_.empty()) return;
        graph::Task* task = queue_.front();
        queue_.pop_front();
        lock.unlock();
        execute(*task);
        helping_pool = this;
        reports_.help();
        helping_pool = nullptr;
        lock.lock();
    }
}

void HostPool::execute(graph::Task& task) {
    if (task.state.load(std::memory_order_relaxed) == graph::TaskState::settled) {
        this_pool = this;   // a destructor may wait for another runtime
        end_payload(task);  // it was cancelled: only what the user's function captured is left
        this_pool = nullptr;
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
        fill_unset_on_host(task);
        task.in_user_code.store(true, std::memory_order_relaxed);
        task.body.run(task.payload, context);
    } catch (...) {
        m.error = std::current_exception();
    }
    end_payload(task);
    task.in_user_code.store(false, std::memory_order_relaxed);
    this_pool = nullptr;
    reports_.post(std::move(m));
}

// What the program's function captured ends inside the task: its destructors are the program's code, and a wait in one of
// them must be refused like a wait in the function.
void HostPool::end_payload(graph::Task& task) noexcept {
    TaskScope scope(runtime_, device_views_);
    task.drop_payload();
}

HostPool* HostPool::of_this_thread() noexcept { return this_pool; }

std::size_t HostPool::threads_started() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return started_;
}

bool HostPool::begin_wait() noexcept {
    std::list<std::thread> gone;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (waiting_ >= most_waiting) return false;
        gone.swap(gone_);
        if (surplus_ > 0) {
            --surplus_;
        } else {
            try {
                threads_.emplace_back([this] { run(); });
                ++started_;
            } catch (...) {
                gone_.swap(gone);
                return false;
            }
        }
        ++waiting_;
    }
    for (std::thread& t : gone) t.join();  // they are past their last look at the pool
    return true;
}

void HostPool::end_wait() noexcept {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        --waiting_;
        ++surplus_;
    }
    wake_.notify_one();
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
    try {
        for (const LaneId lane : lanes_of_threads) threads_.emplace_back([this, lane] { run(lane); });
    } catch (...) {
        end_threads();
        throw;
    }
}

void Launchers::end_threads() noexcept {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
}

void Launchers::push(graph::Task& task) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        queue_.push_back(&task);
    }
    wake_.notify_one();
}

void Launchers::run(LaneId lane) {
    const RuntimeThread mark(runtime_);
    Lanes::Scratch scratch(lanes_);
    graph::Position position = 0;
    for (;;) {
        graph::Task* task = nullptr;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
            if (queue_.empty()) return;
            task = queue_.front();
            queue_.pop_front();
        }
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

void Launchers::end_payload(graph::Task& task) noexcept {
    TaskScope scope(runtime_, device_views_);
    task.drop_payload();
}

std::exception_ptr Launchers::execute(graph::Task& task, LaneId lane, Lanes::Scratch& scratch) {
    try {
        Status status;
        // The function of the task before may have made another device current.
        driver::check(lanes_.driver(), lanes_.driver().set_current_device(lanes_.ordinal(device_)),
                      "making the device of a device function current");
        const StreamHandle stream = lanes_.stream(lane, &status);
        driver::check(lanes_.driver(), status, "creating a stream for a device function");
        driver::check(lanes_.driver(), lanes_.come_after(lane, task.waits, scratch),
                      "ordering a device function after its inputs");
        if (failed_.concern(task)) {
            // What is known now spares the function; kernels of a task before that still run are asked at their turn.
            failed_.add(task.number);
            end_payload(task);
            return nullptr;
        }
        driver::check(lanes_.driver(), fill_unset(task, lanes_.driver(), stream), "filling memory in debug mode");
        TaskScope scope(runtime_, device_views_);
        task.in_user_code.store(true, std::memory_order_relaxed);
        runner_.run_device_function(task, device_, stream);
        task.drop_payload();  // inside the scope: destructors of what it captured are the program's code too
        task.in_user_code.store(false, std::memory_order_relaxed);
        return nullptr;
    } catch (...) {
        task.in_user_code.store(false, std::memory_order_relaxed);
        return std::current_exception();
    }
}

}  // namespace kmm::execute
