// Implements pool_debugging.hpp. Any thread.
#include "rmm/debug/pool_debugging.hpp"

#include <atomic>
#include <string>

#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

std::unique_ptr<pool_debugging> pool_debugging::make(pool_engine& engine, const debug_environment& environment) {
    if (!environment.enabled && engine.registration() == nullptr) return nullptr;
    if (environment.nvtx && engine.registration() == nullptr) {
        static std::atomic<bool> told{false};
        if (!told.exchange(true))
            rmm::detail::report_misuse(
                "RMM_DEBUG names nvtx, but tools cannot be told of this pool: that needs the cuda driver, a build with "
                "nvtx3/nvToolsExtMem.h, and no virtual memory. Red zones are checked instead");
    }
    return std::unique_ptr<pool_debugging>(new pool_debugging(engine, environment));
}

pool_debugging::pool_debugging(pool_engine& engine, const debug_environment& environment) : engine_(engine) {
    if (environment.enabled)
        checker_.emplace(*this, engine.registration(), environment.options,
                         checked_resource{rmm::detail::with_class_names(std::string("a ") + engine.options().name),
                                          stacks_by_environment});
}

pool_options pool_debugging::with_room(const pool_options& options, const debug_environment& environment) {
    if (!environment.enabled || options.block_bytes == 0) return options;
    pool_options larger = options;
    larger.block_bytes += align_up(block_checker::overhead_bytes(environment.options), CUDA_ALLOCATION_ALIGNMENT);
    larger.initial_bytes = options.initial_bytes / options.block_bytes * larger.block_bytes;
    larger.growth_bytes = options.growth_bytes / options.block_bytes * larger.block_bytes;
    return larger;
}

void* pool_debugging::allocate_block(std::size_t bytes, cuda_stream_view stream) {
    if (checker_) return checker_->allocate(bytes, stream);
    if (bytes == 0) return nullptr;
    void* const ptr = engine_.allocate(bytes, stream);
    engine_.registration()->give(ptr, bytes);
    return ptr;
}

void pool_debugging::deallocate_block(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (checker_) return checker_->deallocate(ptr, bytes, stream);
    if (ptr == nullptr) return;
    engine_.registration()->take(ptr, bytes, stream);
    engine_.free(ptr, bytes, {&stream, 1});
}

void* pool_debugging::allocate(std::size_t bytes, cuda_stream_view stream) { return engine_.allocate(bytes, stream); }

void pool_debugging::deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    engine_.free(ptr, bytes, {&stream, 1});
}

void pool_debugging::deallocate_unused(void* ptr, std::size_t bytes, cuda_stream_view) noexcept {
    engine_.free(ptr, bytes, {});
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
