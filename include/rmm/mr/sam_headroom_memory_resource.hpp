// Memory of the host's allocator that leaves room on the device.
#pragma once

#include <cstddef>

#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/system_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
struct headroom;  // src/rmm/headroom.hpp
}  // namespace detail

/// Pageable host memory (system_memory_resource) with advice to the driver where its pages should be: on the current
/// device as far as more than `headroom` bytes are free there, the rest on the host.
///
/// How much is free is asked for large blocks, and for small ones (below 2 MiB) once in a while. `deallocate` waits for
/// the stream. Throws rmm::out_of_memory, or rmm::bad_alloc if the advice is refused. Equal to one with the same
/// headroom. Thread-safe. Not copyable or movable.
class RMM_EXPORT sam_headroom_memory_resource final : public device_memory_resource {
  public:
    /// Throws rmm::logic_error where the current device does not reach such memory.
    explicit sam_headroom_memory_resource(std::size_t headroom);
    ~sam_headroom_memory_resource() override;
    sam_headroom_memory_resource() = delete;
    sam_headroom_memory_resource(sam_headroom_memory_resource const&) = delete;
    sam_headroom_memory_resource(sam_headroom_memory_resource&&) = delete;
    sam_headroom_memory_resource& operator=(sam_headroom_memory_resource const&) = delete;
    sam_headroom_memory_resource& operator=(sam_headroom_memory_resource&&) = delete;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override;

    system_memory_resource system_;
    detail::headroom* headroom_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
