// Owns: the kernels of kernels.hpp for the host driver.
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels.hpp"
#include "kmm/driver/host_kernel.hpp"

namespace driver_test {
namespace {

using kmm::driver::HostKernel;
using kmm::driver::HostLaunchGeometry;

std::uint64_t threads_of_block(const HostLaunchGeometry& g) {
    return std::uint64_t{g.block[0]} * g.block[1] * g.block[2];
}

void add(const HostKernel&, const HostLaunchGeometry& g, const void* parameters, std::uint64_t first,
         std::uint64_t last) {
    struct Parameters {
        int* data;
        unsigned n;
        int value;
    } p;
    std::memcpy(&p, parameters, sizeof(p));
    const std::uint64_t begin = first * threads_of_block(g);
    const std::uint64_t end = last * threads_of_block(g);
    for (std::uint64_t i = begin; i < end && i < p.n; ++i) p.data[i] += p.value;
}

void number(const HostKernel&, const HostLaunchGeometry& g, const void* parameters, std::uint64_t first,
            std::uint64_t last) {
    unsigned* out = nullptr;
    std::memcpy(&out, parameters, sizeof(out));
    for (std::uint64_t block = first; block < last; ++block) {
        const std::uint64_t b[3] = {block % g.grid[0], block / g.grid[0] % g.grid[1], block / g.grid[0] / g.grid[1]};
        for (std::uint64_t z = 0; z < g.block[2]; ++z)
            for (std::uint64_t y = 0; y < g.block[1]; ++y)
                for (std::uint64_t x = 0; x < g.block[0]; ++x) {
                    const std::uint64_t gx = b[0] * g.block[0] + x, gy = b[1] * g.block[1] + y,
                                        gz = b[2] * g.block[2] + z;
                    const std::uint64_t i = (gz * g.grid[1] * g.block[1] + gy) * g.grid[0] * g.block[0] + gx;
                    out[i] = static_cast<unsigned>(i);
                }
    }
}

void affine(const HostKernel&, const HostLaunchGeometry&, const void* parameters, std::uint64_t, std::uint64_t) {
    struct Parameters {
        unsigned long long *x, a, b;
    } p;
    std::memcpy(&p, parameters, sizeof(p));
    *p.x = *p.x * p.a + p.b;
}

void shared(const HostKernel&, const HostLaunchGeometry& g, const void* parameters, std::uint64_t, std::uint64_t) {
    struct Parameters {
        unsigned char* out;
        unsigned n;
    } p;
    std::memcpy(&p, parameters, sizeof(p));
    std::vector<unsigned char> memory(g.shared_bytes);
    for (unsigned i = 0; i < p.n; ++i) memory.at(i) = static_cast<unsigned char>(i * 7);
    for (unsigned i = 0; i < p.n; ++i) p.out[i] = memory.at(i);
}

}  // namespace

Kernels host_kernels() {
    static const HostKernel add_kernel{add, nullptr, "add"};
    static const HostKernel number_kernel{number, nullptr, "number"};
    static const HostKernel affine_kernel{affine, nullptr, "affine"};
    static const HostKernel shared_kernel{shared, nullptr, "shared"};
    return {&add_kernel, &number_kernel, &affine_kernel, &shared_kernel};
}

}  // namespace driver_test
