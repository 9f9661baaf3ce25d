// What GPU(f) may rely on: its inputs, where f touches them by itself, and a thread, where others of them wait.
#include <fstream>

#include "harness.hpp"

namespace {

__global__ void wait_and_set(kmm::GPUViewMut<int> out, const std::atomic<bool>* open) {
    open->wait(false);
    out[0] = 7;
}

/// The host driver, whose device functions may touch their views.
RuntimeConfig host_config() {
    RuntimeConfig config = config_with(1);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.virtual_devices = 1;
    config.virtual_device_memory = std::size_t{256} << 20;
    return config;
}

TEST(DeviceFunctions, one_that_touches_its_views_on_the_host_driver_finds_its_inputs) {
    if (driver_under_test() != kmm::DriverKind::Host) GTEST_SKIP() << "device memory is no memory of the host here";
    constexpr std::int64_t n = 1 << 18;
    for_each_configuration(working_set({n * 4, n * 4}), [](RuntimeHandle rt) {
        const std::size_t last = num_devices(rt) - 1;
        auto a = one_chunk<int>(rt, n), b = one_chunk<int>(rt, n);
        auto wrong = std::make_shared<std::atomic<std::int64_t>>(0);
        for (int round = 0; round < repeat(20, 5); round++) {
            rt.submit(device(0), GPU([round](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) {
                          for (int i = 0; i < 4; i++) d.fill(v, round + i - 3);
                      }),
                      overwrite(a));
            rt.submit(device(last),
                      GPU([round, wrong](kmm::DeviceResource&, kmm::GPUView<int> v, kmm::GPUViewMut<int> w) {
                          std::int64_t found = 0;
                          for (std::int64_t i = 0; i < n; i++) {
                              found += v[i] != round;
                              w[i] = v[i] + 1;
                          }
                          *wrong += found;
                      }),
                      a, overwrite(b));
            rt.submit(device(0),
                      GPU([](kmm::DeviceResource& d, kmm::GPUView<int> w, kmm::GPUViewMut<int> v) { d.copy(w, v); }), b,
                      overwrite(a));
            rt.submit(device(last), GPU([round, wrong](kmm::DeviceResource&, kmm::GPUViewMut<int> v) {
                          std::int64_t found = 0;
                          for (std::int64_t i = 0; i < n; i++) found += v[i] != round + 1;
                          *wrong += found;
                      }),
                      write(a));
        }
        rt.synchronize();
        EXPECT_EQ(wrong->load(), 0);
    });
}

TEST(DeviceFunctions, what_one_writes_by_itself_is_not_behind_the_pattern_of_debug_mode) {
    RuntimeConfig config = host_config();
    config.debug_mode = true;
    const RuntimeHandle rt = kmm::make_runtime(config);
    constexpr std::int64_t n = 1 << 18;
    auto a = one_chunk<int>(rt, n);
    for (int round = 0; round < repeat(10, 3); round++) {
        rt.submit(device(0), GPU([round](kmm::DeviceResource&, kmm::GPUViewMut<int> v) {
                      for (std::int64_t i = 0; i < n; i++) v[i] = round;
                  }),
                  overwrite(a));
        ASSERT_EQ(a.copy_to_vector(), std::vector<int>(n, round));
    }
}

TEST(DeviceFunctions, those_whose_inputs_are_not_there_hold_up_no_others) {
    const RuntimeHandle rt = kmm::make_runtime(host_config());
    auto a = one_chunk<int>(rt, 1);
    auto total = std::make_shared<std::atomic<int>>(0);
    std::atomic<bool> open{false};
    rt.submit(device(0), GPUKernel(wait_and_set, dim3(1)), overwrite(a), &open);
    for (int i = 0; i < 5; i++)
        rt.submit(device(0), GPU([total](kmm::DeviceResource&, kmm::GPUView<int> v) { *total += v[0]; }), a);
    const EventId opener = rt.submit(device(0), GPU([&open](kmm::DeviceResource&) {
                                         open = true;
                                         open.notify_all();
                                     }));
    EXPECT_TRUE(rt.wait_for(opener, std::chrono::seconds(20)));
    open = true;
    open.notify_all();
    rt.synchronize();
    EXPECT_EQ(total->load(), 35);
}

TEST(DeviceFunctions, one_whose_input_failed_is_not_run) {
    const RuntimeHandle rt = kmm::make_runtime(host_config());
    auto a = one_chunk<int>(rt, 1);
    auto runs = std::make_shared<std::atomic<int>>(0);
    rt.submit(host(), Host([](kmm::ViewMut<int>) { throw std::runtime_error("on purpose"); }), overwrite(a));
    const EventId after =
        rt.submit(device(0), GPU([runs](kmm::DeviceResource&, kmm::GPUViewMut<int>) { ++*runs; }), write(a));
    EXPECT_THROW(rt.wait(after), kmm::TaskError);
    EXPECT_EQ(runs->load(), 0);
}

TEST(DeviceFunctions, those_that_wait_for_another_runtime_give_their_threads_to_others) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1)), other = kmm::make_runtime(config_with(1));
    constexpr int num_waiting = 3;
    Gate arrived[num_waiting];
    Gate last;
    const OpenAtEnd open(last);
    const EventId all = other.submit(host(), Host([arrived, last] {
                                         for (const Gate& g : arrived) g.wait();
                                         last.wait();
                                     }));
    // Work before the wait and after it, with the work of others between.
    std::vector<Array<int>> arrays;
    for (int i = 0; i < num_waiting; i++) {
        arrays.push_back(one_chunk<int>(rt, 1000));
        rt.submit(device(0), GPU([other, all, gate = arrived[i], i](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) {
                      d.fill(v, i);
                      gate.open();
                      other.wait(all);
                      d.fill(v.data(), 500, i + 10);
                  }),
                  overwrite(arrays.back()));
    }
    const EventId opener = rt.submit(device(0), GPU([last, arrived](kmm::DeviceResource&) {
                                         for (const Gate& g : arrived) g.wait();
                                         last.open();
                                     }));
    EXPECT_TRUE(rt.wait_for(opener, std::chrono::seconds(20)));
    for (const Gate& g : arrived) g.open();
    last.open();
    for (int i = 0; i < num_waiting; i++) {
        std::vector<int> expected(1000, i);
        std::fill_n(expected.begin(), 500, i + 10);
        EXPECT_EQ(arrays[static_cast<std::size_t>(i)].copy_to_vector(), expected);
    }
}

TEST(DeviceFunctions, those_that_wait_for_each_other_by_means_of_the_program_all_begin) {
    KMM_NEED_DEVICES(1);
    for_each_configuration(working_set({4000}), [](RuntimeHandle rt) {
        constexpr int num_meeting = 5;
        for (int round = 0; round < 2; round++) {
            Gate all_here;
            const OpenAtEnd open(all_here);
            auto missing = std::make_shared<std::atomic<int>>(num_meeting);
            auto a = one_chunk<int>(rt, 1000);
            rt.submit(device(0), GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) { d.fill(v, 1); }),
                      overwrite(a));
            std::vector<EventId> events;
            for (int i = 0; i < num_meeting; i++)
                events.push_back(rt.submit(device(0), GPU([missing, all_here](kmm::DeviceResource&, kmm::GPUView<int>) {
                                               if (--*missing == 0) all_here.open();
                                               all_here.wait();
                                           }),
                                           a));
            for (const EventId e : events) EXPECT_TRUE(rt.wait_for(e, std::chrono::seconds(20)));
            EXPECT_EQ(a.copy_to_vector(), std::vector<int>(1000, 1));
        }
    });
}

TEST(DeviceFunctions, those_that_wait_for_each_other_without_giving_the_processor_up_all_begin) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    constexpr int num_meeting = 3;
    auto missing = std::make_shared<std::atomic<int>>(num_meeting);
    std::vector<EventId> events;
    for (int i = 0; i < num_meeting; i++)
        events.push_back(rt.submit(device(0), GPU([missing](kmm::DeviceResource&) {
                                       --*missing;
                                       while (*missing > 0) std::this_thread::yield();
                                   })));
    for (const EventId e : events) EXPECT_TRUE(rt.wait_for(e, std::chrono::seconds(20)));
    *missing = 0;
}

std::size_t address_space_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    file >> pages;
    return pages * 4096;
}

TEST(DeviceFunctions, threads_that_came_for_those_that_met_leave_nothing_behind) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    constexpr int num_meeting = 10;
    const auto meet = [&] {
        Gate all_here;
        const OpenAtEnd open(all_here);
        auto missing = std::make_shared<std::atomic<int>>(num_meeting);
        for (int i = 0; i < num_meeting; i++)
            rt.submit(device(0), GPU([missing, all_here](kmm::DeviceResource&) {
                          if (--*missing == 0) all_here.open();
                          all_here.wait();
                      }));
        rt.synchronize();
    };
    meet();
    const std::size_t before = address_space_bytes();
    constexpr int rounds = 8;
    for (int round = 0; round < rounds; round++) meet();
    // A thread has a stack of 8 MiB, which stays until the thread is joined: 80 MiB a round if none ever was. The
    // threads of the last round may not be joined yet, so the bound lies between one round's stacks and all of them.
    EXPECT_LT(address_space_bytes(), before + rounds * (std::size_t{20} << 20));
}

TEST(DeviceFunctions, too_many_that_wait_for_another_runtime_are_told_of_a_deadlock) {
    KMM_NEED_DEVICES(1);
    const RuntimeHandle rt = kmm::make_runtime(config_with(1)), other = kmm::make_runtime(config_with(1));
    Gate gate, refused;
    const OpenAtEnd open(gate);
    const EventId gated = other.submit(host(), Host([gate] { gate.wait(); }));
    auto num_refused = std::make_shared<std::atomic<int>>(0);
    std::vector<EventId> events;
    for (int i = 0; i < 64 + 4; i++)
        events.push_back(rt.submit(device(0), GPU([other, gated, num_refused, refused](kmm::DeviceResource&) {
                                       try {
                                           other.wait(gated);
                                       } catch (const kmm::DeadlockError&) {
                                           ++*num_refused;
                                           refused.open();
                                       }
                                   })));
    const EventId told = rt.submit(host(), Host([refused] { refused.wait(); }));
    EXPECT_TRUE(rt.wait_for(told, std::chrono::seconds(30)));
    refused.open();
    gate.open();
    for (const EventId e : events) rt.wait(e);
    EXPECT_GE(num_refused->load(), 1);
    EXPECT_LE(num_refused->load(), 4);
    // Their threads go again, and the next ones wait as the first did.
    const EventId later = rt.submit(device(0), GPU([other](kmm::DeviceResource&) { other.synchronize(); }));
    EXPECT_NO_THROW(rt.wait(later));
}

TEST(DeviceFunctions, one_that_lets_go_of_another_runtime_gives_its_thread_to_others) {
    KMM_NEED_DEVICES(1);
    RuntimeConfig config = config_with(1);
    config.host_threads = 1;
    const RuntimeHandle rt = kmm::make_runtime(config);
    for (const bool on_device : {true, false}) {
        Gate gate;
        const OpenAtEnd open(gate);
        EventId opener;
        for (int i = 0; i < 3; i++) {
            auto other = std::make_shared<std::unique_ptr<RuntimeHandle>>(
                std::make_unique<RuntimeHandle>(kmm::make_runtime(config_with(1))));
            (*other)->submit(host(), Host([gate] { gate.wait(); }));
            if (on_device)
                rt.submit(device(0), GPU([other](kmm::DeviceResource&) { other->reset(); }));
            else
                rt.submit(host(), Host([other] { other->reset(); }));
        }
        opener = on_device ? rt.submit(device(0), GPU([gate](kmm::DeviceResource&) { gate.open(); }))
                           : rt.submit(host(), Host([gate] { gate.open(); }));
        EXPECT_TRUE(rt.wait_for(opener, std::chrono::seconds(20)));
        gate.open();
        rt.synchronize();
    }
}

}  // namespace
