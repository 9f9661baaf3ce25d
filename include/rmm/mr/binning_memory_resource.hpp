// Sends requests to one of several resources by their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rmm/mr/detail/binning.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>  // which the bins are; users lean on it
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// A request goes to the smallest bin that is large enough, else to upstream; 0 bytes are null. A free goes where the
/// block came from. Thread-safe but for `add_bin`. Equal only to itself.
template<typename Upstream>
class binning_memory_resource final : public device_memory_resource {
  public:
    /// No bins yet. Null upstream: rmm::logic_error.
    explicit binning_memory_resource(device_async_resource_ref upstream_resource) : bins_{upstream_resource} {}
    explicit binning_memory_resource(Upstream* upstream_resource)
        : upstream_{upstream_resource}, bins_{to_device_async_resource_ref_checked(upstream_resource)} {}

    /// Bins of 2^min to 2^max bytes, each a fixed_size_memory_resource over upstream that takes 128 blocks at once, and
    /// grows as that does. Throws rmm::logic_error for exponents below 0 or above 62, and rmm::out_of_memory if
    /// upstream refuses.
    binning_memory_resource(device_async_resource_ref upstream_resource, std::int8_t min_size_exponent,
                            std::int8_t max_size_exponent)
        : bins_{upstream_resource, min_size_exponent, max_size_exponent} {}
    binning_memory_resource(Upstream* upstream_resource, std::int8_t min_size_exponent, std::int8_t max_size_exponent)
        : upstream_{upstream_resource},
          bins_{to_device_async_resource_ref_checked(upstream_resource), min_size_exponent, max_size_exponent} {}

    binning_memory_resource() = delete;
    ~binning_memory_resource() override = default;
    binning_memory_resource(binning_memory_resource const&) = delete;
    binning_memory_resource(binning_memory_resource&&) = delete;
    binning_memory_resource& operator=(binning_memory_resource const&) = delete;
    binning_memory_resource& operator=(binning_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }
    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return bins_.upstream(); }
    /// Null when made from a reference.
    [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_; }

    /// A bin for requests up to `allocation_size`, rounded up to 256: `bin_resource`, which the caller keeps alive, or
    /// a fixed_size_memory_resource over upstream. A size that has a bin keeps it. Blocks that were allocated before go
    /// back where they came from. Not thread-safe.
    void add_bin(std::size_t allocation_size, std::optional<device_async_resource_ref> bin_resource = std::nullopt) {
        bins_.add_bin(allocation_size, bin_resource ? &*bin_resource : nullptr);
    }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return bins_.allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        bins_.deallocate(ptr, bytes, stream);
    }

    Upstream* upstream_{};
    detail::binning bins_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
