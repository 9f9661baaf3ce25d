// Copies between arrays and device memory of the program come after what the calling thread has put on its stream, and
// before what it puts there later. The test puts work on streams of the runtime's own driver.
#include "harness.hpp"

#include "driver/registry.hpp"
#include "forwarding_driver.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "per_thread_part.hpp"

namespace {

using kmm::driver::CaptureMode;
using kmm::driver::Driver;
using kmm::driver::legacy_stream;
using kmm::driver::per_thread_stream;
using kmm::driver::StreamHandle;

const std::int64_t n = repeat(1 << 20, 1 << 18);
const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(std::int32_t);

std::vector<std::int32_t> all(std::int32_t value) { return std::vector<std::int32_t>(n, value); }

/// Device memory of the program.
class Memory {
  public:
    enum class Kind { device, managed };
    Memory(Driver& driver, int device, Kind kind = Kind::device) : driver_(driver) {
        void* p = nullptr;
        const auto status =
            kind == Kind::device ? driver.allocate(device, bytes, &p) : driver.allocate_managed(bytes, &p);
        EXPECT_TRUE(status.ok());
        data_ = static_cast<std::int32_t*>(p);
    }
    ~Memory() { EXPECT_TRUE(driver_.free(data_).ok()); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::int32_t* data() const { return data_; }
    /// Takes its time until the elements are `value`.
    void slowly_become(std::int32_t value, StreamHandle stream) const {
        const int rounds = driver_.kind() == kmm::driver::Kind::host ? repeat(30, 10) : 2000;
        for (int i = rounds - 1; i >= 0; i--) {
            const std::int32_t now = value + i;
            EXPECT_TRUE(driver_.fill(data_, &now, sizeof now, n, stream).ok());
        }
    }
    /// At once. A driver takes some thousand pieces of work for a stream that stands still; the next one waits.
    void become(std::int32_t value, StreamHandle stream) const {
        EXPECT_TRUE(driver_.fill(data_, &value, sizeof value, n, stream).ok());
    }
    std::vector<std::int32_t> content(StreamHandle stream) const {
        std::vector<std::int32_t> result(n);
        EXPECT_TRUE(driver_.copy(result.data(), data_, bytes, stream).ok());
        EXPECT_TRUE(driver_.synchronize_stream(stream).ok());
        return result;
    }

  private:
    Driver& driver_;
    std::int32_t* data_ = nullptr;
};

/// A runtime, and its driver as a program has it that works with the same GPUs.
struct Setting {
    std::shared_ptr<Driver> driver;
    RuntimeHandle rt;

    static std::shared_ptr<Driver> open(const RuntimeConfig& config) {
        if (config.driver != kmm::DriverKind::Host) {
            std::string reason;
            return kmm::driver::open(kmm::driver::Kind::cuda, &reason);
        }
        kmm::driver::HostOptions options;
        options.num_devices = static_cast<int>(config.virtual_devices);
        options.memory_bytes = config.virtual_device_memory;
        options.num_threads = 4;
        return kmm::driver::make_host_driver(options);
    }
    explicit Setting(const RuntimeConfig& config)
        : driver(open(config)), rt(kmm::detail::RuntimeCore::start(config, driver)) {}
    int ordinal(std::size_t device) const {
        return rt.info().device(DeviceId(static_cast<std::uint8_t>(device))).device_ordinal();
    }
    void make_current(std::size_t device) const { EXPECT_TRUE(driver->set_current_device(ordinal(device)).ok()); }
};

/// With 1, 2 and 4 devices, and on each device.
template<typename F>
void on_every_device(F&& f) {
    KMM_NEED_DEVICES(1);
    for (const std::size_t num_devices : {1, 2, 4}) {
        if (num_devices > devices_available()) break;
        const Setting setting(config_with(num_devices));
        for (std::size_t d = 0; d < num_devices; d++) {
            SCOPED_TRACE("device " + std::to_string(d) + " of " + std::to_string(num_devices));
            setting.make_current(d);
            f(setting, d);
        }
        setting.make_current(0);
    }
}

TEST(CallerStream, a_copy_from_device_memory_comes_after_the_default_stream) {
    on_every_device([](const Setting& s, std::size_t d) {
        const Memory memory(*s.driver, s.ordinal(d));
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        for (int round = 0; round < 3; round++) {
            memory.slowly_become(10 * round + 1, legacy_stream());
            a.copy_from(memory.data());
            memory.slowly_become(10 * round + 2, legacy_stream());
            const auto b = s.rt.allocate(memory.data(), n);
            memory.slowly_become(10 * round + 3, legacy_stream());
            ASSERT_EQ(a.copy_to_vector(), all(10 * round + 1));
            ASSERT_EQ(b.copy_to_vector(), all(10 * round + 2));
        }
    });
}

TEST(CallerStream, a_copy_to_device_memory_comes_after_the_default_stream_and_before_what_follows) {
    on_every_device([](const Setting& s, std::size_t d) {
        const Memory memory(*s.driver, s.ordinal(d)), after(*s.driver, s.ordinal(d));
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        for (std::int32_t round = 0; round < 3; round++) {
            a.fill(round);
            ASSERT_EQ(a.copy_to_vector(), all(round));  // from here on the host has it, so that a copy takes no time
            memory.slowly_become(-1, legacy_stream());
            a.copy_to(memory.data());
            EXPECT_TRUE(s.driver->copy(after.data(), memory.data(), bytes, legacy_stream()).ok());
            memory.slowly_become(-2, legacy_stream());
            ASSERT_EQ(after.content(legacy_stream()), all(round));
        }
    });
}

TEST(CallerStream, copies_with_managed_memory_are_ordered_as_those_with_device_memory) {
    on_every_device([](const Setting& s, std::size_t d) {
        if (!s.driver->capabilities().managed_memory) GTEST_SKIP() << "the driver has no managed memory";
        const Memory memory(*s.driver, s.ordinal(d), Memory::Kind::managed);
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        a.copy_from(all(0));
        for (std::int32_t round = 1; round < 3; round++) {
            memory.slowly_become(round, legacy_stream());
            a.copy_from(memory.data());
            memory.slowly_become(-1, legacy_stream());
            ASSERT_EQ(a.copy_to_vector(), all(round));
            memory.slowly_become(-1, legacy_stream());
            a.copy_to(memory.data());
            ASSERT_EQ(memory.content(legacy_stream()), all(round));
        }
    });
}

TEST(CallerStream, memory_of_another_device_than_the_current_one_is_ordered_too) {
    KMM_NEED_DEVICES(2);
    const Setting s(config_with(2));
    const Memory there(*s.driver, s.ordinal(1));
    auto a = s.rt.array<std::int32_t>(n, Dim<1>(n));
    // Work on the stream of the memory's device, then on that of the device that is current when the copy is made.
    s.make_current(1);
    there.slowly_become(1, legacy_stream());
    s.make_current(0);
    a.copy_from(there.data());
    EXPECT_EQ(a.copy_to_vector(), all(1));
    bool linked = false;
    if (!s.driver->can_access_peer(s.ordinal(0), s.ordinal(1), &linked).ok() || !linked) return;
    const Memory garbage(*s.driver, s.ordinal(0)), good(*s.driver, s.ordinal(0));
    garbage.slowly_become(-1, legacy_stream());
    good.slowly_become(2, legacy_stream());
    EXPECT_TRUE(s.driver->synchronize_stream(legacy_stream()).ok());
    for (int i = 0; i < 40; i++) EXPECT_TRUE(s.driver->copy(there.data(), garbage.data(), bytes, legacy_stream()).ok());
    EXPECT_TRUE(s.driver->copy(there.data(), good.data(), bytes, legacy_stream()).ok());
    a.copy_from(there.data());
    EXPECT_EQ(a.copy_to_vector(), all(2));
}

TEST(CallerStream, asynchronous_copies_come_after_the_default_stream) {
    on_every_device([](const Setting& s, std::size_t d) {
        const Memory memory(*s.driver, s.ordinal(d)), out(*s.driver, s.ordinal(d));
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        memory.slowly_become(1, legacy_stream());
        const EventId read = a.copy_from_async(memory.data());
        out.slowly_become(-1, legacy_stream());
        const EventId filled = a.copy_to_async(out.data());
        s.rt.wait(read);
        memory.become(2, legacy_stream());
        s.rt.wait(filled);
        ASSERT_EQ(out.content(legacy_stream()), all(1));
        ASSERT_EQ(a.copy_to_vector(), all(1));
    });
}

/// Counts the streams that are made.
class CountingDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    explicit CountingDriver(std::shared_ptr<Driver> inner) : ForwardingDriver(*inner), inner_(std::move(inner)) {}
    std::atomic<int> num_streams{0};

  private:
    void called(const char* call) noexcept override {
        if (std::string_view(call) == "create_stream") ++num_streams;
    }
    std::shared_ptr<Driver> inner_;
};

TEST(CallerStream, pending_asynchronous_copies_take_no_streams_however_many_they_are) {
    KMM_NEED_DEVICES(1);
    const RuntimeConfig config = config_with(1);
    for (const int count : {100, 200}) {
        const auto driver = std::make_shared<CountingDriver>(Setting::open(config));
        const RuntimeHandle rt(kmm::detail::RuntimeCore::start(config, driver));
        ASSERT_TRUE(driver->set_current_device(rt.info().device(DeviceId(0)).device_ordinal()).ok());
        const Memory memory(*driver, rt.info().device(DeviceId(0)).device_ordinal());
        const Gate gate;
        const OpenAtEnd open(gate);
        constexpr std::int64_t few = 64;
        auto a = rt.array<std::int32_t>(few, Dim<1>(few));
        rt.submit(host(), Host([gate](kmm::ViewMut<std::int32_t> v) {
                      gate.wait();
                      for (std::int64_t i = 0; i < few; i++) v[i] = 1;
                  }),
                  overwrite(a));
        const int before = driver->num_streams;
        for (int i = 0; i < count; i++) a.copy_to_async(memory.data() + i * few);
        EXPECT_EQ(driver->num_streams, before);
        gate.open();
        rt.synchronize();
        EXPECT_LE(driver->num_streams - before, 32);  // of the threads that copied, and of lanes
        const std::vector<std::int32_t> copied = memory.content(legacy_stream());
        EXPECT_EQ(std::count(copied.begin(), copied.begin() + count * few, 1), count * few);
    }
}

TEST(CallerStream, a_host_task_copies_after_the_default_stream) {
    on_every_device([](const Setting& s, std::size_t d) {
        const Memory memory(*s.driver, s.ordinal(d));
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        auto b = std::make_shared<Array<std::int32_t>>();
        s.rt.wait(s.rt.submit(host(), Host([&] {
                                  s.make_current(d);
                                  memory.slowly_become(1, legacy_stream());
                                  a.copy_from(memory.data());
                                  memory.slowly_become(2, legacy_stream());
                                  *b = s.rt.allocate(memory.data(), n);
                                  memory.slowly_become(3, legacy_stream());
                              })));
        EXPECT_EQ(a.copy_to_vector(), all(1));
        EXPECT_EQ(b->copy_to_vector(), all(2));
        EXPECT_TRUE(s.driver->synchronize_stream(legacy_stream()).ok());
    });
}

TEST(CallerStream, a_device_function_copies_after_its_own_stream) {
    on_every_device([](const Setting& s, std::size_t d) {
        auto staging = one_chunk<std::int32_t>(s.rt, n);
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        auto b = std::make_shared<Array<std::int32_t>>();
        const RuntimeHandle rt = s.rt;
        s.rt.wait(s.rt.submit(device(d), GPU([a, b, rt](kmm::DeviceResource& r, kmm::GPUViewMut<std::int32_t> v) {
                                  const auto slowly_become = [&](std::int32_t value) {
                                      for (int i = 20; i >= 0; i--) r.fill(v, value + i);
                                  };
                                  slowly_become(1);
                                  a.copy_from(v.data());
                                  slowly_become(2);
                                  *b = rt.allocate(v.data(), n);
                                  slowly_become(3);
                              }),
                              overwrite(staging)));
        EXPECT_EQ(a.copy_to_vector(), all(1));
        EXPECT_EQ(b->copy_to_vector(), all(2));
        EXPECT_EQ(staging.copy_to_vector(), all(3));
    });
}

TEST(CallerStream, a_device_function_copies_for_another_runtime_after_its_own_stream) {
    KMM_NEED_DEVICES(1);
    const Setting s(config_with(1));
    const RuntimeHandle other(kmm::detail::RuntimeCore::start(config_with(1), s.driver));
    auto staging = one_chunk<std::int32_t>(s.rt, n);
    auto a = other.array<std::int32_t>(n, Dim<1>(n / 4)), b = other.array<std::int32_t>(n, Dim<1>(n / 4));
    a.copy_from(all(0));
    b.copy_from(all(7));
    s.rt.wait(s.rt.submit(device(0), GPU([a, b](kmm::DeviceResource& r, kmm::GPUViewMut<std::int32_t> v) {
                              for (int i = 50; i >= 1; i--) r.fill(v, i);
                              a.copy_from(v.data());
                              for (int i = 50; i >= 1; i--) r.fill(v, i);
                              b.copy_to(v.data());
                          }),
                          overwrite(staging)));
    EXPECT_EQ(a.copy_to_vector(), all(1));
    EXPECT_EQ(staging.copy_to_vector(), all(7));
}

TEST(CallerStream, on_the_host_driver_memory_of_other_drivers_in_the_process_is_ordered_by_theirs) {
    KMM_NEED_DEVICES(1);
    // Runtimes have virtual devices of their own there, and so have rmm's resources.
    const RuntimeHandle rt = kmm::make_runtime(config_with(1)), other = kmm::make_runtime(config_with(1));
    const auto of_rmm = kmm::driver::open(
        driver_under_test() == kmm::DriverKind::Host ? kmm::driver::Kind::host : kmm::driver::Kind::cuda, nullptr);
    ASSERT_NE(of_rmm, nullptr);
    auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4)), b = rt.array<std::int32_t>(n, Dim<1>(n / 4));
    a.copy_from(all(0));
    b.copy_from(all(7));
    {
        const Memory memory(*of_rmm, 0);
        memory.slowly_become(1, legacy_stream());
        a.copy_from(memory.data());
        EXPECT_EQ(a.copy_to_vector(), all(1));
        memory.slowly_become(2, legacy_stream());
        b.copy_to(memory.data());
        EXPECT_EQ(memory.content(legacy_stream()), all(7));
        rt.wait(rt.submit(host(), Host([&] {
                              memory.slowly_become(3, legacy_stream());
                              a.copy_from(memory.data());
                          })));
        EXPECT_EQ(a.copy_to_vector(), all(3));
    }
    auto staging = one_chunk<std::int32_t>(other, n);
    other.wait(other.submit(device(0), GPU([a, b](kmm::DeviceResource& r, kmm::GPUViewMut<std::int32_t> v) {
                                for (int i = 50; i >= 1; i--) r.fill(v, i);
                                a.copy_from(v.data());
                                for (int i = 50; i >= 1; i--) r.fill(v, i);
                                b.copy_to(v.data());
                            }),
                            overwrite(staging)));
    EXPECT_EQ(a.copy_to_vector(), all(1));
    EXPECT_EQ(staging.copy_to_vector(), all(7));
}

TEST(CallerStream, units_compiled_for_per_thread_default_streams_mean_the_threads_own) {
    on_every_device([](const Setting& s, std::size_t d) {
        const Memory memory(*s.driver, s.ordinal(d));
        auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
        // The memory that the arrays need is there before the device has work that does not end.
        a.copy_from(all(0));
        const auto first = allocate_in_per_thread_unit(s.rt, memory.data(), n);
        // The stream of another thread is busy until the copies are made: what is ordered after the legacy stream would
        // wait.
        Gate gate, busy;
        const OpenAtEnd open(gate);
        std::thread other([&] {
            s.make_current(d);
            EXPECT_TRUE(
                s.driver->host_callback(
                            per_thread_stream(), [](void* g) { static_cast<Gate*>(g)->wait(); }, &gate)
                    .ok());
            busy.open();
            gate.wait();
            EXPECT_TRUE(s.driver->synchronize_stream(per_thread_stream()).ok());
        });
        busy.wait();
        std::future<void> copies = std::async(std::launch::async, [&] {
            s.make_current(d);
            memory.slowly_become(1, per_thread_stream());
            copy_from_in_per_thread_unit(a, memory.data());
            memory.slowly_become(2, per_thread_stream());
            const auto b = allocate_in_per_thread_unit(s.rt, memory.data(), n);
            memory.slowly_become(-1, per_thread_stream());
            copy_to_in_per_thread_unit(a, memory.data());
            EXPECT_EQ(memory.content(per_thread_stream()), all(1));
            memory.slowly_become(-1, per_thread_stream());
            copy_bytes_to_in_per_thread_unit(b, memory.data(), bytes);
            EXPECT_EQ(memory.content(per_thread_stream()), all(2));
        });
        EXPECT_EQ(copies.wait_for(std::chrono::seconds(30)), std::future_status::ready);
        gate.open();
        other.join();
        copies.get();
        // The same class in this unit.
        memory.slowly_become(4, legacy_stream());
        a.copy_from(memory.data());
        EXPECT_EQ(a.copy_to_vector(), all(4));
    });
}

TEST(CallerStream, a_default_stream_that_is_captured_is_refused_and_goes_on) {
    KMM_NEED_DEVICES(1);
    const Setting s(config_with(1));
    if (!s.driver->capabilities().stream_capture) GTEST_SKIP() << "the driver captures no streams";
    s.make_current(0);
    const Memory memory(*s.driver, s.ordinal(0));
    auto a = s.rt.array<std::int32_t>(n, Dim<1>(n / 4));
    a.fill(5);
    s.rt.synchronize();
    const auto refused = [&](StreamHandle stream, auto&& copy) {
        ASSERT_TRUE(s.driver->begin_capture(stream, CaptureMode::relaxed).ok());
        const auto error = thrown_by<kmm::InvalidArgument>(copy);
        kmm::driver::GraphHandle graph;
        EXPECT_TRUE(s.driver->end_capture(stream, &graph).ok());
        EXPECT_TRUE(s.driver->destroy_graph(graph).ok());
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "captured")) << error->what();
    };
    refused(per_thread_stream(), [&] { copy_from_in_per_thread_unit(a, memory.data()); });
    refused(per_thread_stream(), [&] { copy_to_in_per_thread_unit(a, memory.data()); });
    // The legacy stream is closed while a stream that waits for it is captured.
    refused(per_thread_stream(), [&] { a.copy_from(memory.data()); });
    refused(per_thread_stream(), [&] { (void)s.rt.allocate(memory.data(), n); });
    // Memory of the host has no stream.
    ASSERT_TRUE(s.driver->begin_capture(per_thread_stream(), CaptureMode::relaxed).ok());
    EXPECT_EQ(a.copy_to_vector(), all(5));
    kmm::driver::GraphHandle graph;
    EXPECT_TRUE(s.driver->end_capture(per_thread_stream(), &graph).ok());
    EXPECT_TRUE(s.driver->destroy_graph(graph).ok());
}

TEST(CallerStream, a_copy_that_waits_for_the_default_stream_holds_up_no_host_tasks) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.host_threads = 1;
    const Setting s(config);
    s.make_current(0);
    const Memory memory(*s.driver, s.ordinal(0));
    auto a = s.rt.array<std::int32_t>(n, Dim<1>(n));
    a.copy_from(all(5));
    Gate gate;
    const OpenAtEnd open(gate);
    memory.become(1, legacy_stream());
    EXPECT_TRUE(s.driver->host_callback(legacy_stream(), [](void* g) { static_cast<Gate*>(g)->wait(); }, &gate).ok());
    memory.become(2, legacy_stream());
    std::thread copier([&] {
        s.make_current(0);
        a.copy_from(memory.data());
    });
    for (int i = 0; i < repeat(2000, 500); i++) {
        const bool done = s.rt.wait_for(s.rt.submit(host(), Host([] {})), std::chrono::seconds(20));
        EXPECT_TRUE(done);
        if (!done) break;
    }
    gate.open();
    copier.join();
    EXPECT_EQ(a.copy_to_vector(), all(2));
}

}  // namespace
