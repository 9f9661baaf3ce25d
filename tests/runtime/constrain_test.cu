// Row 114 and 115: handles that submit only to some resources.
#include "harness.hpp"

#include <set>

namespace {

using kmm::DeviceStreamSet;

constexpr std::int64_t n = 4000;

__global__ void store_index(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = i;
}

__global__ void add_neighbours(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> to,
                               kmm::GPUSubview<std::int64_t> from) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    to[i] = from[i] + (i > 0 ? from[i - 1] : 0) + (i + 1 < n ? from[i + 1] : 0);
}

/// Devices on which the chunks of an array that the handle makes by its first write are.
std::set<std::size_t> homes(const RuntimeHandle& rt) {
    Array<std::int64_t> x(n);
    rt.parallel_submit(n, 300, GPUKernel(store_index, dim3(64)), _x, overwrite(x[_x]));
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n));
    std::set<std::size_t> devices;
    const kmm::Distribution<1> d = x.distribution();
    for (std::size_t i = 0; i < d.num_chunks(); i++) devices.insert(d.chunk(i).owner_id.as_device().get());
    return devices;
}

TEST(Row114, a_constrained_handle_deals_to_its_devices_alone_and_in_their_order) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const std::size_t last = num_devices(rt) - 1;
        const RuntimeHandle some = rt.constrain_to(DeviceId(last));
        EXPECT_EQ(homes(some), std::set<std::size_t>{last});
        EXPECT_EQ(some.info().resources(), std::vector{ResourceId(DeviceId(last))});
        EXPECT_EQ(some.array<float>(100).distribution().chunk(0).owner_id, kmm::MemoryId(DeviceId(last)));
        if (last == 0) return;
        const RuntimeHandle two = rt.constrain_to({DeviceId(last), DeviceId(0)});
        EXPECT_EQ(homes(two), (std::set<std::size_t>{0, last}));
        EXPECT_EQ(two.array<float>(100).distribution().chunk(0).owner_id, kmm::MemoryId(DeviceId(last)));
        EXPECT_EQ(homes(two.constrain_to(DeviceId(0))), std::set<std::size_t>{0}) << "nested";
        EXPECT_EQ(homes(rt).size(), num_devices(rt)) << "the handle that it was made of is as it was";
    });
}

TEST(Row114, what_lies_outside_the_set_is_read_and_written_all_the_same) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        auto a = rt.array<std::int64_t>(n, Dim<1>(300));
        auto b = rt.array<std::int64_t>(n, Dim<1>(300));
        rt.parallel_submit(n, 300, GPUKernel(store_index, dim3(64)), _x, overwrite(a[_x]));
        const RuntimeHandle some = rt.constrain_to(DeviceId(num_devices(rt) - 1));
        std::vector<std::int64_t> expected = counting<std::int64_t>(n);
        for (int step = 0; step < 4; step++) {
            (step % 2 == 0 ? some : rt)
                .parallel_submit(n, 250, GPUKernel(add_neighbours, dim3(64)), _x, overwrite(b[_x]),
                                 a[kmm::range(_x - 1, _x + 2)]);
            std::vector<std::int64_t> next = expected;
            for (std::size_t i = 0; i < next.size(); i++)
                next[i] += (i > 0 ? expected[i - 1] : 0) + (i + 1 < next.size() ? expected[i + 1] : 0);
            expected = std::move(next);
            std::swap(a, b);
        }
        EXPECT_EQ(a.copy_to_vector(), expected);
    });
}

TEST(Row114, what_the_handle_has_not_is_refused_at_the_submit_and_nothing_is_queued) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(std::min<std::size_t>(2, devices_available())));
    const RuntimeHandle on_host = rt.constrain_to(ResourceId::host());
    auto x = rt.array<std::int64_t>(n, Dim<1>(300));
    const std::uint64_t before = rt.stats().tasks_submitted;
    const auto store = [&](const RuntimeHandle& handle, ResourceId where) {
        handle.submit(where, GPUKernel(store_index, dim3(64)).grid(dim3(63)), kmm::Range<std::int64_t>(0, n),
                      overwrite(x));
    };
    EXPECT_THROW(store(on_host, device(0)), kmm::InvalidResourceException);
    EXPECT_THROW(on_host.parallel_submit(n, 300, GPUKernel(store_index, dim3(64)), _x, overwrite(x[_x])),
                 kmm::InvalidResourceException);
    EXPECT_THROW(on_host.constrain_to(DeviceId(0)), kmm::InvalidResourceException);
    EXPECT_THROW(rt.constrain_to(std::vector<ResourceId>{}), kmm::InvalidArgument);
    EXPECT_THROW(rt.constrain_to(DeviceId(num_devices(rt))), kmm::InvalidResourceException);
    EXPECT_THROW(store(rt, ResourceId(DeviceId(0), DeviceStreamSet{63})), kmm::InvalidResourceException);
    if (num_devices(rt) > 1) {
        const RuntimeHandle first = rt.constrain_to(DeviceId(0));
        EXPECT_THROW(store(first, device(1)), kmm::InvalidResourceException);
        EXPECT_THROW(first.parallel_submit(std::vector{chunk_of(device(1), 0, n)}, GPUKernel(store_index, dim3(64)), _x,
                                           overwrite(x[_x])),
                     kmm::InvalidResourceException);
    }
    EXPECT_EQ(rt.stats().tasks_submitted, before);
    on_host.parallel_submit(n, 300, Host([](kmm::SubviewMut<std::int64_t> v) {
                                for (auto i = v.begin(); i < v.end(); i++) v[i] = i;
                            }),
                            overwrite(x[_x]));
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n));
    EXPECT_TRUE(on_host.array<float>(10).distribution().chunk(0).owner_id.is_host());
}

TEST(Row115, tasks_of_a_set_of_streams_give_the_right_results_for_1_8_and_64_streams) {
    KMM_NEED_DEVICES(1);
    for (const std::size_t streams : {1, 8, 64}) {
        RuntimeConfig config = config_with(1);
        config.device_concurrent_streams = streams;
        const RuntimeHandle rt = kmm::make_runtime(config);
        const RuntimeHandle some =
            rt.constrain_to(ResourceId(DeviceId(0), DeviceStreamSet{0, streams / 2, streams - 1}));
        EXPECT_EQ(some.info().resources().size(), 1u);
        auto a = rt.array<std::int64_t>(n, Dim<1>(300)), b = rt.array<std::int64_t>(n, Dim<1>(300));
        some.parallel_submit(n, 300, GPUKernel(store_index, dim3(64)), _x, overwrite(a[_x]));
        rt.parallel_submit(n, 300, GPUKernel(add_neighbours, dim3(64)), _x, overwrite(b[_x]),
                           a[kmm::range(_x - 1, _x + 2)]);
        some.parallel_submit(n, 300, GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int64_t>) {}), write(b[_x]));
        const std::vector<std::int64_t> result = b.copy_to_vector();
        for (std::int64_t i = 1; i + 1 < n; i++) ASSERT_EQ(result[static_cast<std::size_t>(i)], 3 * i);
    }
}

#if !KMM_USE_CUDA
std::atomic<int> arrived;

/// Returns when all of them are there.
__global__ void meet(int count) {
    arrived++;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (arrived.load() < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    if (arrived.load() < count) throw std::runtime_error("it met nobody");
}

TEST(Row087, eight_tasks_each_restricted_to_a_stream_of_its_own_that_wait_for_each_other_finish) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    arrived = 0;
    for (std::size_t i = 0; i < 8; i++)
        rt.constrain_to(ResourceId(DeviceId(0), {i})).submit(device(0), GPUKernel(meet, dim3(1)), 8);
    rt.synchronize();
    EXPECT_EQ(arrived.load(), 8);
}
#endif

}  // namespace
