// Implements torch_hooks.hpp, and the hooks of <rmm/rmm.h> over it.
#include "rmm/c_interface/torch_hooks.hpp"

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "driver/never_destroyed.hpp"
#include "rmm/c_interface/errors.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/resource_owners.hpp"
#include "rmm/rmm.h"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

using rmm::detail::owned_resource;

/// Where each block came from. Many threads meet at few of the parts.
class origins {
  public:
    void note(void* pointer, owned_resource from) {
        part& p = of(pointer);
        const std::lock_guard in(p.mutex);
        p.blocks.insert_or_assign(pointer, std::move(from));
    }
    std::optional<owned_resource> take(void* pointer) {
        part& p = of(pointer);
        const std::lock_guard in(p.mutex);
        const auto found = p.blocks.find(pointer);
        if (found == p.blocks.end()) return std::nullopt;
        owned_resource from = std::move(found->second);
        p.blocks.erase(found);
        return from;
    }

  private:
    struct alignas(64) part {
        std::mutex mutex;
        std::unordered_map<void*, owned_resource> blocks;
    };
    part& of(void* pointer) noexcept { return parts_[reinterpret_cast<std::uintptr_t>(pointer) / 512 % parts_.size()]; }
    std::array<part, 16> parts_;
};
// Never destroyed: PyTorch frees while the process ends.
origins& all() { return ::kmm::driver::never_destroyed<origins>(); }

}  // namespace

void* allocate_for_torch(std::size_t bytes, int device, cudaStream_t stream) {
    if (bytes == 0) return nullptr;
    const cuda_set_device_raii on_it(cuda_device_id{device});
    owned_resource from = rmm::detail::resource_with_owner(cuda_device_id{device});
    const cuda_stream_view view{stream};
    void* const pointer = from.object->allocate(bytes, view);
    auto* const object = from.object;
    try {
        all().note(pointer, std::move(from));
    } catch (...) {
        object->deallocate(pointer, bytes, view);
        throw;
    }
    return pointer;
}

void deallocate_for_torch(void* pointer, std::size_t bytes, int device, cudaStream_t stream) {
    if (pointer == nullptr || rmm::detail::lost_in_fork()) return;
    const std::optional<owned_resource> from = all().take(pointer);
    if (!from) {
        const char* const what = "memory is freed that the hook of PyTorch has not given, or twice";
        rmm::detail::report_misuse(what);
        throw invalid_argument(what);
    }
    const rmm::detail::driver::DeviceGuard on_it(rmm::detail::the_driver(), device);
    from->object->deallocate(pointer, bytes, cuda_stream_view{stream});
}

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm

extern "C" {

void* rmm_torch_allocate(ptrdiff_t bytes, int device, cudaStream_t stream) {
    void* pointer = nullptr;
    if (bytes <= 0) return nullptr;
    (void)rmm::c_interface::guarded(
        [&] { pointer = rmm::c_interface::allocate_for_torch(static_cast<std::size_t>(bytes), device, stream); });
    return pointer;
}

void rmm_torch_deallocate(void* pointer, ptrdiff_t bytes, int device, cudaStream_t stream) {
    (void)rmm::c_interface::guarded(
        [&] { rmm::c_interface::deallocate_for_torch(pointer, static_cast<std::size_t>(bytes), device, stream); });
}
}
