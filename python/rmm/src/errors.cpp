// Exceptions of C++ as exceptions of Python, and what a callback of Python raised on its way through C++.
#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <new>
#include <stdexcept>

#include "driver/fork.hpp"
#include "rmm/error.hpp"

namespace rmm_python {
namespace {

/// What a callback raised last on this thread: the cause of what comes out of the library, if that repeats its text.
struct raised {
    PyObject* exception = nullptr;
    std::string text;
    bool is_memory = false;

    bool is_cause_of(const char* what) const {
        return exception != nullptr && std::string_view(what).find(text) != std::string_view::npos;
    }
};
thread_local raised last_raised;

const char* name_of(rmm::memory_limit limit) {
    switch (limit) {
    case rmm::memory_limit::device: return "device";
    case rmm::memory_limit::host: return "host";
    case rmm::memory_limit::maximum: return "maximum";
    case rmm::memory_limit::unknown: break;
    }
    return "unknown";
}

void set_out_of_memory(const rmm::out_of_memory& e) {
    const rmm::memory_shortage& s = e.shortage();
    nb::dict fields;
    fields["device"] = s.device;
    fields["limit"] = name_of(s.limit);
    fields["requested_bytes"] = s.requested_bytes;
    fields["device_free_bytes"] = s.device_free_bytes;
    fields["device_total_bytes"] = s.device_total_bytes;
    fields["pool_bytes"] = s.pool_bytes;
    fields["pool_in_use_bytes"] = s.pool_in_use_bytes;
    fields["pool_free_bytes"] = s.pool_free_bytes;
    fields["pool_largest_free_bytes"] = s.pool_largest_free_bytes;
    fields["pool_maximum_bytes"] = s.pool_maximum_bytes;
    fields["pool_num_blocks"] = s.pool_num_blocks;
    fields["other_pools_bytes"] = s.other_pools_bytes;
    fields["elsewhere_bytes"] = s.elsewhere_bytes;
    fields["largest_tag"] = s.largest_tag == nullptr ? nb::none() : nb::object(nb::str(s.largest_tag));
    fields["largest_tag_bytes"] = s.largest_tag_bytes;
    const nb::object type = imported("rmm._errors", "OutOfMemoryError");
    const nb::object error = type(e.what(), **fields);
    PyErr_SetObject(type.ptr(), error.ptr());
}

/// The exception that is set gets the callback's as its cause.
void set_cause(const char* text) {
    if (last_raised.exception == nullptr) return;
    const bool is_cause = last_raised.is_cause_of(text);
    PyObject* const cause = std::exchange(last_raised.exception, nullptr);
    if (!is_cause) {
        Py_DECREF(cause);
        return;
    }
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyException_SetCause(value, cause);  // takes the reference
    PyErr_Restore(type, value, trace);
}

void set(PyObject* type, const std::exception& e) { PyErr_SetString(type, e.what()); }

void translate(const std::exception_ptr& p, void*) {
    try {
        std::rethrow_exception(p);
    } catch (const nb::python_error&) {
        throw;
    } catch (const nb::builtin_exception&) {
        throw;
    } catch (const rmm::out_of_memory& e) {
        // A pool takes whatever its upstream throws for a lack of memory; the program's own error stays one.
        if (last_raised.is_cause_of(e.what()) && !last_raised.is_memory) {
            set(PyExc_RuntimeError, e);
            return set_cause(e.what());
        }
        try {
            set_out_of_memory(e);
        } catch (nb::python_error& failed) {
            failed.restore();
        }
        set_cause(e.what());
    } catch (const std::bad_alloc& e) {
        set(PyExc_MemoryError, e);
        set_cause(e.what());
    } catch (const std::out_of_range& e) {
        set(PyExc_IndexError, e);
    } catch (const std::exception& e) {
        set(PyExc_RuntimeError, e);
        set_cause(e.what());
    } catch (...) {
        PyErr_SetString(PyExc_RuntimeError, "an exception of C++ that says nothing");
    }
}

}  // namespace

void bind_errors() { nb::register_exception_translator(&translate, nullptr); }

void raise_in_python(const std::exception_ptr& error) noexcept {
    try {
        try {
            translate(error, nullptr);
        } catch (nb::python_error& e) {
            e.restore();
        } catch (const nb::builtin_exception& e) {
            PyErr_SetString(PyExc_RuntimeError, e.what());
        }
    } catch (...) {
        PyErr_SetString(PyExc_MemoryError, "no memory of the host is left to say what failed");
    }
}

void rethrow_from_callback(nb::python_error& error) {
    const bool is_memory = error.matches(PyExc_MemoryError);
    std::string text;
    try {
        text = nb::cast<std::string>(nb::str(error.value()));
    } catch (nb::python_error& unprintable) {
        unprintable.discard_as_unraisable("the text of an exception of a callback");
    }
    if (text.empty()) text = nb::cast<std::string>(error.type().attr("__name__"));
    Py_XDECREF(last_raised.exception);
    last_raised.exception = error.value().inc_ref().ptr();
    last_raised.text = text;
    last_raised.is_memory = is_memory;
    if (is_memory) throw rmm::out_of_memory(text);
    throw callback_failed(text);
}

}  // namespace rmm_python
