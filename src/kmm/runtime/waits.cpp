// Waiting for tasks, and delivery of their failures.
#include <algorithm>

#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/runtime_core.hpp"

#include "driver/format.hpp"

namespace kmm::detail {

namespace {

constexpr std::chrono::duration<double> a_day{86400};

}  // namespace

void RuntimeCore::throw_deadlock(TaskNumber number) const {
    throw DeadlockError(
        driver::format("a task of runtime {} waits for event {} of its own runtime, which may never end: submit a task "
                       "that depends on it instead",
                       platform_.number(), number));
}

bool RuntimeCore::wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline,
                               bool must_wait) {
    if (!wait_until_gone(number, deadline, must_wait)) return false;
    books_.check_usable();  // of a lost runtime tasks go without having ended well
    return true;
}

bool RuntimeCore::wait_until_gone(TaskNumber number, const std::chrono::steady_clock::time_point* deadline,
                                  bool must_wait) {
    using clock = std::chrono::steady_clock;
    if (number == 0 || books_.is_settled(number)) return true;
    if (deadline != nullptr && clock::now() >= *deadline) return false;
    if (inside_own_task()) throw_deadlock(number);
    // A thread of another runtime's tasks gives its place to another thread while it waits here.
    const engine::Workers::Wait wait;
    if (wait.refused() && !must_wait)
        throw DeadlockError(
            driver::format("{} tasks of another runtime wait for this one already, or the system gives no more "
                           "threads; one more could wait for ever",
                           engine::Workers::most_waiting));
    if (engine::many_cores()) {
        const auto until = clock::now() + engine::spin_time;
        do {
            for (int i = 0; i < 16; ++i) locks::relax();
            if (books_.is_settled(number)) return true;
        } while (clock::now() < until);
    }
    TaskNumber settled_before = books_.table().settled_up_to();
    std::uint64_t unfinished_before = books_.unfinished().count();
    const auto log_if_nothing_moves = [&]() noexcept {
        if (platform_.config().watchdog <= 0) return false;
        const bool moves =
            books_.table().settled_up_to() != settled_before || books_.unfinished().count() != unfinished_before;
        settled_before = books_.table().settled_up_to();
        unfinished_before = books_.unfinished().count();
        if (!moves) log_stuck(number);
        return moves;
    };
    const auto watchdog =
        std::chrono::duration<double>(platform_.config().watchdog > 0 ? platform_.config().watchdog : 1e5);
    return books_.waits().wait(number, deadline, std::chrono::duration_cast<clock::duration>(std::min(watchdog, a_day)),
                               log_if_nothing_moves);
}

void RuntimeCore::log_stuck(TaskNumber awaited) noexcept {
    try {
        if (const std::string who = who_waits_.stuck_text(awaited); !who.empty())
            log::post(log::Level::warn,
                      driver::format("no task of runtime {} has finished for {}; {}\n{}", platform_.number(),
                                     seconds_text(platform_.config().watchdog), who, report(ReportFormat::Text)));
    } catch (...) {
        // The wait must not end early for want of a text.
        log::post(log::Level::warn, "a wait takes long, and there is no memory to say why");
    }
}

void RuntimeCore::throw_failure(TaskNumber number) {
    if (const auto failure = books_.deliver_failure(number)) std::rethrow_exception(words_.error_of(*failure));
}

void RuntimeCore::throw_failure(TaskNumber number, std::uint32_t chunk_index, const DomainChunk& chunk) {
    const auto failure = books_.deliver_failure(number);
    if (failure == nullptr) return;
    graph::Failure named;
    named.root = failure->root;
    named.keeps_content = failure->keeps_content;
    named.task.number = failure->task.number;
    named.task.info.share(failure->task.info);
    named.task.where = failure->task.where;
    named.task.chunk_index = chunk_index;
    named.task.chunk = chunk;
    std::rethrow_exception(words_.error_of(named));
}

void RuntimeCore::throw_undelivered(TaskNumber number) {
    const std::vector<std::shared_ptr<graph::RootFailure>> open = books_.deliver_failures_before(number);
    if (open.empty()) return;
    std::exception_ptr error;
    try {
        error = words_.error_of(open);
    } catch (const std::bad_alloc&) {
        books_.take_back(open);  // not delivered
        throw;
    }
    std::rethrow_exception(error);
}

/// The program may free what its tasks use when this throws.
bool RuntimeCore::commit_or_wait_until_lost(Batch& batch) {
    try {
        return commit(batch);
    } catch (...) {
        if (books_.is_lost()) wait_idle();
        throw;
    }
}

void RuntimeCore::synchronize() {
    if (inside_own_task()) throw_deadlock(books_.table().last());
    JoinBatch batch(books_, {}, true);
    commit_or_wait_until_lost(batch);
    wait_settled(batch.last(), nullptr);
    throw_undelivered(batch.last());
}

void RuntimeCore::close() {
    if (inside_own_task()) throw_deadlock(books_.table().last());
    JoinBatch batch(books_, {}, true, true);
    if (!commit_or_wait_until_lost(batch)) return;
    const TaskNumber barrier = batch.last();
    wait_settled(barrier, nullptr);
    try {
        trace({});
    } catch (const std::bad_alloc&) {
        // It ends with the runtime.
    }
    throw_undelivered(barrier);
}

}  // namespace kmm::detail
