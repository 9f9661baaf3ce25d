// A pool of device memory that allocates in stream order out of few large blocks of another resource.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>

#include <rmm/cuda_device.hpp>
#include <rmm/mr/detail/pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/host/pinned_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Best fit (small requests from below) with coalescing over blocks of `Upstream`; sizes round up to 256. 0 bytes are
/// null.
///
/// - A block freed on a stream is used again on that stream without any wait. Another stream is made to wait for the
///   point where the block was freed. The stream given to `deallocate` may be destroyed at once.
/// - Grows by asking upstream for as much again as it holds (from 4 GiB on a 32nd), or half of the room under the
///   maximum; backs off down to the request where upstream refuses. Throws rmm::out_of_memory ("Maximum pool size
///   exceeded ..") where that is not enough, with the figures; the pool stays usable.
/// - Memory goes back upstream in the destructor, and in `trim`, on the default stream after the work that used it.
/// - A block freed twice, or with a wrong size, is reported on stderr and does no harm to the pool.
/// - Thread-safe; no lock is held over a call of upstream or the driver. Equal only to itself. Not copyable or movable.
/// - Memory has the properties of `Upstream`, which need not derive from device_memory_resource.
template<typename Upstream>
class pool_memory_resource final : public device_memory_resource {
  public:
    /// Names of 0.16.
    static constexpr std::size_t allocation_alignment = CUDA_ALLOCATION_ALIGNMENT;
    static constexpr std::size_t default_initial_size = ~std::size_t{0};
    static constexpr std::size_t default_maximum_size = ~std::size_t{0};

    /// `initial_pool_size` bytes are taken from upstream at once, in one block (default: the smaller of the free memory
    /// and half of the total); `maximum_pool_size` is never exceeded (default: none). Both must be multiples of 256,
    /// the initial not above the maximum, and upstream not null: rmm::logic_error. rmm::out_of_memory if upstream
    /// refuses.
    explicit pool_memory_resource(device_async_resource_ref upstream_mr,
                                  std::optional<std::size_t> initial_pool_size = std::nullopt,
                                  std::optional<std::size_t> maximum_pool_size = std::nullopt)
        : pool_{upstream_mr, initial_pool_size, maximum_pool_size, true} {}

    explicit pool_memory_resource(Upstream* upstream_mr, std::optional<std::size_t> initial_pool_size = std::nullopt,
                                  std::optional<std::size_t> maximum_pool_size = std::nullopt)
        : upstream_{upstream_mr},
          pool_{to_device_async_resource_ref_checked(upstream_mr), initial_pool_size, maximum_pool_size,
                upstream_is_ordered} {}

    template<typename Upstream2 = Upstream, std::enable_if_t<rmm::detail::is_async_resource<Upstream2>::value &&
                                                                 std::is_convertible<Upstream2*, Upstream*>::value,
                                                             int> = 0>
    explicit pool_memory_resource(Upstream2& upstream_mr, std::optional<std::size_t> initial_pool_size = std::nullopt,
                                  std::optional<std::size_t> maximum_pool_size = std::nullopt)
        : pool_memory_resource(static_cast<Upstream*>(&upstream_mr), initial_pool_size, maximum_pool_size) {}

    pool_memory_resource() = delete;
    ~pool_memory_resource() override = default;
    pool_memory_resource(pool_memory_resource const&) = delete;
    pool_memory_resource(pool_memory_resource&&) = delete;
    pool_memory_resource& operator=(pool_memory_resource const&) = delete;
    pool_memory_resource& operator=(pool_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }

    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return pool_.upstream(); }
    /// Null when the pool was made from a reference.
    [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_; }
    [[nodiscard]] Upstream& upstream_resource() const noexcept { return *upstream_; }

    /// Bytes held from upstream, used and free.
    [[nodiscard]] std::size_t pool_size() const noexcept { return pool_.held_bytes(); }
    /// O(free pieces).
    [[nodiscard]] pool_statistics statistics() const { return pool_.statistics(); }
    /// Gives upstream blocks that are wholly free back until at most `keep_bytes` are held, or none is left to give.
    /// Returns the bytes given back. Does not block; later work of the default stream waits for the last users.
    std::size_t trim(std::size_t keep_bytes = 0) { return pool_.trim(keep_bytes); }
    /// From now on, memory goes back upstream as in `trim` when a free leaves more than `bytes` unused, as far as whole
    /// blocks of upstream are free. Default: never.
    void set_release_threshold(std::size_t bytes) noexcept { pool_.set_release_threshold(bytes); }
    /// How messages call the pool.
    void set_name(char const* name) { pool_.set_name(name); }
    /// Bytes of blocks in use that were allocated under this rmm::memory_tag; null or "": under none. O(blocks in use).
    [[nodiscard]] std::size_t in_use_bytes(char const* tag) const { return pool_.in_use_bytes(tag); }

    /// The pool behind the template, for the library.
    [[nodiscard]] detail::pool& implementation() noexcept { return pool_; }

  private:
    static constexpr bool upstream_is_ordered = !std::is_same<Upstream, pinned_memory_resource>::value;

    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return pool_.allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        pool_.deallocate(ptr, bytes, stream);
    }

    Upstream* upstream_{};
    detail::pool pool_;
};

/// A pool has every property of its upstream, and no other.
template<class Upstream, class Property,
         std::enable_if_t<rmm::detail::has_property<Upstream, Property>::value, int> = 0>
constexpr decltype(auto) get_property(pool_memory_resource<Upstream> const& pool, Property property) {
    using result = decltype(get_property(std::declval<Upstream const&>(), property));
    if constexpr (std::is_void<result>::value)
        return;
    else
        return get_property(*pool.get_upstream(), property);
}
template<class Upstream, class Property,
         std::enable_if_t<!rmm::detail::has_property<Upstream, Property>::value, int> = 0>
void get_property(pool_memory_resource<Upstream> const&, Property) = delete;

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
