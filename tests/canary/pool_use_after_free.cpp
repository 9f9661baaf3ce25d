// Canary for pools under AddressSanitizer: the host reads a block of a pool that was freed, once the stream has come so
// far.
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"

int main() {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20};
    rmm::cuda_stream stream;
    auto* const block = static_cast<volatile int*>(pool.allocate(1000, stream));
    block[0] = 5;
    pool.deallocate(const_cast<int*>(block), 1000, stream);
    stream.synchronize();
    return block[0];
}
