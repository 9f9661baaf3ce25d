// Plain C++, whichever program hands it to the C++ compiler: the kernel is emulated.
#include "parts.hpp"

#ifdef KMM_USE_CUDA
#error it is defined only where it is 1
#endif
static_assert(KMM_DETAIL_HAS_DEVICE_CODE == 0);
static_assert(kmm::detail::kernel_mode == kmm::detail::LauncherInfo::Mode::host);

namespace {
__global__ void add(kmm::GPUViewMut<int> v) { v[threadIdx.x] += number_of_plain_part; }
}  // namespace

kmm::EventId submit_plain_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a) {
    const dim3 block(static_cast<unsigned>(a.size()));
    rt.submit(kmm::DeviceId(0), kmm::GPU([=](kmm::DeviceResource& device, kmm::GPUViewMut<int> v) {
                  device.launch(1, block, 0, add, v);
              }),
              write(a));
    return rt.submit(kmm::DeviceId(0), kmm::GPUKernel(add, block), write(a));
}
