// A pool of virtual memory: it grows by mapping, and maps free pieces of physical memory side by side where a request
// needs them so.
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
/// - Memory is reachable from every device that can reach this one. Other processes reach it if it was asked for
///   (`options`), through cuMemRetainAllocationHandle and cuMemExportToShareableHandle of addresses in a block. It
///   cannot be shared by cudaIpcGetMemHandle; use pool_memory_resource for that.
/// - Mapping costs some 30 microseconds for each piece of 2 to 256 MiB, and moving a piece lets the host wait for the
///   work that used it last; so does cutting one, which happens when more than three quarters are in use. A program
///   that repeats what it does maps nothing (`mappings`).
/// - Requests of 8 MiB and more are rounded up to 2 MiB (below 40 GiB larger ones only: of 4 GiB 80 MiB and more).
/// - Stream order, wrong frees, threads, zero bytes and errors as for pool_memory_resource. Equal only to itself. The
///   destructor waits for the memory's last users.
class vmm_memory_resource final : public device_memory_resource {
  public:
    /// How another process may open the memory; the values are those of cudaMemAllocationHandleType.
    enum class handle_type : int { none = 0, posix_file_descriptor = 1, fabric = 8 };
    struct options {
        std::optional<std::size_t> maximum_size = std::nullopt;
        handle_type export_handle_type = handle_type::none;
        /// Network cards and disks may read and write the memory (GPUDirect RDMA).
        bool rdma = false;
        /// Pieces are multiples of what a multicast object over all devices binds (cuMulticastGetGranularity, the
        /// minimum). No object is made.
        bool multicast = false;
    };
    /// Throws rmm::logic_error where the driver has no virtual memory, or for a maximum of 0.
    explicit vmm_memory_resource(std::optional<std::size_t> maximum_size = std::nullopt)
        : vmm_memory_resource{options{maximum_size}} {}
    /// Throws rmm::logic_error also where the device has not what is asked for, with what it lacks; rmm::cuda_error
    /// where the driver refuses a first piece all the same (fabric handles without the machine's IMEX service).
    explicit vmm_memory_resource(options const& how)
        : pool_{detail::virtual_memory{how.maximum_size.value_or(~std::size_t{0}), nullptr, 0,
                                       static_cast<unsigned>(how.export_handle_type), how.rdma, how.multicast}} {}
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
