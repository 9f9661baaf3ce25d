// A driver that fails: whatever call it is, a program ends with the right result or a clear exception, and the runtime
// goes on. And a driver that counts: what moves when data does not fit.
#include "harness.hpp"

#include "forwarding_driver.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::BoxMove;
using kmm::driver::Code;
using kmm::driver::Status;
using kmm::driver::StreamHandle;
using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;

constexpr std::int64_t n = 512;
constexpr std::size_t bytes = n * sizeof(std::int64_t);

__global__ void scale_and_add(kmm::Range<std::int64_t> range, std::int64_t a, kmm::GPUSubview<std::int64_t> x,
                              kmm::GPUSubviewMut<std::int64_t> y) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] = a * x[i] + y[i];
}

__global__ void gated_scale_and_add(kmm::Range<std::int64_t> range, std::int64_t a, kmm::GPUSubview<std::int64_t> x,
                                    kmm::GPUSubviewMut<std::int64_t> y, kmm::GPUView<std::int64_t> gate) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] = a * x[i] + y[i] + gate[0];
}

__global__ void store_part(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x, std::int64_t add) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = i + add;
}

RuntimeConfig scripted_config(std::size_t devices) {
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = devices;
    config.host_threads = 2;
    config.device_concurrent_streams = 2;
    config.device_memory_limit = 3 * bytes;
    config.watchdog = 20;
    return config;
}

RuntimeHandle start(const RuntimeConfig& config, const std::shared_ptr<kmm::driver::Driver>& driver) {
    return RuntimeHandle(kmm::detail::RuntimeCore::start(config, driver));
}

/// Calls whose failure leaves nothing to be done but to leak: they are not failed.
std::set<std::string> clean_up_calls() {
    return {"free",
            "destroy_stream",
            "destroy_event",
            "unmap",
            "release_physical",
            "release_addresses",
            "unregister_host",
            "free_pinned",
            "destroy_pool"};
}

/// Writes, kernels on every device, spills, a host task, parts of chunks, copies out. Returns false if a clear
/// exception said that something failed; a wrong result fails the test.
bool run_program(const RuntimeHandle& rt) {
    constexpr std::int64_t chunks = 4, size = chunks * n;
    const std::size_t devices = num_devices(rt);
    std::string failure;
    const auto attempt = [&](auto&& f) {
        try {
            f();
            return true;
        } catch (const kmm::Error& e) {
            if (std::string(e.what()).empty()) ADD_FAILURE() << "an error without a text";
            failure = e.what();
            return false;
        }
    };
    std::vector<std::int64_t> x_expected = counting<std::int64_t>(size), y_expected(size, 1);
    Array<std::int64_t> x, y;
    bool ok = attempt([&] {
        x = rt.array<std::int64_t>(size, Dim<1>(n));
        y = rt.array<std::int64_t>(size, Dim<1>(n));
        x.copy_from(x_expected);
        y.copy_from(y_expected);
    });
    if (!ok) return false;
    kmm::Domain domain;
    for (std::int64_t c = 0; c < chunks; c++)
        domain.chunks.push_back(chunk_of(device(static_cast<std::size_t>(c) % devices), c * n, n));
    ok = attempt([&] {
        for (std::int64_t pass = 1; pass <= 3; pass++) {
            rt.parallel_submit(domain, GPUKernel(scale_and_add, dim3(64)), _x, pass, x[_x], write(y[_x]));
            // Two readers of one fetched chunk, of which one writes a part only.
            rt.parallel_submit(std::vector{chunk_of(device(0), 0, 100)}, GPUKernel(store_part, dim3(64)), _x,
                               write(x[_x]), pass);
            rt.parallel_submit(std::vector{chunk_of(host(), n, n)}, Host([](kmm::SubviewMut<std::int64_t> v) {
                                   for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] -= 3;
                               }),
                               write(y[_x]));
            std::rotate(domain.chunks.begin(), domain.chunks.begin() + 1, domain.chunks.end());
            const ResourceId first = domain.chunks.front().owner_id;
            for (std::size_t c = 0; c + 1 < domain.chunks.size(); c++)
                domain.chunks[c].owner_id = domain.chunks[c + 1].owner_id;
            domain.chunks.back().owner_id = first;
        }
    });
    for (std::int64_t pass = 1; pass <= 3; pass++) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(size); i++) y_expected[i] += pass * x_expected[i];
        for (std::size_t i = 0; i < 100; i++) x_expected[i] = static_cast<std::int64_t>(i) + pass;
        for (std::size_t i = n; i < 2 * n; i++) y_expected[i] -= 3;
    }
    if (!ok) {
        attempt([&] { rt.synchronize(); });
        return false;
    }
    // Chunk by chunk: what is not reported as failed must be right.
    for (std::int64_t c = 0; c < chunks; c++) {
        for (const bool of_x : {true, false}) {
            std::vector<std::int64_t> got(n, -123);
            const auto& expected = of_x ? x_expected : y_expected;
            const bool good = attempt([&] { (of_x ? x : y).copy_to(got.data(), Point<1>(c * n), Dim<1>(n)); });
            ok = ok && good;
            if (!good)
                EXPECT_EQ(got, std::vector<std::int64_t>(n, -123)) << "a failed copy changed its destination";
            else
                EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + c * n))
                    << "wrong elements in chunk " << c << (of_x ? " of x" : " of y");
        }
    }
    if (!attempt([&] { rt.synchronize(); })) ok = false;
    return ok;
}

/// A runtime whose failures have been dealt with works again: something that does not touch the old data.
void expect_usable(const RuntimeHandle& rt) {
    try {
        static_cast<void>(rt.wait_for(rt.barrier(), std::chrono::minutes(1)));
    } catch (const kmm::Error&) {
        // The failures of before, which nobody was told yet.
    }
    EXPECT_TRUE(run_program(rt)) << "the runtime is not usable any more";
}

void fail_every_call(std::size_t devices, bool virtual_memory, Code code, int step) {
    bool failed_once = false;
    for (std::uint64_t call = 1;; call += static_cast<std::uint64_t>(step)) {
        ScriptedOptions options;
        options.num_devices = static_cast<int>(devices);
        options.capabilities.virtual_memory = virtual_memory;
        auto driver = std::make_shared<ScriptedDriver>(options);
        driver->exempt(clean_up_calls());
        driver->fail_at(call, code);
        SCOPED_TRACE("call " + std::to_string(call) + " fails with code " + std::to_string(static_cast<int>(code)));
        std::string failed_call;
        try {
            const RuntimeHandle rt = start(scripted_config(devices), driver);
            run_program(rt);
            const bool injected = driver->num_failures() != 0;
            driver->clear_failures();
            if (!injected) break;
            expect_usable(rt);
        } catch (const kmm::Error& e) {
            EXPECT_FALSE(std::string(e.what()).empty());  // the start failed
        }
        for (const auto& entry : driver->log())
            if (entry.result == code) failed_call = entry.call;
        failed_once = failed_once || !failed_call.empty();
        ASSERT_FALSE(::testing::Test::HasFailure()) << "the call was " << failed_call;
    }
    EXPECT_TRUE(failed_once);
}

TEST(FailureInjection, a_driver_that_fails_any_one_call_gives_the_right_result_or_a_clear_exception) {
    fail_every_call(1, true, Code::unknown, repeat(1, 11));
    fail_every_call(2, true, Code::unknown, repeat(2, 23));
}

TEST(FailureInjection, a_driver_that_refuses_memory_at_any_one_call_gives_the_right_result_or_a_clear_exception) {
    fail_every_call(2, true, Code::out_of_memory, repeat(2, 29));
    fail_every_call(1, false, Code::out_of_memory, repeat(1, 19));
}

// One failed copy is tried again. Three in a row are a failure, of whatever the copy carried.
TEST(FailureInjection, copies_that_keep_failing_never_give_a_wrong_result) {
    for (const std::size_t devices : {1, 2}) {
        for (std::uint64_t first = 1;; first += static_cast<std::uint64_t>(repeat(1, 5))) {
            ScriptedOptions options;
            options.num_devices = static_cast<int>(devices);
            auto driver = std::make_shared<ScriptedDriver>(options);
            for (std::uint64_t k = 0; k < 3; k++) {
                driver->fail_call("copy", first + k, Code::unknown);
                driver->fail_call("copy_peer", first + k, Code::unknown);
            }
            SCOPED_TRACE("copies " + std::to_string(first) + " to " + std::to_string(first + 2) + " fail, " +
                         std::to_string(devices) + " devices");
            const RuntimeHandle rt = start(scripted_config(devices), driver);
            run_program(rt);
            const bool injected = driver->num_failures() != 0;
            driver->clear_failures();
            if (!injected) break;
            expect_usable(rt);
            ASSERT_FALSE(::testing::Test::HasFailure());
        }
    }
}

// Two tasks wait for one fetch, and the fetch fails: neither may run on what did not arrive.
TEST(FailureInjection, a_fetch_that_fails_fails_every_task_that_waits_for_it) {
    auto driver = std::make_shared<ScriptedDriver>();
    RuntimeConfig config = scripted_config(1);
    config.device_memory_limit = 16 * bytes;
    const RuntimeHandle rt = start(config, driver);
    auto x = rt.allocate(counting<std::int64_t>(n));
    auto y = rt.allocate(std::vector<std::int64_t>(n, 1));
    auto z = rt.allocate(std::vector<std::int64_t>(n, 2));
    const std::vector whole{chunk_of(device(0), 0, n)};
    for (Array<std::int64_t>* a : {&y, &z})
        rt.wait(rt.parallel_submit(whole, GPUKernel(store_part, dim3(64)), _x, write((*a)[_x]), std::int64_t{0}));
    for (std::uint64_t k = 1; k <= 3; k++) driver->fail_call("copy", k, Code::unknown);
    Gate gate;
    const OpenAtEnd open(gate);
    auto flag = rt.array<std::int64_t>(1, Distribution<1>::single(1, MemoryId::host()));
    rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> v) {
                  gate.wait();
                  v[0] = 0;
              }),
              overwrite(flag));
    // Both come after the host task, so that the scheduler issues them in one turn.
    auto after = rt.array<std::int64_t>(1, Distribution<1>::single(1, MemoryId::host()));
    rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v, kmm::View<std::int64_t>) { v[0] = 0; }), overwrite(after),
              flag);
    const EventId first =
        rt.parallel_submit(whole, GPUKernel(scale_and_add, dim3(64)), _x, std::int64_t{2}, x[_x], write(y[_x]));
    const EventId second =
        rt.parallel_submit(whole, GPUKernel(scale_and_add, dim3(64)), _x, std::int64_t{2}, x[_x], write(z[_x]));
    gate.open();
    const auto outcome = [&](EventId e) {
        try {
            rt.wait(e);
            return true;
        } catch (const kmm::TaskError&) {
            return false;
        }
    };
    const std::pair<Array<std::int64_t>*, bool> results[] = {{&y, outcome(first)}, {&z, outcome(second)}};
    for (const auto& [array, good] : results) {
        if (!good) {
            EXPECT_THROW(array->copy_to_vector(), kmm::TaskError);
            continue;
        }
        std::vector<std::int64_t> expected = counting<std::int64_t>(n);
        for (std::int64_t& v : expected) v = 3 * v;
        EXPECT_EQ(array->copy_to_vector(), expected);
    }
    driver->clear_failures();
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n));
}

// The fetch before a write of a part fails: the other part must not come back wrong under the name of an older, good
// write.
TEST(FailureInjection, a_failed_fetch_before_a_partial_write_does_not_spoil_the_rest_of_the_chunk_unseen) {
    auto driver = std::make_shared<ScriptedDriver>();
    RuntimeConfig config = scripted_config(1);
    const RuntimeHandle rt = start(config, driver);
    auto x = rt.allocate(counting<std::int64_t>(n));
    for (std::uint64_t k = 1; k <= 3; k++) driver->fail_call("copy", k, Code::unknown);
    const EventId e = rt.parallel_submit(std::vector{chunk_of(device(0), 0, n / 2)}, GPUKernel(store_part, dim3(64)),
                                         _x, write(x[_x]), std::int64_t{7});
    EXPECT_THROW(rt.wait(e), kmm::TaskError);
    driver->clear_failures();
    std::vector<std::int64_t> rest(n / 2, -1);
    try {
        x.copy_to(rest.data(), Point<1>(n / 2), Dim<1>(n / 2));
        EXPECT_EQ(rest, counting<std::int64_t>(n / 2, n / 2));
    } catch (const kmm::TaskError&) {
        EXPECT_EQ(rest, std::vector<std::int64_t>(n / 2, -1));
    }
    EXPECT_THROW(x.copy_to_vector(), kmm::TaskError);
    x.copy_from(counting<std::int64_t>(n, 5));
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n, 5));
}

TEST(Row096, a_launch_that_the_driver_refuses_fails_the_task) {
    auto driver = std::make_shared<ScriptedDriver>();
    const RuntimeHandle rt = start(scripted_config(1), driver);
    auto x = rt.allocate(counting<std::int64_t>(n));
    driver->fail_call("launch", 1, Code::launch_failed);
    const std::vector whole{chunk_of(device(0), 0, n)};
    const EventId e =
        rt.parallel_submit(whole, GPUKernel(store_part, dim3(64)).named("refused"), _x, write(x[_x]), std::int64_t{7});
    const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(e); });
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->task_name(), "refused");
    EXPECT_TRUE(nests<kmm::DeviceError>(*error, "launching the kernel")) << error->what();
    rt.parallel_submit(whole, GPUKernel(store_part, dim3(64)), _x, overwrite(x[_x]), std::int64_t{7});
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n, 7));
}

/// An array whose only valid content is on a device.
Array<std::int64_t> on_device(const RuntimeHandle& rt) {
    auto x = rt.allocate(counting<std::int64_t>(n));
    rt.wait(rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUViewMut<std::int64_t>) {}), write(x)));
    return x;
}

TEST(CopyOut, where_the_driver_page_locks_no_memory_data_comes_through_other_memory) {
    for (const int refusals : {1, 2}) {
        auto driver = std::make_shared<ScriptedDriver>();
        const RuntimeHandle rt = start(scripted_config(1), driver);
        const auto x = on_device(rt);
        for (int i = 1; i <= refusals; i++)
            driver->fail_call("allocate_pinned", static_cast<std::uint64_t>(i), Code::out_of_memory);
        EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n));
        EXPECT_EQ(driver->num_failures(), static_cast<std::uint64_t>(refusals));
    }
}

TEST(CopyOut, that_gets_no_stream_leaves_its_destination_as_it_was_and_works_the_next_time) {
    ScriptedOptions options;
    options.num_devices = 2;
    auto driver = std::make_shared<ScriptedDriver>(options);
    driver->fail_call("create_stream", 1, Code::out_of_memory);  // when the runtime starts
    const RuntimeHandle rt = start(scripted_config(2), driver);
    const auto x = on_device(rt);
    for (const std::uint64_t call : {1, 2}) {
        driver->fail_call("create_stream", call, Code::out_of_memory);
        std::vector<std::int64_t> read(n, 77);
        EXPECT_THROW(x.copy_to(read.data()), kmm::DeviceError);
        EXPECT_EQ(read, std::vector<std::int64_t>(n, 77));
        driver->clear_failures();
        if (call == 1) continue;
        x.copy_to(read.data());
        EXPECT_EQ(read, counting<std::int64_t>(n));
    }
}

TEST(CopyOut, has_its_streams_from_the_start_where_the_program_takes_all_memory_later) {
    ScriptedOptions options;
    options.num_devices = 2;
    auto driver = std::make_shared<ScriptedDriver>(options);
    const RuntimeHandle rt = start(scripted_config(2), driver);
    const auto x = on_device(rt);
    driver->fail_call("create_stream", 1, Code::out_of_memory);
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(n));
}

/// Allocations of a device lie side by side, and a copy that leaves its allocation is refused, as drivers do.
class SideBySideDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    explicit SideBySideDriver(std::shared_ptr<ScriptedDriver> inner)
        : ForwardingDriver(*inner), inner_(std::move(inner)) {
        void* slab = nullptr;
        if (!inner_->allocate(0, slab_bytes, &slab).ok()) throw std::bad_alloc();
        slab_ = static_cast<std::byte*>(slab);
    }
    Status allocate(int, std::size_t size, void** out) noexcept override {
        const std::lock_guard lock(mutex_);
        if (size > slab_bytes - used_bytes_) return {Code::out_of_memory};
        *out = slab_ + used_bytes_;
        used_bytes_ += size;
        allocations_.emplace(slab_ + used_bytes_, size);
        return {};
    }
    Status free(void*) noexcept override { return {}; }
    Status copy(void* to, const void* from, std::size_t size, StreamHandle stream) noexcept override {
        if (leaves_its_allocation(from, size)) return {Code::invalid_argument};
        return ForwardingDriver::copy(to, from, size, stream);
    }
    Status move_boxes(const BoxMove* boxes, std::size_t num_boxes, StreamHandle stream) noexcept override {
        for (std::size_t i = 0; i < num_boxes; i++)
            if (leaves_its_allocation(boxes[i].source, boxes[i].run_bytes)) return {Code::invalid_argument};
        return ForwardingDriver::move_boxes(boxes, num_boxes, stream);
    }
    std::size_t num_allocations(std::size_t size) {
        const std::lock_guard lock(mutex_);
        return static_cast<std::size_t>(std::count_if(allocations_.begin(), allocations_.end(),
                                                      [&](const auto& each) { return each.second == size; }));
    }

  private:
    static constexpr std::size_t slab_bytes = std::size_t{1} << 20;

    void called(const char*) noexcept override {}
    bool leaves_its_allocation(const void* first, std::size_t size) {
        const std::lock_guard lock(mutex_);
        const auto* begin = static_cast<const std::byte*>(first);
        const auto end = allocations_.upper_bound(begin);
        return begin >= slab_ && end != allocations_.end() && begin + size > end->first;
    }

    const std::shared_ptr<ScriptedDriver> inner_;
    std::byte* slab_ = nullptr;
    std::mutex mutex_;
    std::size_t used_bytes_ = 0;
    std::map<const std::byte*, std::size_t> allocations_;  ///< by where they end
};

TEST(CopyOut, chunks_in_allocations_that_lie_side_by_side_are_not_copied_as_one) {
    auto driver = std::make_shared<SideBySideDriver>(std::make_shared<ScriptedDriver>());
    RuntimeConfig config = scripted_config(1);
    config.device_memory_kind = kmm::DeviceMemoryKind::NoPool;
    config.device_memory_limit = 8 * bytes;
    const RuntimeHandle rt = start(config, driver);
    auto x = rt.array<std::int64_t>(4 * n, Dim<1>(n));
    rt.parallel_submit(4 * n, n, GPUKernel(store_part, dim3(64)), _x, overwrite(x[_x]), std::int64_t{3});
    EXPECT_EQ(x.copy_to_vector(), counting<std::int64_t>(4 * n, 3));
    EXPECT_GE(driver->num_allocations(bytes), 4u) << "or it would prove nothing";
}

TEST(Row105, a_lost_device_fails_its_tasks_and_the_other_devices_finish) {
    ScriptedOptions options;
    options.num_devices = 2;
    auto driver = std::make_shared<ScriptedDriver>(options);
    const RuntimeHandle rt = start(scripted_config(2), driver);
    Array<std::int64_t> only_there(n), safe = rt.allocate(counting<std::int64_t>(n)), other(n);
    const auto store_on = [&](std::size_t d, Array<std::int64_t>& a, std::int64_t add) {
        return rt.parallel_submit(std::vector{chunk_of(device(d), 0, n)}, GPUKernel(store_part, dim3(64)), _x,
                                  overwrite(a[_x]), add);
    };
    rt.wait(store_on(1, only_there, 1));
    driver->lose_device(1);
    EXPECT_THROW(rt.wait(store_on(1, other, 2)), kmm::TaskError);
    EXPECT_THROW(only_there.copy_to_vector(), kmm::TaskError);
    other.reset();
    store_on(0, other, 5);
    EXPECT_EQ(other.copy_to_vector(), counting<std::int64_t>(n, 5));
    EXPECT_EQ(safe.copy_to_vector(), counting<std::int64_t>(n));
}

TEST(Row111, a_driver_that_gives_less_memory_than_the_limit_leads_to_eviction_and_right_results) {
    for (const bool virtual_memory : {true, false}) {
        ScriptedOptions options;
        options.num_devices = 2;
        options.capabilities.virtual_memory = virtual_memory;
        auto driver = std::make_shared<ScriptedDriver>(options);
        driver->set_memory_cap(0, std::size_t{2} << 20);
        driver->set_memory_cap(1, std::size_t{4} << 20);
        RuntimeConfig config = scripted_config(2);
        config.device_memory_limit = std::size_t{32} << 20;
        const RuntimeHandle rt = start(config, driver);
        constexpr std::int64_t elements = 64 * 1024;  // half a MiB
        std::vector<Array<std::int64_t>> arrays;
        for (int i = 0; i < 12; i++) {
            arrays.emplace_back(elements);
            rt.parallel_submit(std::vector{chunk_of(device(static_cast<std::size_t>(i) % 2), 0, elements)},
                               GPUKernel(store_part, dim3(256)), _x, overwrite(arrays.back()[_x]),
                               static_cast<std::int64_t>(i));
        }
        for (int i = 0; i < 12; i++)
            EXPECT_EQ(arrays[static_cast<std::size_t>(i)].copy_to_vector(), counting<std::int64_t>(elements, i));
        EXPECT_GT(rt.stats().evictions, 0u);
    }
}

TEST(Row111, where_the_driver_refused_memory_no_higher_limit_is_offered) {
    auto driver = std::make_shared<ScriptedDriver>();
    driver->set_memory_cap(0, std::size_t{2} << 20);
    RuntimeConfig config = scripted_config(1);
    config.device_memory_limit = std::size_t{3} << 20;
    config.host_memory_limit = (std::size_t{1} << 20) + config.device_memory_limit;
    const RuntimeHandle rt = start(config, driver);
    constexpr std::int64_t elements = 64 * 1024;  // half a MiB
    std::vector<Array<std::int64_t>> arrays;
    for (int i = 0; i < 12; i++) {
        arrays.emplace_back(elements);
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, elements)}, GPUKernel(store_part, dim3(256)), _x,
                           overwrite(arrays.back()[_x]), static_cast<std::int64_t>(i));
    }
    const auto error = thrown_by<kmm::TaskError>([&] { rt.synchronize(); });
    ASSERT_NE(error, nullptr);
    EXPECT_TRUE(says(*error, "memory that others give back to virtual GPU 0")) << error->what();
    EXPECT_TRUE(says(*error, "at most 2.00 MiB (2097152 bytes) can be used")) << error->what();
    EXPECT_TRUE(says(*error, "KMM_HOST_MEM=")) << error->what();
    EXPECT_FALSE(says(*error, "KMM_DEVICE_MEM=")) << error->what();
    EXPECT_GT(error->also_failed().size(), 0u);
}

TEST(Traffic, ten_passes_over_four_times_the_memory_move_each_byte_once) {
    constexpr std::int64_t pairs = 128, room = 32, passes = 10;
    auto driver = std::make_shared<ScriptedDriver>();
    RuntimeConfig config = scripted_config(1);
    config.device_memory_limit = room * 2 * bytes + 256;
    const RuntimeHandle rt = start(config, driver);
    auto x = rt.array<std::int64_t>(pairs * n, Dim<1>(n));
    auto y = rt.array<std::int64_t>(pairs * n, Dim<1>(n));
    x.copy_from(counting<std::int64_t>(pairs * n));
    y.copy_from(std::vector<std::int64_t>(pairs * n, 1));
    auto gate_value = rt.array<std::int64_t>(1, Distribution<1>::single(1, MemoryId::host()));
    Gate gate;
    const OpenAtEnd open(gate);
    rt.submit(host(), Host([gate](kmm::ViewMut<std::int64_t> v) {
                  gate.wait();
                  v[0] = 0;
              }),
              overwrite(gate_value));
    // All passes are known before the first task can run.
    for (std::int64_t pass = 0; pass < passes; pass++)
        rt.parallel_submit(pairs * n, n, GPUKernel(gated_scale_and_add, dim3(256)), _x, std::int64_t{2}, x[_x],
                           write(y[_x]), gate_value);
    driver->clear_log();
    const kmm::RuntimeStats before = rt.stats();
    gate.open();
    rt.synchronize();
    const std::vector<std::int64_t> result = y.copy_to_vector();
    const kmm::RuntimeStats moved = rt.stats() - before;
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < result.size(); i++)
        wrong += result[i] != 1 + 2 * passes * static_cast<std::int64_t>(i) ? 1 : 0;
    EXPECT_EQ(wrong, 0);
    constexpr double one_trip = static_cast<double>(pairs * static_cast<std::int64_t>(bytes));
    const auto traffic = driver->traffic();
    EXPECT_LE(static_cast<double>(traffic.host_to_device_bytes), 1.05 * 2 * one_trip);
    EXPECT_LE(static_cast<double>(traffic.device_to_host_bytes), 1.05 * one_trip);
    EXPECT_EQ(moved.host_to_device.bytes, traffic.host_to_device_bytes);
    EXPECT_EQ(moved.device_to_host.bytes, traffic.device_to_host_bytes);
}

// What takes memory from the driver, or gives some back.
std::size_t num_memory_calls(const ScriptedDriver& driver) {
    std::size_t calls = 0;
    for (const char* name :
         {"allocate", "free", "map", "unmap", "set_access", "create_physical", "release_physical", "reserve_addresses",
          "register_host", "unregister_host", "allocate_pinned", "free_pinned", "allocate_async", "free_async"})
        calls += driver.count(name);
    return calls;
}

TEST(Traffic, a_steady_sweep_over_more_than_fits_asks_the_driver_for_no_memory) {
    constexpr std::int64_t pairs = 32, room = 8;
    for (const kmm::DeviceMemoryKind kind :
         {kmm::DeviceMemoryKind::Automatic, kmm::DeviceMemoryKind::CachingPool, kmm::DeviceMemoryKind::DefaultPool,
          kmm::DeviceMemoryKind::PrivatePool, kmm::DeviceMemoryKind::NoPool}) {
        auto driver = std::make_shared<ScriptedDriver>();
        RuntimeConfig config = scripted_config(1);
        config.device_memory_kind = kind;
        config.device_memory_limit = room * 2 * bytes;
        const RuntimeHandle rt = start(config, driver);
        auto x = rt.array<std::int64_t>(pairs * n, Dim<1>(n));
        auto y = rt.array<std::int64_t>(pairs * n, Dim<1>(n));
        x.copy_from(counting<std::int64_t>(pairs * n));
        y.copy_from(std::vector<std::int64_t>(pairs * n, 1));
        const auto sweep = [&] {
            rt.parallel_submit(pairs * n, n, GPUKernel(scale_and_add, dim3(256)), _x, std::int64_t{2}, x[_x],
                               write(y[_x]));
            rt.synchronize();
        };
        sweep();
        driver->clear_log();
        const std::uint64_t evictions = rt.stats().evictions;
        for (int pass = 0; pass < 5; pass++) sweep();
        EXPECT_GT(rt.stats().evictions, evictions) << "or it would prove nothing";
        EXPECT_EQ(num_memory_calls(*driver), 0u) << "kind " << static_cast<int>(kind);
        const std::vector<std::int64_t> result = y.copy_to_vector();
        for (std::size_t i = 0; i < result.size(); i++) ASSERT_EQ(result[i], 1 + 12 * static_cast<std::int64_t>(i));
    }
}

}  // namespace
