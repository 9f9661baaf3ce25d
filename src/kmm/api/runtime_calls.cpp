// The functions that RuntimeHandle calls: thin.
#include <algorithm>

#include "driver/format.hpp"
#include "kmm/api/array_record.hpp"
#include "kmm/api/process_report.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

std::shared_ptr<RuntimeCore> start_runtime(const RuntimeConfig& config) {
    std::shared_ptr<RuntimeCore> core = RuntimeCore::start(config);
    remember_runtime(core);
    return core;
}

const SystemInfo& runtime_info(const RuntimeCore& core) noexcept { return core.info(); }

bool runtime_is_done(RuntimeCore& core, EventId event) {
    core.refuse_after_fork();
    const graph::TaskNumber number = core.number_of(event);
    return number == 0 || core.is_settled(number);
}

EventStatus runtime_status(RuntimeCore& core, EventId event) {
    core.refuse_after_fork();
    const graph::TaskNumber number = core.number_of(event);
    if (number != 0 && !core.is_settled(number)) return EventStatus::Pending;
    return core.failure_of(number) != nullptr ? EventStatus::Failed : EventStatus::Succeeded;
}

std::exception_ptr runtime_error(RuntimeCore& core, EventId event) {
    core.refuse_after_fork();
    const graph::TaskNumber number = core.number_of(event);
    if (number == 0 || !core.is_settled(number)) return nullptr;
    const auto failure = core.deliver_failure(number);
    return failure == nullptr ? nullptr : core.error_of(*failure);
}

bool runtime_wait(RuntimeCore& core, EventId event, const std::chrono::steady_clock::time_point* deadline) {
    core.refuse_after_fork();
    const graph::TaskNumber number = core.number_of(event);
    if (number == 0) return true;
    if (!core.wait_settled(number, deadline)) return false;
    core.throw_failure(number);
    if (core.is_barrier(event)) core.throw_undelivered(number);
    return true;
}

EventId runtime_join(RuntimeCore& core, const EventId* events, std::size_t num_events) {
    core.refuse_after_fork();
    graph::Predecessors members;
    for (std::size_t i = 0; i < num_events; ++i)
        if (const graph::TaskNumber number = core.number_of(events[i]); number != 0)
            graph::add_predecessor(members, number, true);
    if (members.empty()) return EventId();
    if (members.size() == 1) return core.event_of(members.front().number);
    return core.event_of(core.submit_join(members, false));
}

EventId runtime_barrier(RuntimeCore& core) { return core.barrier_event_of(core.submit_join({}, true)); }

void runtime_synchronize(RuntimeCore& core) {
    core.refuse_after_fork();
    core.synchronize();
}

void runtime_close(RuntimeCore& core) {
    core.refuse_after_fork();
    core.close();
}

bool runtime_is_idle(RuntimeCore& core) {
    core.refuse_after_fork();
    return core.idle();
}

void runtime_trim(RuntimeCore& core) { core.trim(); }

void runtime_trace(RuntimeCore& core, const std::string& path) {
    core.check_open();
    core.trace(path);
}

RuntimeStats runtime_stats(RuntimeCore& core) {
    core.refuse_after_fork();
    return core.stats();
}

std::string runtime_report(RuntimeCore& core, ReportFormat format) {
    core.refuse_after_fork();
    return core.report(format);
}

MemoryId runtime_memory_for_address(RuntimeCore& core, const void* address) {
    core.refuse_after_fork();
    driver::PointerInfo info;
    if (!core.driver().pointer_info(address, &info).ok() || info.kind != driver::MemoryKind::device)
        return MemoryId::host();
    const SystemInfo& system = core.info();
    for (const DeviceInfo& d : system.devices())
        if (d.device_ordinal() == info.device) return d.memory_id();
    return MemoryId::host();
}

void runtime_check_kernel_mode(RuntimeCore& core, const LauncherInfo& launcher) {
    const driver::Kind mode = launcher.mode == LauncherInfo::Mode::cuda  ? driver::Kind::cuda
                              : launcher.mode == LauncherInfo::Mode::hip ? driver::Kind::hip
                                                                         : driver::Kind::host;
    if (launcher.kind != LauncherInfo::Kind::kernel || mode == core.driver().kind()) return;
    const char* compiled = mode == driver::Kind::cuda ? "cuda" : mode == driver::Kind::hip ? "hip" : "host";
    const std::string remedy =
        core.driver().kind() == driver::Kind::host
            ? driver::format(
                  "the C++ compiler, or with -DKMM_USE_CUDA=0 (emulation), or make the runtime with KMM_DRIVER={}",
                  compiled)
            : "nvcc as CUDA (a .cu file, or one listed in kmm_target_kernels), or make the runtime with "
              "KMM_DRIVER=host";
    throw NotAvailable(driver::format("the kernel submitted at {} was compiled for the {} driver, but this runtime "
                                      "uses the {} driver: compile the file with {}",
                                      to_string(launcher.location), compiled, core.driver_name(), remedy),
                       launcher.location);
}

}  // namespace kmm::detail
