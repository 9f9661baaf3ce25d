// What device functions can do with their DeviceResource, on the host driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm_test::contains;
using kmm_test::small_runtime;
using kmm_test::text_of;

namespace {

__global__ void twice(kmm::GPUViewMut<int> v, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) v[i] *= 2;
}
__global__ void throwing() { throw std::runtime_error("inside the kernel"); }

template<typename F>
void on_device(const kmm::RuntimeHandle& rt, const F& f) {
    rt.wait(rt.submit(kmm::DeviceId(1), kmm::GPU(f)));
}

template<std::size_t Bytes>
struct Blob {
    unsigned char bytes[Bytes];
};

template<std::size_t Bytes>
void fill_blobs(const kmm::RuntimeHandle& rt) {
    Blob<Bytes> value;
    for (std::size_t i = 0; i < Bytes; i++) value.bytes[i] = static_cast<unsigned char>(i + 1);
    kmm::Array<Blob<Bytes>> A{7};
    rt.submit(kmm::DeviceId(0),
              kmm::GPU([value](kmm::DeviceResource& d, kmm::GPUViewMut<Blob<Bytes>> v) { d.fill(v, value); }),
              write(A));
    for (const Blob<Bytes>& element : A.copy_to_vector()) {
        for (std::size_t i = 0; i < Bytes; i++) EXPECT_EQ(element.bytes[i], i + 1) << Bytes;
    }
}

}  // namespace

TEST(DeviceResources, it_is_a_device_and_knows_its_chunk_and_stream) {
    auto rt = small_runtime();
    std::atomic<int> right{0};
    rt.wait(rt.parallel_submit(
        std::vector<kmm::DomainChunk>{{kmm::DeviceId(1), {5, 6}, {7, 8}}}, kmm::GPU([&](const kmm::DeviceResource& d) {
            const kmm::GPUstream_t stream = d;
            right += d.device_id() == kmm::DeviceId(1) && d.chunk().offset == kmm::DomainPoint(5, 6);
            right += stream == d.stream() && d.native_stream() == static_cast<void*>(stream);
            right += d.is<kmm::DeviceResource>() && d.cast_if<kmm::HostResource>() == nullptr;
            EXPECT_THROW(d.cast<kmm::HostResource>(), kmm::InvalidResourceException);
        })));
    EXPECT_EQ(right, 3);
}

TEST(DeviceResources, fill_works_for_every_element_size) {
    auto rt = small_runtime();
    fill_blobs<1>(rt);
    fill_blobs<2>(rt);
    fill_blobs<3>(rt);
    fill_blobs<4>(rt);
    fill_blobs<8>(rt);
    fill_blobs<12>(rt);
    fill_blobs<16>(rt);
    fill_blobs<64>(rt);
}

TEST(DeviceResources, fill_of_a_strided_region_leaves_its_surroundings) {
    auto rt = small_runtime();
    std::vector<int> data(6 * 10, 1);
    auto A = rt.allocate(data.data(), 6, 10);
    rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d, kmm::GPUSubviewMut<int, 2> v) { d.fill(v, 7); }),
              write(A(kmm::range(1, 4), kmm::range(2, 5))));
    const std::vector<int> out = A.copy_to_vector();
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 10; j++) {
            EXPECT_EQ(out[static_cast<std::size_t>(i * 10 + j)], i >= 1 && i < 4 && j >= 2 && j < 5 ? 7 : 1)
                << i << ", " << j;
        }
    }
}

TEST(DeviceResources, copy_takes_sub_views_transposed_layouts_and_three_axes) {
    auto rt = small_runtime();
    std::vector<int> data(4 * 5 * 6);
    std::iota(data.begin(), data.end(), 0);
    auto A = rt.allocate(data.data(), 4, 5, 6);
    kmm::Array<int, 3> B{{2, 3, 4}};
    kmm::Array<int, 2> T{{6, 5}};
    rt.submit(kmm::DeviceId(0),
              kmm::GPU([](kmm::DeviceResource& d, kmm::GPUSubview<int, 3> from, kmm::GPUViewMut<int, 3> to) {
                  d.copy(from, to);
              }),
              A(kmm::range(1, 3), kmm::range(2, 5), kmm::range(1, 5)), write(B));
    rt.submit(
        kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d, kmm::GPUView<int, 3> from, kmm::GPUViewMut<int, 2> to) {
            const long strides[2] = {to.stride(1), to.stride(0)};
            d.copy(from.drop_axis<0>(1),
                   kmm::GPUViewStridedMut<int, 2>::from_region(to.data(), kmm::Bounds<2>(kmm::Dim<2>(5, 6)), strides));
        }),
        A, write(T));
    const std::vector<int> b = B.copy_to_vector();
    for (int i = 0; i < 24; i++) {
        EXPECT_EQ(b[static_cast<std::size_t>(i)], (1 + i / 12) * 30 + (2 + i / 4 % 3) * 6 + 1 + i % 4);
    }
    const std::vector<int> t = T.copy_to_vector();
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 5; j++) EXPECT_EQ(t[static_cast<std::size_t>(i * 5 + j)], 30 + j * 6 + i);
    }
}

TEST(DeviceResources, copy_goes_between_host_and_device_views_and_refuses_unequal_sizes) {
    auto rt = small_runtime();
    std::vector<int> in = {1, 2, 3, 4}, out(4), packed(4);
    auto A = rt.array<int>(4, 4);
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPU([&](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) {
                          const kmm::View<int> source(in.data(), kmm::views::dynamic_domain<1>(kmm::Dim<1>(4)));
                          const kmm::ViewMut<int> destination(out.data(),
                                                              kmm::views::dynamic_domain<1>(kmm::Dim<1>(4)));
                          d.copy(source, v);
                          d.copy(v, destination);
                          d.copy(v.data(), packed.data(), 4);
                          d.copy_bytes(v.data(), packed.data(), 16);
                          d.synchronize();
                          const kmm::ViewMut<int> shorter(out.data(), kmm::views::dynamic_domain<1>(kmm::Dim<1>(3)));
                          EXPECT_THROW(d.copy(v, shorter), kmm::InvalidArgument);
                      }),
                      write(A)));
    EXPECT_EQ(out, in);
    EXPECT_EQ(packed, in);
}

TEST(DeviceResources, fill_bytes_repeats_whole_patterns_only) {
    auto rt = small_runtime();
    kmm::Array<std::uint8_t> A{12};
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<std::uint8_t> v) {
                          const std::uint8_t pattern[3] = {1, 2, 3};
                          d.fill_bytes(v.data(), 12, pattern, 3);
                          EXPECT_THROW(d.fill_bytes(v.data(), 11, pattern, 3), kmm::InvalidArgument);
                          EXPECT_THROW(d.fill_bytes(v.data(), 12, pattern, 0), kmm::InvalidArgument);
                          EXPECT_THROW(d.fill_bytes(v.data(), 130, pattern, 65), kmm::InvalidArgument);
                          d.fill(v.data(), 0, 9);
                      }),
                      write(A)));
    EXPECT_EQ(A.copy_to_vector(), (std::vector<std::uint8_t>{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
}

TEST(DeviceResources, launch_converts_its_arguments_and_checks_the_geometry) {
    auto rt = small_runtime();
    auto A = rt.allocate({1, 2, 3, 4, 5});
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) {
                          d.launch(2, 3, 0, twice, v, v.size());
                          EXPECT_THROW(d.launch(2, 2048, 0, twice, v, 5), kmm::InvalidArgument);
                          EXPECT_THROW(d.launch(dim3(1, 0), 1, 0, twice, v, 5), kmm::InvalidArgument);
                      }),
                      write(A)));
    EXPECT_EQ(A.copy_to_vector(), (std::vector<int>{2, 4, 6, 8, 10}));
}

TEST(DeviceResources, a_kernel_that_throws_fails_the_task_that_launched_it) {
    auto rt = small_runtime();
    auto event = rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d) { d.launch(1, 1, 0, throwing); }));
    const std::string text = text_of<kmm::TaskError>([&] { rt.wait(event); });
    EXPECT_TRUE(contains(text, "inside the kernel")) << text;
}

TEST(DeviceResources, a_pattern_of_work_stays_in_order_on_the_stream) {
    auto rt = small_runtime();
    auto A = rt.allocate({1, 1, 1, 1});
    on_device(rt, [](kmm::DeviceResource& d) { d.synchronize(); });
    rt.submit(kmm::DeviceId(1), kmm::GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) {
                  for (int i = 0; i < 5; i++) d.launch(1, 4, 0, twice, v, 4);
                  d.copy(v.data(), v.data() + 2, 2);
              }),
              write(A));
    EXPECT_EQ(A.copy_to_vector(), (std::vector<int>{32, 32, 32, 32}));
}
