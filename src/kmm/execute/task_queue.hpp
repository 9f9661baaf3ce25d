// Tasks for a pool of threads, first come first served.
//
// Owns: a list and how its takers wait: one of them at a time looks for up to 50 us before it sleeps (a wake-up costs many
// times what a small task does), the others sleep at once. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "kmm/execute/sleeper.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::execute {

class TaskQueue {
  public:
    /// `keep_one`: the caller will take a task itself soon, so that the first one needs nobody else.
    void push(graph::Task& task, bool keep_one) {
        bool wake = false;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            tasks_.push_back(&task);
            size_.store(tasks_.size(), std::memory_order_seq_cst);
            const std::size_t taken_care_of =
                (keep_one ? 1u : 0u) + (looking_.load(std::memory_order_seq_cst) ? 1u : 0u);
            wake = sleeping_ > 0 && tasks_.size() > taken_care_of;
        }
        if (wake) wake_.notify_one();
    }

    /// The next task; null when `stop` was called and none is left, or when this thread is one too many.
    graph::Task* take() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (!tasks_.empty()) {
                graph::Task* task = tasks_.front();
                tasks_.pop_front();
                size_.store(tasks_.size(), std::memory_order_seq_cst);
                // Whoever was kept asleep because somebody was looking is needed if there is more than that one can take.
                if (!tasks_.empty() && sleeping_ > 0) wake_.notify_one();
                return task;
            }
            if (stop_) return nullptr;
            if (surplus_ > 0) {
                --surplus_;
                return nullptr;
            }
            if (many_cores() && !looking_.exchange(true, std::memory_order_seq_cst)) {
                lock.unlock();
                const auto until = std::chrono::steady_clock::now() + spin_time;
                while (size_.load(std::memory_order_seq_cst) == 0 && std::chrono::steady_clock::now() < until)
                    for (int i = 0; i < 16; ++i) graph::cpu_relax();
                lock.lock();
                looking_.store(false, std::memory_order_seq_cst);
                if (!tasks_.empty() || stop_ || surplus_ > 0) continue;
            }
            ++sleeping_;
            wake_.wait(lock, [this] { return !tasks_.empty() || stop_ || surplus_ > 0; });
            --sleeping_;
        }
    }

    /// Threads take what is left and then end.
    void stop() {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
    }
    /// One thread that finds nothing to do ends. False from `keep`: there was none to keep.
    void drop_one() {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            ++surplus_;
        }
        wake_.notify_one();
    }
    bool keep_one() {
        std::lock_guard<std::mutex> guard(mutex_);
        if (surplus_ == 0) return false;
        --surplus_;
        return true;
    }

  private:
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<graph::Task*> tasks_;
    std::atomic<std::size_t> size_{0};
    std::atomic<bool> looking_{false};
    std::size_t sleeping_ = 0;
    std::size_t surplus_ = 0;
    bool stop_ = false;
};

}  // namespace kmm::execute
