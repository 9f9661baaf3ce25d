// A program that holds memory in every kind of object that dies late: static objects made before and after the
// resources, objects of threads, a function of atexit. It must end with status 0 and say nothing.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"

namespace {

using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

// Made before the resources, so that it dies after them: it holds memory of the initial resource.
std::unique_ptr<rmm::device_buffer> early;

rmm::mr::cuda_memory_resource cuda;
std::unique_ptr<pool> static_pool;
std::unique_ptr<rmm::mr::vmm_memory_resource> static_vmm;
std::unique_ptr<rmm::cuda_stream> static_stream;
std::unique_ptr<rmm::cuda_stream_pool> static_streams;
// Made after, so that it dies before them.
std::vector<rmm::device_buffer> late;

thread_local std::vector<rmm::device_buffer> of_thread;

pool& forever() {
    static pool& never_destroyed = *new pool{cuda, 1 << 20};
    return never_destroyed;
}

}  // namespace

int main() {
    const rmm::cuda_stream_view own = rmm::cuda_stream_per_thread;
    early = std::make_unique<rmm::device_buffer>(1000, rmm::cuda_stream_view{});
    static_pool = std::make_unique<pool>(cuda, std::size_t{64} << 20);
    static_vmm = std::make_unique<rmm::mr::vmm_memory_resource>();
    static_stream = std::make_unique<rmm::cuda_stream>();
    static_streams = std::make_unique<rmm::cuda_stream_pool>(4);
    late.emplace_back(1000, static_stream->view(), *static_pool);
    late.emplace_back(1000, static_streams->get_stream(), *static_vmm);
    rmm::mr::set_current_device_resource(&forever());
    of_thread.emplace_back(1000, own);
    std::thread([&] {
        // Freed on the thread's own stream, when the thread ends.
        of_thread.emplace_back(2000, own);
        of_thread.emplace_back(3000, own, *static_pool);
        of_thread.emplace_back(std::size_t{3} << 20, own, *static_vmm);
    }).join();
    std::atexit([] { rmm::device_buffer last(500, rmm::cuda_stream_view{}); });
    return 0;
}
