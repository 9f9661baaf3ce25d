// The exceptions of the library. Every error is read-only once made, cheap to copy (the details are shared), and may be
// shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm {

/// A place in a program. `current()` as a default argument is the place of the call.
class SourceLocation {
  public:
    constexpr SourceLocation() noexcept = default;
    /// The texts must live as long as the program.
    constexpr SourceLocation(const char* file, int line, const char* function) noexcept
        : file_(file), function_(function), line_(line) {}

    static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                            const char* function = __builtin_FUNCTION()) noexcept {
        return SourceLocation(file, line, function);
    }
    /// As the compiler names it; "" if unknown.
    constexpr const char* file() const noexcept { return file_; }
    /// From 1; 0 if unknown.
    constexpr int line() const noexcept { return line_; }
    constexpr const char* function() const noexcept { return function_; }
    constexpr bool is_known() const noexcept { return line_ > 0; }

  private:
    const char* file_ = "";
    const char* function_ = "";
    int line_ = 0;
};

/// "main.cpp:41" (the last part of the path); "an unknown place" if unknown.
std::string to_string(const SourceLocation& where);

enum struct ErrorCode : std::uint8_t {
    InvalidArgument,
    ConflictingAccess,
    UninitializedRead,
    InvalidResource,
    OutOfMemory,
    TaskError,
    DeviceError,
    NotAvailable,
    DeadlockError,
    IoError,
    Closed,
    InternalError,
};

/// The short form: "IA", "CA", "UR", "IR", "OM", "TE", "DE", "NA", "DL", "IO", "CL", "INT".
const char* to_string(ErrorCode code) noexcept;

/// A box of array indices of any rank: one range for each axis.
using Region = std::vector<Range<default_index_type>>;

/// The root of all errors of the library.
class Error : public std::runtime_error {
  public:
    Error(ErrorCode code, const std::string& text, SourceLocation where = SourceLocation())
        : std::runtime_error(text), where_(where), code_(code) {}
    Error(const Error&) noexcept = default;
    Error& operator=(const Error&) noexcept = default;
    ~Error() override;

    ErrorCode code() const noexcept { return code_; }
    /// The place in the program that the error is about (for tasks: where they were submitted), if it is known.
    const SourceLocation& where() const noexcept { return where_; }

  private:
    SourceLocation where_;
    ErrorCode code_;
};

/// The caller can fix it: sizes, mappings, foreign or unknown events, arrays of another runtime, bad variables.
class InvalidArgument : public Error {
  public:
    explicit InvalidArgument(const std::string& text, SourceLocation where = SourceLocation())
        : Error(ErrorCode::InvalidArgument, text, where) {}
    ~InvalidArgument() override;
};

/// Which task of which submit, for messages.
struct TaskLabel {
    std::string task_name;
    std::size_t chunk_index = 0;
    std::size_t num_chunks = 1;
    SourceLocation where;
};

/// One of the two sides of a conflict.
struct ConflictParty {
    std::size_t chunk_index = 0;  ///< number of the task within its submit
    DomainPoint offset;
    DomainDim size;
    std::size_t argument = 0;  ///< number of the argument, from 0
    ResourceId resource;
};

/// Two tasks, or two arguments, of one submit claim the same elements.
class ConflictingAccess : public Error {
  public:
    ConflictingAccess(const std::string& array_name, const ConflictParty& first, const ConflictParty& second,
                      const Region& overlap, SourceLocation where = SourceLocation());
    /// Also names the tasks: `submit` is the label of any task of the submit.
    ConflictingAccess(const std::string& array_name, const ConflictParty& first, const ConflictParty& second,
                      const Region& overlap, const TaskLabel& submit);
    ~ConflictingAccess() override;

    const std::string& array_name() const noexcept;
    const ConflictParty& first() const noexcept;
    const ConflictParty& second() const noexcept;
    const Region& overlap() const noexcept;

  private:
    ConflictingAccess(const std::string& array_name, const ConflictParty& first, const ConflictParty& second,
                      const Region& overlap, SourceLocation where, const TaskLabel* submit);
    struct Details;
    std::shared_ptr<const Details> details_;
};

/// Elements are read that nothing ever wrote.
class UninitializedRead : public Error {
  public:
    UninitializedRead(const std::string& array_name, const Region& region, SourceLocation where = SourceLocation());
    /// Also names the task that reads.
    UninitializedRead(const std::string& array_name, const Region& region, const TaskLabel& task);
    ~UninitializedRead() override;

    const std::string& array_name() const noexcept;
    /// The first region that is missing.
    const Region& region() const noexcept;

  private:
    struct Details;
    std::shared_ptr<const Details> details_;
};

/// A resource outside the handle's set, or of the wrong kind.
class InvalidResourceException : public Error {
  public:
    explicit InvalidResourceException(const std::string& text, SourceLocation where = SourceLocation())
        : Error(ErrorCode::InvalidResource, text, where) {}
    ~InvalidResourceException() override;
};

/// No tier can hold it. Sizes in bytes.
class OutOfMemory : public Error {
  public:
    /// `report` is the whole text, which what() begins with too.
    OutOfMemory(MemoryId memory, std::size_t requested, std::size_t in_use, std::size_t limit,
                const std::string& report, SourceLocation where = SourceLocation());
    /// Of a task that found no memory while nothing had been freed since `first`, whose report it shares. `text` names
    /// the task and refers to that report.
    OutOfMemory(const OutOfMemory& first, std::size_t requested, const std::string& text, SourceLocation where);
    ~OutOfMemory() override;

    MemoryId memory() const noexcept;
    std::size_t requested() const noexcept;
    std::size_t in_use() const noexcept;
    std::size_t limit() const noexcept;
    /// What was asked for, who holds the memory, what would help.
    const std::string& report() const noexcept;

  private:
    struct Details;
    std::shared_ptr<const Details> details_;
};

/// All that a TaskError says.
struct TaskFailure {
    TaskLabel task;  ///< the task that failed first
    DomainChunk chunk;
    ResourceId resource;
    EventId event;
    std::string cause;                           ///< text of the original exception
    std::shared_ptr<const TaskLabel> needed_by;  ///< the cancelled task that is asked about, or null
    std::string hint;                            ///< what to do, or empty
    std::string place;  ///< how the runtime calls `resource` ("virtual GPU 0"); empty: as for a GPU
};

/// A task failed, and its result, event or completion is asked for. The original exception is nested.
class TaskError : public Error, public std::nested_exception {
  public:
    /// Nests the exception that is being handled, if any.
    explicit TaskError(TaskFailure failure, std::vector<std::exception_ptr> also_failed = {});
    TaskError(const TaskError&) noexcept = default;
    TaskError& operator=(const TaskError&) noexcept = default;
    ~TaskError() override;

    /// A TaskError with `cause` nested. Never throws; a failure to build it gives the exception of that failure.
    static std::exception_ptr with_cause(TaskFailure failure, const std::exception_ptr& cause,
                                         std::vector<std::exception_ptr> also_failed = {}) noexcept;

    const std::string& task_name() const noexcept;
    std::size_t chunk_index() const noexcept;
    std::size_t num_chunks() const noexcept;
    const DomainChunk& chunk() const noexcept;
    ResourceId resource() const noexcept;
    EventId event() const noexcept;
    /// The other failures delivered with this one, in the order of submission.
    const std::vector<std::exception_ptr>& also_failed() const noexcept;
    /// All of it, to build another TaskError from.
    const TaskFailure& failure() const noexcept;

  private:
    struct Details;
    explicit TaskError(std::shared_ptr<const Details> details);
    std::shared_ptr<const Details> details_;
};

/// A native call failed, or a device did.
class DeviceError : public Error {
  public:
    /// `device` is the native number, -1 if no device is meant; `status` the driver's own code.
    DeviceError(const std::string& text, DriverKind driver, int device, int status, const std::string& status_name,
                bool is_sticky = false, SourceLocation where = SourceLocation());
    ~DeviceError() override;

    DriverKind driver() const noexcept { return driver_; }
    int device() const noexcept { return device_; }
    const std::string& status_name() const noexcept { return *status_name_; }
    /// Every later call on this device fails too.
    bool is_sticky() const noexcept { return is_sticky_; }

    int status;  ///< native code

  private:
    int device_;
    DriverKind driver_;
    bool is_sticky_;
    std::shared_ptr<const std::string> status_name_;
};

using GPUException = DeviceError;

/// A call of the driver API failed.
class GPUDriverException : public DeviceError {
  public:
    using DeviceError::DeviceError;
    ~GPUDriverException() override;
};

/// A call of the runtime API failed.
class GPURuntimeException : public DeviceError {
  public:
    using DeviceError::DeviceError;
    ~GPURuntimeException() override;
};

/// A call of the BLAS library failed.
class BlasException : public DeviceError {
  public:
    using DeviceError::DeviceError;
    ~BlasException() override;
};

/// A driver, a library or a kernel form is missing; the text says what was tried.
class NotAvailable : public Error {
  public:
    explicit NotAvailable(const std::string& text, SourceLocation where = SourceLocation())
        : Error(ErrorCode::NotAvailable, text, where) {}
    ~NotAvailable() override;
};

/// A wait that cannot end.
class DeadlockError : public Error {
  public:
    explicit DeadlockError(const std::string& text, SourceLocation where = SourceLocation())
        : Error(ErrorCode::DeadlockError, text, where) {}
    ~DeadlockError() override;
};

/// The disk tier failed.
class IoError : public Error {
  public:
    IoError(const std::string& text, int error_number, const std::string& path);
    ~IoError() override;

    /// As in errno; 0 if the content was wrong.
    int error_number() const noexcept { return error_number_; }
    const std::string& path() const noexcept { return *path_; }

  private:
    std::shared_ptr<const std::string> path_;
    int error_number_;
};

/// The runtime was closed, or the process forked.
class Closed : public Error {
  public:
    explicit Closed(const std::string& text) : Error(ErrorCode::Closed, text) {}
    ~Closed() override;
};

/// A bug of the library.
class InternalError : public Error {
  public:
    explicit InternalError(const std::string& text, SourceLocation where = SourceLocation::current())
        : Error(ErrorCode::InternalError, text, where) {}
    ~InternalError() override;
};

}  // namespace kmm
