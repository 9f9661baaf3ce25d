// What C++ can do to <rmm/rmm.h>: resources that throw, devices, text that nobody would write.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_table.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/rmm.h"

#include "driver/registry.hpp"
#include "rmm/c_interface/resource.hpp"
#include "rmm/c_interface/torch_hooks.hpp"

namespace {

struct release {
    void operator()(rmm_resource* resource) const noexcept { rmm_release(resource); }
};
using owned = std::unique_ptr<rmm_resource, release>;

owned open(const char* kind, const char* options = nullptr, rmm_resource* upstream = nullptr) {
    rmm_resource* made = nullptr;
    EXPECT_EQ(rmm_open(kind, options, upstream, &made), RMM_OK) << rmm_last_error();
    return owned(made);
}

/// Throws what it is told to.
class throwing final : public rmm::mr::device_memory_resource {
  public:
    int what = 0;

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override {
        switch (what) {
        case 0: throw rmm::bad_alloc("a plain one");
        case 1: throw rmm::cuda_error("of the driver");
        case 2: throw rmm::out_of_range("out of range");
        case 3: throw std::runtime_error("something else");
        case 4: throw std::bad_alloc();
        default: throw 5;
        }
    }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override { throw std::runtime_error("in a free"); }
};

}  // namespace

/// Gives nothing, or always the same.
class giving final : public rmm::mr::device_memory_resource {
  public:
    void* what = nullptr;

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return what; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
};

std::size_t num_sized(rmm_resource& r) {
    const kmm::locks::Guard in(r.sized.mutex);
    return r.sized.blocks.size();
}

TEST(CInterface, the_hook_for_cupy_remembers_no_null_and_the_last_block_of_an_address) {
    giving resource;
    rmm::mr::set_current_device_resource(&resource);
    rmm_resource* raw = nullptr;
    ASSERT_EQ(rmm_get_device_resource(-1, &raw), RMM_OK);
    const owned external(raw);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(rmm_cupy_allocate(external.get(), 100, 0), nullptr);
    EXPECT_EQ(num_sized(*external), 0u);
    resource.what = &resource;
    // The first one is freed by its size, so that the hook does not see it.
    EXPECT_EQ(rmm_cupy_allocate(external.get(), 100, 0), &resource);
    EXPECT_EQ(rmm_deallocate(external.get(), &resource, 100, nullptr), RMM_OK);
    EXPECT_EQ(rmm_cupy_allocate(external.get(), 200, 0), &resource);
    EXPECT_EQ(num_sized(*external), 1u);
    rmm_cupy_deallocate(external.get(), &resource, 0);
    EXPECT_EQ(num_sized(*external), 0u);
    rmm::mr::set_current_device_resource(nullptr);
}

TEST(CInterface, zero_bytes_are_null_and_count_as_no_block) {
    for (const char* kind : {"cuda", "system", "managed"}) {
        const owned below = open(kind);
        const owned counted = open("statistics", nullptr, below.get());
        void* pointer = counted.get();
        ASSERT_EQ(rmm_allocate(counted.get(), 0, 0, nullptr, &pointer), RMM_OK);
        EXPECT_EQ(pointer, nullptr);
        EXPECT_EQ(rmm_deallocate(counted.get(), pointer, 0, nullptr), RMM_OK);
        EXPECT_EQ(rmm_deallocate(counted.get(), nullptr, 0, nullptr), RMM_OK);  // as free() of C
        rmm_statistics found = {};
        found.struct_size = sizeof found;
        ASSERT_EQ(rmm_get_statistics(counted.get(), &found), RMM_OK);
        EXPECT_EQ(found.blocks_now, 0) << kind;
        EXPECT_EQ(found.bytes_now, 0) << kind;
    }
}

TEST(CInterface, no_exception_of_a_resource_crosses_whatever_it_is) {
    throwing resource;
    rmm::mr::set_current_device_resource(&resource);
    rmm_resource* raw = nullptr;
    ASSERT_EQ(rmm_get_device_resource(-1, &raw), RMM_OK);
    const owned external(raw);
    const struct {
        int code;
        const char* text;
    } expected[] = {{RMM_BAD_ALLOC, "a plain one"},        {RMM_DEVICE_ERROR, "of the driver"},
                    {RMM_LOGIC_ERROR, "out of range"},     {RMM_ERROR, "something else"},
                    {RMM_BAD_ALLOC, "host has no memory"}, {RMM_ERROR, "no std::exception"}};
    for (const auto& e : expected) {
        void* pointer = &resource;
        EXPECT_EQ(rmm_allocate(external.get(), 100, 0, nullptr, &pointer), e.code);
        EXPECT_EQ(pointer, nullptr);
        EXPECT_NE(std::string(rmm_last_error()).find(e.text), std::string::npos) << rmm_last_error();
        EXPECT_EQ(rmm_torch_allocate(100, 0, nullptr), nullptr);
        ++resource.what;
    }
    EXPECT_EQ(rmm_deallocate(external.get(), &resource, 100, nullptr), RMM_ERROR);
    EXPECT_STREQ(rmm_last_error(), "in a free");
    rmm::mr::set_current_device_resource(nullptr);
}

TEST(CInterface, cpp_uses_what_c_has_set_and_c_finds_what_cpp_has_set) {
    const owned cuda = open("cuda");
    const owned counted = open("statistics", nullptr, cuda.get());
    ASSERT_EQ(rmm_set_device_resource(-1, counted.get()), RMM_OK);
    rmm::cuda_stream stream;
    {
        const rmm::device_buffer buffer(1000, stream.view());
        rmm_statistics s = {};
        s.struct_size = sizeof s;
        ASSERT_EQ(rmm_get_statistics(counted.get(), &s), RMM_OK);
        EXPECT_EQ(s.bytes_now, 1000);
    }
    rmm::mr::cuda_memory_resource other;
    rmm::mr::device_memory_resource* const before = rmm::mr::set_current_device_resource(&other);
    rmm_resource* now = nullptr;
    ASSERT_EQ(rmm_get_device_resource(0, &now), RMM_OK);
    EXPECT_STREQ(rmm_kind(now), "external");
    rmm_release(now);
    rmm::mr::set_current_device_resource(before);
    ASSERT_EQ(rmm_get_device_resource(0, &now), RMM_OK);
    EXPECT_EQ(now, counted.get()) << "C++ has set it again";
    rmm_release(now);
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
}

TEST(CInterface, what_c_holds_of_a_resource_of_others_is_alive_after_that_was_replaced) {
    rmm::mr::cuda_memory_resource of_others;
    bool is_gone = false;
    (void)rmm::detail::set_owned_resource(rmm::cuda_device_id{0},
                                          {&of_others, {&is_gone, [](bool* gone) { *gone = true; }}, nullptr});
    rmm_resource* held = nullptr;
    ASSERT_EQ(rmm_get_device_resource(0, &held), RMM_OK);
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    EXPECT_FALSE(is_gone);
    ASSERT_EQ(rmm_set_device_resource(0, held), RMM_OK);
    rmm_release(held);
    EXPECT_FALSE(is_gone);
    EXPECT_EQ(rmm::mr::get_current_device_resource(), &of_others);
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    EXPECT_TRUE(is_gone);
}

TEST(CInterface, a_resource_makes_its_device_current_for_the_time_of_a_call) {
    owned on_second;
    {
        const rmm::cuda_set_device_raii second(rmm::cuda_device_id{1});
        on_second = open("pool", "initial=1MiB maximum=25%");
        EXPECT_EQ(rmm_device(on_second.get()), 1);
    }
    std::size_t free_before = 0, free_now = 0;
    ASSERT_EQ(rmm_memory_info(1, &free_before, nullptr), RMM_OK);
    void* pointer = nullptr;
    ASSERT_EQ(rmm_allocate(on_second.get(), std::size_t{8} << 20, 0, nullptr, &pointer), RMM_OK) << rmm_last_error();
    ASSERT_EQ(rmm_memory_info(1, &free_now, nullptr), RMM_OK);
    EXPECT_LE(free_now + (std::size_t{8} << 20), free_before);
    EXPECT_EQ(rmm::get_current_cuda_device().value(), 0);
    EXPECT_EQ(rmm_deallocate(on_second.get(), pointer, std::size_t{8} << 20, nullptr), RMM_OK);
    rmm_statistics s = {};
    s.struct_size = sizeof s;
    ASSERT_EQ(rmm_get_statistics(on_second.get(), &s), RMM_OK);
    EXPECT_EQ(s.maximum_bytes, std::size_t{64} << 20);
    EXPECT_EQ(rmm_set_device_resource(1, on_second.get()), RMM_OK);
    void* of_torch = rmm_torch_allocate(1000, 1, nullptr);
    EXPECT_NE(of_torch, nullptr);
    rmm_torch_deallocate(of_torch, 1000, 1, nullptr);
    rmm_resource* none = nullptr;
    EXPECT_EQ(rmm_open("statistics", nullptr, on_second.get(), &none), RMM_INVALID_ARGUMENT);
    EXPECT_NE(std::string(rmm_last_error()).find("device 1, and the current device is 0"), std::string::npos);
    EXPECT_EQ(rmm_set_device_resource(1, nullptr), RMM_OK);
}

TEST(CInterface, a_long_text_is_cut_between_letters) {
    class wordy final : public rmm::mr::device_memory_resource {
        void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
            std::string text(bytes, 'x');
            while (text.size() < 5000) text += "ä";
            throw std::runtime_error(text);
        }
        void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    } resource;
    rmm::mr::set_current_device_resource(&resource);
    for (const std::ptrdiff_t shift : {1, 2}) {
        EXPECT_EQ(rmm_torch_allocate(shift, 0, nullptr), nullptr);
        const std::string text = rmm_last_error();
        EXPECT_EQ(text.size(), shift == 1 ? 4095u : 4094u);
        EXPECT_EQ(text.substr(text.size() - 2), "ä");
    }
    rmm::mr::set_current_device_resource(nullptr);
}

TEST(CInterface, no_text_of_options_does_more_than_fail) {
    std::mt19937 random(20);
    const std::string letters = "=\", \n%initalmaxumnegsbk0189.GMiB\x80\xff";
    int opened = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string text = round % 3 == 0 ? "maximum=" : round % 3 == 1 ? "name=\"" : "";
        for (std::size_t n = random() % 20; n > 0; --n) text += letters[random() % letters.size()];
        rmm_resource* resource = nullptr;
        const int code = rmm_open("pool", text.c_str(), nullptr, &resource);
        ASSERT_EQ(code == RMM_OK, resource != nullptr) << text;
        opened += code == RMM_OK;
        rmm_release(resource);
    }
    EXPECT_GT(opened, 100);
}

namespace {

/// Functions of the program that wait, each time, until they may return.
struct waiting_source {
    std::binary_semaphore is_inside{0}, may_return{0};
    std::atomic<bool> is_closed{false};
    bool was_closed_inside = false;

    void wait() {
        is_inside.release();
        may_return.acquire();
        was_closed_inside |= is_closed.load();
    }
    static int allocate(void* user, size_t, CUstream_st*, void** out) {
        static_cast<waiting_source*>(user)->wait();
        *out = user;
        return RMM_OK;
    }
    static void deallocate(void* user, void*, size_t, CUstream_st*) { static_cast<waiting_source*>(user)->wait(); }
    static void close(void* user) { static_cast<waiting_source*>(user)->is_closed.store(true); }
};

}  // namespace

TEST(CInterface, a_resource_that_is_replaced_while_a_hook_is_inside_is_closed_afterwards) {
    waiting_source source;
    rmm_resource* opened = nullptr;
    ASSERT_EQ(rmm_open_callbacks(&waiting_source::allocate, &waiting_source::deallocate, &waiting_source::close,
                                 &source, &opened),
              RMM_OK);
    ASSERT_EQ(rmm_set_device_resource(0, opened), RMM_OK);
    rmm_release(opened);  // only the device has a reference
    std::thread caller([&] {
        void* const block = rmm_torch_allocate(1000, 0, nullptr);
        EXPECT_EQ(block, &source);
        rmm_torch_deallocate(block, 1000, 0, nullptr);
    });
    source.is_inside.acquire();
    EXPECT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    EXPECT_FALSE(source.is_closed.load());
    source.may_return.release();
    source.is_inside.acquire();  // of the free
    EXPECT_FALSE(source.is_closed.load());
    source.may_return.release();
    caller.join();
    EXPECT_FALSE(source.was_closed_inside);
    EXPECT_TRUE(source.is_closed.load());
}

TEST(CInterface, a_block_of_the_hook_for_pytorch_goes_back_to_the_resource_that_made_it) {
    struct source {
        int frees = 0;
        bool is_closed = false;
        static int allocate(void* user, size_t, CUstream_st*, void** out) {
            *out = user;
            return RMM_OK;
        }
        static void deallocate(void* user, void*, size_t bytes, CUstream_st*) {
            EXPECT_EQ(bytes, 1000u);
            ++static_cast<source*>(user)->frees;
        }
        static void close(void* user) { static_cast<source*>(user)->is_closed = true; }
    } made;
    rmm_resource* opened = nullptr;
    ASSERT_EQ(rmm_open_callbacks(&source::allocate, &source::deallocate, &source::close, &made, &opened), RMM_OK);
    ASSERT_EQ(rmm_set_device_resource(0, opened), RMM_OK);
    rmm_release(opened);
    void* const block = rmm_torch_allocate(1000, 0, nullptr);
    ASSERT_EQ(block, &made);
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    EXPECT_FALSE(made.is_closed);
    rmm_torch_deallocate(block, 1000, 0, nullptr);
    EXPECT_EQ(made.frees, 1);
    EXPECT_TRUE(made.is_closed);

    testing::internal::CaptureStderr();
    rmm_torch_deallocate(block, 1000, 0, nullptr);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("hook of PyTorch has not given"), std::string::npos);
    EXPECT_EQ(made.frees, 1);
}

TEST(CInterface, a_free_through_cupy_s_hook_of_what_it_has_not_given_is_reported) {
    const owned cuda = open("cuda");
    int not_of_the_device = 0;
    testing::internal::CaptureStderr();
    rmm_cupy_deallocate(cuda.get(), &not_of_the_device, 0);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("rmm_cupy_allocate has not given"), std::string::npos);
    EXPECT_NE(std::string(rmm_last_error()).find("rmm_cupy_allocate has not given"), std::string::npos);
}

TEST(CInterface, the_resource_of_a_device_may_be_replaced_while_threads_ask_for_it) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            while (!stop.load()) {
                rmm_resource* now = nullptr;
                ASSERT_EQ(rmm_get_device_resource(0, &now), RMM_OK);
                void* pointer = nullptr;
                ASSERT_EQ(rmm_allocate(now, 1000, 0, nullptr, &pointer), RMM_OK) << rmm_last_error();
                ASSERT_EQ(rmm_deallocate(now, pointer, 1000, nullptr), RMM_OK);
                rmm_release(now);
            }
        });
    for (int i = 0; i < 300; ++i) {
        const owned pool = open("pool", "initial=1MiB");
        ASSERT_EQ(rmm_set_device_resource(0, pool.get()), RMM_OK);
    }
    stop.store(true);
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
}

TEST(CInterface, a_block_that_pytorch_records_on_another_stream_is_not_used_before_that_has_passed) {
    rmm_resource* pool = nullptr;
    ASSERT_EQ(rmm_open("pool", "initial=1MiB maximum=1MiB", nullptr, &pool), RMM_OK);
    ASSERT_EQ(rmm_set_device_resource(0, pool), RMM_OK);
    const rmm::cuda_stream own(rmm::cuda_stream::flags::non_blocking);
    const rmm::cuda_stream other(rmm::cuda_stream::flags::non_blocking);
    kmm::driver::Driver& d = kmm::driver::process_default();
    std::binary_semaphore gate{0};
    std::atomic<bool> has_passed{false}, came_after{false};
    struct order {
        std::binary_semaphore& gate;
        std::atomic<bool>& has_passed;
        std::atomic<bool>& came_after;
    } both{gate, has_passed, came_after};

    void* const block = rmm_torch_allocate(1 << 20, 0, own.value());
    ASSERT_NE(block, nullptr);
    rmm::c_interface::record_stream_for_torch(block, other.value());
    EXPECT_EQ(rmm::c_interface::size_for_torch(block), std::size_t{1} << 20);
    ASSERT_TRUE(d.host_callback(
                     {other.value()},
                     [](void* user) {
                         static_cast<order*>(user)->gate.acquire();
                         static_cast<order*>(user)->has_passed = true;
                     },
                     &both)
                    .ok());
    rmm_torch_deallocate(block, 1 << 20, 0, own.value());
    void* const again = rmm_torch_allocate(1 << 20, 0, own.value());
    EXPECT_EQ(again, block);
    ASSERT_TRUE(d.host_callback(
                     {own.value()},
                     [](void* user) {
                         auto& c = *static_cast<order*>(user);
                         c.came_after = c.has_passed.load();
                     },
                     &both)
                    .ok());
    gate.release();
    own.synchronize();
    EXPECT_TRUE(came_after.load());
    rmm_torch_deallocate(again, 1 << 20, 0, own.value());
    rmm::c_interface::trim_for_torch();
    EXPECT_EQ(rmm_set_device_resource(0, nullptr), RMM_OK);
    rmm_release(pool);
}
