// Larger alignments than resources of device memory promise.
#pragma once

#include <cstddef>

#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Gives blocks of at least `alignment_threshold` bytes aligned to `alignment`, by asking upstream for `align_up(bytes,
/// alignment) + alignment - 256` bytes and returning the first aligned address. Smaller blocks, requests of 0 bytes,
/// and all of them where the alignment is 256 (smaller ones count as 256), pass through unchanged.
///
/// Throws what upstream throws. Thread-safe: one short lock, not
/// held over upstream's calls. Equal to an adaptor of the same type with the same parameters over an equal upstream.
/// Not copyable or movable.
template<typename Upstream>
class aligned_resource_adaptor final : public detail::adaptor_over<Upstream, detail::aligned_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::aligned_adaptor>;

  public:
    static constexpr std::size_t default_alignment_threshold = 0;

    /// Throws rmm::logic_error for a null upstream, or an alignment that is no power of two.
    explicit aligned_resource_adaptor(device_async_resource_ref upstream,
                                      std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT,
                                      std::size_t alignment_threshold = default_alignment_threshold)
        : base(upstream, alignment, alignment_threshold) {}
    explicit aligned_resource_adaptor(Upstream* upstream, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT,
                                      std::size_t alignment_threshold = default_alignment_threshold)
        : base(upstream, alignment, alignment_threshold) {}

    aligned_resource_adaptor() = delete;
    ~aligned_resource_adaptor() override = default;
    aligned_resource_adaptor(aligned_resource_adaptor const&) = delete;
    aligned_resource_adaptor& operator=(aligned_resource_adaptor const&) = delete;

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        auto const* aligned = dynamic_cast<aligned_resource_adaptor const*>(&other);
        return aligned != nullptr && this->has_parameters_of(*aligned) && detail::equal_adaptors(*this, other);
    }
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
