// What a callback of Python raised on its way through C++.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <stdexcept>

#include "binding.hpp"

namespace rmm_python {

/// A callback raised something else than MemoryError.
struct callback_failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// With the GIL: throws what C++ understands (rmm::out_of_memory for MemoryError, callback_failed for all else), so
/// that no object of Python unwinds through the library; the exception is kept as the cause of what comes out.
[[noreturn]] void rethrow_from_callback(nb::python_error& error);

/// With the GIL: the exception becomes Python's current one.
void raise_in_python(const std::exception_ptr& error) noexcept;

}  // namespace rmm_python
