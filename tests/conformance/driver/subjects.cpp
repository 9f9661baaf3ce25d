// Owns: which drivers the executable tests: the host driver with one and two devices, or the cuda driver.
#include "driver_test.hpp"

namespace driver_test {

std::vector<Subject> subjects() {
#ifdef KMM_TEST_CUDA
    return {{"cuda", [](std::string* reason) { return open(Kind::cuda, reason); }, &cuda_kernels}};
#else
    const auto host = [](int num_devices) {
        return [num_devices](std::string*) { return make_host_driver({num_devices, 256u << 20, 4}); };
    };
    return {{"host_1_device", host(1), &host_kernels}, {"host_2_devices", host(2), &host_kernels}};
#endif
}

}  // namespace driver_test
