// What many of a kind cost whoever schedules them, in entries of lists that are looked at, and in edges of the graph:
// in proportion to their number.
#include "harness.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>

#include "kmm/runtime/runtime_core.hpp"
#include "recorded_tasks.hpp"

namespace {

constexpr std::int64_t chunk_elements = 16;

struct Costs {
    std::uint64_t steps = 0;
    std::uint64_t edges = 0;
};

/// A runtime of the host driver that says what was done in it.
class Counted {
  public:
    /// `device_limit_bytes`: 0 is all that the device has.
    explicit Counted(std::size_t device_limit_bytes = 0)
        : file_(::testing::TempDir() + "kmm_steps_" + std::to_string(getpid()) + ".txt") {
        RuntimeConfig config;
        config.driver = kmm::DriverKind::Host;
        config.virtual_device_memory = std::size_t{64} << 20;
        config.host_threads = 1;
        if (device_limit_bytes != 0) config.device_memory_limit = device_limit_bytes;
        config.record = file_;
        core_ = kmm::detail::RuntimeCore::start(config);
        rt_.emplace(core_);
    }
    ~Counted() { std::remove(file_.c_str()); }
    const RuntimeHandle& rt() const { return *rt_; }
    /// From the start until now; ends the runtime.
    Costs end() {
        rt_->synchronize();
        Costs costs;
        costs.steps = core_->num_steps();
        rt_.reset();
        core_.reset();
        kmm_test::RecordedTasks tasks;
        std::ifstream in(file_);
        bool complete = false;
        (void)kmm::trace::read_record(in, file_, tasks, &complete);
        EXPECT_TRUE(complete);
        for (const auto& [number, task] : tasks.tasks) costs.edges += task.predecessors.size();
        return costs;
    }

  private:
    std::string file_;
    std::shared_ptr<kmm::detail::RuntimeCore> core_;
    std::optional<RuntimeHandle> rt_;
};

/// `program(rt, n)` at n and at 2 n: at most 2.2 times as much. With a limit of device memory the steps vary by a tenth
/// with when tasks end: at most 3 times as much.
template<typename Program>
void expect_in_proportion(std::int64_t n, Program&& program, std::size_t device_limit_bytes = 0) {
    const double most = device_limit_bytes == 0 ? 2.2 : 3.0;
    Costs costs[2];
    for (const int i : {0, 1}) {
        Counted counted(device_limit_bytes);
        program(counted.rt(), n << i);
        costs[i] = counted.end();
    }
    EXPECT_LE(static_cast<double>(costs[1].steps), most * static_cast<double>(costs[0].steps)) << costs[0].steps;
    EXPECT_LE(static_cast<double>(costs[1].edges), most * static_cast<double>(costs[0].edges)) << costs[0].edges;
    EXPECT_GE(costs[0].steps, static_cast<std::uint64_t>(n) / 64) << "they were counted";
}

/// The same where it depends on how far devices and threads are how many entries are looked at: no more for each than
/// this, which is a few times what was seen. With n that each look at all others it is far more.
template<typename Program>
void expect_few_for_each(std::int64_t n, Program&& program) {
    constexpr std::uint64_t most = 400;
    for (const std::int64_t count : {n, 2 * n}) {
        Counted counted;
        program(counted.rt(), count);
        const Costs costs = counted.end();
        EXPECT_LE(costs.steps, most * static_cast<std::uint64_t>(count)) << count;
        EXPECT_LE(costs.edges, most * static_cast<std::uint64_t>(count)) << count;
        EXPECT_GE(costs.steps, static_cast<std::uint64_t>(count) / 64) << "they were counted";
    }
}

TEST(Steps, of_copies_grow_with_the_number_of_chunks) {
    for (const bool on_device : {false, true}) {
        SCOPED_TRACE(on_device ? "on a device" : "on the host");
        expect_in_proportion(4000, [on_device](const RuntimeHandle& rt, std::int64_t n) {
            std::vector<int> values(static_cast<std::size_t>(n * chunk_elements), 1);
            Array<int> a = rt.array<int>(n * chunk_elements, Dim<1>(chunk_elements));
            if (on_device)
                a.fill(1);
            else
                a.copy_from(values);
            a.copy_to(values.data());
            a.copy_from(values);
            a.copy_to(values.data(), Point<1>(chunk_elements / 2), Dim<1>((n - 1) * chunk_elements));
            a.synchronize();
        });
    }
}

TEST(Steps, of_waits_for_an_array_grow_with_the_number_of_its_chunks) {
    expect_in_proportion(2000, [](const RuntimeHandle& rt, std::int64_t n) {
        Array<int> a = rt.array<int>(n * chunk_elements, Dim<1>(chunk_elements));
        rt.parallel_submit(TileDomain(n * chunk_elements, chunk_elements), Host([](kmm::SubviewMut<int>) {}),
                           overwrite(a[_x]));
        a.synchronize();
        a.synchronize();
    });
}

TEST(Steps, of_writes_in_place_by_functions_grow_with_the_number_of_tiles_of_a_chunk) {
    for (const bool on_device : {false, true}) {
        SCOPED_TRACE(on_device ? "on a device" : "on the host");
        expect_few_for_each(3000, [on_device](const RuntimeHandle& rt, std::int64_t n) {
            Array<int> a = rt.array<int>(n, Dim<1>(n));
            a.fill(1);
            const kmm::IndexMap halo = range(_x - 1, _x + 2);
            for (int step = 0; step < 3; ++step) {
                if (on_device)
                    rt.parallel_submit(n, 1,
                                       GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<int>, kmm::GPUSubview<int>) {}),
                                       write(a[_x]), a[halo]);
                else
                    rt.parallel_submit(n, 1, Host([](kmm::SubviewMut<int>, kmm::Subview<int>) {}), write(a[_x]),
                                       a[halo]);
            }
            rt.synchronize();
        });
    }
}

TEST(Steps, of_tasks_that_each_read_the_whole_of_an_array_grow_with_the_number_of_both) {
    expect_in_proportion(1000, [](const RuntimeHandle& rt, std::int64_t n) {
        Array<int> a = rt.array<int>(n, Dim<1>(1)), b = rt.array<int>(n, Dim<1>(1));
        a.fill(1);
        rt.parallel_submit(n, 1, Host([](kmm::SubviewMut<int>, kmm::View<int>) {}), overwrite(b[_x]), a);
        rt.synchronize();
    });
}

TEST(Steps, of_tasks_that_each_read_what_all_tasks_before_wrote_in_one_chunk_grow_with_their_number) {
    for (const bool on_device : {false, true}) {
        SCOPED_TRACE(on_device ? "on a device" : "on the host");
        expect_few_for_each(3000, [on_device](const RuntimeHandle& rt, std::int64_t n) {
            Array<int> a = rt.array<int>(n, Dim<1>(n)), b = rt.array<int>(n, Dim<1>(n));
            a.fill(1);
            for (int step = 0; step < 3; ++step) {
                if (on_device)
                    rt.parallel_submit(n, 1,
                                       GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<int>, kmm::GPUView<int>) {}),
                                       overwrite(b[_x]), a);
                else
                    rt.parallel_submit(n, 1, Host([](kmm::SubviewMut<int>, kmm::View<int>) {}), overwrite(b[_x]), a);
                std::swap(a, b);
            }
            rt.synchronize();
        });
    }
}

TEST(Steps, of_joins_grow_with_the_number_of_events) {
    expect_in_proportion(4000, [](const RuntimeHandle& rt, std::int64_t n) {
        std::promise<void> begin;
        std::shared_future<void> begun = begin.get_future().share();
        std::vector<EventId> events;
        events.push_back(rt.submit(ResourceId::host(), Host([begun] { begun.wait(); })));
        for (std::int64_t i = 1; i < n; ++i) events.push_back(rt.submit(ResourceId::host(), Host([] {})));
        const EventId all = rt.join(kmm::EventList(events.begin(), events.end()));
        begin.set_value();
        rt.wait(all);
    });
}

TEST(Steps, of_tasks_that_wait_for_memory_grow_with_their_number) {
    expect_in_proportion(
        2000,
        [](const RuntimeHandle& rt, std::int64_t n) {
            Gate gate;
            const OpenAtEnd open(gate);  // until all are submitted
            rt.submit(host(), Host([gate] { gate.wait(); }));
            for (std::int64_t i = 0; i < n; i++) {
                Array<int> loaded{1}, computed{1};
                rt.submit(host(), Host([](kmm::ViewMut<int> v) { v[0] = 1; }), overwrite(loaded));
                rt.submit(device(0), GPU([](kmm::DeviceResource&, kmm::GPUViewMut<int> to, kmm::GPUView<int> from) {
                              to[0] = from[0];
                          }),
                          overwrite(computed), loaded);
                rt.submit(host(), Host([](kmm::View<int>) {}), computed);
            }
        },
        std::size_t{1} << 18);
}

}  // namespace
