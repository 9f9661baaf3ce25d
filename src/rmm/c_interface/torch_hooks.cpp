// Implements torch_hooks.hpp, and the hooks of <rmm/rmm.h> over it.
#include "rmm/c_interface/torch_hooks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/c_interface/errors.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/device_table.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/rmm.h"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

namespace driver = rmm::detail::driver;
using rmm::detail::owned_resource;

/// A block in use.
struct block {
    owned_resource from;
    std::size_t size_bytes = 0;
    std::vector<cudaStream_t> streams;  ///< that use it beside the one it is freed on
};

/// All blocks in use. Many threads meet at few of the parts.
class blocks {
  public:
    void note(void* pointer, block b) {
        part& p = of(pointer);
        const kmm::locks::Guard in(p.mutex);
        p.known.insert_or_assign(pointer, std::move(b));
    }
    std::optional<block> take(void* pointer) {
        part& p = of(pointer);
        const kmm::locks::Guard in(p.mutex);
        const auto found = p.known.find(pointer);
        if (found == p.known.end()) return std::nullopt;
        block b = std::move(found->second);
        p.known.erase(found);
        return b;
    }
    /// f(block), if it is in use.
    template<typename F>
    void with(void* pointer, F&& f) {
        part& p = of(pointer);
        const kmm::locks::Guard in(p.mutex);
        if (const auto found = p.known.find(pointer); found != p.known.end()) f(found->second);
    }

  private:
    struct alignas(64) part {
        kmm::locks::Mutex mutex;
        std::unordered_map<void*, block> known KMM_GUARDED_BY(mutex);
    };
    part& of(void* pointer) noexcept { return parts_[reinterpret_cast<std::uintptr_t>(pointer) / 512 % parts_.size()]; }
    std::array<part, 16> parts_;
};
// Never destroyed: PyTorch frees while the process ends.
blocks& all() { return ::kmm::driver::never_destroyed<blocks>(); }

/// What comes on `stream` from now on comes after what is queued on `before`. Where there is no event for that, the
/// host waits.
void put_behind(driver::Driver& d, int device, cudaStream_t before, cudaStream_t stream) {
    driver::EventHandle event;
    driver::Status status = d.create_event(device, false, false, &event);
    if (status.ok()) {
        status = d.record_event(event, {before});
        if (status.ok()) status = d.wait_event({stream}, event);
        (void)d.destroy_event(event);
    }
    if (status.ok()) return;
    (void)d.take_last_error();
    rmm::detail::report_failure(d.synchronize_stream({before}), "wait for a stream that used a tensor");
}

template<typename... Pools>
void trim_one_of(mr::device_memory_resource* resource) {
    const auto trimmed = [&](auto* pool) {
        if (pool == nullptr) return false;
        (void)pool->trim(0);
        return true;
    };
    (void)(trimmed(dynamic_cast<Pools*>(resource)) || ...);
}

}  // namespace

void* allocate_for_torch(std::size_t bytes, int device, cudaStream_t stream) {
    if (bytes == 0) return nullptr;
    const cuda_set_device_raii on_it(cuda_device_id{device});
    block made{rmm::detail::resource_with_owner(cuda_device_id{device}), bytes, {}};
    mr::device_memory_resource* const resource = made.from.object;
    const cuda_stream_view view{stream};
    void* const pointer = resource->allocate(bytes, view);
    try {
        all().note(pointer, std::move(made));
    } catch (...) {
        resource->deallocate(pointer, bytes, view);
        throw;
    }
    return pointer;
}

void deallocate_for_torch(void* pointer, std::size_t bytes, int device, cudaStream_t stream) {
    if (pointer == nullptr || rmm::detail::lost_in_fork()) return;
    const std::optional<block> gone = all().take(pointer);
    if (!gone) {
        const char* const what = "memory is freed that the hook of PyTorch has not given, or twice";
        rmm::detail::report_misuse(what);
        throw invalid_argument(what);
    }
    driver::Driver& d = rmm::detail::the_driver();
    const driver::DeviceGuard on_it(d, device);
    for (const cudaStream_t user : gone->streams)
        if (user != stream) put_behind(d, device, user, stream);
    gone->from.object->deallocate(pointer, bytes, cuda_stream_view{stream});
}

void record_stream_for_torch(void* pointer, cudaStream_t stream) {
    all().with(pointer, [&](block& b) {
        if (std::find(b.streams.begin(), b.streams.end(), stream) == b.streams.end()) b.streams.push_back(stream);
    });
}

std::size_t size_for_torch(void* pointer) {
    std::size_t size = 0;
    all().with(pointer, [&](const block& b) { size = b.size_bytes; });
    return size;
}

void trim_for_torch() {
    using base = mr::device_memory_resource;
    const int num_devices = get_num_cuda_devices();
    for (int device = 0; device < num_devices; ++device) {
        const owned_resource of_it = rmm::detail::resource_with_owner(cuda_device_id{device});
        trim_one_of<mr::pool_memory_resource<base>, mr::vmm_memory_resource, mr::fixed_size_memory_resource<base>>(
            of_it.object);
    }
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
