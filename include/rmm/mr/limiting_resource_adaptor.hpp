// A limit on the bytes that may be allocated from another resource.
#pragma once

#include <cstddef>

#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Forwards to `Upstream` as long as the bytes in use stay within a limit; exactly full is allowed. Each block counts
/// as its size rounded up to `alignment`.
///
/// - Above the limit: rmm::out_of_memory ("Exceeded memory limit .."), upstream is not asked, nothing is counted. What
///   upstream throws passes through; nothing is counted then.
/// - Other threads' requests that are refused never count, so that none fails which has room.
/// - Memory that another resource allocated may be freed here if upstream takes it; the count does not go below 0.
/// - Thread-safe, without a lock. Equal to an adaptor of the same type over an equal upstream. Not copyable or movable.
template<typename Upstream>
class limiting_resource_adaptor final : public detail::adaptor_over<Upstream, detail::limiting_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::limiting_adaptor>;

  public:
    /// Throws rmm::logic_error for a null upstream, or an alignment that is no power of two.
    limiting_resource_adaptor(device_async_resource_ref upstream, std::size_t allocation_limit,
                              std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
        : base(upstream, allocation_limit, alignment) {}
    limiting_resource_adaptor(Upstream* upstream, std::size_t allocation_limit,
                              std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT)
        : base(upstream, allocation_limit, alignment) {}

    limiting_resource_adaptor() = delete;
    ~limiting_resource_adaptor() override = default;
    limiting_resource_adaptor(limiting_resource_adaptor const&) = delete;
    limiting_resource_adaptor& operator=(limiting_resource_adaptor const&) = delete;

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }
};

/// The factory of 23.12.
template<typename Upstream>
limiting_resource_adaptor<Upstream> make_limiting_adaptor(Upstream* upstream, std::size_t allocation_limit) {
    return limiting_resource_adaptor<Upstream>{upstream, allocation_limit};
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
