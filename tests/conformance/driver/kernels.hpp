// The kernels of the driver tests, behind handles, so that the same test runs on every driver.
#pragma once

namespace driver_test {

struct Kernels {
    const void* add = nullptr;     ///< (int* data, unsigned n, int value): data[i] += value for all i < n
    const void* number = nullptr;  ///< (unsigned* out): out[i] = i, where i numbers all threads of the grid, x fastest
    const void* affine =
        nullptr;  ///< (unsigned long long* x, unsigned long long a, unsigned long long b): *x = *x * a + b
    const void* shared =
        nullptr;  ///< (unsigned char* out, unsigned n): n bytes through dynamic shared memory; one thread
};

Kernels host_kernels();
Kernels cuda_kernels();

}  // namespace driver_test
