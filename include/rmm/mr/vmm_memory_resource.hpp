// A pool of virtual memory: it grows by mapping, and never fails because free memory is in pieces.
#pragma once

#include <cstddef>
#include <optional>

#include <rmm/mr/detail/pool.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Reserves addresses once and maps physical memory to them as it is needed. A request that finds enough free memory,
/// but in pieces, gets these pieces mapped side by side.
///
/// - Needs no size to begin with: what is held follows what is in use. `maximum_size` bounds it (default: the
///   device's).
/// - Memory is reachable from every device that can reach this one. It cannot be shared with other processes by
///   cudaIpcGetMemHandle; use pool_memory_resource for that.
/// - Mapping costs some 30 microseconds for each piece of 2 to 256 MiB, and moving a piece lets the host wait for the
///   work that used it last; so does cutting one, which happens when more than three quarters are in use. A program
///   that repeats what it does maps nothing (`mappings`).
/// - Requests of 8 MiB and more are rounded up to 2 MiB (below 40 GiB larger ones only: of 4 GiB 80 MiB and more).
/// - Stream order, wrong frees, threads, zero bytes and errors as for pool_memory_resource. Equal only to itself. The
///   destructor waits for the memory's last users.
class vmm_memory_resource final : public device_memory_resource {
  public:
    /// Throws rmm::logic_error where the driver has no virtual memory, or for a maximum of 0.
    explicit vmm_memory_resource(std::optional<std::size_t> maximum_size = std::nullopt)
        : pool_{detail::virtual_memory{maximum_size.value_or(~std::size_t{0})}} {}
    ~vmm_memory_resource() override = default;
    vmm_memory_resource(vmm_memory_resource const&) = delete;
    vmm_memory_resource(vmm_memory_resource&&) = delete;
    vmm_memory_resource& operator=(vmm_memory_resource const&) = delete;
    vmm_memory_resource& operator=(vmm_memory_resource&&) = delete;

    [[nodiscard]] bool supports_streams() const noexcept override { return true; }

    /// Bytes of physical memory held, used and free.
    [[nodiscard]] std::size_t pool_size() const noexcept { return pool_.held_bytes(); }
    /// O(free pieces).
    [[nodiscard]] pool_statistics statistics() const { return pool_.statistics(); }
    [[nodiscard]] mapping_counts mappings() const { return pool_.mappings(); }
    /// Gives free memory back to the device until at most `keep_bytes` are held, or none is left to give. Returns the
    /// bytes given back. Waits for the last users of what it gives.
    std::size_t trim(std::size_t keep_bytes = 0) { return pool_.trim(keep_bytes); }
    /// From now on, a free that leaves more than `bytes` unused trims down to it. Default: never.
    void set_release_threshold(std::size_t bytes) noexcept { pool_.set_release_threshold(bytes); }
    /// How messages call the pool.
    void set_name(char const* name) { pool_.set_name(name); }
    /// Bytes of blocks in use that were allocated under this rmm::memory_tag; null or "": under none. O(blocks in use).
    [[nodiscard]] std::size_t in_use_bytes(char const* tag) const { return pool_.in_use_bytes(tag); }

    /// The pool behind the class, for the library.
    [[nodiscard]] detail::pool& implementation() noexcept { return pool_; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return pool_.allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        pool_.deallocate(ptr, bytes, stream);
    }

    detail::pool pool_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
