// A pool of page-locked host memory that is usable while it is still being filled.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <rmm/detail/resource_traits.hpp>
#include <rmm/mr/detail/pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// New beyond RMM. A pool_memory_resource<pinned_host_memory_resource> whose constructor returns at once: a thread of
/// the pool pins segment after segment until `initial_size` bytes are held (about 25 GiB a second where 16 threads can
/// touch pages), while requests are served from the segments pinned so far. A request that does not fit waits for the
/// next segment or, if it is larger, for one of its own size, which the thread pins next.
///
/// - Segments are of 64 MiB to 4 GiB, each as large as all before it; no block crosses from one into another. Where the
///   initial size is not reached, because the machine has no more, the pool goes on with what it has.
/// - Beyond the initial size it grows on demand, by 256 MiB at least, and never above `maximum_size`.
/// - Stream order, wrong frees, threads, zero bytes and errors as for pool_memory_resource. Equal only to itself. The
///   destructor waits for the segment that is being pinned, and for the memory's last users.
/// - Host and device accessible.
class RMM_EXPORT pinned_pool_memory_resource final : public device_memory_resource {
  public:
    /// Sizes are multiples of 256, the initial one not above the maximum (default: none): rmm::logic_error.
    explicit pinned_pool_memory_resource(std::size_t initial_size,
                                         std::optional<std::size_t> maximum_size = std::nullopt);
    ~pinned_pool_memory_resource() override;
    pinned_pool_memory_resource(pinned_pool_memory_resource const&) = delete;
    pinned_pool_memory_resource(pinned_pool_memory_resource&&) = delete;
    pinned_pool_memory_resource& operator=(pinned_pool_memory_resource const&) = delete;
    pinned_pool_memory_resource& operator=(pinned_pool_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }

    /// Bytes that are page-locked now, used and free.
    [[nodiscard]] std::size_t pool_size() const noexcept;
    /// Waits until the initial size is reached or no more can be had. Returns the bytes that are page-locked then.
    std::size_t wait_until_grown();
    /// O(free pieces).
    [[nodiscard]] pool_statistics statistics() const;
    /// As of pool_memory_resource; ends the growth to the initial size.
    std::size_t trim(std::size_t keep_bytes = 0);
    /// How messages call the pool.
    void set_name(char const* name);

    /// The pool behind the class, for the library.
    [[nodiscard]] detail::pool& implementation() noexcept;

  private:
    struct growing_pool;

    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    std::unique_ptr<growing_pool> pool_;
};

/// Host accessible as well as, through its base, device accessible.
template<class Property, std::enable_if_t<rmm::detail::is_host_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(pinned_pool_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
