// Waiting for tasks, and what failures become for those who ask.
#include <algorithm>

#include "kmm/execute/runtime_core.hpp"
#include "kmm/values/log.hpp"
#include "kmm/values/text.hpp"

namespace kmm::detail {

namespace {

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "an exception that is not a std::exception";
    }
}

/// What a kernel on the host driver threw: a device error with the original nested.
class KernelException final : public DeviceError, public std::nested_exception {
  public:
    using DeviceError::DeviceError;
};

DriverKind driver_kind(driver::Kind kind) {
    switch (kind) {
    case driver::Kind::cuda: return DriverKind::CUDA;
    case driver::Kind::hip: return DriverKind::HIP;
    case driver::Kind::host: break;
    }
    return DriverKind::Host;
}

const char* kind_text(LauncherInfo::Kind kind) {
    switch (kind) {
    case LauncherInfo::Kind::kernel: return "GPUKernel";
    case LauncherInfo::Kind::device_function: return "GPU";
    case LauncherInfo::Kind::host: break;
    }
    return "Host";
}

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
    const execute::Workers::Wait wait;
    if (wait.refused() && !must_wait)
        throw DeadlockError(std::to_string(execute::Workers::most_waiting) +
                            " tasks of another runtime wait for this one already, or the system gives no more "
                            "threads; one more could wait for ever");
    if (execute::many_cores()) {
        const auto until = clock::now() + execute::spin_time;
        do {
            for (int i = 0; i < 16; ++i) graph::cpu_relax();
            if (is_settled(number)) return true;
        } while (clock::now() < until);
    }
    WaitShard& shard = shards_[number % num_shards];
    std::unique_lock<std::mutex> lock(shard.mutex);
    const bool present = table_.with(number, [](Task* t) {
        if (t != nullptr) t->waiters.fetch_add(1, std::memory_order_acq_rel);
        return t != nullptr;
    });
    if (!present) return true;
    bool warned = config_.watchdog <= 0;
    TaskNumber settled_before = table_.settled_up_to();
    std::uint64_t pending_before = pending_.load();
    while (!is_settled(number)) {
        auto until = clock::now() + std::chrono::hours(24);
        if (!warned)
            until = std::min(until, clock::now() + std::chrono::duration_cast<clock::duration>(
                                                       std::chrono::duration<double>(config_.watchdog)));
        if (deadline != nullptr) until = std::min(until, *deadline);
        shard.wake.wait_until(lock, until);
        if (deadline != nullptr && clock::now() >= *deadline) break;
        if (warned || clock::now() < until) continue;
        if (table_.settled_up_to() == settled_before && pending_.load() == pending_before && !is_settled(number)) {
            warned = true;
            lock.unlock();
            try {
                if (const std::string who = stuck_text(number); !who.empty())
                    log::write(log::Level::warn, "no task of runtime " + std::to_string(number_) +
                                                     " has finished for " + seconds_text(config_.watchdog) + "; " +
                                                     who + "\n" + report(ReportFormat::Text));
            } catch (const std::bad_alloc&) {
                // The wait must not end early for want of a text.
                log::write(log::Level::warn, "a wait takes long, and there is no memory to say why");
            }
            lock.lock();
        }
        settled_before = table_.settled_up_to();
        pending_before = pending_.load();
    }
    return table_.with(number, [](Task* t) {
        if (t != nullptr) t->waiters.fetch_sub(1, std::memory_order_acq_rel);
        return t == nullptr;
    });
}

void RuntimeCore::throw_failure(TaskNumber number) {
    if (const auto failure = failures_.deliver(number)) std::rethrow_exception(failure->error);
}

void RuntimeCore::throw_undelivered(TaskNumber number) {
    const std::vector<std::shared_ptr<graph::RootFailure>> open = failures_.deliver_before(number);
    if (open.empty()) return;
    if (open.size() == 1) std::rethrow_exception(open.front()->error);
    std::vector<std::exception_ptr> others;
    for (std::size_t i = 1; i < open.size(); ++i) others.push_back(open[i]->error);
    std::rethrow_exception(TaskError::with_cause(open.front()->failure, open.front()->cause, std::move(others)));
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
        std::vector<Task*> tasks;
        std::lock_guard<std::mutex> guard(order_);
        if (closed_.exchange(true)) return;
        Task* task = pool_.take();
        task->is_barrier = true;
        barrier = table_.add(task);
        tasks.push_back(task);
        was_idle = publish(tasks);
    }
    plan_published(was_idle);
    wait_settled(barrier, nullptr);
    throw_undelivered(barrier);
}

// ---------------------------------------------------------------------------------------------------- failures

std::string RuntimeCore::place_text(const ResourceId& where) const {
    if (where.is_host()) return "the host";
    return detail::place_text(driver_kind(driver_->kind()), where.as_device().get());
}

TaskFailure RuntimeCore::describe_failure(const Task& task) const {
    TaskFailure f;
    if (task.info) {
        f.task.task_name = task.info->name.empty()
                               ? kind_text(task.info->launcher) + (" at " + to_string(task.info->location))
                               : task.info->name;
        f.task.num_chunks = task.info->num_chunks;
        f.task.where = task.info->location;
    }
    f.task.chunk_index = task.chunk_index;
    f.chunk = task.chunk;
    f.resource = task.where;
    f.place = place_text(task.where);
    f.event = event_of(task.number);
    return f;
}

std::shared_ptr<graph::Failure> RuntimeCore::make_failure(Task& task, std::exception_ptr thrown,
                                                          const std::shared_ptr<graph::RootFailure>& root) {
    auto failure = std::make_shared<graph::Failure>();
    if (thrown != nullptr) {
        failure->root = std::make_shared<graph::RootFailure>();
        graph::RootFailure& r = *failure->root;
        r.number = task.number;
        r.cause = thrown;
        r.failure = describe_failure(task);
        r.failure.cause = text_of(thrown);
        r.error = TaskError::with_cause(r.failure, thrown);
        failure->error = r.error;
        return failure;
    }
    failure->root = root;
    TaskFailure text = root->failure;
    text.needed_by = std::make_shared<TaskLabel>(describe_failure(task).task);
    for (const graph::Access& a : task.accesses)
        if (a.kind == AccessKind::write) text.hint = "replace the data with overwrite() or reset() the array to go on";
    failure->error = TaskError::with_cause(text, root->cause);
    return failure;
}

std::exception_ptr RuntimeCore::device_error(std::uint32_t device, driver::Status status, const char* attempted) {
    const std::string text = std::string(attempted) + " on " +
                             place_text(ResourceId(DeviceId(static_cast<std::uint8_t>(device)))) +
                             " failed: " + driver_->error_name(status) + " (" + driver_->error_text(status) + ")";
    return std::make_exception_ptr(GPUDriverException(text, driver_kind(driver_->kind()), ordinals_[device],
                                                      status.native, driver_->error_name(status),
                                                      status.code == driver::Code::device_lost));
}

std::exception_ptr RuntimeCore::kernel_error(Task& task, std::exception_ptr thrown) {
    const std::string text = "the kernel ended with an exception: " + text_of(thrown);
    try {
        std::rethrow_exception(thrown);
    } catch (...) {
        return std::make_exception_ptr(KernelException(text, driver_kind(driver_->kind()),
                                                       static_cast<int>(task.memory) - 1, 0, "exception in kernel"));
    }
}

void RuntimeCore::log_undelivered() noexcept {
    try {
        for (const auto& root : failures_.deliver_before(number_mask))
            log::write(log::Level::error, "a failure that nobody asked for: " + text_of(root->error));
    } catch (...) {
        // Out of memory while building the text of a message: there is nobody left to tell.
        std::fputs("kmm: a failure that nobody asked for could not be described\n", stderr);
    }
}

}  // namespace kmm::detail
