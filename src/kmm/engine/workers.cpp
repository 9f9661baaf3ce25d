#include "kmm/engine/workers.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace kmm::engine {

namespace {

thread_local Workers* these_workers = nullptr;
// A thread of a queue has a task between two calls of `take`, or several that follow each other without the queue: what
// WakeUps::task_ends wants to know.
thread_local std::optional<std::uint64_t> task_begun;

// At most this number of threads is given up again if the system has no more: libraries and the program need some.
constexpr std::size_t most_left_to_others = 16;

// Factor on the patience with threads that use the processor: they more likely work than wait.
constexpr int patience_with_the_busy = 10;

}  // namespace

Workers* Workers::of_this_thread() noexcept { return these_workers; }

Workers::UserCode::UserCode(Workers* workers) noexcept : previous_(these_workers) { these_workers = workers; }

Workers::UserCode::~UserCode() { these_workers = previous_; }

void Workers::start(std::size_t num_threads, std::chrono::milliseconds patience) {
    patience_ = patience;
    try {
        const locks::Guard guard(mutex_);
        for (std::size_t i = 0; i < num_threads; ++i, ++started_) threads_.emplace_back([this] { run(); });
    } catch (...) {
        end_threads();  // the system gives no more: those that run are not left behind
        throw;
    }
    size_ = num_threads;
}

void Workers::start_most(std::size_t num_threads) {
    const locks::Guard guard(mutex_);
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

// Unchecked: once `stop_` is set no thread leaves the lists.
void Workers::end_threads() noexcept KMM_UNCHECKED_LOCKS {
    std::thread supervisor;
    {
        const locks::Guard guard(mutex_);
        stop_ = true;
        supervisor.swap(supervisor_);
    }
    wake_.notify_all();
    alarm_.notify_all();
    if (supervisor.joinable()) supervisor.join();
    for (std::thread& t : threads_) t.join();
    for (std::thread& t : gone_) t.join();
}

void Workers::enqueue(std::span<graph::Task* const> tasks, Caller caller) {
    const std::size_t taken = caller == Caller::takes_one ? 1 : 0;
    std::size_t num_woken = 0;
    {
        const locks::Guard guard(mutex_);
        if (drops_queue_) [[unlikely]]
            return;
        // Without room for all nothing changes. A range goes into an empty deque before its first element, and
        // takes a new block each time.
        if (tasks.size() == 1)
            queue_.push_back(tasks.front());
        else
            queue_.insert(queue_.end(), tasks.begin(), tasks.end());
        if (caller != Caller::goes_on) end_task();
        if (caller == Caller::has_another) task_begun = wake_ups_.task_begins();
        // A spinning thread leaves the calling thread its task: a chain of tasks stays on one core.
        if (queue_.size() > taken) has_tasks_.store(true, std::memory_order_release);
        const std::size_t awake = taken + static_cast<std::size_t>(one_looks_);
        num_woken = wake_ups_.for_tasks(queue_.size() - std::min(queue_.size(), awake));
        if (!watched_ && patience_.count() != 0 && stands_still()) watch();
    }
    wake(num_woken);
}

graph::Task* Workers::take() {
    locks::Lock lock(mutex_);
    end_task();
    std::size_t num_woken = 0;
    bool has_looked = !looks_;
    while (queue_.empty() && !stop_ && surplus_ == 0) {
        if (!has_looked && !one_looks_) {
            has_looked = true;
            one_looks_ = true;
            lock.unlock();
            look();
            lock.lock();
            one_looks_ = false;
            continue;
        }
        wake_ups_.falls_asleep();
        wake_.wait(lock);
        num_woken = wake_ups_.arrives(queue_.size());
    }
    if (queue_.empty()) {
        if (surplus_ > 0 && !stop_) leave();
        return nullptr;
    }
    graph::Task* const task = take_first(&num_woken);
    lock.unlock();
    wake(num_woken);
    return task;
}

graph::Task* Workers::take_another() {
    if (!has_queued()) return nullptr;
    std::size_t num_woken = 0;
    graph::Task* task = nullptr;
    {
        const locks::Guard guard(mutex_);
        if (queue_.empty() || surplus_ > 0) return nullptr;
        end_task();
        task = take_first(&num_woken);
    }
    wake(num_woken);
    return task;
}

graph::Task* Workers::take_first(std::size_t* num_woken) {
    graph::Task* const task = queue_.front();
    queue_.pop_front();
    if (queue_.empty()) has_tasks_.store(false, std::memory_order_relaxed);
    task_begun = wake_ups_.task_begins();
    *num_woken += wake_ups_.for_tasks(queue_.size());
    return task;
}

/// For a short while: returns when something was queued.
void Workers::look() const noexcept {
    const auto until = std::chrono::steady_clock::now() + spin_time;
    do {
        for (int i = 0; i < 32; ++i) {
            if (has_tasks_.load(std::memory_order_acquire)) return;
            locks::relax();
        }
    } while (std::chrono::steady_clock::now() < until);
}

/// Under the lock.
void Workers::end_task() noexcept {
    if (const auto begun = std::exchange(task_begun, std::nullopt)) wake_ups_.task_ends(*begun);
    tell_if_none_runs();
}

/// Under the lock.
void Workers::tell_if_none_runs() noexcept {
    if (drops_queue_ && wake_ups_.running() == 0) [[unlikely]]
        none_runs_.notify_all();
}

Workers::Unqueued::Unqueued(Workers& workers) noexcept : workers_(workers) {
    const locks::Guard guard(workers.mutex_);
    if (!workers.drops_queue_) begun_ = workers.wake_ups_.task_begins();
}

Workers::Unqueued::~Unqueued() {
    if (!begun_) return;
    const locks::Guard guard(workers_.mutex_);
    workers_.wake_ups_.task_ends(*begun_);
    workers_.tell_if_none_runs();
}

void Workers::drop_queue() noexcept {
    const locks::Guard guard(mutex_);
    drops_queue_ = true;
    queue_.clear();
    has_tasks_.store(false, std::memory_order_relaxed);
}

void Workers::wait_until_none_runs() noexcept {
    locks::Lock lock(mutex_);
    none_runs_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return wake_ups_.running() == 0; });
}

void Workers::wake(std::size_t num_threads) noexcept {
    for (; num_threads > 0; --num_threads) wake_.notify_one();
}

/// Under the lock. Where the system gives no thread, the queue is looked at again with its next task.
void Workers::watch() noexcept {
    if (stop_) return;
    try {
        if (!supervisor_.joinable()) supervisor_ = std::thread([this] { supervise(); });
        watched_ = true;
    } catch (const std::exception&) {
        return;
    }
    alarm_.notify_one();
}

void Workers::supervise() noexcept {
    locks::Lock lock(mutex_);
    std::size_t step = 1;
    int busy_for = 0;
    while (!stop_) {
        if (!watched_) {
            alarm_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return watched_ || stop_; });
            continue;
        }
        const std::uint64_t seen = wake_ups_.tasks_ended();
        const std::chrono::nanoseconds used = processor_time();
        alarm_.wait_for(lock, patience_, [this]() KMM_REQUIRES(mutex_) { return stop_; });
        if (stop_) return;
        std::list<std::thread> gone;
        gone.swap(gone_);
        watched_ = stands_still();
        if (!watched_ || wake_ups_.tasks_ended() != seen) {
            step = 1;
            busy_for = 0;
        } else if (processor_time() - used < patience_ / 10) {
            add_threads(step);
            step *= 2;
        } else if (++busy_for == patience_with_the_busy) {
            add_threads(1);
            busy_for = 0;
        }
        if (gone.empty()) continue;
        lock.unlock();
        for (std::thread& t : gone) t.join();  // they are past their last look at the queue
        lock.lock();
    }
}

/// Of all threads, since each began: those that left in between make it smaller, which does no harm. Under the lock.
std::chrono::nanoseconds Workers::processor_time() const noexcept {
    std::chrono::nanoseconds total{0};
    for (const std::thread& t : threads_) {
        clockid_t clock{};
        timespec used{};
        // A thread in this list has not ended: it leaves the list first.
        const auto handle = const_cast<std::thread&>(t).native_handle();
        if (pthread_getcpuclockid(handle, &clock) != 0 || clock_gettime(clock, &used) != 0) continue;
        total += std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
    }
    return total;
}

/// Under the lock.
void Workers::add_threads(std::size_t most) noexcept {
    for (std::size_t i = std::min(most, queue_.size()); i > 0 && threads_.size() < size_ + most_waiting; --i) {
        try {
            threads_.emplace_back([this] { run(); });
        } catch (const std::exception&) {
            return;  // the system gives no more threads; those that run go on
        }
        ++started_;
        ++surplus_;  // who finds the queue empty first ends
    }
}

/// The calling thread is one too many. Under the lock.
void Workers::leave() noexcept {
    --surplus_;
    move_to_gone();
}

void Workers::move_to_gone() noexcept {
    const auto self = std::find_if(threads_.begin(), threads_.end(),
                                   [](const std::thread& t) { return t.get_id() == std::this_thread::get_id(); });
    gone_.splice(gone_.end(), threads_, self);
}

/// False: the system gives no more threads, or those of this queue are ending and are joined as they are.
bool Workers::replace() noexcept {
    std::list<std::thread> gone;
    {
        const locks::Guard guard(mutex_);
        end_task();
        if (stop_) return false;
        try {
            threads_.emplace_back([this] { run(); });
        } catch (const std::exception&) {
            return false;
        }
        ++started_;
        gone.swap(gone_);
        move_to_gone();
    }
    for (std::thread& t : gone) t.join();  // they are past their last look at the queue
    return true;
}

void Workers::go_on_in_another_thread() {
    if (!replace()) run();  // from inside the unwinding: it ends with the queue
}

std::size_t Workers::threads_started() const {
    const locks::Guard guard(mutex_);
    return started_;
}

bool Workers::begin_wait() noexcept {
    std::list<std::thread> gone;
    {
        const locks::Guard guard(mutex_);
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
    for (std::thread& t : gone) t.join();  // they are past their last look at the queue
    return true;
}

void Workers::end_wait() noexcept {
    {
        const locks::Guard guard(mutex_);
        --waiting_;
        ++surplus_;
    }
    wake_.notify_one();
}

}  // namespace kmm::engine
