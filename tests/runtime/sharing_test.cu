// One budget: the runtime, other runtimes and rmm's resources on one device that cannot hold what all of them may have.
#include "harness.hpp"

#include <iostream>
#include <optional>
#include <random>

#include <rmm/cuda_device.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/reclaimer.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/vmm_memory_resource.hpp>

#if !KMM_USE_CUDA
#include "driver/registry.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "rmm/ledger.hpp"
#include "rmm/status.hpp"
#endif

namespace {

using cuda = rmm::mr::cuda_memory_resource;
using pool = rmm::mr::pool_memory_resource<cuda>;

// A GPU's driver needs some memory for itself now and then; emulated kernels and host copies should not take long.
#if KMM_USE_CUDA
constexpr std::size_t unit = std::size_t{8} << 20;
#else
const std::size_t unit = static_cast<std::size_t>(repeat(1 << 20, 1 << 18));
#endif
const std::size_t room = 64 * unit;                                     // on the device, for everybody
const auto n = static_cast<std::int64_t>(unit / sizeof(std::int64_t));  // of a chunk
const auto num_blocks = static_cast<unsigned>(n / 4);

__global__ void add_to(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x, std::int64_t add) {
    for (std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < range.end;
         i += std::int64_t(gridDim.x) * blockDim.x)
        x[i] += add;
}

__global__ void count_from(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x, std::int64_t first) {
    for (std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < range.end;
         i += std::int64_t(gridDim.x) * blockDim.x)
        x[i] = first + i;
}

/// Leaves `room` bytes of device 0 to the test, and makes runtimes on the driver whose devices rmm uses.
class Sharing : public ::testing::Test {
  protected:
    void SetUp() override {
        KMM_NEED_DEVICES(1);
        const auto [free_bytes, total_bytes] = rmm::available_device_memory();
        if (free_bytes > room + 8 * unit) filler_.emplace(free_bytes - room, rmm::cuda_stream_default, &cuda_);
    }
    static RuntimeConfig config() {
        RuntimeConfig config = config_with(1);
        config.device_memory_fraction = 1.0;
        config.device_memory_limit = room;
        config.device_memory_block_size = 4 * unit;
        config.host_memory_block_size = 4 * unit;
        config.device_concurrent_streams = 2;
        return config;
    }
    static RuntimeHandle start(const RuntimeConfig& config) {
#if KMM_USE_CUDA
        return kmm::make_runtime(config);
#else
        std::string reason;
        return RuntimeHandle(
            kmm::detail::RuntimeCore::start(config, kmm::driver::open(kmm::driver::Kind::host, &reason)));
#endif
    }
    /// `chunks` of one unit each on the device, counting up from `first`.
    static Array<std::int64_t> counting_array(const RuntimeHandle& rt, std::int64_t chunks, std::int64_t first) {
        Array<std::int64_t> a = rt.array<std::int64_t>(Dim<1>(chunks * n), Dim<1>(n));
        rt.parallel_submit(on_device_0(chunks), GPUKernel(count_from, dim3(64), dim3(num_blocks)), _x, overwrite(a[_x]),
                           first);
        return a;
    }
    /// All of an array of one chunk by one task.
    static EventId count_at_once(const RuntimeHandle& rt, Array<std::int64_t>& a, std::int64_t first) {
        return rt.submit(device(0), GPUKernel(count_from, dim3(64), dim3(num_blocks)),
                         kmm::Range<std::int64_t>(0, a.size(0)), overwrite(a), first);
    }
    static kmm::Domain on_device_0(std::int64_t chunks) {
        kmm::Domain domain;
        for (std::int64_t c = 0; c < chunks; c++) domain.chunks.push_back(chunk_of(device(0), c * n, n));
        return domain;
    }
    static void add_everywhere(const RuntimeHandle& rt, Array<std::int64_t>& a, std::int64_t add) {
        rt.parallel_submit(on_device_0(a.size(0) / n), GPUKernel(add_to, dim3(64), dim3(num_blocks)), _x, write(a[_x]),
                           add);
    }
    static bool counts_from(const Array<std::int64_t>& a, std::int64_t first) {
        const std::vector<std::int64_t> values = a.copy_to_vector();
        for (std::size_t i = 0; i < values.size(); i++)
            if (values[i] != first + static_cast<std::int64_t>(i)) return false;
        return true;
    }
    static bool fails_alone(rmm::mr::device_memory_resource& mr, std::size_t bytes) {
        const rmm::mr::no_reclaim_scope alone;
        try {
            mr.deallocate(mr.allocate(bytes), bytes);
            return false;
        } catch (const rmm::out_of_memory&) {
            return true;
        }
    }

    cuda cuda_;
    std::optional<rmm::device_buffer> filler_;
};

// --------------------------------------------------------------------------------------------------- the runtime gives

TEST_F(Sharing, an_allocation_succeeds_because_the_runtime_evicts_and_its_data_stays_right) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> a = counting_array(rt, 48, 7);
    rt.synchronize();
    ASSERT_TRUE(fails_alone(cuda_, 32 * unit));
    rmm::device_uvector<std::uint64_t> mine(32 * unit / 8, rmm::cuda_stream_default, &cuda_);
    mine.set_element(mine.size() - 1, 12345, rmm::cuda_stream_default);
    EXPECT_TRUE(counts_from(a, 7));
    add_everywhere(rt, a, 10);  // with less memory than the array needs
    EXPECT_TRUE(counts_from(a, 17));
    EXPECT_EQ(mine.back_element(rmm::cuda_stream_default), 12345u);
    EXPECT_GT(rt.stats().evicted_bytes, 0u);
}

TEST_F(Sharing, every_resource_that_takes_from_the_driver_gets_what_the_runtime_can_do_without) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> a = counting_array(rt, 48, 1);
    pool growing(cuda_, 0);
    rmm::mr::vmm_memory_resource mapped;
    rmm::mr::cuda_async_memory_resource async{0};
    std::int64_t first = 1;
    for (rmm::mr::device_memory_resource* mr : {static_cast<rmm::mr::device_memory_resource*>(&cuda_),
                                                static_cast<rmm::mr::device_memory_resource*>(&growing),
                                                static_cast<rmm::mr::device_memory_resource*>(&mapped),
                                                static_cast<rmm::mr::device_memory_resource*>(&async)}) {
        rt.synchronize();
        void* const mine = mr->allocate(37 * unit, rmm::cuda_stream_default);
        add_everywhere(rt, a, 1);
        first += 1;
        rt.synchronize();
        mr->deallocate(mine, 37 * unit, rmm::cuda_stream_default);
        rmm::cuda_stream_default.synchronize();
        add_everywhere(rt, a, 1);
        first += 1;
    }
    EXPECT_TRUE(counts_from(a, first));
}

TEST_F(Sharing, free_memory_of_the_runtime_goes_before_its_data) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> kept = counting_array(rt, 8, 0);
    {
        const Array<std::int64_t> gone = counting_array(rt, 40, 0);
        rt.synchronize();
    }
    rmm::device_buffer mine(32 * unit, rmm::cuda_stream_default, &cuda_);
    EXPECT_TRUE(counts_from(kept, 0));
    EXPECT_EQ(rt.stats().evictions, 0u);
}

TEST_F(Sharing, an_allocation_in_a_task_gets_what_can_be_evicted_at_once) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> others = counting_array(rt, 40, 3);
    Array<std::int64_t> own = one_chunk<std::int64_t>(rt, 8 * n);
    count_at_once(rt, own, 5);
    rt.synchronize();
    const auto task = [this](kmm::DeviceResource& resource, kmm::GPUViewMut<std::int64_t>) {
        const rmm::cuda_stream_view stream{static_cast<cudaStream_t>(resource.native_stream())};
        rmm::device_uvector<std::uint64_t> scratch(32 * unit / 8, stream, &cuda_);
        scratch.set_element(0, 1, stream);
    };
    const EventId done = rt.submit(device(0), GPU(task), write(own));
    rt.wait(done);
    EXPECT_GT(rt.stats().evictions, 0u);
    EXPECT_TRUE(counts_from(own, 5));
    EXPECT_TRUE(counts_from(others, 3));
}

TEST_F(Sharing, memory_of_every_kind_is_given_back) {
    for (const kmm::DeviceMemoryKind kind : {kmm::DeviceMemoryKind::Vmm, kmm::DeviceMemoryKind::CachingPool,
                                             kmm::DeviceMemoryKind::PrivatePool, kmm::DeviceMemoryKind::NoPool}) {
        SCOPED_TRACE(static_cast<int>(kind));
        RuntimeConfig of_kind = config();
        of_kind.device_memory_kind = kind;
        const RuntimeHandle rt = start(of_kind);
        Array<std::int64_t> a = counting_array(rt, 48, 7);
        rt.synchronize();
        ASSERT_TRUE(fails_alone(cuda_, 32 * unit));
        const rmm::device_buffer mine(32 * unit, rmm::cuda_stream_default, &cuda_);
        add_everywhere(rt, a, 1);
        EXPECT_TRUE(counts_from(a, 8));
    }
}

TEST_F(Sharing, a_chunk_that_a_running_device_function_uses_stays_and_others_are_given) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> used = one_chunk<std::int64_t>(rt, 4 * n);
    count_at_once(rt, used, 1);
    Array<std::int64_t> idle = counting_array(rt, 48, 2);
    rt.synchronize();
    const Gate gate;
    const OpenAtEnd open(gate);
    Gate inside;
    rt.submit(device(0), GPU([gate, inside](kmm::DeviceResource&, kmm::GPUViewMut<std::int64_t>) {
                  inside.open();
                  gate.wait();
              }),
              write(used));
    inside.wait();
    const rmm::device_buffer mine(32 * unit, rmm::cuda_stream_default, &cuda_);
    EXPECT_THROW((void)cuda_.allocate(30 * unit), rmm::out_of_memory) << "the rest is in use";
    gate.open();
    EXPECT_TRUE(counts_from(used, 1));
    EXPECT_TRUE(counts_from(idle, 2));
}

TEST_F(Sharing, an_allocation_in_a_task_that_only_its_own_chunks_could_serve_is_an_error_and_not_a_hang) {
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> own = one_chunk<std::int64_t>(rt, 40 * n);
    count_at_once(rt, own, 9);
    rt.synchronize();
    const auto task = [this](kmm::DeviceResource& resource, kmm::GPUView<std::int64_t>) {
        const rmm::cuda_stream_view stream{static_cast<cudaStream_t>(resource.native_stream())};
        const rmm::device_buffer scratch(32 * unit, stream, &cuda_);
    };
    const EventId done = rt.submit(device(0), GPU(task), own);
    const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(done); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(nests<rmm::out_of_memory>(*error, "out_of_memory")) << error->what();
    EXPECT_TRUE(counts_from(own, 9));
}

TEST_F(Sharing, a_pool_that_the_runtime_uses_too_gets_its_memory_back_at_its_maximum) {
    pool shared(cuda_, 0, 32 * unit);
    RuntimeConfig with_pool = config();
    with_pool.device_memory_kind = kmm::DeviceMemoryKind::Resource;
    with_pool.device_resource.emplace_back(rmm::device_async_resource_ref{shared});
    const RuntimeHandle rt = start(with_pool);
    Array<std::int64_t> a = counting_array(rt, 30, 2);
    rt.synchronize();
    ASSERT_TRUE(fails_alone(shared, 16 * unit));
    {
        rmm::device_uvector<std::uint64_t> mine(16 * unit / 8, rmm::cuda_stream_default, &shared);
        mine.set_element(0, 77, rmm::cuda_stream_default);
        add_everywhere(rt, a, 3);
        EXPECT_TRUE(counts_from(a, 5));
        EXPECT_EQ(mine.front_element(rmm::cuda_stream_default), 77u);
    }
    add_everywhere(rt, a, 3);
    EXPECT_TRUE(counts_from(a, 8));
}

TEST_F(Sharing, a_lock_around_a_resource_that_the_runtime_uses_too_is_not_held_while_the_runtime_is_asked) {
    pool upstream(cuda_, 0, 32 * unit);
    rmm::mr::thread_safe_resource_adaptor<pool> shared(&upstream);
    RuntimeConfig with_lock = config();
    with_lock.device_memory_kind = kmm::DeviceMemoryKind::Resource;
    with_lock.device_resource.emplace_back(rmm::device_async_resource_ref{shared});
    const RuntimeHandle rt = start(with_lock);
    Array<std::int64_t> a = counting_array(rt, 30, 2);
    rt.synchronize();
    const rmm::device_buffer mine(16 * unit, rmm::cuda_stream_default, &shared);
    EXPECT_TRUE(counts_from(a, 2));
}

TEST_F(Sharing, a_pool_at_its_own_maximum_and_a_request_beyond_the_device_cost_the_runtime_nothing) {
    pool source(cuda_, 0, 40 * unit);
    for (const bool of_a_pool : {false, true}) {
        RuntimeConfig either = config();
        if (of_a_pool) {
            either.device_memory_kind = kmm::DeviceMemoryKind::Resource;
            either.device_resource.emplace_back(rmm::device_async_resource_ref{source});
        }
        const RuntimeHandle rt = start(either);
        Array<std::int64_t> a = counting_array(rt, 32, 2);
        rt.synchronize();
        pool small(cuda_, 0, 8 * unit);
        void* const some = small.allocate(4 * unit);
        EXPECT_THROW((void)small.allocate(5 * unit), rmm::out_of_memory);
        EXPECT_THROW((void)small.allocate(16 * unit), rmm::out_of_memory);
        EXPECT_THROW((void)cuda_.allocate(std::size_t{1} << 50), rmm::out_of_memory);
        small.deallocate(some, 4 * unit);
        EXPECT_EQ(rt.stats().evictions, 0u);
        EXPECT_TRUE(counts_from(a, 2));
    }
}

// --------------------------------------------------------------------------------------------------- the runtime waits

TEST_F(Sharing, a_task_waits_for_memory_that_the_program_holds_and_runs_when_it_is_free) {
    const RuntimeHandle rt = start(config());
    std::optional<rmm::device_buffer> mine(std::in_place, 56 * unit, rmm::cuda_stream_default, &cuda_);
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
    const EventId done = count_at_once(rt, a, 4);
    // The measurement takes its time.
    EXPECT_FALSE(rt.wait_for(done, std::chrono::milliseconds(300)));
    mine.reset();
    rt.wait(done);
    EXPECT_TRUE(counts_from(a, 4));
}

TEST_F(Sharing, a_task_fails_after_memory_wait_and_says_who_could_help) {
    RuntimeConfig impatient = config();
    impatient.memory_wait = 0.2;
    const RuntimeHandle rt = start(impatient);
    const rmm::device_buffer mine(56 * unit, rmm::cuda_stream_default, &cuda_);
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
    const EventId done = count_at_once(rt, a, 4);
    const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(done); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(nests<kmm::OutOfMemory>(*error, "memory that others give back")) << error->what();
    // Smaller work goes on.
    Array<std::int64_t> b = counting_array(rt, 1, 8);
    EXPECT_TRUE(counts_from(b, 8));
}

#if !KMM_USE_CUDA
// What somebody is getting from the driver is in no books yet.
TEST_F(Sharing, a_task_waits_for_memory_that_somebody_is_just_taking) {
    const RuntimeHandle rt = start(config());
    kmm::driver::Driver& driver = rmm::detail::the_driver();
    std::optional<rmm::detail::transit_scope> transit(std::in_place, 0);
    void* memory = nullptr;
    ASSERT_TRUE(driver.allocate(0, 56 * unit, &memory).ok());
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
    const EventId done = count_at_once(rt, a, 4);
    EXPECT_FALSE(rt.wait_for(done, std::chrono::milliseconds(100)));
    ASSERT_TRUE(driver.free(memory).ok());
    transit.reset();
    rt.wait(done);
    EXPECT_TRUE(counts_from(a, 4));
}

// Others who hold nothing at the moment may just be handing it to and fro.
TEST_F(Sharing, a_task_that_saw_others_hold_memory_waits_on_when_they_have_let_go) {
    const RuntimeHandle rt = start(config());
    kmm::driver::Driver& driver = rmm::detail::the_driver();
    void* elsewhere = nullptr;
    ASSERT_TRUE(driver.allocate(0, 48 * unit, &elsewhere).ok());
    std::optional<rmm::device_buffer> mine(std::in_place, 4 * unit, rmm::cuda_stream_default, &cuda_);
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
    const EventId done = count_at_once(rt, a, 4);
    EXPECT_FALSE(rt.wait_for(done, std::chrono::milliseconds(100)));
    mine.reset();
    EXPECT_FALSE(rt.wait_for(done, std::chrono::milliseconds(100)));
    ASSERT_TRUE(driver.free(elsewhere).ok());
    rt.wait(done);
    EXPECT_TRUE(counts_from(a, 4));
}
#endif

TEST_F(Sharing, a_task_that_waits_for_the_program_keeps_no_smaller_one_waiting) {
    RuntimeConfig patient = config();
    patient.memory_wait = 60;
    const RuntimeHandle rt = start(patient);
    std::optional<rmm::device_buffer> mine(std::in_place, 40 * unit, rmm::cuda_stream_default, &cuda_);
    Array<std::int64_t> large = one_chunk<std::int64_t>(rt, 32 * n);
    const EventId waits = count_at_once(rt, large, 4);
    for (int i = 0; i < 4; i++) {
        const Array<std::int64_t> small = counting_array(rt, 4, i);
        EXPECT_TRUE(counts_from(small, i));
    }
    EXPECT_FALSE(rt.is_done(waits));
    mine.reset();
    EXPECT_TRUE(counts_from(large, 4));
}

TEST_F(Sharing, after_a_wait_in_vain_memory_that_became_free_is_used) {
    RuntimeConfig impatient = config();
    impatient.memory_wait = 0.1;
    const RuntimeHandle rt = start(impatient);
    std::optional<rmm::device_buffer> mine(std::in_place, 56 * unit, rmm::cuda_stream_default, &cuda_);
    for (const bool is_free : {false, true}) {
        if (is_free) mine.reset();
        Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
        const EventId done = count_at_once(rt, a, 4);
        if (is_free)
            EXPECT_TRUE(counts_from(a, 4));
        else
            EXPECT_THROW(rt.wait(done), kmm::TaskError);
    }
}

TEST_F(Sharing, every_release_of_the_program_prolongs_the_wait) {
    RuntimeConfig impatient = config();
    impatient.memory_wait = 0.5;
    const RuntimeHandle rt = start(impatient);
    std::vector<rmm::device_buffer> mine;
    for (int i = 0; i < 7; i++) mine.emplace_back(8 * unit, rmm::cuda_stream_default, &cuda_);
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 36 * n);
    const EventId done = count_at_once(rt, a, 4);
    // Five steps of less than the patience each, and of more together.
    while (mine.size() > 3) {
        EXPECT_FALSE(rt.wait_for(done, std::chrono::milliseconds(200)));
        mine.pop_back();
    }
    EXPECT_TRUE(counts_from(a, 4));
}

TEST_F(Sharing, a_task_gets_what_pools_do_not_use) {
    pool idle(cuda_, 0);
    idle.deallocate(idle.allocate(56 * unit), 56 * unit);
    ASSERT_TRUE(fails_alone(cuda_, 32 * unit));
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> a = one_chunk<std::int64_t>(rt, 32 * n);
    count_at_once(rt, a, 4);
    EXPECT_TRUE(counts_from(a, 4));
}

TEST_F(Sharing, reclaimers_of_the_program_are_never_called_by_the_runtime_itself) {
    struct Counting final : rmm::mr::reclaimer {
        std::size_t reclaim(std::size_t, rmm::cuda_stream_view) noexcept override {
            ++calls;
            return 0;
        }
        std::atomic<int> calls{0};
    } counting;
    const rmm::mr::reclaimer_registration registration(rmm::cuda_device_id{0}, 0, counting);
    const rmm::device_buffer mine(48 * unit, rmm::cuda_stream_default, &cuda_);
    const RuntimeHandle rt = start(config());
    Array<std::int64_t> a = counting_array(rt, 48, 4);  // more than is left
    EXPECT_TRUE(counts_from(a, 4));
    EXPECT_EQ(counting.calls.load(), 0);
}

// ---------------------------------------------------------------------------------------------------- reports

TEST_F(Sharing, reports_and_errors_name_the_runtime_and_count_its_memory_once) {
    const RuntimeHandle rt = start(config());
    const std::string name = "kmm runtime " + std::to_string(rt.info().runtime_number());
    Array<std::int64_t> a = counting_array(rt, 8, 0);
    rt.synchronize();
    const std::string report = rmm::memory_report(rmm::cuda_device_id{0});
    EXPECT_NE(report.find(name), std::string::npos) << report;
    EXPECT_NE(report.find("evictable " + std::to_string(8 * unit >> 20) + ".00 MiB"), std::string::npos) << report;
    pool other(cuda_, 0);
    for (rmm::mr::device_memory_resource* mr :
         {static_cast<rmm::mr::device_memory_resource*>(&other), static_cast<rmm::mr::device_memory_resource*>(&cuda_)})
        try {
            (void)mr->allocate(std::size_t{1} << 50);
            ADD_FAILURE() << "more than the device has";
        } catch (const rmm::out_of_memory& e) {
            const std::string text = e.what();
            const std::size_t at = text.find("runtimes    " + name + " holds");
            EXPECT_NE(at, std::string::npos) << text;
            EXPECT_EQ(text.find("runtimes    ", at + 1), std::string::npos) << "once: " << text;
        }
}

// --------------------------------------------------------------------------------------------------- everybody at once

/// Two runtimes and a pool, each of which may have the whole device, by several threads, for `seconds`.
class AtTheLimit {
  public:
    AtTheLimit(RuntimeHandle first, RuntimeHandle second) : runtimes_{std::move(first), std::move(second)} {}

    void run(double seconds) {
        until_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                        std::chrono::duration<double>(seconds));
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 4; i++) threads.emplace_back([this, i] { sweep(runtimes_[i % 2], i); });
        for (unsigned i = 0; i < 3; i++) threads.emplace_back([this, i] { allocate(i); });
        for (std::thread& t : threads) t.join();
        std::cout << rounds_ << " sweeps, " << allocations_ << " allocations, " << refused_ << " refused\n";
        EXPECT_GT(rounds_.load(), 0);
        EXPECT_GT(allocations_.load(), 0);
        EXPECT_LE(refused_.load(), allocations_.load() / 10) << "refused although chunks could leave";
    }

  private:
    bool over() const { return std::chrono::steady_clock::now() >= until_; }

    /// Each thread has an array of its own, twice as large as its share of the device.
    void sweep(const RuntimeHandle& rt, std::int64_t first) {
        constexpr std::int64_t chunks = 32;
        Array<std::int64_t> a = rt.array<std::int64_t>(Dim<1>(chunks * n), Dim<1>(n));
        kmm::Domain domain;
        for (std::int64_t c = 0; c < chunks; c++) domain.chunks.push_back(chunk_of(device(0), c * n, n));
        rt.parallel_submit(domain, GPUKernel(count_from, dim3(64), dim3(num_blocks)), _x, overwrite(a[_x]), first);
        while (!over()) {
            for (int pass = 0; pass < 3; pass++, first++)
                rt.parallel_submit(domain, GPUKernel(add_to, dim3(64), dim3(num_blocks)), _x, write(a[_x]), 1);
            const std::vector<std::int64_t> values = a.copy_to_vector();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < values.size(); i++)
                if (values[i] != first + static_cast<std::int64_t>(i)) ++wrong;
            ASSERT_EQ(wrong, 0u);
            ++rounds_;
        }
    }

    void allocate(unsigned seed) {
        std::mt19937 random(seed);
        const rmm::cuda_stream stream;
        struct Block {
            rmm::device_uvector<std::uint64_t> data;
            std::uint64_t word;
        };
        std::vector<Block> blocks;
        while (!over()) {
            if (blocks.size() > 3 || (!blocks.empty() && random() % 2 == 0)) {
                const std::size_t i = random() % blocks.size();
                ASSERT_EQ(blocks[i].data.back_element(stream), blocks[i].word);
                ASSERT_EQ(blocks[i].data.front_element(stream), blocks[i].word);
                std::swap(blocks[i], blocks.back());
                blocks.pop_back();
                continue;
            }
            const std::uint64_t word = random();
            try {
                rmm::mr::device_memory_resource& from = random() % 2 == 0
                                                            ? static_cast<rmm::mr::device_memory_resource&>(pool_)
                                                            : static_cast<rmm::mr::device_memory_resource&>(cuda_);
                Block b{rmm::device_uvector<std::uint64_t>((1 + random() % 24) * (unit / 8) / 8, stream, &from), word};
                b.data.set_element(0, word, stream);
                b.data.set_element(b.data.size() - 1, word, stream);
                blocks.push_back(std::move(b));
                ++allocations_;
            } catch (const rmm::out_of_memory&) {
                ++refused_;
                if (!blocks.empty()) blocks.pop_back();
            }
        }
    }

    RuntimeHandle runtimes_[2];
    cuda cuda_;
    pool pool_{cuda_, 0, room};
    std::chrono::steady_clock::time_point until_;
    std::atomic<int> rounds_{0}, allocations_{0}, refused_{0};
};

/// KMM_STRESS_SECONDS, or a moment.
double stress_seconds() {
    const char* const text = std::getenv("KMM_STRESS_SECONDS");
    return text != nullptr ? std::atof(text) : short_run() ? 1.0 : 3.0;
}

TEST_F(Sharing, two_runtimes_and_a_pool_with_limits_beyond_the_device_all_go_on_and_stay_right) {
    RuntimeConfig patient = config();
    patient.memory_wait = 60;
    AtTheLimit(start(patient), start(patient)).run(stress_seconds());
}

TEST_F(Sharing, two_runtimes_that_each_need_most_of_the_device_take_turns) {
    const RuntimeHandle one = start(config()), two = start(config());
    Array<std::int64_t> a = one_chunk<std::int64_t>(one, 44 * n), b = one_chunk<std::int64_t>(two, 44 * n);
    const kmm::Range<std::int64_t> all(0, 44 * n);
    count_at_once(one, a, 1);
    count_at_once(two, b, 2);
    const int turns = repeat(4, 2);
    for (int i = 0; i < turns; i++) {
        one.submit(device(0), GPUKernel(add_to, dim3(64), dim3(num_blocks)), all, write(a), 1);
        two.submit(device(0), GPUKernel(add_to, dim3(64), dim3(num_blocks)), all, write(b), 1);
    }
    EXPECT_TRUE(counts_from(a, 1 + turns));
    EXPECT_TRUE(counts_from(b, 2 + turns));
}

}  // namespace
