// A header of a program that only names classes of rmm: instead of declaring them itself it includes <rmm/fwd.hpp>.
// What it names is what the other headers define.
#include <rmm/fwd.hpp>

namespace program {

// Before any of them is defined.
struct held {
    rmm::device_buffer* buffer;
    rmm::device_uvector<float>* vector;
    rmm::device_scalar<int>* scalar;
    rmm::mr::device_memory_resource* resource;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>* pool;
    rmm::mr::failure_callback_resource_adaptor<rmm::mr::cuda_memory_resource>* adaptor;
};
int size_of(rmm::device_buffer const& buffer, rmm::cuda_stream_view stream);
rmm::device_buffer make(rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr);
bool failed(rmm::out_of_memory const& error);
bool fits(rmm::memory_limit limit);

}  // namespace program

#include <type_traits>

#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/host_buffer.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/memory_tag.hpp>
#include <rmm/mr/debug_resource_adaptor.hpp>
#include <rmm/mr/device/aligned_resource_adaptor.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/callback_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_managed_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/owning_wrapper.hpp>
#include <rmm/mr/device/polymorphic_allocator.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/prefetch_resource_adaptor.hpp>
#include <rmm/mr/device/sam_headroom_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/host/new_delete_resource.hpp>
#include <rmm/mr/host_allocator.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/reclaimer.hpp>
#include <rmm/mr/vmm_memory_resource.hpp>

namespace program {

int size_of(rmm::device_buffer const& buffer, rmm::cuda_stream_view stream) {
    stream.synchronize();
    return static_cast<int>(buffer.size());
}
rmm::device_buffer make(rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr) {
    return rmm::device_buffer{100, stream, mr};
}
bool failed(rmm::out_of_memory const& error) { return fits(error.shortage().limit); }
bool fits(rmm::memory_limit limit) { return limit == rmm::memory_limit::maximum; }

static_assert(std::is_same_v<rmm::mr::failure_callback_resource_adaptor<rmm::mr::cuda_memory_resource>::exception_type,
                             rmm::out_of_memory>);
static_assert(std::is_convertible_v<rmm::mr::cuda_memory_resource&, rmm::device_async_resource_ref>);

}  // namespace program

int main() {
    rmm::mr::cuda_memory_resource cuda;
    rmm::device_buffer buffer = program::make(rmm::cuda_stream_default, cuda);
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 20};
    program::held const held{&buffer, nullptr, nullptr, &cuda, &pool, nullptr};
    bool refused = false;
    try {
        (void)held.pool->allocate(2 << 20);
    } catch (rmm::out_of_memory const& e) {
        refused = program::failed(e);
    }
    return program::size_of(*held.buffer, rmm::cuda_stream_default) == 100 && refused ? 0 : 1;
}
