// <rmm/mr/per_device_resource.hpp>: one state behind the pointers and the references.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "driver/registry.hpp"
#include "recording_resource.hpp"
#include "rmm/aligned.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_table.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/device/per_device_resource.hpp"
#include "support/repeat.hpp"

namespace {

using namespace rmm;
using rmm_test::recording_resource;

class PerDeviceResource : public testing::Test {
  protected:
    void TearDown() override {
        for (const int device : {0, 1}) (void)rmm::detail::set_owned_resource(cuda_device_id{device}, {});
    }
};

TEST_F(PerDeviceResource, begins_with_the_initial_resource) {
    ASSERT_NE(mr::get_current_device_resource(), nullptr);
    EXPECT_TRUE(mr::get_current_device_resource()->is_equal(mr::cuda_memory_resource{}));
    EXPECT_EQ(mr::get_current_device_resource_ref(), device_async_resource_ref{mr::detail::initial_resource()});
    EXPECT_EQ(mr::get_current_device_resource_ref(), device_async_resource_ref{mr::get_current_device_resource()});
    EXPECT_EQ(mr::get_default_resource(), mr::detail::initial_resource());
}

/// 1 MiB through the pointer and through the reference of the current resource; what is wrong with it.
int num_faults_of_current_resource() {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    int num_faults = 0;
    mr::device_memory_resource* const pointer = mr::get_current_device_resource();
    device_async_resource_ref ref = mr::get_current_device_resource_ref();
    num_faults += pointer == nullptr || !pointer->is_equal(mr::cuda_memory_resource{});
    num_faults += ref != device_async_resource_ref{mr::detail::initial_resource()};
    void* const by_pointer = pointer->allocate(bytes);
    void* const by_ref = ref.allocate(bytes);
    for (void* const ptr : {by_pointer, by_ref}) {
        kmm::driver::PointerInfo info;
        num_faults += ptr == nullptr || !is_pointer_aligned(ptr);
        num_faults += !kmm::driver::process_default().pointer_info(ptr, &info).ok() ||
                      info.kind != kmm::driver::MemoryKind::device;
    }
    pointer->deallocate(by_pointer, bytes);
    ref.deallocate(by_ref, bytes);
    return num_faults;
}

TEST_F(PerDeviceResource, the_initial_resource_serves_every_thread) {
    EXPECT_EQ(num_faults_of_current_resource(), 0);
    std::atomic<int> num_faults{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { num_faults += num_faults_of_current_resource(); });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_faults, 0);
}

TEST_F(PerDeviceResource, a_thread_for_each_device_sets_and_resets_its_own) {
    std::array<recording_resource, 2> resources;
    const device_async_resource_ref initial{mr::detail::initial_resource()};
    std::array<bool, 2> right{};
    std::barrier both{2};
    std::vector<std::thread> threads;
    for (int device = 0; device < 2; ++device) {
        threads.emplace_back([&, device] {
            const auto i = static_cast<std::size_t>(device);
            const device_async_resource_ref own{resources[i]};
            const cuda_device_id id{device};
            const cuda_set_device_raii on{id};
            right[i] = mr::set_current_device_resource_ref(own) == initial;
            both.arrive_and_wait();  // both are set
            right[i] = right[i] && mr::get_current_device_resource_ref() == own &&
                       mr::get_per_device_resource(id) == &resources[i];
            const cuda_device_id other{1 - device};
            right[i] = right[i] && mr::get_per_device_resource(other) == &resources[1 - i];
            both.arrive_and_wait();  // both have looked
            right[i] = right[i] && mr::reset_current_device_resource_ref() == own &&
                       mr::get_current_device_resource_ref() == initial;
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_TRUE(right[0]);
    EXPECT_TRUE(right[1]);
}

TEST_F(PerDeviceResource, setters_return_what_was_there) {
    recording_resource a;
    recording_resource b;
    EXPECT_EQ(mr::set_current_device_resource(&a), mr::detail::initial_resource());
    EXPECT_EQ(mr::set_current_device_resource(&b), &a);
    EXPECT_EQ(mr::set_current_device_resource_ref(a), device_async_resource_ref{b});
    EXPECT_EQ(mr::reset_current_device_resource_ref(), device_async_resource_ref{a});
    EXPECT_EQ(mr::get_current_device_resource(), mr::detail::initial_resource());
}

TEST_F(PerDeviceResource, pointers_and_references_never_diverge) {
    recording_resource a;
    mr::set_current_device_resource(&a);
    EXPECT_EQ(mr::get_current_device_resource_ref(), device_async_resource_ref{a});
    recording_resource b;
    mr::set_current_device_resource_ref(b);
    EXPECT_EQ(mr::get_current_device_resource(), &b);
}

TEST_F(PerDeviceResource, null_restores_the_initial_resource_on_both_sides) {
    recording_resource a;
    mr::set_current_device_resource(&a);
    EXPECT_EQ(mr::set_current_device_resource(nullptr), &a);
    EXPECT_EQ(mr::get_current_device_resource(), mr::detail::initial_resource());
    EXPECT_EQ(mr::get_current_device_resource_ref(), device_async_resource_ref{mr::detail::initial_resource()});
    mr::set_current_device_resource(&a);
    mr::set_current_device_resource_ref(device_async_resource_ref{static_cast<mr::device_memory_resource*>(nullptr)});
    EXPECT_EQ(mr::get_current_device_resource(), mr::detail::initial_resource());
    const device_buffer buffer{100, cuda_stream_default};
    EXPECT_NE(buffer.data(), nullptr);
}

struct plain_resource {
    void* allocate(std::size_t, std::size_t) { return this; }
    void deallocate(void*, std::size_t, std::size_t) {}
    void* allocate_async(std::size_t bytes, std::size_t, cuda_stream_view) {
        last_bytes = bytes;
        return this;
    }
    void deallocate_async(void*, std::size_t, std::size_t, cuda_stream_view) {}
    bool operator==(const plain_resource& other) const { return this == &other; }
    friend void get_property(const plain_resource&, rmm::detail::device_accessible) {}
    std::size_t last_bytes = 0;
};

TEST_F(PerDeviceResource, the_pointer_of_a_reference_to_another_type_allocates_through_it) {
    static plain_resource plain;  // the table keeps what was set until the process ends
    mr::set_current_device_resource_ref(plain);
    mr::device_memory_resource* pointer = mr::get_current_device_resource();
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(pointer->allocate(13), &plain);
    EXPECT_EQ(plain.last_bytes, 13u);
    pointer->deallocate(&plain, 13);
    EXPECT_EQ(pointer, mr::get_current_device_resource());
    mr::set_current_device_resource(pointer);
    EXPECT_EQ(mr::get_current_device_resource()->allocate(14), &plain);
}

TEST_F(PerDeviceResource, devices_have_resources_of_their_own) {
    recording_resource a;
    mr::set_per_device_resource(cuda_device_id{1}, &a);
    EXPECT_EQ(mr::get_per_device_resource(cuda_device_id{0}), mr::detail::initial_resource());
    EXPECT_EQ(mr::get_per_device_resource(cuda_device_id{1}), &a);
    {
        cuda_set_device_raii on_one{cuda_device_id{1}};
        EXPECT_EQ(mr::get_current_device_resource(), &a);
    }
    EXPECT_EQ(mr::get_current_device_resource(), mr::detail::initial_resource());
}

TEST_F(PerDeviceResource, a_device_number_below_zero_is_refused_by_name) {
    try {
        (void)mr::get_per_device_resource(cuda_device_id{-3});
        FAIL();
    } catch (const rmm::logic_error& e) {
        EXPECT_NE(std::string(e.what()).find("-3"), std::string::npos);
    }
}

TEST_F(PerDeviceResource, a_reader_sees_object_and_operations_of_one_resource_while_others_are_set) {
    static plain_resource plain;
    recording_resource recording;
    const device_async_resource_ref refs[] = {plain, recording, *mr::detail::initial_resource()};
    const cuda_device_id device{0};
    constexpr int num_readers = 3;
    std::atomic<bool> stop{false};
    std::atomic<int> num_strange{0}, num_ready{0};
    const int num_changes = repeat(20000, 2000), many = num_changes / 20;
    // Ready once it has read during so many changes that it has seen each resource many times.
    const auto read = [&] {
        std::array<int, 3> num_seen{};
        std::size_t last = 0;
        while (!stop) {
            const auto raw = mr::get_per_device_resource_ref(device).raw();
            std::size_t now = 0;
            while (now < 3 &&
                   (refs[now].raw().resource != raw.resource || refs[now].raw().operations != raw.operations))
                ++now;
            if (now == 3)
                ++num_strange;
            else if (std::exchange(last, now) != now && ++num_seen[now] == many)
                num_ready += num_seen[0] >= many && num_seen[1] >= many && num_seen[2] >= many;
        }
    };
    std::vector<std::thread> readers;
    for (int i = 0; i < num_readers; ++i) readers.emplace_back(read);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    for (int round = 0; round < num_changes || num_ready < num_readers; ++round) {
        mr::set_per_device_resource_ref(device, refs[round % 3]);
        if (round % 1000 == 0 && std::chrono::steady_clock::now() > deadline) break;
    }
    stop = true;
    for (std::thread& t : readers) t.join();
    EXPECT_EQ(num_ready, num_readers) << "some have not read while the entry changed";
    EXPECT_EQ(num_strange, 0);
}

/// Says when it is let go of.
std::shared_ptr<void> owner_that_notes(bool* is_gone) {
    return {is_gone, [](bool* gone) { *gone = true; }};
}

TEST_F(PerDeviceResource, what_a_program_of_cpp_replaces_for_a_while_keeps_its_owner) {
    const cuda_device_id device{0};
    recording_resource owned, a, b;
    bool is_gone = false;
    (void)rmm::detail::set_owned_resource(device, {&owned, owner_that_notes(&is_gone), nullptr});
    EXPECT_EQ(rmm::detail::resource_with_owner(device).object, &owned);
    mr::device_memory_resource* const before = mr::set_per_device_resource(device, &a);
    EXPECT_EQ(before, &owned);
    EXPECT_EQ(rmm::detail::resource_with_owner(device).owner, nullptr) << "nobody has said who keeps it alive";
    EXPECT_EQ(mr::set_per_device_resource(device, &b), &a);
    EXPECT_EQ(mr::set_per_device_resource(device, nullptr), &b);
    EXPECT_FALSE(is_gone);
    mr::set_per_device_resource(device, before);
    EXPECT_EQ(rmm::detail::resource_with_owner(device).owner.get(), &is_gone);
    (void)rmm::detail::set_owned_resource(device, {&a, nullptr, nullptr});
    EXPECT_TRUE(is_gone);
    EXPECT_EQ(mr::get_per_device_resource(device), &a);
}

TEST_F(PerDeviceResource, an_owner_whose_resource_is_replaced_for_good_goes_with_no_lock_held) {
    const cuda_device_id device{0};
    recording_resource a;
    mr::device_memory_resource* seen = nullptr;
    std::shared_ptr<void> owner(&seen, [&](void*) { seen = rmm::detail::resource_with_owner(device).object; });
    (void)rmm::detail::set_owned_resource(device, {&a, std::move(owner), nullptr});
    mr::set_per_device_resource(device, mr::detail::initial_resource());
    EXPECT_EQ(seen, nullptr);
    (void)rmm::detail::set_owned_resource(device, {});
    EXPECT_EQ(seen, mr::detail::initial_resource());
}

TEST_F(PerDeviceResource, a_face_stands_for_the_entry_that_it_was_made_for) {
    const cuda_device_id device{0};
    recording_resource a, b;
    bool is_gone = false, other_is_gone = false;
    std::uint64_t num_changes = 0;
    mr::set_per_device_resource(device, &a);
    (void)rmm::detail::resource_with_face(device, &num_changes);
    mr::set_per_device_resource(device, &b);
    EXPECT_FALSE(rmm::detail::add_face(device, num_changes, owner_that_notes(&is_gone))) << "the entry is another";
    EXPECT_TRUE(std::exchange(is_gone, false));
    (void)rmm::detail::resource_with_face(device, &num_changes);
    EXPECT_TRUE(rmm::detail::add_face(device, num_changes, owner_that_notes(&is_gone)));
    EXPECT_EQ(rmm::detail::face_of(device), &is_gone);
    mr::set_per_device_resource(device, &a);
    EXPECT_EQ(rmm::detail::face_of(device), nullptr);
    mr::set_per_device_resource(device, &b);
    EXPECT_EQ(rmm::detail::face_of(device), &is_gone);
    // What was given with a face stays, whatever is shown meanwhile.
    (void)rmm::detail::set_owned_resource(device, {&a, nullptr, owner_that_notes(&other_is_gone), true});
    EXPECT_TRUE(std::exchange(is_gone, false));
    mr::set_per_device_resource(device, &b);
    (void)rmm::detail::resource_with_face(device, &num_changes);
    EXPECT_TRUE(rmm::detail::add_face(device, num_changes, owner_that_notes(&is_gone)));
    mr::set_per_device_resource(device, nullptr);
    EXPECT_TRUE(is_gone);
    mr::set_per_device_resource(device, &a);
    EXPECT_EQ(rmm::detail::face_of(device), &other_is_gone);
    EXPECT_EQ(rmm::detail::devices_with_faces().size(), 1u);
    (void)rmm::detail::clear_faces();
    EXPECT_TRUE(other_is_gone);
    EXPECT_EQ(mr::get_per_device_resource(device), mr::detail::initial_resource());
}

/// A face for the device's resource, as Python adds it when it looks.
void look(cuda_device_id device, std::shared_ptr<void> face) {
    std::uint64_t num_changes = 0;
    (void)rmm::detail::resource_with_face(device, &num_changes);
    ASSERT_TRUE(rmm::detail::add_face(device, num_changes, std::move(face)));
}

TEST_F(PerDeviceResource, what_others_than_python_have_set_only_loses_its_face) {
    const cuda_device_id of_cpp{0}, of_c{1};
    recording_resource a, b;
    bool has_lost_face[2] = {}, has_lost_owner = false;
    mr::set_per_device_resource(of_cpp, &a);
    (void)rmm::detail::set_owned_resource(of_c, {&b, owner_that_notes(&has_lost_owner), nullptr});
    look(of_cpp, owner_that_notes(&has_lost_face[0]));
    look(of_c, owner_that_notes(&has_lost_face[1]));
    const auto raw = mr::get_per_device_resource_ref(of_cpp).raw();
    (void)rmm::detail::clear_faces();
    EXPECT_TRUE(has_lost_face[0]);
    EXPECT_TRUE(has_lost_face[1]);
    EXPECT_EQ(rmm::detail::face_of(of_cpp), nullptr);
    EXPECT_TRUE(rmm::detail::devices_with_faces().empty());
    EXPECT_EQ(mr::get_per_device_resource(of_cpp), &a);
    EXPECT_EQ(mr::get_per_device_resource_ref(of_cpp).raw().resource, raw.resource);
    EXPECT_EQ(mr::get_per_device_resource_ref(of_cpp).raw().operations, raw.operations);
    EXPECT_EQ(rmm::detail::resource_with_owner(of_c).object, &b);
    EXPECT_EQ(rmm::detail::resource_with_owner(of_c).owner.get(), &has_lost_owner);
    (void)rmm::detail::set_owned_resource(of_c, {});
    EXPECT_TRUE(has_lost_owner);
}

TEST_F(PerDeviceResource, a_reset_reaches_every_device_whoever_has_set_its_resource) {
    const cuda_device_id of_cpp{0}, of_c{1}, replaced{2};
    recording_resource a, b, c;
    bool has_lost_owner[2] = {};
    mr::set_per_device_resource(of_cpp, &a);
    (void)rmm::detail::set_owned_resource(of_c, {&b, owner_that_notes(&has_lost_owner[0]), nullptr});
    (void)rmm::detail::set_owned_resource(replaced, {&c, owner_that_notes(&has_lost_owner[1]), nullptr, true});
    mr::device_memory_resource* const before = mr::set_per_device_resource(replaced, &a);
    (void)rmm::detail::reset_resources();
    for (const cuda_device_id device : {of_cpp, of_c, replaced})
        EXPECT_EQ(mr::get_per_device_resource(device), mr::detail::initial_resource()) << device.value();
    EXPECT_TRUE(has_lost_owner[0]);
    EXPECT_FALSE(has_lost_owner[1]) << "C++ may set it again";
    mr::set_per_device_resource(replaced, before);
    EXPECT_EQ(mr::get_per_device_resource(replaced), &c);
    (void)rmm::detail::reset_resources();
    EXPECT_TRUE(has_lost_owner[1]);
}

TEST_F(PerDeviceResource, what_python_has_set_is_its_own_until_another_replaces_it_and_again_when_cpp_puts_it_back) {
    const cuda_device_id device{0};
    recording_resource of_python, other;
    bool has_lost_owner = false, has_lost_face = false;
    (void)rmm::detail::set_owned_resource(
        device, {&of_python, owner_that_notes(&has_lost_owner), owner_that_notes(&has_lost_face), true});
    mr::device_memory_resource* const before = mr::set_per_device_resource(device, &other);
    (void)rmm::detail::clear_faces();
    EXPECT_EQ(mr::get_per_device_resource(device), &other);
    EXPECT_TRUE(has_lost_face);
    EXPECT_FALSE(has_lost_owner) << "C++ may set it again";
    mr::set_per_device_resource(device, before);
    EXPECT_EQ(rmm::detail::resource_with_owner(device).owner.get(), &has_lost_owner);
    (void)rmm::detail::clear_faces();
    EXPECT_EQ(mr::get_per_device_resource(device), mr::detail::initial_resource());
    EXPECT_TRUE(has_lost_owner);
    // C sets another for good.
    (void)rmm::detail::set_owned_resource(device, {&of_python, nullptr, owner_that_notes(&has_lost_face), true});
    (void)rmm::detail::set_owned_resource(device, {&other, nullptr, nullptr});
    (void)rmm::detail::clear_faces();
    EXPECT_EQ(mr::get_per_device_resource(device), &other);
}

TEST_F(PerDeviceResource, a_resource_that_one_device_s_entry_owns_is_kept_for_others_too) {
    const cuda_device_id first{0}, second{1};
    recording_resource owned;
    bool is_gone = false;
    (void)rmm::detail::set_owned_resource(first, {&owned, owner_that_notes(&is_gone), nullptr, true});
    mr::set_per_device_resource(second, mr::get_per_device_resource(first));
    (void)rmm::detail::clear_faces();
    EXPECT_EQ(mr::get_per_device_resource(first), mr::detail::initial_resource());
    EXPECT_EQ(mr::get_per_device_resource(second), &owned);
    EXPECT_FALSE(is_gone);
    (void)rmm::detail::set_owned_resource(second, {});
    EXPECT_TRUE(is_gone);
}

TEST_F(PerDeviceResource, what_cpp_replaces_is_let_go_of_with_no_lock_held) {
    const cuda_device_id device{0}, other_device{1};
    recording_resource a, b, c;
    int num_gone = 0;
    // Whoever waits here for the table waits for ever, and the test ends by its time limit.
    const auto uses_the_table = [&](void*) {
        ++num_gone;
        EXPECT_EQ(mr::get_per_device_resource(device), &c);
        EXPECT_EQ(rmm::detail::resource_with_owner(device).object, &c);
        mr::set_per_device_resource(other_device, &c);
    };
    // The last owner of a resource whose own device has another by now, and a face.
    (void)rmm::detail::set_owned_resource(other_device, {&a, {&a, uses_the_table}, nullptr});
    mr::set_per_device_resource(device, &a);
    look(device, {&a, uses_the_table});
    (void)rmm::detail::set_owned_resource(other_device, {});
    EXPECT_EQ(num_gone, 0);
    mr::set_per_device_resource(device, &b);
    EXPECT_EQ(num_gone, 0) << "C++ may set it again";
    mr::set_per_device_resource(device, &c);
    EXPECT_EQ(num_gone, 2);
    EXPECT_EQ(mr::get_per_device_resource(other_device), &c);
}

TEST_F(PerDeviceResource, racing_setters_and_getters_leave_one_of_the_resources) {
    recording_resource a;
    recording_resource b;
    std::atomic<int> num_strange{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 500; ++round) {
                if (i % 2 == 0)
                    mr::set_per_device_resource(cuda_device_id{0}, round % 2 ? &a : &b);
                else
                    mr::set_per_device_resource_ref(cuda_device_id{0}, round % 2 ? a : b);
                const auto* got = mr::get_per_device_resource(cuda_device_id{0});
                if (got != &a && got != &b) ++num_strange;
                const device_async_resource_ref ref = mr::get_per_device_resource_ref(cuda_device_id{0});
                if (ref != device_async_resource_ref{a} && ref != device_async_resource_ref{b}) ++num_strange;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(num_strange, 0);
}

}  // namespace
