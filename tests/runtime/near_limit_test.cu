// Memory to the last piece: tasks that need nearly all that a device has, or all that others leave of it, run or are
// refused, in a bounded number of steps, however sizes, limits and the pieces of the device's memory lie to each other.
#include "harness.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string_view>

#include <rmm/cuda_device.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#if !KMM_USE_CUDA
#include "driver/registry.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "support/forwarding_driver.hpp"
#endif

namespace {

using kmm::DeviceMemoryKind;

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::int64_t apart = 1 << 16;  // elements that a task touches: emulated kernels take their time

__global__ void add_one(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<char> x) {
    for (std::int64_t i = apart * (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x); i < range.end;
         i += apart * gridDim.x * blockDim.x)
        x[i] = static_cast<char>(x[i] + 1);
}

__global__ void add_first_of(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<char> x, kmm::GPUSubview<char> y) {
    for (std::int64_t i = apart * (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x); i < range.end;
         i += apart * gridDim.x * blockDim.x)
        x[i] = static_cast<char>(x[i] + y[0]);
}

__global__ void add_first_of_two(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<char> x, kmm::GPUSubview<char> y,
                                 kmm::GPUSubview<char> z) {
    for (std::int64_t i = apart * (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x); i < range.end;
         i += apart * gridDim.x * blockDim.x)
        x[i] = static_cast<char>(x[i] + y[0] + z[0]);
}

/// Arrays of one chunk each, and what their elements must be.
class Program {
  public:
    explicit Program(RuntimeHandle rt) : rt_(std::move(rt)) {}
    void add_array(std::size_t bytes) {
        arrays_.push_back(one_chunk<char>(rt_, static_cast<std::int64_t>(bytes)));
        values_.push_back(static_cast<char>(arrays_.size()));
        arrays_.back().fill(values_.back());
    }
    /// Adds to the first array what is in the others: one to three different ones.
    EventId submit(std::size_t on_device, const std::vector<std::size_t>& of) {
        Array<char>& x = arrays_[of[0]];
        const kmm::Range<std::int64_t> all(0, x.size(0));
        EventId event;
        int added = 1;
        if (of.size() == 1) {
            event = rt_.submit(device(on_device), GPUKernel(add_one, dim3(64), dim3(2)), all, write(x));
        } else if (of.size() == 2) {
            added = values_[of[1]];
            event = rt_.submit(device(on_device), GPUKernel(add_first_of, dim3(64), dim3(2)), all, write(x),
                               arrays_[of[1]]);
        } else {
            added = values_[of[1]] + values_[of[2]];
            event = rt_.submit(device(on_device), GPUKernel(add_first_of_two, dim3(64), dim3(2)), all, write(x),
                               arrays_[of[1]], arrays_[of[2]]);
        }
        values_[of[0]] = static_cast<char>(values_[of[0]] + added);
        return event;
    }
#if !KMM_USE_CUDA
    std::size_t needed_bytes(const std::vector<std::size_t>& of) const {
        std::size_t bytes = 0;
        for (const std::size_t i : of) bytes += working_set({static_cast<std::size_t>(arrays_[i].size(0))});
        return bytes;
    }
#endif
    bool is_right() const {
        for (std::size_t i = 0; i < arrays_.size(); i++) {
            const std::vector<char> found = arrays_[i].copy_to_vector();
            for (std::size_t k = 0; k < found.size(); k += apart)
                if (found[k] != values_[i]) return false;
        }
        return true;
    }

  private:
    RuntimeHandle rt_;
    std::vector<Array<char>> arrays_;
    std::vector<char> values_;
};

#if !KMM_USE_CUDA

/// Counts what is asked of the driver for the sake of memory.
class CountingDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    explicit CountingDriver(std::shared_ptr<kmm::driver::Driver> inner)
        : ForwardingDriver(*inner), inner_(std::move(inner)) {}
    std::size_t num_requests() const noexcept { return requests_.load(); }

  private:
    void called(const char* call) noexcept override {
        const std::string_view name = call;
        if (name == "allocate" || name == "create_physical" || name == "map" || name == "allocate_async")
            if (requests_.fetch_add(1) == most_requests) std::abort();  // else a loop without end would be a timeout
    }
    static constexpr std::size_t most_requests = 200'000;
    std::shared_ptr<kmm::driver::Driver> inner_;
    std::atomic<std::size_t> requests_{0};
};

/// A host driver with devices of that size, of which the test takes part away.
struct Devices {
    std::shared_ptr<CountingDriver> driver;
    std::vector<void*> held;

    Devices(std::size_t count, std::size_t bytes_each)
        : driver(std::make_shared<CountingDriver>(
              kmm::driver::make_host_driver({static_cast<int>(count), bytes_each, 1}))) {}
    ~Devices() {
        for (void* p : held) (void)driver->free(p);
    }
    void hold(int device, std::size_t bytes) {
        void* p = nullptr;
        if (bytes == 0) return;
        ASSERT_TRUE(driver->allocate(device, bytes, &p).ok());
        held.push_back(p);
    }
    RuntimeHandle start(RuntimeConfig config) const {
        config.virtual_devices = static_cast<std::size_t>(driver->device_count());
        return RuntimeHandle(kmm::detail::RuntimeCore::start(config, driver));
    }
};

RuntimeConfig whole_device(DeviceMemoryKind kind) {
    RuntimeConfig config = config_with(1);
    config.device_memory_fraction = 1.0;
    config.host_memory_limit = std::size_t{2} << 30;
    config.device_memory_kind = kind;
    config.host_threads = 1;
    config.memory_wait = 0;
    return config;
}

struct Outcome {
    int refused = 0;
    int ran = 0;
    std::size_t most_requests = 0;
};

/// One random program. What it needs and what there is decides what is right.
void run_one(unsigned seed, Outcome& all) {
    std::mt19937 random(seed);
    const auto between = [&](std::size_t low, std::size_t high) { return low + random() % (high - low + 1); };
    constexpr DeviceMemoryKind kinds[] = {DeviceMemoryKind::Vmm, DeviceMemoryKind::CachingPool,
                                          DeviceMemoryKind::NoPool, DeviceMemoryKind::DefaultPool};
    const DeviceMemoryKind kind = kinds[random() % 3 != 0 ? 0 : random() % 4];
    const std::size_t num = between(1, 2);
    std::size_t device_bytes = between(20 * 1'000'000, 130 * 1'000'000);
    if (random() % 4 == 0) device_bytes = device_bytes / (2 * MiB) * (2 * MiB);
    const std::size_t held = random() % 2 == 0 ? 0 : between(1, device_bytes / 2);
    RuntimeConfig config = whole_device(kind);
    config.device_memory_limit = device_bytes - (random() % 3 == 0 ? 0 : between(1, 5 * MiB));
    if (random() % 8 == 0) config.device_memory_block_size = between(1, 12 * MiB);
    Devices devices(num, device_bytes);
    for (std::size_t d = 0; d < num; d++) devices.hold(static_cast<int>(d), held);
    std::size_t free_bytes = 0, total_bytes = 0;
    ASSERT_TRUE(devices.driver->memory_info(0, &free_bytes, &total_bytes).ok());
    // In pieces of 2 MiB, where memory comes in pieces.
    const std::size_t piece = kind == DeviceMemoryKind::Vmm ? 2 * MiB : 256;
    const std::size_t usable = std::min(free_bytes / piece * piece, config.device_memory_limit);
    std::ostringstream what;
    what << "seed " << seed << " kind " << int(kind) << " devices " << num << " of " << device_bytes << " limit "
         << config.device_memory_limit << " held " << held << " usable " << usable << " block "
         << config.device_memory_block_size;
    SCOPED_TRACE(what.str());
    const RuntimeHandle rt = devices.start(config);
    Program program(rt);
    const std::size_t num_arrays = between(3, 5);
    std::size_t left = usable;
    for (std::size_t i = 0; i < num_arrays; i++) {
        std::size_t bytes =
            i < 3 && random() % 2 == 0 ? left / (3 - std::min<std::size_t>(i, 2)) : between(1, usable / 2);
        if (random() % 3 == 0) bytes = bytes / (2 * MiB) * (2 * MiB);
        bytes = std::clamp<std::size_t>(bytes / 256 * 256, 256, usable);
        program.add_array(bytes);
        what << " " << bytes;
        left -= std::min(left - 256, bytes);
    }
    const ::testing::ScopedTrace arrays(__FILE__, __LINE__, what.str());
    const int num_tasks = static_cast<int>(between(2, 10));
    bool all_fit = true;
    try {
        for (int t = 0; t < num_tasks; t++) {
            std::vector<std::size_t> of(num_arrays);
            std::iota(of.begin(), of.end(), std::size_t{0});
            std::shuffle(of.begin(), of.end(), random);
            of.resize(between(1, 3));
            const std::size_t needed = program.needed_bytes(of);
            if (needed > usable && random() % 4 != 0) continue;
            try {
                (void)program.submit(random() % num, of);
                all_fit = all_fit && needed <= usable;
            } catch (const kmm::OutOfMemory& e) {
                ++all.refused;
                if (needed <= usable) ADD_FAILURE() << needed << " bytes fit: " << e.what();
            }
        }
        EXPECT_TRUE(program.is_right());
        ++all.ran;
    } catch (const kmm::OutOfMemory& e) {
        if (all_fit) ADD_FAILURE() << "it fits: " << e.what();
    } catch (const kmm::TaskError& e) {
        if (all_fit) ADD_FAILURE() << "it fits: " << e.what();
    }
    all.most_requests = std::max(all.most_requests, devices.driver->num_requests());
}

TEST(NearLimit, random_programs_that_fit_to_the_last_piece_run_and_others_are_refused) {
    const char* const first_text = std::getenv("KMM_TEST_FIRST");
    const char* const count_text = std::getenv("KMM_TEST_COUNT");
    const unsigned first = first_text != nullptr ? static_cast<unsigned>(std::atoi(first_text)) : 0;
    const int count = count_text != nullptr ? std::atoi(count_text) : repeat(40, 10);
    Outcome all;
    for (int i = 0; i < count; i++) run_one(first + static_cast<unsigned>(i), all);
    // 110 at most in 120 programs; growth or exchange without progress would ask until the test's driver ends it.
    EXPECT_LE(all.most_requests, 1000u);
    RecordProperty("ran", all.ran);
    RecordProperty("refused", all.refused);
    RecordProperty("most_requests", static_cast<int>(all.most_requests));
}

TEST(NearLimit, a_task_beyond_the_whole_pieces_of_a_device_is_refused_at_submit_and_the_setting_that_is_offered_helps) {
    constexpr std::size_t device_bytes = 100'000'000;
    constexpr std::size_t usable_bytes = device_bytes / (2 * MiB) * (2 * MiB);
    constexpr std::size_t third = 33'000'000;
    for (const DeviceMemoryKind kind : {DeviceMemoryKind::CachingPool, DeviceMemoryKind::NoPool,
                                        DeviceMemoryKind::DefaultPool, DeviceMemoryKind::Vmm}) {
        SCOPED_TRACE(static_cast<int>(kind));
        const Devices devices(1, device_bytes);
        const RuntimeHandle rt = devices.start(whole_device(kind));
        Program program(rt);
        for (int i = 0; i < 3; i++) program.add_array(third);
        if (kind != DeviceMemoryKind::Vmm) {
            for (int i = 0; i < 4; i++) (void)program.submit(0, {0, 1, 2});
            EXPECT_TRUE(program.is_right());
            continue;
        }
        const auto error = thrown_by<kmm::OutOfMemory>([&] { (void)program.submit(0, {0, 1, 2}); });
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->limit(), usable_bytes);
        EXPECT_TRUE(says(*error, "(" + std::to_string(usable_bytes) + " bytes) can be used")) << error->what();
        EXPECT_TRUE(says(*error, "the device's memory in pieces of 2.00 MiB")) << error->what();
        EXPECT_TRUE(says(*error, "KMM_VIRTUAL_DEVICE_MEM=96MiB or more")) << error->what();
        const Devices larger(1, 96 * MiB);
        Program again(larger.start(whole_device(kind)));
        for (int i = 0; i < 3; i++) again.add_array(third);
        (void)again.submit(0, {0, 1, 2});
        EXPECT_TRUE(again.is_right());
    }
}

#endif

// ------------------------------------------------------------------------------------ less is free than the limit says

/// Leaves so much of device 0 to the runtime. The limit is that of the whole device.
class Crowded : public ::testing::Test {
  protected:
    void SetUp() override {
        KMM_NEED_DEVICES(1);
        const auto [free_bytes, total_bytes] = rmm::available_device_memory();
        ASSERT_GT(free_bytes, room) << "of " << total_bytes;
        filler_.emplace(free_bytes - room, rmm::cuda_stream_default, &cuda_);
    }
    static RuntimeHandle start(DeviceMemoryKind kind) {
        RuntimeConfig config = config_with(1);
        config.device_memory_fraction = 1.0;
        config.device_memory_kind = kind;
        config.memory_wait = 0;
#if KMM_USE_CUDA
        return kmm::make_runtime(config);
#else
        std::string reason;
        return RuntimeHandle(
            kmm::detail::RuntimeCore::start(config, kmm::driver::open(kmm::driver::Kind::host, &reason)));
#endif
    }
#if KMM_USE_CUDA
    static constexpr std::size_t room = 512 * MiB;
    // A GPU's driver takes some for kernels and streams.
    static constexpr std::size_t certain = 384 * MiB;
#else
    static constexpr std::size_t room = 27 * MiB + 12'345;  // no whole number of pieces
    static constexpr std::size_t certain = 26 * MiB;
#endif

  private:
    rmm::mr::cuda_memory_resource cuda_;
    std::optional<rmm::device_buffer> filler_;
};

TEST_F(Crowded, tasks_that_need_all_that_others_leave_run_and_those_that_need_more_fail_and_disturb_nobody) {
    for (const DeviceMemoryKind kind :
         {DeviceMemoryKind::Vmm, DeviceMemoryKind::CachingPool, DeviceMemoryKind::NoPool}) {
        SCOPED_TRACE(static_cast<int>(kind));
        const RuntimeHandle rt = start(kind);
        Program fits(rt);
        for (int i = 0; i < 3; i++) fits.add_array(certain / 3 / 256 * 256);
        for (std::size_t i = 0; i < 6; i++) (void)fits.submit(0, {i % 3, (i + 1) % 3, (i + 2) % 3});
        EXPECT_TRUE(fits.is_right());
        Program too_much(rt);
        for (int i = 0; i < 3; i++) too_much.add_array(room / 2 / 256 * 256);
        const EventId event = too_much.submit(0, {0, 1, 2});
        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "found no memory on")) << error->what();
        for (std::size_t i = 0; i < 6; i++) (void)fits.submit(0, {i % 3, (i + 1) % 3, (i + 2) % 3});
        EXPECT_TRUE(fits.is_right());
    }
}

}  // namespace
