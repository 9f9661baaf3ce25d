// The thread that gets memory for the heaps: kmm/supply/memory_service.hpp on the host driver, with the test in the
// scheduler's place. Nothing touches the memory of the devices, so that gigabytes cost nothing.
#include "kmm/supply/memory_service.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver/registry.hpp"
#include "fake_mailbox.hpp"
#include "forwarding_driver.hpp"

namespace {

using kmm::DeviceMemoryKind;
using kmm::HostMemoryKind;
using kmm::engine::Lanes;
using kmm::engine::Message;
using kmm::engine::testing::FakeMailbox;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::memory::AddressRange;
using kmm::memory::MemoryIndex;
using kmm::memory::Reclaimed;
using kmm::supply::MemoryService;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t gib = std::size_t{1} << 30;
constexpr MemoryIndex host = MemoryIndex::host();
constexpr MemoryIndex device = MemoryIndex::of_device(0);
constexpr LaneId lane{0};

/// Counts calls by name.
class CountingDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    explicit CountingDriver(std::shared_ptr<kmm::driver::Driver> inner)
        : ForwardingDriver(*inner), inner_(std::move(inner)) {}
    std::size_t count(const std::string& call) const {
        const std::lock_guard guard(mutex_);
        const auto at = counts_.find(call);
        return at == counts_.end() ? 0 : at->second;
    }
    kmm::driver::Status create_physical(int ordinal, std::size_t bytes, const kmm::driver::PhysicalOptions& options,
                                        kmm::driver::PhysicalHandle* out) noexcept override {
        if (maps_nothing) return {kmm::driver::Code::out_of_memory, 0};
        return ForwardingDriver::create_physical(ordinal, bytes, options, out);
    }
    std::atomic<bool> maps_nothing{false};
    /// Before each `free`.
    std::function<void()> on_free = [] {};

  private:
    void called(const char* call) noexcept override {
        {
            const std::lock_guard guard(mutex_);
            ++counts_[call];
        }
        if (std::string(call) == "free") on_free();
    }
    std::shared_ptr<kmm::driver::Driver> inner_;
    mutable std::mutex mutex_;
    std::map<std::string, std::size_t> counts_;
};

/// A service for the host and one device. What its hooks use is declared before it: the service calls them to its end.
struct Fixture {
    CountingDriver driver;
    Lanes lanes{driver, {0}, 1};
    FakeMailbox mailbox;
    kmm::RuntimeConfig config;
    int runtime = 0;
    DeviceMemoryKind kind;
    std::optional<MemoryService> service;

    explicit Fixture(std::size_t device_bytes, DeviceMemoryKind memory_kind = DeviceMemoryKind::CachingPool)
        : driver(kmm::driver::make_host_driver({1, device_bytes, 1})), kind(memory_kind) {
        config.device_memory_kind = kind;
    }
    void start(std::size_t host_limit, std::size_t device_limit) {
        service.emplace(lanes, std::vector<int>{0}, std::vector<std::size_t>{host_limit, device_limit}, config, kind,
                        &runtime, mailbox);
    }
    std::size_t taken_from_driver() {
        std::size_t free_bytes = 0;
        std::size_t total_bytes = 0;
        EXPECT_TRUE(driver.memory_info(0, &free_bytes, &total_bytes).ok());
        return total_bytes - free_bytes;
    }
    /// The answer of the service to a wish.
    Message answer(Message::What what, MemoryIndex memory) {
        const Message m = mailbox.next();
        EXPECT_EQ(m.what, what);
        EXPECT_EQ(m.to, memory);
        EXPECT_EQ(m.address == 0, m.bytes == 0);
        return m;
    }
    Message grow(MemoryIndex memory, std::size_t bytes) {
        service->grow(memory, bytes);
        return answer(Message::What::grown, memory);
    }
    std::vector<std::size_t> grow_until_refused(MemoryIndex memory, std::size_t bytes) {
        std::vector<std::size_t> steps;
        while (steps.size() < 100) {
            const std::size_t step = grow(memory, bytes).bytes;
            if (step == 0) break;
            steps.push_back(step / mib);
        }
        return steps;
    }
};

FenceSet fence_at(kmm::graph::Position position) {
    FenceSet users;
    users.add({lane, position});
    return users;
}

TEST(MemoryService, steps_of_a_device_double_what_there_is_up_to_a_bound_and_end_at_the_limit) {
    for (const DeviceMemoryKind kind : {DeviceMemoryKind::CachingPool, DeviceMemoryKind::Vmm}) {
        Fixture f(16 * gib, kind);
        f.start(0, 9 * gib);
        EXPECT_EQ(f.grow_until_refused(device, 256),
                  (std::vector<std::size_t>{64, 64, 128, 256, 512, 1024, 2048, 2048, 2048, 1024}));
        EXPECT_EQ(f.service->taken_bytes(0), 9 * gib);
        EXPECT_EQ(f.service->figures().steps, 10u);
        EXPECT_EQ(f.taken_from_driver(), 9 * gib);
        f.service.reset();
        EXPECT_EQ(f.taken_from_driver(), 0u) << "everything is given back";
    }
}

TEST(MemoryService, steps_of_the_host_begin_small_and_leave_no_sliver_below_the_limit) {
    Fixture f(64 * mib);
    f.start(70 * mib, 0);
    EXPECT_EQ(f.grow_until_refused(host, 256), (std::vector<std::size_t>{32, 38}));
    EXPECT_EQ(f.service->figures().pinned_bytes, 70 * mib);
    f.service.reset();
    EXPECT_EQ(f.driver.count("unregister_host") + f.driver.count("free_pinned"),
              f.driver.count("register_host") + f.driver.count("allocate_pinned"));
}

TEST(MemoryService, a_step_is_as_large_as_what_is_needed_and_never_above_the_limit) {
    Fixture f(gib);
    f.start(0, 500 * mib);
    EXPECT_EQ(f.grow(device, 200 * mib).bytes, 200 * mib);
    // Chunks of 90 MiB: two of them fit into a step of twice what there is, and none lies across two steps.
    const Message second = f.grow(device, 90 * mib);
    EXPECT_EQ(second.bytes, 180 * mib);
    EXPECT_TRUE(second.sealed);
    EXPECT_EQ(f.grow(device, 300 * mib).bytes, 120 * mib) << "what is left";
    EXPECT_EQ(f.grow(device, 256).bytes, 0u);
    EXPECT_EQ(f.driver.count("allocate"), 3u) << "beyond the limit the driver is not even asked";
}

TEST(MemoryService, what_the_driver_refuses_is_asked_for_by_halves_and_then_refused) {
    Fixture f(168 * mib);
    f.start(0, gib);
    EXPECT_EQ(f.grow_until_refused(device, 8 * mib), (std::vector<std::size_t>{64, 64, 32, 8}));
    EXPECT_EQ(f.taken_from_driver(), 168 * mib);
    EXPECT_EQ(f.grow(device, 8 * mib).bytes, 0u) << "each wish is answered";
}

TEST(MemoryService, blocks_and_single_calls_are_as_large_as_they_were_asked_for) {
    Fixture blocks(gib);
    blocks.config.device_memory_block_size = 10 * mib + 1;
    blocks.start(0, gib);
    EXPECT_EQ(blocks.grow(device, 256).bytes, 10 * mib + 256);
    EXPECT_EQ(blocks.grow(device, 30 * mib).bytes, 30 * mib);
    Fixture singles(gib, DeviceMemoryKind::NoPool);
    singles.config.host_memory_kind = HostMemoryKind::NoPool;
    singles.start(gib, gib);
    EXPECT_EQ(singles.grow(device, mib).bytes, mib);
    EXPECT_EQ(singles.grow(host, mib).bytes, mib);
    EXPECT_EQ(singles.driver.count("allocate_pinned"), 1u);
    singles.service.reset();
    EXPECT_EQ(singles.driver.count("free_pinned"), 1u);
    EXPECT_EQ(singles.taken_from_driver(), 0u);
}

TEST(MemoryService, a_trim_gives_back_what_the_scheduler_hands_over_and_no_more) {
    std::vector<AddressRange> asked;  // the service's thread, and the test's when that is idle
    std::uintptr_t idle = 0;
    Fixture f(gib);
    f.mailbox.on_take_back = [&](MemoryIndex memory, const void* address, std::size_t bytes, FenceSet*) {
        EXPECT_EQ(memory, device);
        asked.push_back({reinterpret_cast<std::uintptr_t>(address), bytes});
        return asked.back().address == idle;
    };
    f.start(0, gib);
    std::vector<Message> steps;
    for (int i = 0; i < 3; ++i) steps.push_back(f.grow(device, 256));
    f.service->trim();
    ASSERT_EQ(asked.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(asked[i].address, steps[i].address);
        EXPECT_EQ(asked[i].bytes, steps[i].bytes);
    }
    EXPECT_EQ(f.taken_from_driver(), 256 * mib);
    asked.clear();
    idle = steps[1].address;
    f.service->trim();
    EXPECT_EQ(f.taken_from_driver(), 192 * mib);
    EXPECT_EQ(f.service->taken_bytes(0), 192 * mib);
    asked.clear();
    f.service->trim();
    EXPECT_EQ(asked.size(), 2u) << "what was given back is not asked for again";
    EXPECT_EQ(f.taken_from_driver(), 192 * mib);
    EXPECT_EQ(f.grow(device, 256).bytes, 192 * mib) << "steps follow what there is now";
    EXPECT_TRUE(f.mailbox.empty()) << "a trim tells nothing";
}

TEST(MemoryService, a_trim_waits_for_the_last_users_on_the_device) {
    std::promise<void> handed_over;
    std::atomic<bool> too_early{false};
    Fixture f(gib);
    f.mailbox.on_take_back = [&](MemoryIndex, const void*, std::size_t, FenceSet* users) {
        users->add({lane, 5});
        handed_over.set_value();
        return true;
    };
    f.driver.on_free = [&] { too_early = too_early || !f.lanes.passed({lane, 5}); };
    f.start(0, gib);
    (void)f.grow(device, 256);
    auto trim = std::async(std::launch::async, [&] { f.service->trim(); });
    handed_over.get_future().wait();
    for (kmm::graph::Position p = 1; p <= 5; ++p) {
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
        f.lanes.completed(lane, p);
    }
    trim.get();
    EXPECT_FALSE(too_early.load());
    EXPECT_EQ(f.taken_from_driver(), 0u);
}

TEST(MemoryService, an_exchange_makes_one_step_of_what_is_free) {
    Fixture f(128 * mib);
    f.mailbox.on_take_back = [](MemoryIndex, const void*, std::size_t, FenceSet*) { return true; };
    f.start(0, 128 * mib);
    (void)f.grow(device, 256);
    (void)f.grow(device, 256);
    f.service->exchange(device, 100 * mib);
    EXPECT_EQ(f.answer(Message::What::grown, device).bytes, 128 * mib);
    EXPECT_EQ(f.taken_from_driver(), 128 * mib) << "the driver had no more: first it got back what there was";
}

TEST(MemoryService, an_exchange_in_vain_leaves_what_there_was) {
    Fixture f(128 * mib);
    f.mailbox.on_take_back = [](MemoryIndex, const void*, std::size_t, FenceSet*) { return true; };
    f.start(0, 300 * mib);
    (void)f.grow(device, 256);
    (void)f.grow(device, 256);
    // Above the limit the driver is not asked; below it has no more.
    for (const std::size_t wanted : {400 * mib, 200 * mib}) {
        f.service->exchange(device, wanted);
        EXPECT_EQ(f.answer(Message::What::given_again, device).bytes, 64 * mib);
        EXPECT_EQ(f.answer(Message::What::given_again, device).bytes, 64 * mib);
        EXPECT_EQ(f.answer(Message::What::grown, device).bytes, 0u);
        EXPECT_EQ(f.taken_from_driver(), 128 * mib);
    }
}

TEST(MemoryService, an_exchange_in_vain_leaves_what_the_driver_gave_where_it_had_nothing_to_map) {
    Fixture f(128 * mib, DeviceMemoryKind::Vmm);
    f.driver.maps_nothing = true;
    f.mailbox.on_take_back = [](MemoryIndex, const void*, std::size_t, FenceSet*) { return true; };
    f.start(0, 300 * mib);
    for (int i = 0; i < 2; i++) EXPECT_EQ(f.grow(device, 64 * mib).bytes, 64 * mib);
    for (int i = 0; i < 2; i++) {
        f.service->exchange(device, 200 * mib);
        EXPECT_EQ(f.answer(Message::What::given_again, device).bytes, 64 * mib);
        EXPECT_EQ(f.answer(Message::What::given_again, device).bytes, 64 * mib);
        EXPECT_EQ(f.answer(Message::What::grown, device).bytes, 0u);
        EXPECT_EQ(f.taken_from_driver(), 128 * mib);
    }
}

TEST(MemoryService, steps_of_mapped_memory_are_whole_pieces_down_to_the_last_one_of_the_device) {
    Fixture f(40 * mib, DeviceMemoryKind::Vmm);
    f.config.device_memory_block_size = 5 * mib + 1;
    f.start(0, 40 * mib);
    EXPECT_EQ(f.grow_until_refused(device, 256), (std::vector<std::size_t>{6, 6, 6, 6, 6, 6, 4}));
    EXPECT_EQ(f.taken_from_driver(), 40 * mib);
}

TEST(MemoryService, mapped_memory_that_others_leave_is_taken_to_the_last_piece) {
    Fixture f(100 * mib, DeviceMemoryKind::Vmm);
    void* held = nullptr;
    ASSERT_TRUE(f.driver.allocate(0, 33 * mib + 1000, &held).ok());
    f.start(0, 100 * mib);
    EXPECT_EQ(f.grow_until_refused(device, 3 * mib + 256), (std::vector<std::size_t>{64}));
    EXPECT_EQ(f.grow(device, mib).bytes, 2 * mib);
    EXPECT_EQ(f.grow(device, mib).bytes, 0u);
    EXPECT_TRUE(f.driver.free(held).ok());
    f.service->await(device, {3 * mib + 256, 3 * mib + 256}, false);
    EXPECT_EQ(f.answer(Message::What::awaited, device).bytes, 4 * mib);
}

TEST(MemoryService, memory_that_nobody_gives_back_is_awaited_once_by_who_has_no_patience) {
    Fixture f(64 * mib);
    f.start(0, gib);
    f.service->await(device, {64 * mib, 64 * mib}, false);
    EXPECT_EQ(f.answer(Message::What::awaited, device).bytes, 64 * mib);
    f.service->await(device, {64 * mib, 64 * mib}, false);
    EXPECT_EQ(f.answer(Message::What::awaited, device).bytes, 0u);
    EXPECT_EQ(f.driver.count("allocate"), 2u);
}

TEST(MemoryService, a_wait_in_vain_ends_with_the_least_that_is_enough_where_there_is_no_more) {
    Fixture f(40 * mib);
    f.start(0, gib);
    f.service->await(device, {64 * mib, 33 * mib}, false);
    EXPECT_EQ(f.answer(Message::What::awaited, device).bytes, 33 * mib);
    f.service->await(device, {8 * mib, 8 * mib}, false);
    EXPECT_EQ(f.answer(Message::What::awaited, device).bytes, 0u);
    EXPECT_EQ(f.taken_from_driver(), 33 * mib);
}

TEST(MemoryService, what_is_reclaimed_goes_back_when_its_users_have_passed) {
    std::size_t wanted = 0;
    std::atomic<std::size_t> freed_before{0};
    Fixture f(gib);
    f.mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t bytes) {
        wanted = bytes;
        Reclaimed reclaimed;
        EXPECT_EQ(regions.size(), 3u);
        reclaimed.taken.push_back({0, fence_at(1)});
        reclaimed.taken.push_back({2, fence_at(2)});
        return reclaimed;
    };
    f.driver.on_free = [&] { freed_before += !f.lanes.passed({lane, 1}); };
    f.start(0, gib);
    const Message first = f.grow(device, 256);
    const Message second = f.grow(device, 256);
    const Message third = f.grow(device, 256);
    EXPECT_EQ(f.service->sample(device), reinterpret_cast<const void*>(third.address));
    auto given = std::async(std::launch::async, [&] {
        return f.service->reclaim(device, 100 * mib, false, std::chrono::steady_clock::now() + std::chrono::minutes(1));
    });
    // Told of each step of the device, it answers when it has given what was wanted.
    for (kmm::graph::Position p = 1; given.wait_for(std::chrono::seconds(0)) != std::future_status::ready; ++p) {
        f.lanes.completed(lane, std::min<kmm::graph::Position>(p, 2));
        f.service->device_advanced();
        std::this_thread::yield();
    }
    EXPECT_EQ(given.get(), first.bytes + third.bytes);
    EXPECT_EQ(wanted, 100 * mib);
    EXPECT_EQ(freed_before.load(), 0u);
    EXPECT_EQ(f.taken_from_driver(), second.bytes);
    EXPECT_EQ(f.service->sample(device), reinterpret_cast<const void*>(second.address));
}

TEST(MemoryService, what_was_freed_until_the_deadline_is_told_although_more_was_wanted) {
    Fixture f(gib, DeviceMemoryKind::NoPool);
    f.mailbox.on_reclaim = [&](const std::vector<AddressRange>&, std::size_t) {
        Reclaimed reclaimed;
        reclaimed.taken.push_back({0, {}});
        reclaimed.taken.push_back({1, fence_at(1)});
        return reclaimed;
    };
    f.start(0, gib);
    for (int i = 0; i < 2; ++i) (void)f.grow(device, 64 * mib);
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    EXPECT_EQ(f.service->reclaim(device, 128 * mib, false, soon), 64 * mib);
    EXPECT_EQ(f.taken_from_driver(), 64 * mib);
    f.lanes.completed(lane, 1);
}

TEST(MemoryService, what_is_on_its_way_out_at_the_end_goes_back_after_its_users) {
    std::atomic<std::size_t> freed{0};
    std::atomic<std::size_t> freed_early{0};
    Fixture f(gib, DeviceMemoryKind::NoPool);  // each step goes back by itself
    f.mailbox.on_reclaim = [&](const std::vector<AddressRange>&, std::size_t) {
        Reclaimed reclaimed;
        reclaimed.taken.push_back({0, {}});
        reclaimed.taken.push_back({1, fence_at(3)});
        return reclaimed;
    };
    f.driver.on_free = [&] {
        ++freed;
        freed_early += !f.lanes.passed({lane, 3});
    };
    f.start(0, gib);
    for (int i = 0; i < 3; ++i) (void)f.grow(device, 64 * mib);
    const auto in_a_minute = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_EQ(f.service->reclaim(device, 64 * mib, false, in_a_minute), 64 * mib) << "answered without the second";
    EXPECT_EQ(f.taken_from_driver(), 128 * mib);
    auto end = std::async(std::launch::async, [&] { f.service.reset(); });
    for (kmm::graph::Position p = 1; p <= 3; ++p) {
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
        f.lanes.completed(lane, p);
    }
    end.get();
    EXPECT_EQ(freed.load(), 3u);
    EXPECT_EQ(freed_early.load(), 1u) << "the first alone";
    EXPECT_EQ(f.taken_from_driver(), 0u);
}

TEST(MemoryService, whatever_was_wished_for_when_the_end_comes_nothing_stays_taken) {
    Fixture f(16 * gib);
    // How many of the wishes are served before the end is the threads' own affair.
    f.start(256 * mib, 16 * gib);
    for (int i = 0; i < 50; ++i) f.service->grow(device, 256);
    f.service->grow(host, 256);
    (void)f.mailbox.next();
    f.service.reset();
    const std::size_t taken = f.driver.count("allocate");
    EXPECT_EQ(f.driver.count("free"), taken);
    EXPECT_EQ(f.driver.count("unregister_host") + f.driver.count("free_pinned"),
              f.driver.count("register_host") + f.driver.count("allocate_pinned"));
    EXPECT_EQ(f.taken_from_driver(), 0u);
}

TEST(MemoryService, growth_that_was_asked_for_during_a_reclaim_does_not_take_the_memory_again) {
    Fixture f(64 * mib, DeviceMemoryKind::NoPool);
    f.mailbox.on_reclaim = [&](const std::vector<AddressRange>&, std::size_t) {
        f.service->grow(device, 64 * mib);
        Reclaimed reclaimed;
        reclaimed.taken.push_back({0, {}});
        return reclaimed;
    };
    f.start(0, 64 * mib);
    (void)f.grow(device, 64 * mib);
    const auto in_a_minute = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_EQ(f.service->reclaim(device, mib, false, in_a_minute), 64 * mib);
    EXPECT_EQ(f.answer(Message::What::grown, device).bytes, 0u);
    EXPECT_EQ(f.taken_from_driver(), 0u);
}

TEST(MemoryService, more_is_reclaimed_when_the_host_has_grown_for_what_must_be_saved) {
    int times_asked = 0;  // by the service's thread
    Fixture f(gib, DeviceMemoryKind::NoPool);
    f.mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t bytes) {
        Reclaimed reclaimed;
        EXPECT_EQ(regions.size(), 2u - static_cast<std::size_t>(times_asked));
        EXPECT_EQ(bytes, (128 - 64 * static_cast<std::size_t>(times_asked)) * mib);
        reclaimed.taken.push_back({0, {}});
        reclaimed.host_growing = times_asked++ == 0;
        if (reclaimed.host_growing) f.service->grow(host, mib);
        return reclaimed;
    };
    f.start(64 * mib, gib);
    for (int i = 0; i < 2; ++i) (void)f.grow(device, 64 * mib);
    const auto in_a_minute = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_EQ(f.service->reclaim(device, 128 * mib, false, in_a_minute), 128 * mib);
    EXPECT_NE(f.answer(Message::What::grown, host).bytes, 0u);
    EXPECT_EQ(times_asked, 2);
}

// ---------------------------------------------------------------------------------- several services of one process

/// Services of two runtimes on one driver, which has two devices. Each step is as large as it was asked for.
struct Neighbours {
    CountingDriver driver{kmm::driver::make_host_driver({2, 64 * mib, 1})};
    kmm::RuntimeConfig config;
    struct One {
        Lanes lanes;
        FakeMailbox mailbox;
        std::optional<MemoryService> service;
        One(CountingDriver& driver, const std::vector<int>& ordinals) : lanes(driver, ordinals, 1) {}
    };
    std::optional<One> first, second;

    /// The driver's numbers of their devices.
    Neighbours(const std::vector<int>& of_first, const std::vector<int>& of_second) {
        config.device_memory_kind = DeviceMemoryKind::NoPool;
        config.memory_wait = 60;
        first.emplace(driver, of_first);
        second.emplace(driver, of_second);
        for (auto* const one : {&first, &second}) {
            const std::size_t count = (one == &first ? of_first : of_second).size();
            std::vector<std::size_t> limits(1 + count, 64 * mib);
            limits[0] = 0;
            (*one)->service.emplace((*one)->lanes, one == &first ? of_first : of_second, limits, config,
                                    DeviceMemoryKind::NoPool, &*one, (*one)->mailbox);
        }
    }
    static std::size_t grow(One& one, MemoryIndex memory, std::size_t bytes) {
        one.service->grow(memory, bytes);
        return one.mailbox.next().bytes;
    }
};

/// All that is there.
Reclaimed all_of(const std::vector<AddressRange>& regions) {
    Reclaimed reclaimed;
    for (std::size_t i = 0; i < regions.size(); ++i) reclaimed.taken.push_back({i, {}});
    return reclaimed;
}

TEST(MemoryServices, one_that_awaits_memory_gets_what_its_neighbour_gives_up) {
    Neighbours n({0}, {1, 0});  // the device that they share is the second one's second
    constexpr MemoryIndex shared = MemoryIndex::of_device(1);
    std::size_t wanted = 0;
    n.second->mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t bytes) {
        EXPECT_EQ(regions.size(), 1u) << "of the other device nothing is given up";
        wanted = bytes;
        return all_of(regions);
    };
    EXPECT_EQ(Neighbours::grow(*n.second, device, 10 * mib), 10 * mib);
    EXPECT_EQ(Neighbours::grow(*n.second, shared, 40 * mib), 40 * mib);
    n.first->service->await(device, {50 * mib, 50 * mib}, true);
    const Message m = n.first->mailbox.next();
    EXPECT_EQ(m.what, Message::What::awaited);
    EXPECT_EQ(m.bytes, 50 * mib);
    EXPECT_EQ(wanted, (50 - (64 - 40)) * mib) << "what the driver has is not asked for";
    EXPECT_EQ(n.first->service->taken_bytes(0), 50 * mib);
    EXPECT_EQ(n.second->service->taken_bytes(1), 0u);
    EXPECT_EQ(n.second->service->taken_bytes(0), 10 * mib);
}

TEST(MemoryServices, one_that_awaits_memory_asks_no_neighbour_of_another_device) {
    Neighbours n({0}, {1});
    std::atomic<int> times_asked{0};
    n.second->mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t) {
        ++times_asked;
        return all_of(regions);
    };
    void* held = nullptr;
    ASSERT_TRUE(n.driver.allocate(0, 40 * mib, &held).ok());
    EXPECT_EQ(Neighbours::grow(*n.second, device, 40 * mib), 40 * mib);
    n.first->service->await(device, {50 * mib, 50 * mib}, true);
    EXPECT_EQ(n.first->mailbox.next().bytes, 0u) << "no holder in this process has any of that device";
    EXPECT_EQ(Neighbours::grow(*n.second, device, 10 * mib), 10 * mib);  // behind what it may have been asked for
    EXPECT_EQ(times_asked.load(), 0);
    EXPECT_TRUE(n.driver.free(held).ok());
}

TEST(MemoryServices, of_two_that_await_each_others_memory_the_later_one_gives_its_own_first) {
    Neighbours n({0}, {0});
    std::atomic<bool> second_awaits{false};
    std::atomic<bool> first_gave_while_it_waited{false};
    n.first->mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t) {
        if (n.first->mailbox.empty()) first_gave_while_it_waited = true;
        return all_of(regions);
    };
    std::promise<void> second_was_asked;
    n.second->mailbox.on_reclaim = [&](const std::vector<AddressRange>& regions, std::size_t) {
        if (second_awaits.exchange(true)) return all_of(regions);
        n.second->service->await(device, {32 * mib, 32 * mib}, true);
        second_was_asked.set_value();
        return Reclaimed{};
    };
    EXPECT_EQ(Neighbours::grow(*n.first, device, 32 * mib), 32 * mib);
    EXPECT_EQ(Neighbours::grow(*n.second, device, 32 * mib), 32 * mib);
    n.first->service->await(device, {32 * mib, 32 * mib}, true);
    second_was_asked.get_future().wait();
    // What it gave it lacks as well: in the end it has all there is.
    EXPECT_EQ(n.second->mailbox.next().bytes, 64 * mib);
    EXPECT_FALSE(first_gave_while_it_waited.load());
    EXPECT_EQ(n.first->mailbox.next().bytes, 32 * mib);
    EXPECT_EQ(n.first->service->taken_bytes(0), 0u);
}

}  // namespace
