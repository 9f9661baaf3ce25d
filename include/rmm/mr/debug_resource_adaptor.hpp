// Finds writes outside of blocks, writes after free, wrong frees and leaks, without a debug build.
#pragma once

#include <rmm/mr/detail/debug_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Puts red zones around each block, fills new and freed memory with patterns, holds freed blocks back for a while, and
/// compares what each call is given with what it knows. `RMM_DEBUG` (docs/debugging-memory.md) does the same inside of
/// every pool, without a change of the program.
///
/// - Each finding is reported through `debug_options::report` and counted; the program goes on. A block freed twice, or
///   unknown, is not freed; one freed with a wrong size is freed with its own.
/// - Looks in stream order: a free queues copies of the red zones and looks at them at a later call, when the stream
///   has done them; the quarantine when a block leaves it, in `check`, and in the destructor. No call waits for work of
///   the program, but for `check`, the destructor, and all frees where `synchronous` is set.
/// - Costs: three fills for an allocation, a fill and two copies for a free, the red zones and the quarantine in
///   memory. Where upstream has none left, the quarantine is emptied first. Calls on streams that are being captured
///   are only counted.
/// - Memory must be such that the driver fills and copies it. 0 bytes are null. Throws what upstream throws.
/// - Thread-safe: short locks, not held over calls of upstream or the driver. Equal only to itself. Not copyable or
///   movable. Upstream must outlive it.
template<typename Upstream>
class debug_resource_adaptor final : public detail::adaptor_over<Upstream, detail::debug_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::debug_adaptor>;

  public:
    /// Without options: those of `RMM_DEBUG` if it turns checks on, otherwise the defaults. Throws rmm::logic_error for
    /// a null upstream, and for a malformed `RMM_DEBUG`.
    explicit debug_resource_adaptor(device_async_resource_ref upstream) : base(upstream) {}
    explicit debug_resource_adaptor(Upstream* upstream) : base(upstream) {}
    debug_resource_adaptor(device_async_resource_ref upstream, debug_options const& options)
        : base(upstream, options) {}
    debug_resource_adaptor(Upstream* upstream, debug_options const& options) : base(upstream, options) {}

    debug_resource_adaptor() = delete;
    ~debug_resource_adaptor() override = default;
    debug_resource_adaptor(debug_resource_adaptor const&) = delete;
    debug_resource_adaptor& operator=(debug_resource_adaptor const&) = delete;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
