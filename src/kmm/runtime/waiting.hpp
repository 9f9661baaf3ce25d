// How threads of the program wait for tasks: until one is settled, or until few enough are unfinished.
//
// Owns: what these threads sleep on. Must not know: why a task takes long, what it ended with. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "driver/locks.hpp"
#include "kmm/graph/task_table.hpp"

namespace kmm::detail {

/// How many tasks are published and not settled. Whoever changes it pays one atomic operation while nobody waits.
class UnfinishedTasks {
  public:
    /// Returns how many there were before.
    std::uint64_t add(std::uint64_t count) noexcept { return count_.fetch_add(count, std::memory_order_acq_rel); }
    void end_one() noexcept {
        count_.fetch_sub(1, std::memory_order_seq_cst);  // before the look at who waits for it
        if (num_waiting_.load(std::memory_order_seq_cst) == 0) return;
        { const locks::Guard guard(mutex_); }
        wake_.notify_all();
    }
    std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }
    /// Threads in `wait_until_below`, for tests.
    std::uint32_t num_waiting() const noexcept { return num_waiting_.load(std::memory_order_acquire); }
    /// Blocks until there are fewer than `most`.
    void wait_until_below(std::uint64_t most) {
        if (count() < most) return;
        locks::Lock lock(mutex_);
        num_waiting_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return count_.load(std::memory_order_seq_cst) < most; });
        num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
    }

  private:
    std::atomic<std::uint64_t> count_{0};
    std::atomic<std::uint32_t> num_waiting_{0};
    locks::Mutex mutex_;
    locks::Condition wake_;
};

/// Waits for tasks of a table to leave it. Threads that wait for different tasks share 16 locks, so that a task's end
/// wakes about a sixteenth of those that wait, and none where nobody waits for this task.
class SettledWaits {
  public:
    using clock = std::chrono::steady_clock;

    explicit SettledWaits(graph::TaskTable& table) : table_(table) {}

    bool is_settled(graph::TaskNumber number) noexcept { return table_.find(number) == nullptr; }

    /// The task has left the table; `waiters` is how many waited for it when it did. By whoever settles tasks.
    void settled(graph::TaskNumber number, std::uint32_t waiters) noexcept {
        if (waiters == 0) return;
        Shard& shard = shard_of(number);
        { const locks::Guard guard(shard.mutex); }
        shard.wake.notify_all();
    }

    /// Blocks until the task is settled, or the deadline (null: none) is there: false. Whenever another `patience` has
    /// gone by, `look` is called without a lock, until it returns false; it must not throw.
    template<typename Look>
    bool wait(graph::TaskNumber number, const clock::time_point* deadline, clock::duration patience, Look&& look);

  private:
    struct Shard {
        locks::Mutex mutex;
        locks::Condition wake;
    };
    static constexpr std::size_t num_shards = 16;
    // For clocks that cannot add the largest duration.
    static constexpr std::chrono::hours for_ever{24};

    Shard& shard_of(graph::TaskNumber number) noexcept { return shards_[number % num_shards]; }

    graph::TaskTable& table_;
    Shard shards_[num_shards];
};

template<typename Look>
bool SettledWaits::wait(graph::TaskNumber number, const clock::time_point* deadline, clock::duration patience,
                        Look&& look) {
    Shard& shard = shard_of(number);
    locks::Lock lock(shard.mutex);
    const bool present = table_.with(number, [](graph::Task* t) {
        if (t != nullptr) t->waiters.fetch_add(1, std::memory_order_acq_rel);
        return t != nullptr;
    });
    if (!present) return true;
    bool looks = true;
    while (!is_settled(number)) {
        const auto look_at = clock::now() + (looks ? std::min<clock::duration>(patience, for_ever) : for_ever);
        shard.wake.wait_until(lock, deadline != nullptr ? std::min(look_at, *deadline) : look_at);
        const auto now = clock::now();
        if (deadline != nullptr && now >= *deadline) break;
        if (!looks || now < look_at || is_settled(number)) continue;
        lock.unlock();
        looks = look();
        lock.lock();
    }
    return table_.with(number, [](graph::Task* t) {
        if (t != nullptr) t->waiters.fetch_sub(1, std::memory_order_acq_rel);
        return t == nullptr;
    });
}

}  // namespace kmm::detail
