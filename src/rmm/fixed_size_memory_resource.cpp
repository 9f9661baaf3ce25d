// Implements the compiled part of <rmm/mr/fixed_size_memory_resource.hpp>: which configuration of the pool's engine it
// is. Any thread.
#include <limits>
#include <string>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/mr/detail/pool.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;

}  // namespace

pool_options fixed_size_options(std::size_t block_size, std::size_t blocks_to_preallocate) {
    RMM_EXPECTS(
        blocks_to_preallocate > 0,
        rmm::detail::with_class_names(
            "blocks_to_preallocate of a fixed_size_memory_resource is 0: at least one block must be taken at a time"));
    RMM_EXPECTS(block_size > 0, rmm::detail::with_class_names("the block size of a fixed_size_memory_resource is 0"));
    // What is rounded up counts: blocks of one byte take 256.
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
    RMM_EXPECTS(block_size <= most && align_up(block_size, unit) <= most / blocks_to_preallocate,
                kmm::driver::format("{} blocks of {} bytes are more than an address space holds", blocks_to_preallocate,
                                    block_size));
    pool_options options;
    options.name = "fixed_size_memory_resource";
    options.block_bytes = align_up(block_size, unit);
    options.initial_bytes = options.block_bytes * blocks_to_preallocate;
    options.growth_bytes = options.initial_bytes;
    return options;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
