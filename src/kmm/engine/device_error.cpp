// Owns: the texts of native failures inside tasks. Any thread.
#include "kmm/engine/device_error.hpp"

#include <string>

#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/detail/kernel_handle.hpp"

namespace kmm::detail {

DriverKind driver_kind(driver::Kind kind) noexcept {
    switch (kind) {
    case driver::Kind::cuda: return DriverKind::CUDA;
    case driver::Kind::hip: return DriverKind::HIP;
    case driver::Kind::host: break;
    }
    return DriverKind::Host;
}

const char* driver_text(driver::Kind kind) noexcept {
    switch (kind) {
    case driver::Kind::cuda: return "cuda";
    case driver::Kind::hip: return "hip";
    case driver::Kind::host: break;
    }
    return "host";
}

const char* mode_text(LauncherInfo::Mode mode) noexcept {
    switch (mode) {
    case LauncherInfo::Mode::cuda: return "CUDA";
    case LauncherInfo::Mode::hip: return "HIP";
    case LauncherInfo::Mode::host: break;
    }
    return "plain C++ (emulated kernels)";
}

void throw_device_error(driver::Driver& driver, int device, driver::Status status, const char* attempted) {
    (void)driver.take_last_error();
    const std::string name = driver.error_name(status);
    const std::string text = driver::format("{} failed on {}: {} ({})", attempted,
                                            place_text(driver_kind(driver.kind()), static_cast<std::size_t>(device)),
                                            name, driver.error_text(status));
    throw GPURuntimeException(text, driver_kind(driver.kind()), device, status.native, name,
                              status.code == driver::Code::device_lost);
}

namespace {
/// The driver on which kernels of a mode run, and how a file gets that mode.
struct ModeRule {
    driver::Kind kind;
    const char* remedy;
};
ModeRule rule_of(LauncherInfo::Mode mode) noexcept {
    switch (mode) {
    case LauncherInfo::Mode::cuda: return {driver::Kind::cuda, "compile the file as CUDA (nvcc)"};
    case LauncherInfo::Mode::hip: return {driver::Kind::hip, "compile the file as HIP (hipcc)"};
    case LauncherInfo::Mode::host: break;
    }
    return {driver::Kind::host, "compile the file as plain C++"};
}
LauncherInfo::Mode mode_of(driver::Kind kind) noexcept {
    switch (kind) {
    case driver::Kind::cuda: return LauncherInfo::Mode::cuda;
    case driver::Kind::hip: return LauncherInfo::Mode::hip;
    case driver::Kind::host: break;
    }
    return LauncherInfo::Mode::host;
}
}  // namespace

void require_kernel_mode(driver::Kind kind, LauncherInfo::Mode mode, const char* who) {
    const ModeRule have = rule_of(mode);
    if (have.kind == kind) return;
    throw NotAvailable(driver::format("{}: its file was compiled as {}, whose kernels run on the {} driver, but this "
                                      "runtime uses the {} driver; {}, use GPU(f), or run with KMM_DRIVER={}",
                                      who, mode_text(mode), driver_text(have.kind), driver_text(kind),
                                      rule_of(mode_of(kind)).remedy, driver_text(have.kind)));
}

void throw_kernel_not_found(LauncherInfo::Mode mode, int device, int status, const char* status_name,
                            const char* status_text) {
    const DriverKind kind = mode == LauncherInfo::Mode::hip ? DriverKind::HIP : DriverKind::CUDA;
    throw GPURuntimeException(
        driver::format("the kernel has no code for GPU {}: {} ({}); compile the file for the architecture of this GPU",
                       device, status_name, status_text),
        kind, device, status, status_name);
}

void throw_no_emulation() {
    throw NotAvailable(
        "GPUKernel: this file was compiled with KMM_NO_EMULATION as plain C++; remove the macro or compile the file "
        "as CUDA or HIP");
}

}  // namespace kmm::detail
