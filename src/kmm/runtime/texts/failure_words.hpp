// Failures in words, made at the first request, from figures that were collected under the baton.
//
// Owns: nothing; what was worded is kept in the failure. Any thread that has neither the baton nor a lock, unless
// stated otherwise: words call drivers, read what the system says, and ask exceptions of the program for their text.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/engine/device_thread.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"

namespace kmm::detail {

/// `*kept`, made by `make` if it is null. `make` runs without the lock: two threads may both make one, and the first is
/// kept.
template<typename Make>
std::exception_ptr worded_once(locks::Mutex& mutex, std::exception_ptr* kept, Make&& make) {
    {
        const locks::Guard guard(mutex);
        if (*kept != nullptr) return *kept;
    }
    std::exception_ptr made = make();
    const locks::Guard guard(mutex);
    if (*kept == nullptr) *kept = std::move(made);
    return *kept;
}

/// What a text calls a task, copied under the baton: the text may be made after the record was recycled.
struct TaskName {
    explicit TaskName(const graph::Task& task) noexcept
        : number(task.number),
          kind(task.kind),
          is_barrier(task.is_barrier),
          num_predecessors(task.predecessors.size()) {
        task.trace(trace);
    }

    graph::TaskTrace trace;
    graph::TaskNumber number;  ///< a helper's own
    graph::TaskKind kind;
    bool is_barrier;
    std::size_t num_predecessors;  ///< settled ones included
};

class FailureWords final : public engine::ErrorMaker {
  public:
    FailureWords(const Platform& platform, const TaskBooks& books) noexcept : platform_(platform), books_(books) {}

    /// The error of a task that failed, or was cancelled: its words are made at the first request.
    std::exception_ptr error_of(graph::Failure& failure) const;
    std::exception_ptr error_of(graph::RootFailure& root) const;
    /// Of at least one: the first of them, which tells the others.
    std::exception_ptr error_of(const std::vector<std::shared_ptr<graph::RootFailure>>& roots) const;
    std::exception_ptr cause_of(graph::RootFailure& root) const;

    TaskFailure describe_failure(const graph::Task& task) const;  ///< the task in words, without a cause
    TaskFailure describe_failure(const graph::TaskTrace& task) const;
    /// task "axpy" chunk 3 of 10 on GPU 1
    std::string task_text(const TaskName& task) const;
    std::string task_text(const graph::Task& task) const { return task_text(TaskName(task)); }

    // engine::ErrorMaker
    std::exception_ptr device_error(std::uint32_t device, driver::Status status, const char* attempted) override;
    /// What an emulated kernel threw becomes the task's own failure, if it has none yet. Under the baton.
    void note_thrown_by_kernel(graph::Task& task, std::exception_ptr thrown) const;

  private:
    /// The text of a root's cause behind the name of the task that failed.
    std::string cause_text(const graph::RootFailure& root, const std::exception_ptr& cause) const;

    const Platform& platform_;
    const TaskBooks& books_;
};

}  // namespace kmm::detail
