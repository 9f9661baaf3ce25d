// A pool of one block of another resource, which never grows.
#pragma once

#include <cstddef>
#include <optional>

#include <rmm/mr/detail/pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Takes one block from upstream when it is made and serves every request out of it; 0 bytes are null.
///
/// - A request that does not fit throws rmm::out_of_memory ("Maximum pool size exceeded .. No room in arena."), after,
///   with `dump_log_on_failure`, a report was written to `rmm_arena_memory_dump.log` in the working directory.
/// - Frees never wait for a stream, on whichever stream or thread they come.
/// - Stream order, wrong frees, threads and equality as for pool_memory_resource; memory goes back in the destructor.
template<typename Upstream>
class arena_memory_resource final : public device_memory_resource {
  public:
    /// `arena_size` is rounded down to 256 (default: half of the device's free memory). Throws rmm::logic_error for
    /// null upstream or less than 1 MiB, rmm::out_of_memory if upstream refuses. The report's file is truncated now.
    explicit arena_memory_resource(device_async_resource_ref upstream_mr,
                                   std::optional<std::size_t> arena_size = std::nullopt,
                                   bool dump_log_on_failure = false)
        : pool_{upstream_mr, detail::arena_options(arena_size)}, dumps_{dump_log_on_failure} {
        if (dumps_) detail::begin_arena_dump();
    }

    explicit arena_memory_resource(Upstream* upstream_mr, std::optional<std::size_t> arena_size = std::nullopt,
                                   bool dump_log_on_failure = false)
        : arena_memory_resource(to_device_async_resource_ref_checked(upstream_mr), arena_size, dump_log_on_failure) {}

    arena_memory_resource() = delete;
    ~arena_memory_resource() override = default;
    arena_memory_resource(arena_memory_resource const&) = delete;
    arena_memory_resource(arena_memory_resource&&) = delete;
    arena_memory_resource& operator=(arena_memory_resource const&) = delete;
    arena_memory_resource& operator=(arena_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }
    [[nodiscard]] pool_statistics statistics() const { return pool_.statistics(); }
    /// How messages and reports call the resource.
    void set_name(char const* name) { pool_.set_name(name); }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        if (!dumps_) return pool_.allocate(bytes, stream);
        try {
            return pool_.allocate(bytes, stream);
        } catch (rmm::out_of_memory const&) {
            detail::dump_arena(pool_, bytes);
            throw;
        }
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        pool_.deallocate(ptr, bytes, stream);
    }

    detail::pool pool_;
    bool dumps_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
