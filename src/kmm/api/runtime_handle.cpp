// Owns: the public face of a runtime. Any thread.
#include "kmm/api/runtime_handle.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm {

namespace {
detail::RuntimeCore& core_of(Runtime& runtime) noexcept { return static_cast<detail::RuntimeCore&>(runtime); }
const detail::RuntimeCore& core_of(const Runtime& runtime) noexcept {
    return static_cast<const detail::RuntimeCore&>(runtime);
}

std::shared_ptr<detail::RuntimeCore> core_of(std::shared_ptr<Runtime> runtime) {
    if (!runtime) throw InvalidArgument("RuntimeHandle: the pointer to the runtime is null; use make_runtime()");
    detail::RuntimeCore* core = &core_of(*runtime);
    return std::shared_ptr<detail::RuntimeCore>(std::move(runtime), core);
}
// The headers ask whether these pointers convert before RuntimeCore is defined, and compilers keep the answer.
std::shared_ptr<Runtime> face_of(std::shared_ptr<detail::RuntimeCore> core) {
    Runtime* face = core.get();
    return std::shared_ptr<Runtime>(std::move(core), face);
}
}  // namespace

const SystemInfo& Runtime::system_info() const noexcept { return detail::runtime_info(core_of(*this)); }
bool Runtime::is_idle() { return detail::runtime_is_idle(core_of(*this)); }
void Runtime::trim_memory() { detail::runtime_trim(core_of(*this)); }
void Runtime::shutdown() { detail::runtime_close(core_of(*this)); }
std::shared_ptr<Runtime> Runtime::shared_from_this() { return face_of(core_of(*this).shared_from_this()); }
std::shared_ptr<Runtime> make_worker(const RuntimeConfig& config) { return face_of(detail::start_runtime(config)); }
bool Runtime::query_event(EventId event, std::chrono::system_clock::time_point deadline) {
    return RuntimeHandle(*this).wait_until(event, deadline);
}

RuntimeHandle::RuntimeHandle(Runtime& runtime) : core_(core_of(runtime).shared_from_this()) {}
RuntimeHandle::RuntimeHandle(std::shared_ptr<Runtime> runtime) : core_(core_of(std::move(runtime))) {}
Runtime& RuntimeHandle::worker() const noexcept { return *core_; }

}  // namespace kmm
