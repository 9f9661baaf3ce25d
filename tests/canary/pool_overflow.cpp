// Canary for pools under AddressSanitizer: work on a stream writes one byte past a block inside a pool, where memory of
// the driver goes on. A thread of the host driver.
#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"

int main() {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20};
    rmm::cuda_stream stream;
    void* const block = pool.allocate(1000, stream);
    const unsigned char value = 1;
    if (!kmm::driver::process_default().fill(block, &value, 1, 1001, {stream.value()}).ok()) return 2;
    stream.synchronize();
    pool.deallocate(block, 1000, stream);
    return 0;
}
