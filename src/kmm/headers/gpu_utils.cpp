// Devices of the process's driver, and the errors of KMM_GPU_CHECK. Any thread.
#include "kmm/utils/gpu_utils.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "driver/driver.hpp"
#include "driver/fork.hpp"
#include "driver/format.hpp"
#include "driver/registry.hpp"
#include "kmm/error.hpp"

namespace kmm {
namespace {

driver::Driver& process_driver() {
    if (driver::lost_in_fork()) throw Closed(driver::LostInFork().what());
    return driver::process_default();
}

}  // namespace

std::vector<GPUdevice_t> get_gpu_devices() {
    std::vector<GPUdevice_t> devices;
    const int count = process_driver().device_count();
    devices.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; i++) devices.push_back(i);
    return devices;
}

std::optional<GPUdevice_t> get_gpu_device_by_address(const void* address) {
    driver::PointerInfo info;
    if (!process_driver().pointer_info(address, &info).ok()) return std::nullopt;
    if (info.kind == driver::MemoryKind::device || info.kind == driver::MemoryKind::managed) return info.device;
    return std::nullopt;
}

namespace detail {

namespace {

std::string failure_text(const char* expression, const std::string& name, int status, const SourceLocation& where) {
    return driver::format("{} failed: {} ({}), at {}", expression, name, status, to_string(where));
}

// After these every later call on the device fails too: ECC error, faults of kernels, a lost device.
bool is_sticky_status(int status) {
    constexpr int sticky[] = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719};
    return std::find(std::begin(sticky), std::end(sticky), status) != std::end(sticky);
}

}  // namespace

void throw_gpu_runtime_error(DriverKind driver, int status, const char* name, const char* expression,
                             const SourceLocation& where) {
    throw GPURuntimeException(failure_text(expression, name, status, where), driver, -1, status, name,
                              is_sticky_status(status), where);
}

void throw_gpu_driver_error(DriverKind driver, int status, const char* name, const char* expression,
                            const SourceLocation& where) {
    throw GPUDriverException(failure_text(expression, name, status, where), driver, -1, status, name,
                             is_sticky_status(status), where);
}

void throw_blas_error(DriverKind driver, int status, const char* expression, const SourceLocation& where) {
    const std::string name = driver == DriverKind::HIP ? "rocblas_status" : "cublasStatus_t";
    throw BlasException(failure_text(expression, name, status, where), driver, -1, status, name, false, where);
}

}  // namespace detail

}  // namespace kmm
