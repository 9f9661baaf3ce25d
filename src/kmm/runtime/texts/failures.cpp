// What failures become for those who ask: figures were collected while somebody had the baton, words are made here.
//
// Any thread that has neither the baton nor a lock, but for what collects figures: words call drivers, read what the
// system says, and ask exceptions of the program for their text.
#include <cstdio>
#include <utility>

#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

namespace {

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

/// `*kept`, or what `make` makes of it now. Nothing is locked meanwhile: two who ask at once may both make it, and
/// one's stays.
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

std::string RuntimeCore::place_text(const ResourceId& where) const {
    if (where.is_host()) return "the host";
    return detail::place_text(driver_kind(driver_->kind()), where.as_device().get());
}

TaskFailure RuntimeCore::describe_failure(const graph::TaskTrace& task) const {
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

TaskFailure RuntimeCore::describe_failure(const Task& task) const {
    graph::TaskTrace trace;
    task.trace(trace);
    return describe_failure(trace);
}

// ---------------------------------------------------------------------------------------------------- under the baton

std::shared_ptr<graph::Failure> RuntimeCore::make_failure(Task& task, std::exception_ptr thrown,
                                                          const std::shared_ptr<graph::RootFailure>& root) {
    auto failure = std::allocate_shared<graph::Failure>(graph::ReservedAllocator<graph::Failure>());
    task.trace(failure->task);
    failure->root = root;
    if (root != nullptr) {
        for (const graph::Access& a : task.accesses) failure->keeps_content |= a.kind == AccessKind::write;
        return failure;
    }
    failure->root = std::allocate_shared<graph::RootFailure>(graph::ReservedAllocator<graph::RootFailure>());
    graph::RootFailure& r = *failure->root;
    r.number = task.number;
    r.cause = std::move(thrown);
    if (r.cause == nullptr) r.unworded = task.unworded;
    task.trace(r.task);
    if (r.unworded == nullptr || !r.unworded->is_logged()) return failure;
    constexpr std::size_t most_told_at_once = 16;
    if (news_.size() < most_told_at_once)
        news_.push_back(failure->root);
    else
        ++more_news_;
    return failure;
}

void RuntimeCore::kernel_failed(Task& task, std::exception_ptr thrown) {
    if (task.has_failed()) return;
    task.unworded =
        std::allocate_shared<ThrownByKernel>(graph::ReservedAllocator<ThrownByKernel>(), std::move(thrown),
                                             driver_kind(driver_->kind()), static_cast<int>(task.memory.device()));
}

// ---------------------------------------------------------------------------------------------------- words

std::exception_ptr RuntimeCore::cause_of(graph::RootFailure& root) const {
    if (root.cause != nullptr) return root.cause;
    return worded_once(root.words_mutex, &root.worded_cause, [&] { return root.unworded->words(); });
}

std::exception_ptr RuntimeCore::error_of(graph::RootFailure& root) const {
    return worded_once(root.words_mutex, &root.error, [&] {
        const std::exception_ptr cause = cause_of(root);
        TaskFailure text = describe_failure(root.task);
        text.cause = text_of(cause);
        return task_error(std::move(text), cause);
    });
}

/// At least one: the first of them, which tells the others.
std::exception_ptr RuntimeCore::error_of(const std::vector<std::shared_ptr<graph::RootFailure>>& roots) const {
    if (roots.size() == 1) return error_of(*roots.front());
    std::vector<std::exception_ptr> others;
    for (std::size_t i = 1; i < roots.size(); ++i) others.push_back(error_of(*roots[i]));
    const std::exception_ptr cause = cause_of(*roots.front());
    TaskFailure first = describe_failure(roots.front()->task);
    first.cause = text_of(cause);
    return task_error(std::move(first), cause, std::move(others));
}

std::exception_ptr RuntimeCore::error_of(graph::Failure& failure) const {
    graph::RootFailure& root = *failure.root;
    if (failure.task.number == root.number) return error_of(root);
    return worded_once(root.words_mutex, &failure.error, [&] {
        const std::exception_ptr cause = cause_of(root);
        TaskFailure text = describe_failure(root.task);
        text.cause = text_of(cause);
        text.needed_by = std::make_shared<TaskLabel>(describe_failure(failure.task).task);
        if (failure.keeps_content) text.hint = "replace the data with overwrite() or reset() the array to go on";
        return task_error(std::move(text), cause);
    });
}

std::exception_ptr RuntimeCore::device_error(std::uint32_t device, driver::Status status, const char* attempted) {
    try {
        const std::string text = std::string(attempted) + " on " +
                                 place_text(ResourceId(DeviceId(static_cast<std::uint8_t>(device)))) +
                                 " failed: " + driver_->error_name(status) + " (" + driver_->error_text(status) + ")";
        return std::make_exception_ptr(GPUDriverException(text, driver_kind(driver_->kind()), ordinals_[device],
                                                          status.native, driver_->error_name(status),
                                                          status.code == driver::Code::device_lost));
    } catch (const std::bad_alloc&) {
        return no_host_memory_;
    }
}

void RuntimeCore::log_undelivered() noexcept {
    try {
        for (const auto& root : failures_.deliver_before(number_mask))
            log::post(log::Level::error, "a failure that nobody asked for: " + text_of(error_of(*root)));
    } catch (...) {
        // Out of memory while building the text of a message: there is nobody left to tell.
        std::fputs("kmm: a failure that nobody asked for could not be described\n", stderr);
    }
}

}  // namespace kmm::detail
