#include "kmm/runtime/texts/failure_words.hpp"

#include "driver/format.hpp"

#include <utility>

#include "kmm/base/text.hpp"
#include "kmm/engine/device_error.hpp"

namespace kmm::detail {

namespace {

/// What a kernel on the host driver threw: a device error with the original nested.
class KernelException final : public DeviceError, public std::nested_exception {
  public:
    using DeviceError::DeviceError;
};

/// What an emulated kernel threw.
class ThrownByKernel final : public graph::Unworded {
  public:
    ThrownByKernel(std::exception_ptr thrown, DriverKind driver, int device) noexcept
        : thrown_(std::move(thrown)), driver_(driver), device_(device) {}
    std::exception_ptr words() const override {
        const std::string text = "the kernel ended with an exception: " + text_of(thrown_);
        try {
            std::rethrow_exception(thrown_);
        } catch (...) {
            return std::make_exception_ptr(KernelException(text, driver_, device_, 0, "exception in kernel"));
        }
    }

  private:
    std::exception_ptr thrown_;
    DriverKind driver_;
    int device_;
};

/// Throws std::bad_alloc where there is no memory for the words, so that it is not kept in their place.
std::exception_ptr task_error(TaskFailure failure, const std::exception_ptr& cause,
                              std::vector<std::exception_ptr> also_failed = {}) {
    std::exception_ptr error = TaskError::with_cause(std::move(failure), cause, std::move(also_failed));
    try {
        std::rethrow_exception(error);
    } catch (const TaskError&) {
        return error;
    }
}

}  // namespace

TaskFailure FailureWords::describe_failure(const graph::TaskTrace& task) const {
    TaskFailure f;
    if (task.info) {
        f.task.task_name = task.info->name.empty() ? driver::format("{} at {}", text_of(task.info->launcher),
                                                                    to_string(task.info->location))
                                                   : task.info->name;
        f.task.num_chunks = task.info->num_chunks;
        f.task.where = task.info->location;
    }
    f.task.chunk_index = task.chunk_index;
    f.chunk = task.chunk;
    f.resource = task.where;
    f.place = platform_.place_text(task.where);
    f.event = books_.event_of(task.number);
    return f;
}

TaskFailure FailureWords::describe_failure(const graph::Task& task) const {
    graph::TaskTrace trace;
    task.trace(trace);
    return describe_failure(trace);
}

void FailureWords::note_thrown_by_kernel(graph::Task& task, std::exception_ptr thrown) const {
    if (task.has_failed()) return;
    task.cold_part(graph::UseOfReserve::yes).unworded = std::allocate_shared<ThrownByKernel>(
        graph::ReservedAllocator<ThrownByKernel>(), std::move(thrown), driver_kind(platform_.driver().kind()),
        static_cast<int>(task.memory.device()));
}

std::string FailureWords::task_text(const TaskName& task) const {
    const TaskFailure who = describe_failure(task.trace);
    if (task.kind == graph::TaskKind::transfer) return driver::format("a transfer for {}", text_of(who.task));
    if (graph::is_helper(task.number))
        return driver::format("a join of {}", driver::count_text(task.num_predecessors, "task"));
    if (task.kind == graph::TaskKind::join)
        return driver::format("the {} {}", task.is_barrier ? "barrier" : "join", task.number);
    return driver::format("{} on {}", text_of(who.task), who.place);
}

std::exception_ptr FailureWords::cause_of(graph::RootFailure& root) const {
    if (root.cause != nullptr) return root.cause;
    return worded_once(root.words_mutex, &root.worded_cause, [&] { return root.unworded->words(); });
}

std::string FailureWords::cause_text(const graph::RootFailure& root, const std::exception_ptr& cause) const {
    std::string text;
    if (root.unworded != nullptr) text = root.unworded->as_cause(cause);
    return text.empty() ? text_of(cause) : text;
}

std::exception_ptr FailureWords::error_of(graph::RootFailure& root) const {
    return worded_once(root.words_mutex, &root.error, [&] {
        const std::exception_ptr cause = cause_of(root);
        TaskFailure text = describe_failure(root.task);
        text.cause = cause_text(root, cause);
        return task_error(std::move(text), cause);
    });
}

std::exception_ptr FailureWords::error_of(const std::vector<std::shared_ptr<graph::RootFailure>>& roots) const {
    if (roots.size() == 1) return error_of(*roots.front());
    std::vector<std::exception_ptr> others;
    for (std::size_t i = 1; i < roots.size(); ++i) others.push_back(error_of(*roots[i]));
    const std::exception_ptr cause = cause_of(*roots.front());
    TaskFailure first = describe_failure(roots.front()->task);
    first.cause = cause_text(*roots.front(), cause);
    return task_error(std::move(first), cause, std::move(others));
}

std::exception_ptr FailureWords::error_of(graph::Failure& failure) const {
    graph::RootFailure& root = *failure.root;
    if (failure.task.number == root.number) return error_of(root);
    return worded_once(root.words_mutex, &failure.error, [&] {
        const std::exception_ptr cause = cause_of(root);
        TaskFailure text = describe_failure(root.task);
        text.cause = cause_text(root, cause);
        text.needed_by = std::make_shared<TaskLabel>(describe_failure(failure.task).task);
        if (failure.keeps_content) text.hint = "replace the data with overwrite() or reset() the array to go on";
        return task_error(std::move(text), cause);
    });
}

std::exception_ptr FailureWords::device_error(std::uint32_t device, driver::Status status, const char* attempted) {
    try {
        const std::string text =
            driver::format("{} on {} failed: {} ({})", attempted,
                           platform_.place_text(ResourceId(DeviceId(static_cast<std::uint8_t>(device)))),
                           platform_.driver().error_name(status), platform_.driver().error_text(status));
        return std::make_exception_ptr(GPUDriverException(
            text, driver_kind(platform_.driver().kind()), platform_.ordinals()[device], status.native,
            platform_.driver().error_name(status), status.code == driver::Code::device_lost));
    } catch (const std::bad_alloc&) {
        return books_.no_host_memory();
    }
}

}  // namespace kmm::detail
