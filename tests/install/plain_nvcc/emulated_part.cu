// Translated by a CUDA compiler with -DKMM_USE_CUDA=0: the kernel is emulated, with all that CUDA gives to kernels.
#include "parts.hpp"

#ifdef KMM_USE_CUDA
#error the 0 of the command line is taken back by the first header
#endif
static_assert(KMM_DETAIL_HAS_DEVICE_CODE == 0 && KMM_IS_DEVICE == 0);
static_assert(kmm::detail::kernel_mode == kmm::detail::LauncherInfo::Mode::host);

namespace {
__global__ void add(kmm::GPUViewMut<int> v) {
    __shared__ int ones;
    if (threadIdx.x == 0) ones = 0;
    __syncthreads();
    atomicAdd(&ones, __popc(1u << threadIdx.x));
    __syncthreads();
    const int all = ones / static_cast<int>(blockDim.x);
    const int lane = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.x) % warpSize);
    v[lane] += max(all, 0) * min(number_of_emulated_part, 1000);
}
}  // namespace

kmm::EventId submit_emulated_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a) {
    const dim3 block(static_cast<unsigned>(a.size()));
    rt.submit(kmm::DeviceId(0), kmm::GPU([=](kmm::DeviceResource& device, kmm::GPUViewMut<int> v) {
                  device.launch(1, block, 0, add, v);
              }),
              write(a));
    return rt.submit(kmm::DeviceId(0), kmm::GPUKernel(add, block), write(a));
}
