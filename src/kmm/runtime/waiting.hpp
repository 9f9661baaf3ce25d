// How threads of the program wait for tasks: until one is settled, or until few enough are unfinished.
//
// Owns: what these threads sleep on. Must not know: why a task takes long, what it ended with. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

#include "driver/locks.hpp"
#include "kmm/graph/task_table.hpp"
#include "kmm/graph/task_waiter.hpp"

namespace kmm::detail {

/// Number of tasks of a table that are published and not settled. Publishing and settling write different cache lines.
class UnfinishedTasks {
  public:
    explicit UnfinishedTasks(const graph::TaskTable& table) noexcept : table_(table) {}

    /// Counts `count` tasks that have numbers; by one thread at a time. Returns how many were unfinished before.
    std::uint64_t add(std::uint64_t count) noexcept {
        const std::uint64_t before = published_.load(std::memory_order_relaxed);
        published_.store(before + count, std::memory_order_release);
        return before - table_.num_settled();
    }
    /// One has left the table. Wakes one thread at most.
    void one_ended() noexcept {
        // Sequentially consistent, as in `wait_until_below`: either this sees the waiter, or the waiter counts without
        // the task.
        if (num_waiting_.load(std::memory_order_seq_cst) == 0) return;
        if (count() >= most_.load(std::memory_order_relaxed)) return;
        { const locks::Guard guard(mutex_); }
        wake_.notify_one();
    }
    /// Not less than there are if some are published meanwhile.
    std::uint64_t count() const noexcept {
        const std::uint64_t settled = table_.num_settled();  // first: of those that are settled all are published
        return published_.load(std::memory_order_acquire) - settled;
    }
    /// Threads in `wait_until_below`, for tests.
    std::uint32_t num_waiting() const noexcept { return num_waiting_.load(std::memory_order_acquire); }
    /// Blocks until fewer than `most` are pending; concurrent callers pass the same `most`. Each waiter that goes on
    /// wakes the next one while there are fewer, so that few wake up in vain.
    void wait_until_below(std::uint64_t most) {
        if (count() < most) return;
        locks::Lock lock(mutex_);
        most_.store(most, std::memory_order_relaxed);
        num_waiting_.fetch_add(1, std::memory_order_seq_cst);
        while (count() >= most) {
            wake_.wait(lock);
            ++num_wake_ups_;
        }
        num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
        wake_.notify_one();
    }
    /// How often a thread has woken up, for tests.
    std::uint64_t num_wake_ups() {
        const locks::Guard guard(mutex_);
        return num_wake_ups_;
    }

  private:
    const graph::TaskTable& table_;
    alignas(64) std::atomic<std::uint64_t> published_{0};
    alignas(64) std::atomic<std::uint32_t> num_waiting_{0};
    std::atomic<std::uint64_t> most_{0};  ///< of the callers of `wait_until_below`
    locks::Mutex mutex_;
    locks::Condition wake_;
    std::uint64_t num_wake_ups_ KMM_GUARDED_BY(mutex_) = 0;
};

/// Waits for tasks of a table to leave it. Tasks are divided among 16 shards with a lock each: a task's end takes the
/// lock only if its shard has waiters, and wakes only the waiters of this task.
class SettledWaits {
  public:
    using clock = std::chrono::steady_clock;

    explicit SettledWaits(const graph::TaskTable& table) : table_(table) {}

    /// The task of that number has left the table. By the thread that settles tasks, before the record is reused.
    void settled(graph::TaskNumber number, graph::Task& task) noexcept {
        Shard& shard = shard_of(number);
        // Sequentially consistent, as in the waiter: either this sees it, or it does not find the task.
        if (shard.num_waiting.load(std::memory_order_seq_cst) == 0) return;
        const locks::Guard guard(shard.mutex);
        // Under the lock: a waiter is on the stack of a thread, which goes on as soon as it has the lock.
        for (graph::TaskWaiter* w = std::exchange(task.waiters, nullptr); w != nullptr; w = w->next) {
            w->is_over = true;
            w->wake.notify_one();
        }
    }
    /// How many wait for a task that is not settled; for tests.
    std::uint32_t num_waiting(const graph::Task& task) {
        const locks::Guard guard(shard_of(task.number).mutex);
        std::uint32_t count = 0;
        for (const graph::TaskWaiter* w = task.waiters; w != nullptr; w = w->next) ++count;
        return count;
    }
    /// How often a thread has woken up, for tests.
    std::uint64_t num_wake_ups() {
        std::uint64_t sum = 0;
        for (Shard& s : shards_) {
            const locks::Guard guard(s.mutex);
            sum += s.num_wake_ups;
        }
        return sum;
    }

    /// Blocks until the task is settled, or the deadline (null: none) is there: false. Whenever another `patience` has
    /// gone by, `look` is called without a lock, until it returns false; it must not throw.
    template<typename Look>
    bool wait(graph::TaskNumber number, const clock::time_point* deadline, clock::duration patience, Look&& look);

  private:
    struct alignas(64) Shard {
        std::atomic<std::uint32_t> num_waiting{0};  ///< threads
        locks::Mutex mutex;                         ///< also of Task::waiters
        std::uint64_t num_wake_ups KMM_GUARDED_BY(mutex) = 0;
    };
    static constexpr std::size_t num_shards = 16;
    // For clocks that cannot add the largest duration.
    static constexpr std::chrono::hours for_ever{24};

    Shard& shard_of(graph::TaskNumber number) noexcept { return shards_[number % num_shards]; }

    const graph::TaskTable& table_;
    Shard shards_[num_shards];
};

template<typename Look>
bool SettledWaits::wait(graph::TaskNumber number, const clock::time_point* deadline, clock::duration patience,
                        Look&& look) {
    Shard& shard = shard_of(number);
    locks::Lock lock(shard.mutex);
    struct Waiting {
        Shard& shard;
        explicit Waiting(Shard& s) noexcept : shard(s) { shard.num_waiting.fetch_add(1, std::memory_order_seq_cst); }
        ~Waiting() { shard.num_waiting.fetch_sub(1, std::memory_order_release); }
    } const waiting(shard);
    // From here on the settling thread takes the lock before the record can be reused.
    graph::Task* const task = table_.look_for(number);
    if (task == nullptr) return true;
    graph::TaskWaiter self;
    self.link_into(task->waiters);
    bool looks = true;
    while (!self.is_over) {
        const auto look_at = clock::now() + (looks ? std::min<clock::duration>(patience, for_ever) : for_ever);
        self.wake.wait_until(lock, deadline != nullptr ? std::min(look_at, *deadline) : look_at);
        ++shard.num_wake_ups;
        const auto now = clock::now();
        if (self.is_over || (deadline != nullptr && now >= *deadline)) break;
        if (!looks || now < look_at) continue;
        lock.unlock();
        looks = look();
        lock.lock();
    }
    if (self.is_over) return true;
    self.unlink_from(task->waiters);
    return table_.is_settled(number);
}

}  // namespace kmm::detail
