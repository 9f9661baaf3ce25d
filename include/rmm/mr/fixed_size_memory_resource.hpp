// Blocks of one size out of few large blocks of another resource.
#pragma once

#include <cstddef>

#include <rmm/mr/detail/pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Every request of 1 to `get_block_size()` bytes takes one block; a larger one throws rmm::out_of_memory, 0 bytes are
/// null.
///
/// - Takes `block_size * blocks_to_preallocate` bytes from upstream when it is made and whenever it runs dry; less,
///   down to one block, where upstream refuses that. A refusal of one block throws rmm::out_of_memory; the resource
///   stays usable.
/// - Where streams would repeatedly wait for each other's blocks, takes one more block for each stream, until four for
///   each, or as many as are in use, are free; in all at most a fourth of the memory it would hold otherwise. Upstream
///   may refuse it, and no failure callback is called then. Not in a program that has captured streams.
/// - Stream order, wrong frees, threads and equality as for pool_memory_resource; memory goes back in the destructor.
/// - O(1), amortized over growth.
template<typename Upstream>
class fixed_size_memory_resource : public device_memory_resource {
  public:
    static constexpr std::size_t default_block_size = std::size_t{1} << 20;
    static constexpr std::size_t default_blocks_to_preallocate = 128;

    /// The block size is rounded up to 256. Throws rmm::logic_error for null upstream or no blocks at all,
    /// rmm::out_of_memory if upstream refuses the first blocks.
    explicit fixed_size_memory_resource(device_async_resource_ref upstream_mr,
                                        std::size_t block_size = default_block_size,
                                        std::size_t blocks_to_preallocate = default_blocks_to_preallocate)
        : options_{detail::fixed_size_options(block_size, blocks_to_preallocate)}, pool_{upstream_mr, options_} {}

    explicit fixed_size_memory_resource(Upstream* upstream_mr, std::size_t block_size = default_block_size,
                                        std::size_t blocks_to_preallocate = default_blocks_to_preallocate)
        : options_{detail::fixed_size_options(block_size, blocks_to_preallocate)},
          upstream_{upstream_mr},
          pool_{to_device_async_resource_ref_checked(upstream_mr), options_} {}

    fixed_size_memory_resource() = delete;
    ~fixed_size_memory_resource() override = default;
    fixed_size_memory_resource(fixed_size_memory_resource const&) = delete;
    fixed_size_memory_resource(fixed_size_memory_resource&&) = delete;
    fixed_size_memory_resource& operator=(fixed_size_memory_resource const&) = delete;
    fixed_size_memory_resource& operator=(fixed_size_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }
    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return pool_.upstream(); }
    /// Null when made from a reference.
    [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_; }
    [[nodiscard]] std::size_t get_block_size() const noexcept { return options_.block_bytes; }
    [[nodiscard]] pool_statistics statistics() const { return pool_.statistics(); }
    /// How messages and reports call the resource.
    void set_name(char const* name) { pool_.set_name(name); }
    /// See pool_memory_resource::trim.
    std::size_t trim(std::size_t keep_bytes = 0) { return pool_.trim(keep_bytes); }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return pool_.allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        pool_.deallocate(ptr, bytes, stream);
    }

    detail::pool_options options_;
    Upstream* upstream_{};
    detail::pool pool_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
