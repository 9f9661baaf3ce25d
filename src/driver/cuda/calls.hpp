// How the vendor's numbers become statuses, and the two guards that calls are made under.
//
// Owns: the mapping of error codes. Must not know: the class VendorDriver. Any thread. For the .cpp files here only.
#pragma once

#include <cstring>

#include "driver/cuda/vendor.hpp"
#include "driver/driver.hpp"

namespace kmm::driver::vendor {

/// The vendors agree on the numbers, so one table serves both.
Code code_of(Result native) noexcept;

// Numbers that this layer itself returns or looks for.
inline constexpr Result error_invalid_value = 1;
inline constexpr Result error_invalid_device = 101;
inline constexpr Result error_invalid_context = 201;
inline constexpr Result error_not_ready = 600;
inline constexpr Result error_not_supported = 801;

inline constexpr Status invalid_argument{Code::invalid_argument, error_invalid_value};
inline constexpr Status no_such_device{Code::invalid_argument, error_invalid_device};
inline constexpr Status not_supported{Code::not_supported, error_not_supported};

[[gnu::cold]] inline Status failure_of_runtime(Result native) noexcept {
    (void)take_last_error();
    return {code_of(native), native};
}

/// For calls of the vendor's runtime, which leave the error pending.
inline Status runtime_status(Result native) noexcept {
    if (native == 0) [[likely]]
        return {};
    return failure_of_runtime(native);
}

/// For calls of the driver library, which leave nothing pending.
inline Status library_status(Result native) noexcept {
    if (native == 0) [[likely]]
        return {};
    if (native == error_not_ready) return {Code::not_ready, native};
    return {code_of(native), native};
}

/// A thread that never used the GPU has no current context, which the driver library (unlike the runtime) does not
/// repair by itself. `call` is made again after doing so.
template<typename Call>
Status library_call(Call call) noexcept {
    const Result first = call();
    if (first != error_invalid_context) [[likely]]
        return library_status(first);
    if (const Result bound = bind_thread()) return runtime_status(bound);
    return library_status(call());
}

/// While it lives, the thread's calls neither fail because of captures that other threads have begun in global mode,
/// nor invalidate them.
class RelaxedInteraction {
  public:
    RelaxedInteraction() noexcept { (void)exchange_capture_interaction(&mode_); }
    ~RelaxedInteraction() { (void)exchange_capture_interaction(&mode_); }
    RelaxedInteraction(const RelaxedInteraction&) = delete;
    RelaxedInteraction& operator=(const RelaxedInteraction&) = delete;

  private:
    CaptureInteraction mode_ = relaxed_interaction;
};

inline Stream native(StreamHandle stream) noexcept { return static_cast<Stream>(stream.native); }
inline Event native(EventHandle event) noexcept { return static_cast<Event>(event.native); }
inline Pool native(PoolHandle pool) noexcept { return static_cast<Pool>(pool.native); }
inline Graph native(GraphHandle graph) noexcept { return static_cast<Graph>(graph.native); }
inline GraphNode native(GraphNodeHandle node) noexcept { return static_cast<GraphNode>(node.native); }
inline GraphExec native(GraphExecHandle exec) noexcept { return static_cast<GraphExec>(exec.native); }

}  // namespace kmm::driver::vendor
