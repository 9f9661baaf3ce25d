// A program with memory in static objects and threads that allocate, whose children end as programs do: by returning
// from main, with all destructors of static objects and of the thread. They must end with status 0 and say nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/repeat.hpp"

namespace {

using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;
using tracking = rmm::mr::tracking_resource_adaptor<pool>;

rmm::mr::cuda_memory_resource cuda;
std::unique_ptr<pool> static_pool;
std::unique_ptr<tracking> static_tracking;
std::unique_ptr<rmm::mr::vmm_memory_resource> static_vmm;
std::unique_ptr<rmm::mr::pinned_pool_memory_resource> static_pinned;
std::unique_ptr<rmm::cuda_stream> static_stream;
std::vector<rmm::device_buffer> late;
thread_local std::vector<rmm::device_buffer> of_thread;

}  // namespace

int main() {
    static_pool = std::make_unique<pool>(cuda, std::size_t{80} << 20);
    static_tracking = std::make_unique<tracking>(static_pool.get());
    static_vmm = std::make_unique<rmm::mr::vmm_memory_resource>();
    static_pinned = std::make_unique<rmm::mr::pinned_pool_memory_resource>(std::size_t{1} << 20);
    static_stream = std::make_unique<rmm::cuda_stream>();
    rmm::mr::set_current_device_resource(static_tracking.get());
    late.emplace_back(1000, static_stream->view(), *static_vmm);
    late.emplace_back(1000, static_stream->view(), *static_pinned);
    late.emplace_back(1000, static_stream->view());
    of_thread.emplace_back(1000, rmm::cuda_stream_per_thread);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            while (!stop.load()) {
                const rmm::cuda_stream own;
                const rmm::device_buffer d(1000, own.view());
                const rmm::device_buffer v(1000, rmm::cuda_stream_per_thread, *static_vmm);
                std::thread([] { const rmm::device_buffer e(100, rmm::cuda_stream_per_thread); }).join();
            }
        });
    int failed = 0;
    const int num_children = repeat(20, 6);
    for (int i = 0; i < num_children; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            for (std::thread& t : threads) t.detach();  // they do not exist here
            new (&threads) std::vector<std::thread>;
            return 0;
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) ++failed;
    }
    stop.store(true);
    for (std::thread& t : threads) t.join();
    return failed;
}
