// A C++17 program of a user of RMM: a pool, a stream, a buffer that grows.
#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#if RMM_VERSION_MAJOR != 25 || RMM_VERSION_MINOR != 10
#error "rmm/version_config.hpp and the package disagree"
#endif

#include <cstdio>

int main() {
    rmm::mr::cuda_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&upstream, 1 << 20};
    rmm::cuda_stream stream;
    rmm::device_buffer buffer{100, stream.view(), &pool};
    buffer.resize(1000, stream.view());
    stream.synchronize();
    std::printf("%zu bytes\n", buffer.size());
    return buffer.size() == 1000 ? 0 : 1;
}
