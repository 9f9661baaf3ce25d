// Devices, as the driver has them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "binding.hpp"
#include "rmm/status.hpp"

namespace rmm_python {
namespace {

namespace driver = kmm::driver;

nb::object* device_error = nullptr;  // the class; never let go of, as Python ends before static objects do

void expect(driver::Status status) {
    if (status.ok()) return;
    driver::Driver& d = rmm::detail::the_driver();
    (void)d.take_last_error();
    const nb::object error = (*device_error)(status.native, d.error_name(status), d.error_text(status));
    PyErr_SetObject(device_error->ptr(), error.ptr());
    throw nb::python_error();
}

driver::DeviceProperties properties_of(int device) {
    driver::DeviceProperties properties;
    expect(rmm::detail::the_driver().properties(device, &properties));
    return properties;
}

}  // namespace

void bind_devices(nb::module_& core) {
    device_error = new nb::object(nb::steal(PyErr_NewException("rmm._core.DeviceError", PyExc_RuntimeError, nullptr)));
    core.attr("DeviceError") = *device_error;

    core.def("driver_version", [] {
        driver::Driver& d = rmm::detail::the_driver();
        return d.kind() == driver::Kind::host ? 0 : d.version();
    });
    core.def("runtime_version", [] {
        driver::Driver& d = rmm::detail::the_driver();
        return d.kind() == driver::Kind::host ? 0 : d.version();
    });
    core.def("current_device", [] {
        int device = 0;
        expect(rmm::detail::the_driver().current_device(&device));
        return device;
    });
    core.def(
        "set_device", [](int device) { expect(rmm::detail::the_driver().set_current_device(device)); },
        nb::arg("device"));
    core.def("device_count", [] { return rmm::detail::the_driver().device_count(); });
    core.def(
        "device_attribute",
        [](int attribute, int device) {
            int value = 0;
            expect(rmm::detail::the_driver().attribute(device, attribute, &value));
            return value;
        },
        nb::arg("attribute"), nb::arg("device"));
    core.def("device_name", [](int device) { return properties_of(device).name; }, nb::arg("device"));
    core.def(
        "device_properties",
        [](int device) {
            const driver::DeviceProperties p = properties_of(device);
            nb::dict result;
            result["name"] = p.name;
            result["totalGlobalMem"] = p.total_memory_bytes;
            result["major"] = p.compute_capability / 10;
            result["minor"] = p.compute_capability % 10;
            result["multiProcessorCount"] = p.multiprocessors;
            result["pciBusId"] = p.pci_bus_id;
            result["uuid"] = p.uuid;
            return result;
        },
        nb::arg("device"));
}

}  // namespace rmm_python
