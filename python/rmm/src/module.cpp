// The native module rmm._core. The Python modules of the package export what is defined here under RMM's names.
#include <nanobind/nanobind.h>

#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "binding.hpp"
#include "rmm/class_names.hpp"
#include "rmm/status.hpp"

namespace rmm_python {
namespace {

std::atomic<bool> exiting{false};
std::mutex changing_exiting;

void begin_exit() {
    const without_gil released;  // whoever has the lock may need it
    std::unique_lock in(changing_exiting, std::defer_lock);
    if (!rmm::detail::lost_in_fork()) in.lock();
    exiting.store(true);
}

std::map<std::string, nb::module_>& named_modules() {
    static auto* const modules = new std::map<std::string, nb::module_>();  // Python ends before static objects do
    return *modules;
}

}  // namespace

bool is_exiting() noexcept { return exiting.load(std::memory_order_relaxed); }

void before_exit(void (*f)()) noexcept {
    if (rmm::detail::lost_in_fork()) return;  // another thread may have had the lock
    const std::lock_guard in(changing_exiting);
    if (!is_exiting()) f();
}

nb::module_ named_module(const char* name) {
    auto& modules = named_modules();
    const auto found = modules.find(name);
    if (found != modules.end()) return found->second;
    nb::module_ made = nb::steal<nb::module_>(nb::handle(PyModule_New(name)));
    if (!made.is_valid()) throw nb::python_error();
    return modules.emplace(name, std::move(made)).first->second;
}

void export_named_modules(nb::module_& core) {
    for (const auto& [name, module] : named_modules())
        for (const auto& [key, value] : nb::cast<nb::dict>(module.attr("__dict__"))) {
            const std::string attribute = nb::cast<const char*>(key);
            if (attribute.rfind("__", 0) != 0) core.attr(attribute.c_str()) = value;
        }
    named_modules().clear();
}

nb::object imported(const char* module, const char* name) { return nb::module_::import_(module).attr(name); }

void warn_of_old_name(const char* old_name, const char* instead) {
    const std::string text = std::string(old_name) + " is an old name: use " + instead;
    if (PyErr_WarnEx(PyExc_FutureWarning, text.c_str(), 2) != 0) throw nb::python_error();
}

namespace {

nb::object index_of(nb::handle number, const char* what) {
    if (PyIndex_Check(number.ptr()) == 0)
        throw nb::type_error(
            (std::string(what) + " must be an int, not " + nb::str(nb::object(number.type().attr("__name__"))).c_str())
                .c_str());
    nb::object index = nb::steal(PyNumber_Index(number.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    return index;
}

[[noreturn]] void refuse_number(const nb::object& number, const char* what, const char* range) {
    PyErr_Clear();
    const nb::object text = nb::steal(PyObject_Repr(number.ptr()));
    PyErr_Clear();  // Python prints no number of very many digits
    const std::string is = text.is_valid() ? std::string("; it is ") + nb::str(text).c_str() : "";
    PyErr_SetString(PyExc_OverflowError, (std::string(what) + " must be " + range + is).c_str());
    throw nb::python_error();
}

}  // namespace

std::size_t size_of(nb::handle number, const char* what) {
    const nb::object index = index_of(number, what);
    const std::size_t size = PyLong_AsSize_t(index.ptr());
    if (size == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr)
        refuse_number(index, what, "between 0 and 2**64 - 1");
    return size;
}

int int_of(nb::handle number, const char* what) {
    const nb::object index = index_of(number, what);
    const long value = PyLong_AsLong(index.ptr());
    const bool is_int = value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
    if (!is_int || (value == -1 && PyErr_Occurred() != nullptr))
        refuse_number(index, what, "between -2**31 and 2**31 - 1");
    return static_cast<int>(value);
}

}  // namespace rmm_python

NB_MODULE(_core, core) {
    using namespace rmm_python;
    // At the end of the process objects may be left on purpose: buffers outlive the table of resources.
    nb::set_leak_warnings(false);
    rmm::detail::name_classes_as_in_python();
    bind_errors();
    bind_streams();
    bind_resources(core);
    bind_adaptors();
    bind_device_table();
    bind_buffers();
    bind_devices(core);
    bind_logging(core);
    bind_reports(core);
    bind_allocator_hooks(core);
    export_named_modules(core);
    core.def("native_version", [] { return KMM_PROJECT_VERSION; }, "The version of the project.");
    core.def("_begin_exit", &begin_exit, "From here on nothing that is dropped is given back: the process ends.");
}
