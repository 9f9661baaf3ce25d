// The functions that RuntimeHandle calls: thin.
#include <algorithm>

#include "driver/format.hpp"
#include "kmm/api/array_record.hpp"
#include "kmm/api/process_report.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

std::shared_ptr<RuntimeCore> start_runtime(const RuntimeConfig& config) {
    std::shared_ptr<RuntimeCore> core = RuntimeCore::start(config);
    remember_runtime(core);
    return core;
}

const SystemInfo& runtime_info(const RuntimeCore& core) noexcept { return core.platform().info(); }

bool runtime_is_done(RuntimeCore& core, EventId event) {
    core.books().check_usable();
    const graph::TaskNumber number = core.books().number_of(event);
    return number == 0 || core.books().is_settled(number);
}

EventStatus runtime_status(RuntimeCore& core, EventId event) {
    core.books().check_usable();
    const graph::TaskNumber number = core.books().number_of(event);
    if (number != 0 && !core.books().is_settled(number)) return EventStatus::Pending;
    return core.books().failure_of(number) != nullptr ? EventStatus::Failed : EventStatus::Succeeded;
}

std::exception_ptr runtime_error(RuntimeCore& core, EventId event) {
    core.books().check_usable();
    const graph::TaskNumber number = core.books().number_of(event);
    if (number == 0 || !core.books().is_settled(number)) return nullptr;
    const auto failure = core.books().deliver_failure(number);
    return failure == nullptr ? nullptr : core.words().error_of(*failure);
}

bool runtime_wait(RuntimeCore& core, EventId event, const std::chrono::steady_clock::time_point* deadline) {
    core.books().refuse_after_fork();
    const graph::TaskNumber number = core.books().number_of(event);
    if (number == 0) return true;
    if (!core.wait_settled(number, deadline)) return false;
    core.throw_failure(number);
    if (core.books().is_barrier(event)) core.throw_undelivered(number);
    return true;
}

EventId runtime_join(RuntimeCore& core, const EventId* events, std::size_t num_events) {
    core.books().check_usable();
    graph::TaskNumbers numbers;
    numbers.reserve(num_events);
    for (std::size_t i = 0; i < num_events; ++i)
        if (const graph::TaskNumber number = core.books().number_of(events[i]); number != 0) numbers.push_back(number);
    // An event that is given twice counts once.
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    if (numbers.empty()) return EventId();
    if (numbers.size() == 1) return core.books().event_of(numbers.front());
    graph::Predecessors members;
    members.reserve(numbers.size());
    for (const graph::TaskNumber number : numbers) members.push_back({number, true});
    return core.books().event_of(core.submit_join(members, false));
}

EventId runtime_barrier(RuntimeCore& core) { return core.books().barrier_event_of(core.submit_join({}, true)); }

void runtime_synchronize(RuntimeCore& core) {
    core.books().refuse_after_fork();
    core.synchronize();
}

void runtime_close(RuntimeCore& core) {
    core.books().refuse_after_fork();
    core.close();
}

bool runtime_is_idle(RuntimeCore& core) {
    core.books().check_usable();
    return core.idle();
}

void runtime_trim(RuntimeCore& core) { core.trim(); }

void runtime_trace(RuntimeCore& core, const std::string& path) {
    core.books().check_open();
    core.trace(path);
}

RuntimeStats runtime_stats(RuntimeCore& core) {
    core.books().check_usable();
    return core.stats();
}

std::string runtime_report(RuntimeCore& core, ReportFormat format) {
    core.books().check_usable();
    return core.report(format);
}

std::string runtime_plan_text(RuntimeCore& core, PlanFormat format) {
    core.books().check_usable();
    return core.plan_text(format);
}

MemoryId runtime_memory_for_address(RuntimeCore& core, const void* address) {
    core.books().check_usable();
    driver::PointerInfo info;
    if (!core.platform().driver().pointer_info(address, &info).ok() || info.kind != driver::MemoryKind::device)
        return MemoryId::host();
    const SystemInfo& system = core.platform().info();
    for (const DeviceInfo& d : system.devices())
        if (d.device_ordinal() == info.device) return d.memory_id();
    return MemoryId::host();
}

void runtime_check_kernel_mode(RuntimeCore& core, const LauncherInfo& launcher) {
    const driver::Kind mode = launcher.mode == LauncherInfo::Mode::cuda  ? driver::Kind::cuda
                              : launcher.mode == LauncherInfo::Mode::hip ? driver::Kind::hip
                                                                         : driver::Kind::host;
    if (launcher.kind != LauncherInfo::Kind::kernel || mode == core.platform().driver().kind()) return;
    const char* const compiled = driver_text(mode);
    const std::string remedy =
        core.platform().driver().kind() == driver::Kind::host
            ? driver::format(
                  "the C++ compiler, or with -DKMM_USE_CUDA=0 (emulation), or make the runtime with KMM_DRIVER={}",
                  compiled)
            : "nvcc as CUDA (a .cu file, or one listed in kmm_target_kernels), or make the runtime with "
              "KMM_DRIVER=host";
    throw NotAvailable(driver::format("the kernel was compiled for the {} driver, but this runtime uses the {} driver: "
                                      "compile the file with {}",
                                      compiled, core.platform().driver_name(), remedy));
}

}  // namespace kmm::detail
