// The texts and details of the exceptions of kmm/error.hpp, and the home of their type information. Pure; any thread.
#include "kmm/error.hpp"

#include <cstring>
#include <utility>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/detail/panic.hpp"

namespace kmm {

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
ConflictingAccess::~ConflictingAccess() = default;
UninitializedRead::~UninitializedRead() = default;
InvalidResourceException::~InvalidResourceException() = default;
OutOfMemory::~OutOfMemory() = default;
TaskError::~TaskError() = default;
DeviceError::~DeviceError() = default;
GPUDriverException::~GPUDriverException() = default;
GPURuntimeException::~GPURuntimeException() = default;
BlasException::~BlasException() = default;
NotAvailable::~NotAvailable() = default;
DeadlockError::~DeadlockError() = default;
IoError::~IoError() = default;
Closed::~Closed() = default;
InternalError::~InternalError() = default;

const char* to_string(ErrorCode code) noexcept {
    switch (code) {
    case ErrorCode::InvalidArgument: return "IA";
    case ErrorCode::ConflictingAccess: return "CA";
    case ErrorCode::UninitializedRead: return "UR";
    case ErrorCode::InvalidResource: return "IR";
    case ErrorCode::OutOfMemory: return "OM";
    case ErrorCode::TaskError: return "TE";
    case ErrorCode::DeviceError: return "DE";
    case ErrorCode::NotAvailable: return "NA";
    case ErrorCode::DeadlockError: return "DL";
    case ErrorCode::IoError: return "IO";
    case ErrorCode::Closed: return "CL";
    case ErrorCode::InternalError: break;
    }
    return "INT";
}

std::string to_string(const SourceLocation& where) {
    if (!where.is_known()) return "an unknown place";
    const char* name = where.file();
    if (const char* slash = std::strrchr(name, '/')) name = slash + 1;
    return driver::format("{}:{}", name, where.line());
}

namespace {

std::string submitted_at(const SourceLocation& where) {
    return where.is_known() ? ", submitted at " + to_string(where) : "";
}

std::string array_text(const std::string& name) {
    return name.empty() ? "an array" : driver::format("array \"{}\"", name);
}

std::string party_text(const ConflictParty& party, const TaskLabel* submit) {
    std::string text = driver::format("task {}", party.chunk_index);
    if (submit != nullptr) {
        TaskLabel task = *submit;
        task.chunk_index = party.chunk_index;
        text = detail::text_of(task);
    }
    return driver::format("{} ({}, on {}, argument {})", text, detail::text_of_chunk(party.offset, party.size),
                          detail::text_of(party.resource), party.argument);
}

std::string conflict_text(const std::string& array_name, const ConflictParty& first, const ConflictParty& second,
                          const Region& overlap, const SourceLocation& where, const TaskLabel* submit) {
    const bool same_task = first.chunk_index == second.chunk_index && first.argument != second.argument;
    std::string text = driver::format("conflicting access to {}: {} and {} both write {}{}", array_text(array_name),
                                      party_text(first, submit), party_text(second, submit), detail::text_of(overlap),
                                      submitted_at(where));
    text += same_task ? "; pass one writing argument, or regions that do not overlap"
                      : "; let each task write elements of its own, or use one chunk";
    return text;
}

// The remedies are true of every array: one that is not bound yet takes neither fill nor copy_from.
std::string uninitialized_text(const std::string& array_name, const Region& region, const SourceLocation& where) {
    std::string text = "read of ";
    if (region.empty())
        text += array_name.empty() ? "a scalar" : driver::format("the scalar \"{}\"", array_name);
    else
        text += driver::format("{} at {}", array_text(array_name), detail::text_of(region));
    return driver::format("{}, which nothing ever wrote{}; write it by a submit first, or make it with rt.allocate, or "
                          "with rt.array and then fill or copy_from it",
                          text, submitted_at(where));
}

std::string failure_text(const TaskFailure& failure, std::size_t num_others) {
    std::string text =
        driver::format("{} ({}) on {} failed{}: {}", detail::text_of(failure.task),
                       detail::text_of_chunk(failure.chunk.offset, failure.chunk.size),
                       failure.place.empty() ? detail::text_of(failure.resource) : failure.place,
                       submitted_at(failure.task.where), failure.cause.empty() ? "unknown exception" : failure.cause);
    if (failure.needed_by) {
        text += driver::format("; needed by {}{}", detail::text_of(*failure.needed_by),
                               submitted_at(failure.needed_by->where));
    }
    if (!failure.hint.empty()) text += "; " + failure.hint;
    if (num_others > 0) text += driver::format(" ({} more failed: see also_failed())", num_others);
    return text;
}

}  // namespace

struct ConflictingAccess::Details {
    std::string array_name;
    ConflictParty first;
    ConflictParty second;
    Region overlap;
};

ConflictingAccess::ConflictingAccess(const std::string& array_name, const ConflictParty& first,
                                     const ConflictParty& second, const Region& overlap, SourceLocation where,
                                     const TaskLabel* submit)
    : Error(ErrorCode::ConflictingAccess, conflict_text(array_name, first, second, overlap, where, submit), where),
      details_(std::make_shared<const Details>(Details{array_name, first, second, overlap})) {}

ConflictingAccess::ConflictingAccess(const std::string& array_name, const ConflictParty& first,
                                     const ConflictParty& second, const Region& overlap, SourceLocation where)
    : ConflictingAccess(array_name, first, second, overlap, where, nullptr) {}

ConflictingAccess::ConflictingAccess(const std::string& array_name, const ConflictParty& first,
                                     const ConflictParty& second, const Region& overlap, const TaskLabel& submit)
    : ConflictingAccess(array_name, first, second, overlap, submit.where, &submit) {}

const std::string& ConflictingAccess::array_name() const noexcept { return details_->array_name; }
const ConflictParty& ConflictingAccess::first() const noexcept { return details_->first; }
const ConflictParty& ConflictingAccess::second() const noexcept { return details_->second; }
const Region& ConflictingAccess::overlap() const noexcept { return details_->overlap; }

struct UninitializedRead::Details {
    std::string array_name;
    Region region;
};

UninitializedRead::UninitializedRead(const std::string& array_name, const Region& region, SourceLocation where)
    : Error(ErrorCode::UninitializedRead, uninitialized_text(array_name, region, where), where),
      details_(std::make_shared<const Details>(Details{array_name, region})) {}

UninitializedRead::UninitializedRead(const std::string& array_name, const Region& region, const TaskLabel& task)
    : Error(ErrorCode::UninitializedRead,
            detail::text_of(task) + ": " + uninitialized_text(array_name, region, task.where), task.where),
      details_(std::make_shared<const Details>(Details{array_name, region})) {}

const std::string& UninitializedRead::array_name() const noexcept { return details_->array_name; }
const Region& UninitializedRead::region() const noexcept { return details_->region; }

struct OutOfMemory::Details {
    MemoryId memory;
    std::size_t requested;
    std::size_t in_use;
    std::size_t limit;
    std::string report;
};

OutOfMemory::OutOfMemory(MemoryId memory, std::size_t requested, std::size_t in_use, std::size_t limit,
                         const std::string& report, SourceLocation where)
    : Error(ErrorCode::OutOfMemory, report, where),
      details_(std::make_shared<const Details>(Details{memory, requested, in_use, limit, report})) {}

OutOfMemory::OutOfMemory(const OutOfMemory& first, std::size_t requested, const std::string& text, SourceLocation where)
    : Error(ErrorCode::OutOfMemory, text, where),
      details_(std::make_shared<const Details>(
          Details{first.memory(), requested, first.in_use(), first.limit(), first.report()})) {}

MemoryId OutOfMemory::memory() const noexcept { return details_->memory; }
std::size_t OutOfMemory::requested() const noexcept { return details_->requested; }
std::size_t OutOfMemory::in_use() const noexcept { return details_->in_use; }
std::size_t OutOfMemory::limit() const noexcept { return details_->limit; }
const std::string& OutOfMemory::report() const noexcept { return details_->report; }

struct TaskError::Details {
    TaskFailure failure;
    std::vector<std::exception_ptr> also_failed;
};

TaskError::TaskError(std::shared_ptr<const Details> details)
    : Error(ErrorCode::TaskError, failure_text(details->failure, details->also_failed.size()),
            details->failure.task.where),
      details_(std::move(details)) {}

TaskError::TaskError(TaskFailure failure, std::vector<std::exception_ptr> also_failed)
    : TaskError(std::make_shared<const Details>(Details{std::move(failure), std::move(also_failed)})) {}

std::exception_ptr TaskError::with_cause(TaskFailure failure, const std::exception_ptr& cause,
                                         std::vector<std::exception_ptr> also_failed) noexcept {
    try {
        if (!cause) return std::make_exception_ptr(TaskError(std::move(failure), std::move(also_failed)));
        // A nested_exception takes what is being handled where it is made.
        try {
            std::rethrow_exception(cause);
        } catch (...) {
            throw TaskError(std::move(failure), std::move(also_failed));
        }
    } catch (...) {
        return std::current_exception();
    }
}

const std::string& TaskError::task_name() const noexcept { return details_->failure.task.task_name; }
std::size_t TaskError::chunk_index() const noexcept { return details_->failure.task.chunk_index; }
std::size_t TaskError::num_chunks() const noexcept { return details_->failure.task.num_chunks; }
const DomainChunk& TaskError::chunk() const noexcept { return details_->failure.chunk; }
ResourceId TaskError::resource() const noexcept { return details_->failure.resource; }
EventId TaskError::event() const noexcept { return details_->failure.event; }
const std::vector<std::exception_ptr>& TaskError::also_failed() const noexcept { return details_->also_failed; }
const TaskFailure& TaskError::failure() const noexcept { return details_->failure; }

DeviceError::DeviceError(const std::string& text, DriverKind driver, int device, int status_code,
                         const std::string& status_name, bool is_sticky, SourceLocation where)
    : Error(ErrorCode::DeviceError, text, where),
      status(status_code),
      device_(device),
      driver_(driver),
      is_sticky_(is_sticky),
      status_name_(std::make_shared<const std::string>(status_name)) {}

IoError::IoError(const std::string& text, int error_number, const std::string& path)
    : Error(ErrorCode::IoError, text), path_(std::make_shared<const std::string>(path)), error_number_(error_number) {}

namespace detail {

void throw_overflow(const char* text) { throw std::overflow_error(text); }

void throw_out_of_range(std::size_t index, std::size_t size) {
    throw std::out_of_range(driver::format("index {} is out of range: there are {} elements", index, size));
}

void throw_invalid_argument(const char* text) { throw InvalidArgument(text); }

void throw_not_available(const char* text) { throw NotAvailable(text); }

void throw_not_in_range(const char* what, std::int64_t value, std::int64_t first, std::int64_t last,
                        const char* remedy) {
    throw InvalidArgument(driver::format("{} {} is not in {}...{}: {}", what, value, first, last, remedy));
}

}  // namespace detail

}  // namespace kmm
