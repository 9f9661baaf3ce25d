#include "kmm/runtime/function_runner.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "driver/check.hpp"
#include "kmm/engine/device_resource.hpp"

namespace kmm::detail {

namespace {

/// The resource of the calling launcher thread for a stream, made at first use. The thread is one runtime's for all its
/// life, and serves few lanes.
DeviceResource& resource_of(const Platform& platform, std::uint32_t device, engine::StreamHandle stream) {
    thread_local std::vector<std::unique_ptr<DeviceResource>> resources;
    const auto of_stream = [&](const auto& r) { return r->native_stream() == stream.native; };
    auto at = std::find_if(resources.begin(), resources.end(), of_stream);
    if (at == resources.end())
        at = resources.insert(
            at, DeviceResourceAccess::make(platform.info().device(DeviceId(device)), platform.driver(), stream));
    return **at;
}

/// Work on the legacy default stream counts as a function's: it comes after the inputs, and the task waits for it.
class LegacyStreamCapture {
  public:
    LegacyStreamCapture(driver::Driver& driver, int ordinal, driver::StreamHandle stream)
        : driver_(driver), stream_(stream) {
        driver::check(driver_, driver_.create_event(ordinal, false, false, &event_), "create an event");
        try {
            driver::check(driver_, driver_.record_event(event_, stream_),
                          "order the legacy stream after a task's inputs");
            driver::check(driver_, driver_.wait_event(driver::legacy_stream(), event_),
                          "order the legacy stream after a task's inputs");
        } catch (...) {
            (void)driver_.destroy_event(event_);
            throw;
        }
    }
    ~LegacyStreamCapture() { (void)driver_.destroy_event(event_); }
    LegacyStreamCapture(const LegacyStreamCapture&) = delete;
    LegacyStreamCapture& operator=(const LegacyStreamCapture&) = delete;

    void end() {
        driver::check(driver_, driver_.record_event(event_, driver::legacy_stream()), "wait for the legacy stream");
        driver::check(driver_, driver_.wait_event(stream_, event_), "wait for the legacy stream");
    }

  private:
    driver::Driver& driver_;
    driver::StreamHandle stream_;
    driver::EventHandle event_;
};

}  // namespace

driver::KernelHooks FunctionRunner::kernel_hooks(graph::Task& task) {
    if (!platform_.on_host_driver()) return {};
    using engine::KernelTicket;
    const std::span<const graph::TaskNumber> needed = task.open_data_predecessors();
    const auto ticket = std::allocate_shared<KernelTicket>(
        graph::ReservedAllocator<KernelTicket>(),
        KernelTicket{&failed_tasks_, task.number, {needed.begin(), needed.end()}, {}});
    task.kernel_failure = {ticket, &ticket->failure};
    return ticket->hooks();
}

void FunctionRunner::run_device_function(graph::Task& task, std::uint32_t device, engine::StreamHandle stream) {
    DeviceResource& resource = resource_of(platform_, device, stream);
    driver::KernelHooks hooks = kernel_hooks(task);
    DeviceResourceAccess::begin_task(resource, task.chunk, &hooks);
    TaskContext context;
    context.addresses = task.addresses;
    context.layouts = task.layouts;
    context.resource = &resource;
    context.chunk = &task.chunk;
    if (!platform_.config().legacy_stream_capture || platform_.on_host_driver()) {
        run_body(task, device, context);
        return;
    }
    LegacyStreamCapture legacy(platform_.driver(), platform_.ordinals()[device], stream);
    run_body(task, device, context);
    legacy.end();
}

void FunctionRunner::run_body(graph::Task& task, std::uint32_t device, TaskContext& context) {
    driver::Driver& driver = platform_.driver();
    (void)driver.take_last_error();
    task.function.body.run(task.function.payload, context);
    (void)driver.set_current_device(platform_.ordinals()[device]);  // the function may have left another one current
    if (const driver::Status pending = driver.take_last_error(); !pending.ok())
        std::rethrow_exception(
            errors_.device_error(device, pending, "a call in the device function left an error pending"));
}

}  // namespace kmm::detail
