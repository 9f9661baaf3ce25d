// Managed memory that is on the device when it is first used there.
#pragma once

#include <rmm/mr/detail/prefetch_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Prefetches every block that `Upstream` gives to the current device, on the stream of the request (rmm::prefetch; no
/// effect on memory that is not managed). Throws what upstream throws, and rmm::cuda_error if the prefetch fails; the
/// block has gone back then. Thread-safe. Equal to an adaptor of the same type over an equal upstream. Movable, not
/// copyable.
template<typename Upstream>
class prefetch_resource_adaptor final : public detail::adaptor_over<Upstream, detail::prefetch_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::prefetch_adaptor>;

  public:
    /// Throws rmm::logic_error for a null upstream.
    explicit prefetch_resource_adaptor(device_async_resource_ref upstream) : base(upstream) {}
    explicit prefetch_resource_adaptor(Upstream* upstream) : base(upstream) {}

    prefetch_resource_adaptor() = delete;
    ~prefetch_resource_adaptor() override = default;
    prefetch_resource_adaptor(prefetch_resource_adaptor const&) = delete;
    prefetch_resource_adaptor& operator=(prefetch_resource_adaptor const&) = delete;
    prefetch_resource_adaptor(prefetch_resource_adaptor&&) noexcept = default;
    prefetch_resource_adaptor& operator=(prefetch_resource_adaptor&&) noexcept = default;

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
