// Remembers which blocks are in use, and who asked for them.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

#include <rmm/mr/detail/tracking_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Forwards to `Upstream` and remembers each block until it is freed; with `capture_stacks` also the functions that
/// asked for it (about 100 ns for each function on the stack, at most 64).
///
/// - A free of memory that is not known here, or with another size, is an error in rmm's log, and is forwarded all the
///   same; what was recorded is what is subtracted. Null and 0 bytes are neither remembered nor an error.
/// - A block is forgotten before upstream gets it back, so that another thread may be given its address at once.
/// - Names of functions are looked up when they are printed.
/// - What upstream throws passes through; nothing is remembered then.
/// - Thread-safe. Equal to an adaptor of the same type over an equal upstream. Not copyable or movable.
template<typename Upstream>
class tracking_resource_adaptor final : public detail::adaptor_over<Upstream, detail::tracking_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::tracking_adaptor>;

  public:
    using read_lock_t = std::shared_lock<std::shared_mutex>;
    using write_lock_t = std::unique_lock<std::shared_mutex>;
    using allocation_info = detail::allocation_info;

    /// Throws rmm::logic_error for a null upstream.
    tracking_resource_adaptor(device_async_resource_ref upstream, bool capture_stacks = false)
        : base(upstream, capture_stacks) {}
    tracking_resource_adaptor(Upstream* upstream, bool capture_stacks = false) : base(upstream, capture_stacks) {}

    tracking_resource_adaptor() = delete;
    ~tracking_resource_adaptor() override = default;
    tracking_resource_adaptor(tracking_resource_adaptor const&) = delete;
    tracking_resource_adaptor& operator=(tracking_resource_adaptor const&) = delete;

    /// The blocks in use, and from now on always so; therefore each request costs more after the first call (a map's
    /// insertion under one lock). The map is not locked: stable only while no other thread uses the adaptor.
    [[nodiscard]] std::map<void*, allocation_info> const& get_outstanding_allocations() const noexcept {
        return base::get_outstanding_allocations();
    }
    /// The bytes of these blocks, as asked of this adaptor.
    [[nodiscard]] std::size_t get_allocated_bytes() const noexcept { return base::get_allocated_bytes(); }
    /// A line "PTR: N B" for each block, by address, and after " : callstack:" the lines of its stack where it was
    /// captured.
    [[nodiscard]] std::string get_outstanding_allocations_str() const {
        return base::get_outstanding_allocations_str();
    }
    /// Logs "Outstanding Allocations: " and that text at level debug of rmm's default logger.
    void log_outstanding_allocations() const { base::log_outstanding_allocations(); }

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }
};

/// The factory of 23.12.
template<typename Upstream>
tracking_resource_adaptor<Upstream> make_tracking_adaptor(Upstream* upstream) {
    return tracking_resource_adaptor<Upstream>{upstream};
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
