// As CUDA, with no macro of ours on the command line: the kernel is for the cuda driver.
#include "parts.hpp"

static_assert(KMM_USE_CUDA == 1 && KMM_DETAIL_HAS_DEVICE_CODE == 1);
static_assert(kmm::detail::kernel_mode == kmm::detail::LauncherInfo::Mode::cuda);
#ifndef __CUDACC__
#error "no CUDA compiler"
#endif

namespace {
__global__ void add(kmm::GPUViewMut<int> v) { v[threadIdx.x] += number_of_cuda_part; }

// A type of the program's that is constructed from a view, with a constructor for both sides.
struct Values {
    kmm::GPUViewMut<int> view;
    __host__ __device__ Values(kmm::GPUViewMut<int> v) : view(v) {}
};
__global__ void add_values(Values v) { v.view[threadIdx.x] += number_of_cuda_part; }
}  // namespace

kmm::EventId submit_cuda_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a) {
    const dim3 block(static_cast<unsigned>(a.size()));
    rt.submit(kmm::DeviceId(0), kmm::GPUKernel(add_values, block), write(a));
    rt.submit(kmm::DeviceId(0), kmm::GPU([=](kmm::DeviceResource& device, kmm::GPUViewMut<int> v) {
                  device.launch(1, block, 0, add, v);
              }),
              write(a));
    return rt.submit(kmm::DeviceId(0), kmm::GPUKernel(add, block), write(a));
}
