// RAPIDS' librmm in the same process, loaded first and for everybody: ours works, and its pool is not called.
#include <dlfcn.h>

#include <cstdio>

#include "rmm/device_uvector.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
            std::fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
    }
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, 1 << 20};
    rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> statistics{&pool};
    rmm::mr::set_current_device_resource(&statistics);
    {
        rmm::device_uvector<int> v(1000, rmm::cuda_stream_view{});
        v.set_element(7, 42, rmm::cuda_stream_view{});
        if (v.element(7, rmm::cuda_stream_view{}) != 42) return 1;
        if (statistics.get_bytes_counter().value != 4000) return 1;
    }
    rmm::mr::set_current_device_resource(nullptr);
    return statistics.get_bytes_counter().value == 0 ? 0 : 1;
}
