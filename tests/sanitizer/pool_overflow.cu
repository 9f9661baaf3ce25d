// A kernel writes one byte past a block of 1000 bytes inside a pool (`overflow`), or the block's last one (`clean`).
// Memory of the device goes on behind the block, so that only a tool that knows of suballocations sees it:
// run_pool_overflow.sh.
#include <cstdio>
#include <cstring>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"

__global__ void write_byte(unsigned char* block, int at) { block[at] = 1; }

int main(int argc, char** argv) {
    const bool overflow = argc > 1 && std::strcmp(argv[1], "overflow") == 0;
    if (kmm::driver::process_default().kind() != kmm::driver::Kind::cuda) {
        std::printf("skipped: no GPU\n");
        return 77;
    }
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20};
    rmm::cuda_stream stream;
    // Neighbours in use, and one that was freed: neither may hide the write.
    void* const before = pool.allocate(1000, stream);
    auto* const block = static_cast<unsigned char*>(pool.allocate(1000, stream));
    void* const behind = pool.allocate(1000, stream);
    pool.deallocate(before, 1000, stream);
    write_byte<<<1, 1, 0, stream.value()>>>(block, overflow ? 1000 : 999);
    stream.synchronize();
    pool.deallocate(block, 1000, stream);
    pool.deallocate(behind, 1000, stream);
    std::printf("done\n");
    return 0;
}
