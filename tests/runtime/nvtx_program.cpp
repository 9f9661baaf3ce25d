// A program of which nvtx_listener.cpp counts the ranges: 12 tasks "add" on a device that has room for 3 of 4 chunks.
#include <vector>

#include "kmm/kmm.hpp"

int main() {
    using namespace kmm::placeholders;
    constexpr std::int64_t n = 4096;
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.device_memory_limit = 3 * n * sizeof(float);
    config.nvtx = true;
    const kmm::RuntimeHandle rt = kmm::make_runtime(config);
    kmm::Array<float> x = rt.array<float>(4 * n, kmm::Dim<1>(n)).named("x");
    x.copy_from(std::vector<float>(4 * n, 1.0f));
    kmm::Domain domain;
    for (std::int64_t c = 0; c < 4; ++c)
        domain.chunks.push_back({kmm::ResourceId(kmm::DeviceId(0)), kmm::DomainPoint(c * n), kmm::DomainDim(n)});
    for (int pass = 0; pass < 3; ++pass)
        rt.parallel_submit(domain, kmm::GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<float>) {}).named("add"),
                           write(x[_x]));
    rt.synchronize();
    return 0;
}
