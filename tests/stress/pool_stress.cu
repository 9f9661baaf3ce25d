// Pools under everything at once: threads and streams that come and go, blocks of all sizes that are filled and checked
// by kernels on whichever stream has them, handed from thread to thread, freed on other streams, while memory runs out
// and is trimmed. A word that is not its block's number was in two hands, or was touched out of stream order.
//
// KMM_STRESS_SECONDS: for how long each pool is tried (default 2; 1 with KMM_TEST_SHORT=1). KMM_STRESS_THREADS,
// KMM_STRESS_STREAMS: 4 and 4 a thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "driver/registry.hpp"
#include "kmm/emulation.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/repeat.hpp"
#include "support/sizes.hpp"

__global__ void fill_words(std::uint32_t* words, std::uint64_t count, std::uint32_t value) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = value;
}

__global__ void check_words(const std::uint32_t* words, std::uint64_t count, std::uint32_t value, unsigned* num_wrong) {
    const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
        if (words[i] != value) atomicAdd(num_wrong, 1u);
}

namespace {

using namespace kmm::driver;
using rmm::cuda_stream_view;
using rmm::mr::device_memory_resource;

Driver& driver() { return process_default(); }

template<typename Kernel>
const void* handle_of(Kernel* kernel) {
#if defined(__CUDACC__)
    cudaFunction_t function = nullptr;
    EXPECT_EQ(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kernel)), cudaSuccess);
    return function;
#else
    return kmm::emulation::kernel_handle(kernel);
#endif
}

struct fill_parameters {
    std::uint32_t* words;
    std::uint64_t count;
    std::uint32_t value;
    static constexpr std::size_t size_bytes = 20;  // the padding behind the last one is no parameter
};
struct check_parameters {
    const std::uint32_t* words;
    std::uint64_t count;
    std::uint32_t value;
    unsigned* num_wrong;
    static constexpr std::size_t size_bytes = 32;
};

template<typename Parameters>
void launch(const void* function, const Parameters& parameters, StreamHandle stream) {
    KernelLaunch launch;
    launch.function = function;
    launch.block = {128, 1, 1};
    launch.grid = {static_cast<std::uint32_t>(std::min<std::uint64_t>(64, parameters.count / 128 + 1)), 1, 1};
    launch.parameters = &parameters;
    launch.parameter_bytes = Parameters::size_bytes;
    ASSERT_TRUE(driver().launch(launch, stream).ok());
}

int from_environment(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
}

struct block {
    std::uint32_t* words = nullptr;
    std::size_t bytes = 0;
    std::uint32_t value = 0;
};

/// On its way to another thread, ordered by an event.
struct parcel {
    block content;
    EventHandle ready;
};

class mailbox {
  public:
    void put(const parcel& p) {
        std::lock_guard lock(mutex_);
        parcels_.push_back(p);
    }
    bool take(parcel* out) {
        std::lock_guard lock(mutex_);
        if (parcels_.empty()) return false;
        *out = parcels_.back();
        parcels_.pop_back();
        return true;
    }

  private:
    std::mutex mutex_;
    std::vector<parcel> parcels_;
};

struct shared {
    shared(device_memory_resource& mr, std::function<void()> trimmer, std::size_t largest)
        : resource(mr), trim(std::move(trimmer)), largest_bytes(largest) {}

    device_memory_resource& resource;
    std::function<void()> trim;
    std::size_t largest_bytes;
    const void* fill = handle_of(fill_words);
    const void* check = handle_of(check_words);
    mailbox parcels;
    std::atomic<std::uint32_t> next_value{1};
    std::atomic<std::uint64_t> num_operations{0};
    std::atomic<std::uint64_t> num_refused{0};
    std::atomic<bool> stop{false};
    unsigned* num_wrong = nullptr;  // page-locked
};

class worker {
  public:
    worker(shared& s, unsigned seed, int num_streams) : shared_(s), random_(seed) {
        for (int i = 0; i < num_streams; ++i) streams_.push_back(make_stream());
    }

    void run() {
        while (!shared_.stop.load(std::memory_order_relaxed)) {
            step();
            shared_.num_operations.fetch_add(1, std::memory_order_relaxed);
        }
        while (!held_.empty()) check_and_free(held_.size() - 1);
        for (StreamHandle s : streams_) EXPECT_TRUE(driver().destroy_stream(s).ok());
    }

  private:
    struct held {
        block content;
        std::size_t stream;
    };

    StreamHandle make_stream() {
        StreamHandle s;
        EXPECT_TRUE(driver().create_stream(0, true, 0, &s).ok());
        return s;
    }
    static cuda_stream_view view(StreamHandle s) { return cuda_stream_view{static_cast<cudaStream_t>(s.native)}; }
    std::size_t any_stream() { return random_() % streams_.size(); }

    void step() {
        // Not more is queued than can be done: the end waits for all of it.
        if (++num_steps_ % 32 == 0) {
            ASSERT_TRUE(driver().synchronize_stream(streams_[any_stream()]).ok());
        }
        const auto what = random_() % 1000;
        if (what < 480) return allocate();
        if (held_.empty()) return take_parcel();
        if (what < 880) return check_and_free(random_() % held_.size());
        if (what < 930) return free_elsewhere(random_() % held_.size());
        if (what < 960) return send(random_() % held_.size());
        if (what < 990) return take_parcel();
        if (what < 998) return replace_stream();
        shared_.trim();
    }

    void allocate() {
        if (held_.size() >= 96) return check_and_free(0);
        held h;
        h.stream = any_stream();
        const double exponent = std::uniform_real_distribution<double>(8, std::log2(shared_.largest_bytes))(random_);
        h.content.bytes = static_cast<std::size_t>(std::exp2(exponent)) & ~std::size_t{3};
        h.content.value = shared_.next_value.fetch_add(1, std::memory_order_relaxed);
        try {
            h.content.words =
                static_cast<std::uint32_t*>(shared_.resource.allocate(h.content.bytes, view(streams_[h.stream])));
        } catch (const rmm::bad_alloc&) {
            shared_.num_refused.fetch_add(1, std::memory_order_relaxed);
            return;
        }
        launch(shared_.fill, fill_parameters{h.content.words, h.content.bytes / 4, h.content.value},
               streams_[h.stream]);
        held_.push_back(h);
    }

    held remove(std::size_t at) {
        std::swap(held_[at], held_.back());
        const held h = held_.back();
        held_.pop_back();
        return h;
    }
    void check(const block& b, StreamHandle stream) {
        launch(shared_.check, check_parameters{b.words, b.bytes / 4, b.value, shared_.num_wrong}, stream);
    }
    void check_and_free(std::size_t at) {
        const held h = remove(at);
        check(h.content, streams_[h.stream]);
        shared_.resource.deallocate(h.content.words, h.content.bytes, view(streams_[h.stream]));
    }
    /// Used on its stream and on another one, freed on the other.
    void free_elsewhere(std::size_t at) {
        const held h = remove(at);
        const std::size_t other = any_stream();
        order(streams_[h.stream], streams_[other]);
        check(h.content, streams_[other]);
        shared_.resource.deallocate(h.content.words, h.content.bytes, view(streams_[other]));
    }
    void order(StreamHandle first, StreamHandle second) {
        EventHandle event;
        ASSERT_TRUE(driver().create_event(0, false, false, &event).ok());
        ASSERT_TRUE(driver().record_event(event, first).ok());
        ASSERT_TRUE(driver().wait_event(second, event).ok());
        ASSERT_TRUE(driver().destroy_event(event).ok());
    }
    void send(std::size_t at) {
        const held h = remove(at);
        parcel p{h.content, {}};
        ASSERT_TRUE(driver().create_event(0, false, false, &p.ready).ok());
        ASSERT_TRUE(driver().record_event(p.ready, streams_[h.stream]).ok());
        shared_.parcels.put(p);
    }
    void take_parcel() {
        parcel p;
        if (!shared_.parcels.take(&p)) return;
        const std::size_t stream = any_stream();
        ASSERT_TRUE(driver().wait_event(streams_[stream], p.ready).ok());
        ASSERT_TRUE(driver().destroy_event(p.ready).ok());
        held_.push_back({p.content, stream});
    }
    /// A stream goes with work queued on it; what it has is freed on it first.
    void replace_stream() {
        const std::size_t gone = any_stream();
        for (std::size_t i = held_.size(); i > 0; --i)
            if (held_[i - 1].stream == gone) check_and_free(i - 1);
        ASSERT_TRUE(driver().destroy_stream(streams_[gone]).ok());
        streams_[gone] = make_stream();
    }

    shared& shared_;
    std::mt19937 random_;
    std::vector<StreamHandle> streams_;
    std::vector<held> held_;
    std::uint64_t num_steps_ = 0;
};

void stress(device_memory_resource& resource, std::function<void()> trim, std::size_t largest_bytes) {
    shared s(resource, std::move(trim), largest_bytes);
    ASSERT_TRUE(driver().allocate_pinned(sizeof(unsigned), reinterpret_cast<void**>(&s.num_wrong)).ok());
    *s.num_wrong = 0;
    ASSERT_TRUE(driver().prepare_kernel(s.fill, 0).ok());
    ASSERT_TRUE(driver().prepare_kernel(s.check, 0).ok());
    const int num_threads = from_environment("KMM_STRESS_THREADS", 4);
    const int num_streams = from_environment("KMM_STRESS_STREAMS", 4);
    const auto seconds = std::chrono::seconds(from_environment("KMM_STRESS_SECONDS", repeat(2, 1)));
    const unsigned seed = std::random_device{}();
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    for (int t = 0; t < num_threads; ++t)
        threads.emplace_back([&, t] {
            // Threads come and go, too.
            for (unsigned generation = 0; !s.stop.load(); ++generation)
                worker(s, seed + static_cast<unsigned>(t) * 1000 + generation, num_streams).run();
        });
    std::mutex mutex;
    std::condition_variable over;
    std::unique_lock lock(mutex);
    over.wait_until(lock, begin + seconds, [] { return false; });
    s.stop = true;
    for (std::thread& t : threads) t.join();
    parcel p;
    while (s.parcels.take(&p)) {
        ASSERT_TRUE(driver().synchronize_event(p.ready).ok());
        ASSERT_TRUE(driver().destroy_event(p.ready).ok());
        resource.deallocate(p.content.words, p.content.bytes, cuda_stream_view{});
    }
    ASSERT_TRUE(driver().synchronize_device(0).ok());
    std::printf("seed %u: %llu operations, %llu refused\n", seed, static_cast<unsigned long long>(s.num_operations),
                static_cast<unsigned long long>(s.num_refused));
    EXPECT_EQ(*s.num_wrong, 0u) << "seed " << seed;
    EXPECT_GT(s.num_operations, 50u);
    ASSERT_TRUE(driver().free_pinned(s.num_wrong).ok());
}

bool on_gpu() { return driver().kind() != Kind::host; }
// So much that requests are refused now and then.
std::size_t limit() { return on_gpu() ? 4096 * MiB : 66 * MiB; }
std::size_t largest() { return on_gpu() ? 64 * MiB : 2 * MiB; }

TEST(PoolStress, a_pool_of_one_size) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, limit(), limit()};
    stress(pool, [&] { pool.trim(limit() / 2); }, largest());
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
}

TEST(PoolStress, a_pool_that_grows_and_shrinks) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{cuda, 0, limit()};
    stress(pool, [&] { pool.trim(); }, largest());
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
    pool.trim();
    EXPECT_EQ(pool.pool_size(), 0u);
}

TEST(PoolStress, virtual_memory) {
    rmm::mr::vmm_memory_resource vmm{limit()};
    stress(vmm, [&] { vmm.trim(limit() / 2); }, largest());
    EXPECT_EQ(vmm.statistics().in_use_bytes, 0u);
    vmm.trim();
    EXPECT_EQ(vmm.pool_size(), 0u);
}

TEST(PoolStress, bins_over_an_arena) {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, limit()};
    rmm::mr::binning_memory_resource<device_memory_resource> bins{&arena, 10, 16};
    stress(bins, [] {}, largest());
}

}  // namespace
