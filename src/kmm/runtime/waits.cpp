// Waiting for tasks, and who is told of a failure.
#include <algorithm>

#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

namespace {

constexpr std::chrono::duration<double> a_day{86400};

}  // namespace

// ---------------------------------------------------------------------------------------------------- events

graph::TaskNumber RuntimeCore::number_of(EventId event) const {
    const std::uint64_t value = event.get();
    if (value == 0) return 0;
    if (event.runtime_number() == 0) throw InvalidArgument("no runtime issued event " + std::to_string(value));
    if (event.runtime_number() != number_)
        throw InvalidArgument("event " + std::to_string(value & number_mask) + " belongs to runtime " +
                              std::to_string(event.runtime_number()) + ", but was used with runtime " +
                              std::to_string(number_) + ": ask the runtime that issued it");
    const TaskNumber number = value & number_mask;
    if (number > table_.last())
        throw InvalidArgument("event " + std::to_string(number) + " was never issued by runtime " +
                              std::to_string(number_) + " (the latest is " + std::to_string(table_.last()) + ")");
    return number;
}

void RuntimeCore::throw_deadlock(TaskNumber number) const {
    throw DeadlockError("a task of runtime " + std::to_string(number_) + " waits for event " + std::to_string(number) +
                        " of its own runtime, which may never end: submit a task that depends on it instead");
}

bool RuntimeCore::wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline,
                               bool must_wait) {
    using clock = std::chrono::steady_clock;
    if (number == 0 || is_settled(number)) return true;
    if (deadline != nullptr && clock::now() >= *deadline) return false;
    if (inside_own_task()) throw_deadlock(number);
    // A thread of another runtime's tasks gives its place to another thread while it waits here.
    const engine::Workers::Wait wait;
    if (wait.refused() && !must_wait)
        throw DeadlockError(std::to_string(engine::Workers::most_waiting) +
                            " tasks of another runtime wait for this one already, or the system gives no more "
                            "threads; one more could wait for ever");
    if (engine::many_cores()) {
        const auto until = clock::now() + engine::spin_time;
        do {
            for (int i = 0; i < 16; ++i) locks::relax();
            if (is_settled(number)) return true;
        } while (clock::now() < until);
    }
    TaskNumber settled_before = table_.settled_up_to();
    std::uint64_t unfinished_before = unfinished_.count();
    const auto log_if_nothing_moves = [&] {
        const bool moves = table_.settled_up_to() != settled_before || unfinished_.count() != unfinished_before;
        settled_before = table_.settled_up_to();
        unfinished_before = unfinished_.count();
        if (!moves) log_stuck(number);
        return moves;
    };
    const auto watchdog = std::chrono::duration<double>(config_.watchdog > 0 ? config_.watchdog : 1e5);
    return waits_.wait(number, deadline, std::chrono::duration_cast<clock::duration>(std::min(watchdog, a_day)),
                       [&] { return config_.watchdog > 0 && log_if_nothing_moves(); });
}

void RuntimeCore::log_stuck(TaskNumber awaited) noexcept {
    try {
        if (const std::string who = stuck_text(awaited); !who.empty())
            log::post(log::Level::warn, "no task of runtime " + std::to_string(number_) + " has finished for " +
                                            seconds_text(config_.watchdog) + "; " + who + "\n" +
                                            report(ReportFormat::Text));
    } catch (...) {
        // The wait must not end early for want of a text.
        log::post(log::Level::warn, "a wait takes long, and there is no memory to say why");
    }
}

void RuntimeCore::throw_failure(TaskNumber number) {
    if (const auto failure = deliver_failure(number)) std::rethrow_exception(error_of(*failure));
}

void RuntimeCore::throw_undelivered(TaskNumber number) {
    const std::vector<std::shared_ptr<graph::RootFailure>> open = failures_.deliver_before(number);
    if (open.empty()) {
        if (is_given_up(number)) std::rethrow_exception(no_host_memory_);
        return;
    }
    std::exception_ptr error;
    try {
        error = error_of(open);
    } catch (const std::bad_alloc&) {
        failures_.take_back(open);  // nobody was told
        throw;
    }
    std::rethrow_exception(error);
}

void RuntimeCore::synchronize() {
    if (inside_own_task()) throw_deadlock(table_.last());
    const TaskNumber barrier = submit_join({}, true);
    wait_settled(barrier, nullptr);
    throw_undelivered(barrier);
}

void RuntimeCore::close() {
    if (inside_own_task()) throw_deadlock(table_.last());
    TaskNumber barrier = 0;
    bool was_idle = false;
    {
        graph::TaskList tasks;
        const locks::Guard guard(order_);
        if (closed_.load()) return;
        Task* task = pool_.take();
        try {
            tasks.push_back(task);
            begin_taking_places(1);
        } catch (...) {
            pool_.give(task);
            throw;
        }
        closed_.store(true);
        task->is_barrier = true;
        barrier = table_.add(task);
        was_idle = publish(tasks);
    }
    schedule_published(was_idle);
    wait_settled(barrier, nullptr);
    try {
        trace({});
    } catch (const std::bad_alloc&) {
        // It ends with the runtime.
    }
    throw_undelivered(barrier);
}

}  // namespace kmm::detail
