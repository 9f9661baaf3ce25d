// Devices, as the driver has them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "binding.hpp"
#include "rmm/status.hpp"

namespace rmm_python {
namespace {

namespace driver = kmm::driver;

nb::object* device_error = nullptr;  // the class; never let go of, as Python ends before static objects do

/// CUDA's numbers of what programs ask about, with its names and texts: the host driver has none, and a CUDA driver
/// tells those of the runtime only.
struct described {
    int status;
    driver::Code code;
    const char* of_runtime;
    const char* of_driver;
    const char* text;
};
constexpr described known[] = {
    {0, driver::Code::ok, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    {1, driver::Code::invalid_argument, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, driver::Code::out_of_memory, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, driver::Code::unknown, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, driver::Code::shut_down, "cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {35, driver::Code::unknown, "cudaErrorInsufficientDriver", "CUDA_ERROR_STUB_LIBRARY",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {100, driver::Code::no_device, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, driver::Code::unknown, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, driver::Code::unknown, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {400, driver::Code::invalid_handle, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {600, driver::Code::not_ready, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, driver::Code::device_lost, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {719, driver::Code::launch_failed, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED",
     "unspecified launch failure"},
    {801, driver::Code::not_supported, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, driver::Code::unknown, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"},
};

std::pair<std::string, std::string> describe(int status, bool of_driver) {
    for (const described& d : known)
        if (d.status == status) return {of_driver ? d.of_driver : d.of_runtime, d.text};
    driver::Driver& d = rmm::detail::the_driver();
    if (d.kind() == driver::Kind::host) return {of_driver ? "CUDA_ERROR_UNKNOWN" : "cudaErrorUnknown", "unknown error"};
    return {d.error_name({driver::Code::unknown, status}), d.error_text({driver::Code::unknown, status})};
}

/// As CUDA has it; a wrong number of a device has one of its own.
int number_of(driver::Status status, bool is_about_a_device) {
    if (is_about_a_device && status.code == driver::Code::invalid_argument) return 101;
    if (status.native != 0 && rmm::detail::the_driver().kind() != driver::Kind::host) return status.native;
    for (const described& d : known)
        if (d.code == status.code) return d.status;
    return 999;
}

void expect(driver::Status status, bool is_about_a_device = true) {
    if (status.ok()) return;
    (void)rmm::detail::the_driver().take_last_error();
    const int number = number_of(status, is_about_a_device);
    const auto [name, text] = describe(number, false);
    const nb::object error = (*device_error)(number, name, text);
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
    core.def("describe_status", &describe, nb::arg("status"), nb::arg("of_driver"),
             "The name and the text of a status of CUDA's runtime, or of its driver.");

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
        "set_device",
        [](nb::handle device) { expect(rmm::detail::the_driver().set_current_device(int_of(device, "device"))); },
        nb::arg("device"));
    core.def("device_count", [] {
        try {
            return rmm::detail::the_driver().device_count();
        } catch (const rmm::logic_error&) {
            rmm::detail::refuse_after_fork();
            return 0;  // the driver that is asked for cannot be used
        }
    });
    core.def(
        "device_attribute",
        [](nb::handle attribute_number, nb::handle device_number) {
            const int attribute = int_of(attribute_number, "attribute"), device = int_of(device_number, "device");
            driver::Driver& d = rmm::detail::the_driver();
            // Programs that find it go on to ask CUDA where managed memory is.
            constexpr int concurrent_managed_access = 89;
            if (attribute == concurrent_managed_access && d.kind() == driver::Kind::host) return 0;
            int value = 0;
            const driver::Status status = d.attribute(device, attribute, &value);
            // What a virtual device does not have is 0.
            if (!status.ok() && d.kind() == driver::Kind::host && device >= 0 && device < d.device_count()) return 0;
            expect(status);
            return value;
        },
        nb::arg("attribute"), nb::arg("device"));
    core.def(
        "device_name", [](nb::handle device) { return properties_of(int_of(device, "device")).name; },
        nb::arg("device"));
    core.def(
        "device_properties",
        [](nb::handle device) {
            const driver::DeviceProperties p = properties_of(int_of(device, "device"));
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
