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

/// How many tasks of a table are published and not settled. Who publishes writes one line, who settles another.
class UnfinishedTasks {
  public:
    explicit UnfinishedTasks(const graph::TaskTable& table) noexcept : table_(table) {}

    /// So many that have numbers; by one thread at a time. Returns how many there were before.
    std::uint64_t add(std::uint64_t count) noexcept {
        const std::uint64_t before = published_.load(std::memory_order_relaxed);
        published_.store(before + count, std::memory_order_release);
        return before - table_.num_settled();
    }
    /// One has left the table.
    void one_ended() noexcept {
        if (num_waiting_.load(std::memory_order_seq_cst) == 0) return;
        { const locks::Guard guard(mutex_); }
        wake_.notify_all();
    }
    /// Not less than there are if some are published meanwhile.
    std::uint64_t count() const noexcept {
        const std::uint64_t settled = table_.num_settled();  // first: of those that are settled all are published
        return published_.load(std::memory_order_acquire) - settled;
    }
    /// Threads in `wait_until_below`, for tests.
    std::uint32_t num_waiting() const noexcept { return num_waiting_.load(std::memory_order_acquire); }
    /// Blocks until there are fewer than `most`.
    void wait_until_below(std::uint64_t most) {
        if (count() < most) return;
        locks::Lock lock(mutex_);
        num_waiting_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return count() < most; });
        num_waiting_.fetch_sub(1, std::memory_order_seq_cst);
    }

  private:
    const graph::TaskTable& table_;
    alignas(64) std::atomic<std::uint64_t> published_{0};
    alignas(64) std::atomic<std::uint32_t> num_waiting_{0};
    locks::Mutex mutex_;
    locks::Condition wake_;
};

/// Waits for tasks of a table to leave it. Threads that wait for different tasks share 16 locks: a task's end takes one
/// where somebody waits for any of its sixteenth, and wakes these where somebody waits for this task.
class SettledWaits {
  public:
    using clock = std::chrono::steady_clock;

    explicit SettledWaits(const graph::TaskTable& table) : table_(table) {}

    /// The task of that number has left the table. By whoever settles tasks, before the record is anybody else's.
    void settled(graph::TaskNumber number, const graph::Task& task) noexcept {
        Shard& shard = shard_of(number);
        // Sequentially consistent as what waits: either this sees the one who waits, or that one does not see the task.
        if (shard.num_waiting.load(std::memory_order_seq_cst) == 0) return;
        bool is_awaited = false;
        {
            const locks::Guard guard(shard.mutex);
            is_awaited = task.waiters != 0;
        }
        if (is_awaited) shard.wake.notify_all();
    }
    /// How many wait for a task that is not settled; for tests.
    std::uint32_t num_waiting(const graph::Task& task) {
        const locks::Guard guard(shard_of(task.number).mutex);
        return task.waiters;
    }

    /// Blocks until the task is settled, or the deadline (null: none) is there: false. Whenever another `patience` has
    /// gone by, `look` is called without a lock, until it returns false; it must not throw.
    template<typename Look>
    bool wait(graph::TaskNumber number, const clock::time_point* deadline, clock::duration patience, Look&& look);

  private:
    struct alignas(64) Shard {
        std::atomic<std::uint32_t> num_waiting{0};  ///< threads
        locks::Mutex mutex;                         ///< also of Task::waiters
        locks::Condition wake;
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
    // Whoever settles it from here on waits for the lock before the record can be another task's.
    graph::Task* const task = table_.look_for(number);
    if (task == nullptr) return true;
    ++task->waiters;
    bool looks = true;
    while (!table_.is_settled(number)) {
        const auto look_at = clock::now() + (looks ? std::min<clock::duration>(patience, for_ever) : for_ever);
        shard.wake.wait_until(lock, deadline != nullptr ? std::min(look_at, *deadline) : look_at);
        const auto now = clock::now();
        if (deadline != nullptr && now >= *deadline) break;
        if (!looks || now < look_at || table_.is_settled(number)) continue;
        lock.unlock();
        looks = look();
        lock.lock();
    }
    if (table_.is_settled(number)) return true;
    --task->waiters;
    return false;
}

}  // namespace kmm::detail
