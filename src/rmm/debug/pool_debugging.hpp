// What stands between a pool and its users where RMM_DEBUG or a tool asks for it.
//
// Owns: the pool's checker. Must not know: how checks work. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "rmm/debug/block_checker.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_debugging final : public memory_below {
  public:
    /// Null where there is nothing to do. The engine outlives it.
    static std::unique_ptr<pool_debugging> make(pool_engine& engine, const debug_environment& environment);
    /// The same pool with room for the zones: where blocks have one size, they are larger.
    static pool_options with_room(const pool_options& options, const debug_environment& environment);

    /// As of detail::pool.
    void* allocate_block(std::size_t bytes, cuda_stream_view stream);
    void deallocate_block(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;
    /// Null where only a tool is told.
    block_checker* checker() noexcept { return checker_ ? &*checker_ : nullptr; }

  private:
    pool_debugging(pool_engine& engine, const debug_environment& environment);

    void* allocate(std::size_t bytes, cuda_stream_view stream) override;
    void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override;
    void deallocate_unused(void* ptr, std::size_t bytes, cuda_stream_view own) noexcept override;

    pool_engine& engine_;
    std::optional<block_checker> checker_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
