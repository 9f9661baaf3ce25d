// Where memory comes from: rows 12 and 13 (kinds and block sizes), and resources of the program.
#include "harness.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/vmm_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace {

using kmm::DeviceMemoryKind;
using kmm::HostMemoryKind;

constexpr std::int64_t n = 1024;
constexpr std::size_t bytes = n * sizeof(float);
constexpr std::size_t MiB = std::size_t{1} << 20;

__global__ void store_slope(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> x, float slope) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = slope * static_cast<float>(i % 1000);
}

__global__ void add_two(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> sum, kmm::GPUSubview<float> left,
                        kmm::GPUSubview<float> right) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) sum[i] += left[i] + right[i];
}

constexpr const char* name_of(DeviceMemoryKind kind) {
    switch (kind) {
    case DeviceMemoryKind::DefaultPool: return "default";
    case DeviceMemoryKind::PrivatePool: return "private";
    case DeviceMemoryKind::CachingPool: return "caching";
    case DeviceMemoryKind::NoPool: return "none";
    case DeviceMemoryKind::Vmm: return "vmm";
    case DeviceMemoryKind::Resource: return "resource";
    case DeviceMemoryKind::Automatic: break;
    }
    return "automatic";
}
constexpr DeviceMemoryKind all_kinds[] = {DeviceMemoryKind::DefaultPool, DeviceMemoryKind::PrivatePool,
                                          DeviceMemoryKind::CachingPool, DeviceMemoryKind::NoPool,
                                          DeviceMemoryKind::Vmm,         DeviceMemoryKind::Resource};

EventId fill_on(const RuntimeHandle& rt, std::size_t d, Array<float>& a, float slope) {
    return rt.parallel_submit(std::vector{chunk_of(device(d), 0, a.size(0))}, GPUKernel(store_slope, dim3(64)), _x,
                              overwrite(a[_x]), slope);
}

bool is_filled(const Array<float>& a, float slope) {
    const std::vector<float> values = a.copy_to_vector();
    for (std::size_t i = 0; i < values.size(); i++)
        if (values[i] != slope * static_cast<float>(i % 1000)) return false;
    return true;
}

// Sums of three arrays each, of sizes that do not divide one another, on one device after the other.
constexpr std::int64_t sizes[] = {n, 3 * n, n / 2 + 1, 2 * n + 77, n - 5};
constexpr std::size_t largest_task = 3 * (3 * bytes);

void spill_mixed_sizes(const RuntimeHandle& rt) {
    const std::size_t devices = num_devices(rt);
    struct Triple {
        Array<float> sum, left, right;
    };
    std::vector<Triple> triples;
    for (const std::int64_t size : sizes) {
        triples.push_back({one_chunk<float>(rt, size), one_chunk<float>(rt, size), one_chunk<float>(rt, size)});
        fill_on(rt, triples.size() % devices, triples.back().sum, 0.0f);
        fill_on(rt, triples.size() % devices, triples.back().left, 1.0f);
        fill_on(rt, (triples.size() + 1) % devices, triples.back().right, 2.0f);
    }
    const int rounds = repeat(6, 2);
    for (int round = 0; round < rounds; round++)
        for (std::size_t i = 0; i < triples.size(); i++) {
            Triple& t = triples[(i * 2 + static_cast<std::size_t>(round)) % triples.size()];
            rt.parallel_submit(
                std::vector{chunk_of(device((i + static_cast<std::size_t>(round)) % devices), 0, t.sum.size(0))},
                GPUKernel(add_two, dim3(64)), _x, write(t.sum[_x]), t.left[_x], t.right[_x]);
        }
    for (const Triple& t : triples) {
        EXPECT_TRUE(is_filled(t.sum, 3.0f * static_cast<float>(rounds)));
        EXPECT_TRUE(is_filled(t.left, 1.0f));
    }
    for (const kmm::MemoryStats& m : rt.stats().memories) EXPECT_LE(m.peak_bytes, m.limit_bytes);
}

/// One resource for each device of a runtime.
template<typename Resource>
struct PerDevice {
    template<typename Make>
    PerDevice(std::size_t devices, Make&& make) {
        for (std::size_t d = 0; d < devices; d++) {
            rmm::cuda_set_device_raii on{rmm::cuda_device_id{static_cast<int>(d)}};
            resources.push_back(make());
        }
    }
    ~PerDevice() {
        for (std::size_t d = 0; d < resources.size(); d++) {
            rmm::cuda_set_device_raii on{rmm::cuda_device_id{static_cast<int>(d)}};
            resources[d].reset();
        }
    }
    PerDevice(const PerDevice&) = delete;
    PerDevice& operator=(const PerDevice&) = delete;
    void use_in(RuntimeConfig& config) const {
        config.device_memory_kind = DeviceMemoryKind::Resource;
        config.device_resource.clear();
        config.devices.clear();
        for (std::size_t d = 0; d < resources.size(); d++) {
            config.device_resource.emplace_back(rmm::device_async_resource_ref{*resources[d]});
            config.devices.push_back(static_cast<int>(d));
        }
    }
    std::vector<std::unique_ptr<Resource>> resources;
};

using VmmPerDevice = PerDevice<rmm::mr::vmm_memory_resource>;

/// f(config) for 1, 2 and 4 devices.
template<typename F>
void with_devices(F&& f) {
    const std::size_t available = devices_available();
    if (available == 0) GTEST_SKIP() << "no device";
    for (const std::size_t devices : {1, 2, 4}) {
        if (devices > available) break;
        SCOPED_TRACE(std::to_string(devices) + " devices");
        f(config_with(devices), devices);
        if (::testing::Test::HasFatalFailure()) return;
    }
}

// ---------------------------------------------------------------------------------------------------- row 13

TEST(Row013, all_kinds_of_host_and_device_memory_give_right_results_while_spilling) {
    with_devices([](RuntimeConfig config, std::size_t devices) {
        const VmmPerDevice own(devices, [] { return std::make_unique<rmm::mr::vmm_memory_resource>(); });
        config.device_memory_limit = largest_task;
        for (const HostMemoryKind host_kind : {HostMemoryKind::CachingPool, HostMemoryKind::NoPool})
            for (const DeviceMemoryKind kind : all_kinds) {
                SCOPED_TRACE(std::string("device memory: ") + name_of(kind) +
                             (host_kind == HostMemoryKind::NoPool ? ", host memory: none" : ", host memory: caching"));
                config.host_memory_kind = host_kind;
                config.device_memory_kind = kind;
                config.device_resource.clear();
                if (kind == DeviceMemoryKind::Resource) own.use_in(config);
                const RuntimeHandle rt = kmm::make_runtime(config);
                spill_mixed_sizes(rt);
                EXPECT_GT(rt.stats().evictions, 0u);
            }
    });
}

// ---------------------------------------------------------------------------------------------------- row 12

TEST(Row012, with_blocks_of_a_given_size_programs_that_free_and_reuse_buffers_of_all_sizes_run_right) {
    with_devices([](RuntimeConfig config, std::size_t devices) {
        config.device_memory_limit = largest_task + 3 * bytes;
        for (const std::size_t block : {std::size_t{1000}, 2 * bytes, 5 * bytes + 256, 64 * MiB})
            for (const DeviceMemoryKind kind : {DeviceMemoryKind::Automatic, DeviceMemoryKind::NoPool}) {
                SCOPED_TRACE("blocks of " + std::to_string(block) + " bytes, " + name_of(kind));
                config.host_memory_block_size = block;
                config.device_memory_block_size = block;
                config.device_memory_kind = kind;
                const RuntimeHandle rt = kmm::make_runtime(config);
                spill_mixed_sizes(rt);
                for (int round = 0; round < repeat(20, 3); round++) {
                    std::vector<Array<float>> equal, different;
                    for (int i = 0; i < 6; i++) {
                        equal.push_back(one_chunk<float>(rt, n));
                        different.push_back(one_chunk<float>(rt, (i * 5 + round) % 11 * 190 + 1));
                        const std::size_t d = static_cast<std::size_t>(i + round) % devices;
                        fill_on(rt, d, equal.back(), static_cast<float>(i));
                        fill_on(rt, d, different.back(), static_cast<float>(round));
                        if (i % 3 == 2) different.front() = Array<float>();
                    }
                    EXPECT_TRUE(is_filled(equal[2], 2.0f));
                    EXPECT_TRUE(is_filled(equal[5], 5.0f));
                    EXPECT_TRUE(is_filled(different[4], static_cast<float>(round)));
                }
                spill_mixed_sizes(rt);
            }
    });
}

TEST(Row012, a_step_is_as_large_as_a_block_or_as_the_buffer_that_does_not_fit_into_one) {
    KMM_NEED_DEVICES(1);
    struct Counting final : rmm::mr::device_memory_resource {
        rmm::mr::cuda_memory_resource cuda;
        std::vector<std::size_t> steps;
        void* do_allocate(std::size_t size, rmm::cuda_stream_view stream) override {
            steps.push_back(size);
            return cuda.allocate(size, stream);
        }
        void do_deallocate(void* p, std::size_t size, rmm::cuda_stream_view stream) override {
            cuda.deallocate(p, size, stream);
        }
    };
    const PerDevice<Counting> own(1, [] { return std::make_unique<Counting>(); });
    RuntimeConfig config = config_with(1);
    own.use_in(config);
    config.device_memory_block_size = 4 * bytes - 100;  // rounded up to 256
    {
        const RuntimeHandle rt = kmm::make_runtime(config);
        std::vector<Array<float>> arrays;
        for (int i = 0; i < 5; i++) fill_on(rt, 0, arrays.emplace_back(one_chunk<float>(rt, n)), 1.0f);
        rt.synchronize();
        auto large = one_chunk<float>(rt, 6 * n);
        fill_on(rt, 0, large, 1.0f);
        rt.synchronize();
        EXPECT_EQ(own.resources[0]->steps, (std::vector<std::size_t>{4 * bytes, 4 * bytes, 6 * bytes}));
    }
}

// ----------------------------------------------------------------------------------------------- resources of programs

TEST(OwnResource, is_asked_for_all_device_memory_and_gets_all_of_it_back) {
    with_devices([](RuntimeConfig config, std::size_t devices) {
        const VmmPerDevice upstream(devices, [] { return std::make_unique<rmm::mr::vmm_memory_resource>(); });
        using Limited = rmm::mr::limiting_resource_adaptor<rmm::mr::vmm_memory_resource>;
        std::size_t d = 0;
        // Less than the runtime's limit: it lives with what it gets.
        const PerDevice<Limited> limited(
            devices, [&] { return std::make_unique<Limited>(upstream.resources[d++].get(), 2 * largest_task); });
        limited.use_in(config);
        {
            const RuntimeHandle rt = kmm::make_runtime(config);
            spill_mixed_sizes(rt);
            std::vector<Array<float>> arrays;
            for (int i = 0; i < 40; i++)
                fill_on(rt, static_cast<std::size_t>(i) % devices, arrays.emplace_back(one_chunk<float>(rt, n)),
                        static_cast<float>(i));
            for (int i = 0; i < 40; i++)
                EXPECT_TRUE(is_filled(arrays[static_cast<std::size_t>(i)], static_cast<float>(i)));
            for (const auto& r : limited.resources) {
                EXPECT_GT(r->get_allocated_bytes(), 0u);
                EXPECT_LE(r->get_allocated_bytes(), 2 * largest_task);
            }
            arrays.clear();
            rt.synchronize();
            rt.trim_memory();
            for (const auto& r : limited.resources) EXPECT_EQ(r->get_allocated_bytes(), 0u);
            spill_mixed_sizes(rt);
        }
        for (const auto& r : limited.resources) EXPECT_EQ(r->get_allocated_bytes(), 0u);
    });
}

/// Gives memory a few times, and then throws what a program may throw.
class Reluctant final : public rmm::mr::device_memory_resource {
  public:
    explicit Reluctant(int times) : left_(times) {}
    std::size_t live = 0;

  private:
    void* do_allocate(std::size_t size, rmm::cuda_stream_view stream) override {
        if (left_ == 0) throw 42;
        --left_;
        live += size;
        return cuda_.allocate(size, stream);
    }
    void do_deallocate(void* p, std::size_t size, rmm::cuda_stream_view stream) override {
        live -= size;
        cuda_.deallocate(p, size, stream);
    }
    rmm::mr::cuda_memory_resource cuda_;
    int left_;
};

TEST(OwnResource, that_refuses_at_some_point_leads_to_eviction_and_where_it_gives_nothing_to_an_error) {
    KMM_NEED_DEVICES(1);
    for (const int times : {0, 1, 2, 3}) {
        const PerDevice<Reluctant> own(1, [&] { return std::make_unique<Reluctant>(times); });
        RuntimeConfig config = config_with(1);
        own.use_in(config);
        config.device_memory_block_size = largest_task;
        {
            const RuntimeHandle rt = kmm::make_runtime(config);
            if (times == 0) {
                auto a = one_chunk<float>(rt, n);
                const EventId event = fill_on(rt, 0, a, 1.0f);
                const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
                ASSERT_NE(error, nullptr);
                EXPECT_TRUE(says(*error, "found no memory")) << error->what();
            } else {
                spill_mixed_sizes(rt);
            }
        }
        EXPECT_EQ(own.resources[0]->live, 0u);
    }
}

TEST(OwnResource, may_be_shared_with_pools_of_the_program) {
    KMM_NEED_DEVICES(1);
    const VmmPerDevice shared(1, [] { return std::make_unique<rmm::mr::vmm_memory_resource>(); });
    rmm::mr::vmm_memory_resource& vmm = *shared.resources[0];
    RuntimeConfig config = config_with(1);
    shared.use_in(config);
    config.device_memory_limit = largest_task;
    {
        rmm::mr::pool_memory_resource<rmm::mr::vmm_memory_resource> pool(&vmm, 4 * MiB);
        std::atomic<bool> stop{false};
        std::thread other([&] {
            while (!stop.load()) {
                void* const p = pool.allocate(3 * MiB);
                void* const q = vmm.allocate(MiB);
                pool.deallocate(p, 3 * MiB);
                vmm.deallocate(q, MiB);
            }
        });
        {
            const RuntimeHandle rt = kmm::make_runtime(config);
            spill_mixed_sizes(rt);
            rt.trim_memory();
            spill_mixed_sizes(rt);
        }
        stop.store(true);
        other.join();
        EXPECT_EQ(vmm.statistics().in_use_bytes, pool.pool_size());
    }
    EXPECT_EQ(vmm.statistics().in_use_bytes, 0u);
}

TEST(OwnResource, of_host_memory_that_devices_cannot_use_is_told_from_one_that_is_full) {
    KMM_NEED_DEVICES(1);
    struct Pageable final : rmm::mr::device_memory_resource {
        void* do_allocate(std::size_t size, rmm::cuda_stream_view) override {
            return ::operator new(size, std::align_val_t{256});
        }
        void do_deallocate(void* p, std::size_t, rmm::cuda_stream_view) override {
            ::operator delete(p, std::align_val_t{256});
        }
    };
    static std::atomic<int> told{0};
    kmm::set_log_handler(
        [](int, const char* text, void*) {
            if (std::string(text).find("gives memory that this device cannot use") != std::string::npos) ++told;
        },
        nullptr);
    const PerDevice<Pageable> own(1, [] { return std::make_unique<Pageable>(); });
    RuntimeConfig config = config_with(1);
    own.use_in(config);
    {
        const RuntimeHandle rt = kmm::make_runtime(config);
        auto a = one_chunk<float>(rt, n);
        fill_on(rt, 0, a, 1.0f);
        EXPECT_THROW(rt.synchronize(), kmm::TaskError);
    }
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_EQ(told.load(), 1);
}

TEST(OwnResource, one_for_each_device_is_needed) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.devices = {0};
    config.device_memory_kind = DeviceMemoryKind::Resource;
    const auto none = thrown_by<kmm::InvalidArgument>([&] { kmm::make_runtime(config); });
    ASSERT_NE(none, nullptr);
    EXPECT_TRUE(says(*none, "0 entries for 1 devices")) << none->what();
    config.device_resource.resize(1);
    EXPECT_THROW(kmm::make_runtime(config), kmm::InvalidArgument);
}

}  // namespace
