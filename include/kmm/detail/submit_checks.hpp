// What a submit checks before it builds tasks, compiled once for all launchers and arguments.
//
// Owns: nothing. Must not know: types of arguments. The submitting thread. C++17.
#pragma once

#include <cstddef>

#include "kmm/api/launcher.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/detail/runtime_core.hpp"

namespace kmm {

class Runtime;

namespace detail {

/// Who runs a task: host launchers run on the host, near the device that owns the chunk; device launchers on the owner.
/// IR: a device launcher on the host; a device, or a set of streams, that the handle does not have, for host launchers
/// too.
ResourceId task_resource(ResourceId owner, ExecutionSpace space, const SystemInfo& info);

/// Grid, block and shared memory of a kernel on a chunk. False if the chunk is empty. IA naming axis and limit.
bool set_launch_dimensions(const KernelGeometry& geometry, const DomainChunk& chunk, const DeviceInfo& device,
                           KernelDraft& draft);

/// NA unless 0: declared scratch memory is not offered by this version.
void check_scratch(std::size_t scratch_bytes);

/// IA: the launcher was given a null pointer to a function.
[[noreturn]] void throw_no_function();

/// Rethrows the exception that is being handled. Checks know neither the task's name nor the place of the submit: an
/// IA, IR, NA or GPURuntimeException without a place gets both here.
[[noreturn]] void rethrow_with_submit(const LauncherInfo& launcher);

/// The public face of a runtime. It lives as long as the core.
Runtime& runtime_face(RuntimeCore& core) noexcept;

}  // namespace detail
}  // namespace kmm
