// How the tests of this folder run a kernel and hold its data, alike in all compile modes: on the CPU blocks are run by
// HostKernel::run_blocks on several OS threads, as the host driver does; with nvcc the kernel runs on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kmm/emulation.hpp"

#if defined(__CUDACC__)

namespace kmm_test {

inline void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Memory that kernels and the test both reach.
template<class T>
class Data {
  public:
    explicit Data(std::size_t size, T value = T{}) : size_(size) {
        check(cudaMallocManaged(&data_, size * sizeof(T)));
        for (std::size_t i = 0; i < size; i++) data_[i] = value;
    }
    ~Data() { cudaFree(data_); }
    Data(const Data&) = delete;
    Data& operator=(const Data&) = delete;
    T* get() const { return data_; }
    T& operator[](std::size_t i) const { return data_[i]; }
    std::vector<T> values() const { return std::vector<T>(data_, data_ + size_); }

  private:
    T* data_ = nullptr;
    std::size_t size_;
};

template<class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, unsigned shared_bytes, A... arguments) {
    kernel<<<grid, block, shared_bytes>>>(static_cast<P>(arguments)...);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
}

inline bool device_present() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace kmm_test

// A test that needs the device is skipped where there is none.
#define KMM_NEED_DEVICE() \
    if (!kmm_test::device_present()) GTEST_SKIP() << "no CUDA device"

#else

#include <atomic>
#include <exception>
#include <thread>

namespace kmm_test {

template<class T>
class Data {
  public:
    explicit Data(std::size_t size, T value = T{}) : data_(size, value) {}
    T* get() { return data_.data(); }
    T& operator[](std::size_t i) { return data_[i]; }
    const std::vector<T>& values() const { return data_; }

  private:
    std::vector<T> data_;
};

/// Parameters packed as a driver passes them.
template<class... P>
std::vector<unsigned char> pack(P... values) {
    std::vector<unsigned char> bytes;
    [[maybe_unused]] const auto add = [&](const auto& value) {
        constexpr std::size_t alignment = alignof(std::decay_t<decltype(value)>);
        const std::size_t at = (bytes.size() + alignment - 1) / alignment * alignment;
        bytes.resize(at + sizeof value);
        std::memcpy(bytes.data() + at, &value, sizeof value);
    };
    (add(values), ...);
    return bytes;
}

inline kmm::driver::HostLaunchGeometry geometry_of(dim3 grid, dim3 block, unsigned shared_bytes) {
    kmm::driver::HostLaunchGeometry geometry;
    const unsigned g[] = {grid.x, grid.y, grid.z};
    const unsigned b[] = {block.x, block.y, block.z};
    for (int i = 0; i < 3; i++) {
        geometry.grid[i] = g[i];
        geometry.block[i] = b[i];
    }
    geometry.shared_bytes = shared_bytes;
    return geometry;
}

/// Runs all blocks, each by whichever OS thread comes first. Throws the first error.
template<class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, unsigned shared_bytes, A... arguments) {
    const auto geometry = geometry_of(grid, block, shared_bytes);
    const auto parameters = pack<P...>(static_cast<P>(arguments)...);
    const kmm::driver::HostKernel* const handle = kmm::emulation::kernel_handle(kernel);
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    std::atomic<std::uint64_t> next{0};
    const std::size_t num_threads = blocks > 4 ? 3 : blocks > 2 ? 2 : 1;
    std::exception_ptr errors[3];
    const auto work = [&](std::size_t thread) {
        try {
            for (std::uint64_t b; (b = next.fetch_add(2)) < blocks;) {
                handle->run_blocks(*handle, geometry, parameters.data(), b, b + 2 < blocks ? b + 2 : blocks);
            }
        } catch (...) {
            errors[thread] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 1; t < num_threads; t++) threads.emplace_back(work, t);
    work(0);
    for (auto& t : threads) t.join();
    for (const auto& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace kmm_test

#define KMM_NEED_DEVICE() static_cast<void>(0)

#endif
