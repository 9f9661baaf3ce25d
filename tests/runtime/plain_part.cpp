// The plain C++ half of the program of row 7: its kernel is emulated, whatever compiles the other half.
#include "plain_part.hpp"

namespace {

__global__ void add_three(kmm::GPUViewMut<int> v) { v[threadIdx.x] += 3; }

}  // namespace

kmm::EventId submit_plain_kernel(const kmm::RuntimeHandle& rt, kmm::Array<int>& a) {
    return rt.submit(kmm::ResourceId(kmm::DeviceId(0)),
                     kmm::GPUKernel(add_three, dim3(static_cast<unsigned>(a.size(0)))), write(a));
}

kmm::EventId submit_plain_device_function(const kmm::RuntimeHandle& rt, kmm::Array<int>& a, int value) {
    return rt.submit(kmm::ResourceId(kmm::DeviceId(0)),
                     kmm::GPU([value](kmm::DeviceResource& device, kmm::GPUViewMut<int> v) { device.fill(v, value); }),
                     overwrite(a));
}

kmm::EventId submit_plain_host_function(const kmm::RuntimeHandle& rt, kmm::Array<int>& a) {
    return rt.submit(kmm::ResourceId::host(), kmm::Host([](kmm::ViewMut<int> v) {
                         for (long i = v.begin(); i < v.end(); i++) v[i] *= 10;
                     }),
                     write(a));
}
