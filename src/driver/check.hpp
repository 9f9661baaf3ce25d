// The one place where a driver's status becomes an exception.
//
// Owns: `DriverError` and `check`. Must not know: rmm, kmm (which translate DriverError into their own exceptions).
// Any thread.
#pragma once

#include <stdexcept>
#include <string>

#include "driver/driver.hpp"

namespace kmm::driver {

/// A driver call failed. `what()` says what was attempted and the driver's name and text of the error.
class DriverError : public std::runtime_error {
  public:
    DriverError(const std::string& what, Status status, std::string name)
        : std::runtime_error(what), status_(status), name_(std::move(name)) {}
    Code code() const noexcept { return status_.code; }
    int native() const noexcept { return status_.native; }      ///< the vendor's number, 0 if it has none
    const std::string& name() const noexcept { return name_; }  ///< e.g. "cudaErrorMemoryAllocation"
    Status status() const noexcept { return status_; }

  private:
    Status status_;
    std::string name_;
};

/// Throws DriverError for `status` and clears the thread's pending native error.
[[noreturn]] void throw_driver_error(Driver& driver, Status status, const char* attempted);

/// Returns if `status` is ok; otherwise throws DriverError. `attempted` completes "could not ...", e.g. "allocate
/// memory".
inline void check(Driver& driver, Status status, const char* attempted) {
    if (!status.ok()) throw_driver_error(driver, status, attempted);
}

}  // namespace kmm::driver
