// What all adaptors promise, and owning_wrapper, failure_callback and thread_safe by themselves.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fake_resource.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/is_resource_adaptor.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/owning_wrapper.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "support/sizes.hpp"

template class rmm::mr::aligned_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::failure_callback_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::limiting_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::prefetch_resource_adaptor<rmm::mr::cuda_memory_resource>;
template class rmm::mr::thread_safe_resource_adaptor<rmm::mr::cuda_memory_resource>;

namespace {

using namespace rmm::mr;
using rmm_test::at;
using rmm_test::fake_resource;

/// Makes each adaptor with the parameters that these tests do not care about.
template<typename Adaptor>
struct maker {
    template<typename Upstream>
    static Adaptor make(Upstream upstream) {
        return Adaptor{upstream};
    }
};
template<typename Upstream>
struct maker<limiting_resource_adaptor<Upstream>> {
    template<typename From>
    static limiting_resource_adaptor<Upstream> make(From from) {
        return {from, 64 * MiB};
    }
};
template<typename Upstream, typename Exception>
struct maker<failure_callback_resource_adaptor<Upstream, Exception>> {
    template<typename From>
    static failure_callback_resource_adaptor<Upstream, Exception> make(From from) {
        return {from, [](std::size_t, void*) { return false; }, nullptr};
    }
};

template<typename Adaptor>
class Adaptors : public testing::Test {};
using adaptor_types =
    testing::Types<aligned_resource_adaptor<cuda_memory_resource>,
                   failure_callback_resource_adaptor<cuda_memory_resource>,
                   failure_callback_resource_adaptor<cuda_memory_resource, std::bad_alloc>,
                   limiting_resource_adaptor<cuda_memory_resource>, prefetch_resource_adaptor<cuda_memory_resource>,
                   thread_safe_resource_adaptor<cuda_memory_resource>>;
TYPED_TEST_SUITE(Adaptors, adaptor_types);

TYPED_TEST(Adaptors, refuse_a_null_upstream) {
    EXPECT_THROW((void)maker<TypeParam>::make(static_cast<cuda_memory_resource*>(nullptr)), rmm::logic_error);
    const rmm::device_async_resource_ref null = static_cast<cuda_memory_resource*>(nullptr);
    EXPECT_THROW((void)maker<TypeParam>::make(null), rmm::logic_error);
}

TYPED_TEST(Adaptors, are_equal_over_equal_upstreams_whichever_way_they_were_made) {
    cuda_memory_resource cuda;
    const TypeParam a = maker<TypeParam>::make(&cuda);
    const TypeParam b = maker<TypeParam>::make(&cuda);
    const TypeParam from_ref = maker<TypeParam>::make(rmm::device_async_resource_ref{cuda});
    EXPECT_TRUE(a.is_equal(a));
    EXPECT_TRUE(a == b);
    EXPECT_TRUE(a == from_ref);
    EXPECT_TRUE(from_ref == a);
    EXPECT_FALSE(a != b);
    // An adaptor of another instantiation, and the upstream itself, are other resources.
    const aligned_resource_adaptor<device_memory_resource> other{&cuda};
    EXPECT_FALSE(a.is_equal(other));
    EXPECT_FALSE(other.is_equal(a));
    EXPECT_FALSE(a.is_equal(cuda));
}

TYPED_TEST(Adaptors, are_unequal_over_unequal_upstreams) {
    cuda_memory_resource cuda;
    pool_memory_resource<cuda_memory_resource> pool_a{&cuda, 0};
    pool_memory_resource<cuda_memory_resource> pool_b{&cuda, 0};
    const TypeParam a = maker<TypeParam>::make(rmm::device_async_resource_ref{pool_a});
    const TypeParam b = maker<TypeParam>::make(rmm::device_async_resource_ref{pool_b});
    EXPECT_FALSE(a == b);
}

TYPED_TEST(Adaptors, tell_their_upstream) {
    cuda_memory_resource cuda;
    const TypeParam adaptor = maker<TypeParam>::make(&cuda);
    EXPECT_EQ(adaptor.get_upstream_resource(), rmm::device_async_resource_ref{cuda});
    EXPECT_EQ(adaptor.get_upstream(), &cuda);
    EXPECT_TRUE(adaptor.get_upstream()->is_equal(cuda));
    EXPECT_EQ(maker<TypeParam>::make(rmm::device_async_resource_ref{cuda}).get_upstream(), nullptr);
    static_assert(is_resource_adaptor<TypeParam> && is_resource_adaptor<TypeParam&>);
    static_assert(!std::is_default_constructible_v<TypeParam> && !std::is_copy_constructible_v<TypeParam>);
    static_assert(std::is_final_v<TypeParam>);
}

TYPED_TEST(Adaptors, allocate_and_free_the_exact_bytes_on_the_stream) {
    rmm_test::recording_resource upstream;
    TypeParam adaptor = maker<TypeParam>::make(rmm::device_async_resource_ref{upstream});
    rmm::cuda_stream stream;
    void* const ptr = adaptor.allocate(1000, stream);
    EXPECT_NE(ptr, nullptr);
    adaptor.deallocate(ptr, 1000, stream);
    adaptor.deallocate(adaptor.allocate(3), 3);
    ASSERT_EQ(upstream.allocations.size(), 2u);
    EXPECT_EQ(upstream.allocations[0].bytes, 1000u);
    EXPECT_EQ(upstream.allocations[0].stream, stream.view());
    EXPECT_EQ(upstream.frees[0].bytes, 1000u);
    EXPECT_EQ(upstream.frees[0].stream, stream.view());
    EXPECT_EQ(upstream.allocations[1].bytes, 3u);
    EXPECT_EQ(upstream.in_use, 0u);
}

TYPED_TEST(Adaptors, forward_zero_bytes_and_null) {
    rmm_test::recording_resource upstream;
    TypeParam adaptor = maker<TypeParam>::make(rmm::device_async_resource_ref{upstream});
    EXPECT_EQ(adaptor.allocate(0), nullptr);
    adaptor.deallocate(nullptr, 0);
    EXPECT_EQ(upstream.allocations.size(), 1u);
    EXPECT_EQ(upstream.frees.size(), 1u);
}

TYPED_TEST(Adaptors, answer_for_their_upstream_what_23_12_asked) {
    cuda_memory_resource cuda;
    const TypeParam over_cuda = maker<TypeParam>::make(&cuda);
    EXPECT_FALSE(over_cuda.supports_streams());
    EXPECT_TRUE(over_cuda.supports_get_mem_info());
    EXPECT_EQ(over_cuda.get_mem_info(rmm::cuda_stream_view{}).second,
              cuda.get_mem_info(rmm::cuda_stream_view{}).second);
    fake_resource fake;
    const TypeParam over_fake = maker<TypeParam>::make(rmm::device_async_resource_ref{fake});
    EXPECT_TRUE(over_fake.supports_streams());
    EXPECT_EQ(over_fake.get_mem_info(rmm::cuda_stream_view{}), (std::pair<std::size_t, std::size_t>{3, 7}));
    pinned_memory_resource pinned;  // no device_memory_resource: cannot be asked
    const TypeParam over_pinned = maker<TypeParam>::make(rmm::device_async_resource_ref{pinned});
    EXPECT_FALSE(over_pinned.supports_streams());
    EXPECT_FALSE(over_pinned.supports_get_mem_info());
    EXPECT_EQ(over_pinned.get_mem_info(rmm::cuda_stream_view{}), (std::pair<std::size_t, std::size_t>{0, 0}));
}

TYPED_TEST(Adaptors, pass_failures_of_upstream_on_unchanged) {
    fake_resource upstream;
    TypeParam adaptor = maker<TypeParam>::make(rmm::device_async_resource_ref{upstream});
    upstream.before_allocate = [] { throw rmm::out_of_memory("told to"); };
    try {
        adaptor.allocate(100);
        FAIL() << "did not throw";
    } catch (const rmm::out_of_memory& e) {
        EXPECT_STREQ(e.what(), "std::bad_alloc: out_of_memory: told to");
    }
    upstream.before_allocate = nullptr;
    EXPECT_NE(adaptor.allocate(256), nullptr);
}

static_assert(is_resource_adaptor<pool_memory_resource<cuda_memory_resource>>);
static_assert(!is_resource_adaptor<cuda_memory_resource> && !is_resource_adaptor<int> &&
              !is_resource_adaptor<rmm::device_async_resource_ref>);
static_assert(std::is_move_constructible_v<failure_callback_resource_adaptor<cuda_memory_resource>> &&
              std::is_move_assignable_v<failure_callback_resource_adaptor<cuda_memory_resource>> &&
              std::is_move_constructible_v<prefetch_resource_adaptor<cuda_memory_resource>> &&
              std::is_move_assignable_v<prefetch_resource_adaptor<cuda_memory_resource>>);
static_assert(!std::is_move_constructible_v<limiting_resource_adaptor<cuda_memory_resource>> &&
              !std::is_move_constructible_v<aligned_resource_adaptor<cuda_memory_resource>> &&
              !std::is_move_constructible_v<thread_safe_resource_adaptor<cuda_memory_resource>>);

// ---- failure_callback

TEST(FailureCallbackAdaptor, asks_the_callback_and_gives_up_when_it_says_no) {
    fake_resource upstream;
    int num_attempts = 0;
    upstream.before_allocate = [&] {
        ++num_attempts;
        throw rmm::out_of_memory("full");
    };
    std::vector<std::size_t> asked;
    failure_callback_resource_adaptor<fake_resource> adaptor{&upstream,
                                                             [](std::size_t bytes, void* arg) {
                                                                 auto& seen =
                                                                     *static_cast<std::vector<std::size_t>*>(arg);
                                                                 seen.push_back(bytes);
                                                                 return seen.size() == 1;
                                                             },
                                                             &asked};
    EXPECT_THROW(adaptor.allocate(3), std::bad_alloc);
    EXPECT_EQ(asked, (std::vector<std::size_t>{3, 3}));
    EXPECT_EQ(num_attempts, 2);
}

TEST(FailureCallbackAdaptor, retries_after_the_callback_made_room_in_the_same_resource) {
    cuda_memory_resource cuda;
    limiting_resource_adaptor<cuda_memory_resource> limited{&cuda, 1024};
    struct holder {
        failure_callback_resource_adaptor<limiting_resource_adaptor<cuda_memory_resource>>* adaptor = nullptr;
        void* block = nullptr;
    } held;
    failure_callback_resource_adaptor adaptor{&limited, failure_callback_t{[](std::size_t, void* arg) {
                                                  auto& h = *static_cast<holder*>(arg);
                                                  h.adaptor->deallocate(h.block, 768);
                                                  return true;
                                              }},
                                              static_cast<void*>(&held)};
    held.adaptor = &adaptor;
    held.block = adaptor.allocate(768);
    void* const ptr = adaptor.allocate(1024);
    EXPECT_EQ(limited.get_allocated_bytes(), 1024u);
    adaptor.deallocate(ptr, 1024);
}

TEST(FailureCallbackAdaptor, asks_once_for_what_no_device_has) {
    bool called = false;
    failure_callback_resource_adaptor<device_memory_resource> adaptor{rmm::mr::get_current_device_resource(),
                                                                      [](std::size_t, void* arg) {
                                                                          auto& was = *static_cast<bool*>(arg);
                                                                          return !std::exchange(was, true);
                                                                      },
                                                                      &called};
    EXPECT_THROW((void)adaptor.allocate(std::size_t{512} << 30), std::bad_alloc);
    EXPECT_TRUE(called);
}

TEST(FailureCallbackAdaptor, a_full_pool_that_is_tried_again_says_nothing) {
    cuda_memory_resource cuda;
    pool_memory_resource<cuda_memory_resource> pool{&cuda, 1024, 1024};
    int num_calls = 0;
    failure_callback_resource_adaptor<pool_memory_resource<cuda_memory_resource>> adaptor{
        &pool, [](std::size_t, void* arg) { return ++*static_cast<int*>(arg) < 10; }, &num_calls};
    testing::internal::CaptureStderr();
    EXPECT_THROW((void)adaptor.allocate(2048), rmm::out_of_memory);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(num_calls, 10);
}

TEST(FailureCallbackAdaptor, listens_only_to_its_type_of_exception) {
    fake_resource upstream;
    int num_calls = 0;
    const failure_callback_t once = [](std::size_t, void* arg) { return ++*static_cast<int*>(arg) == 1; };

    upstream.before_allocate = [] { throw rmm::bad_alloc("always"); };
    failure_callback_resource_adaptor<fake_resource, rmm::bad_alloc> for_bad_alloc{&upstream, once, &num_calls};
    EXPECT_THROW(for_bad_alloc.allocate(1), rmm::bad_alloc);
    EXPECT_EQ(num_calls, 2);

    num_calls = 0;
    failure_callback_resource_adaptor<fake_resource, rmm::out_of_memory> for_oom{&upstream, once, &num_calls};
    EXPECT_THROW(for_oom.allocate(1), rmm::bad_alloc);
    EXPECT_EQ(num_calls, 0);

    upstream.before_allocate = [] { throw rmm::out_of_memory("always"); };
    EXPECT_THROW(for_oom.allocate(1), rmm::out_of_memory);
    EXPECT_EQ(num_calls, 2);
    num_calls = 0;
    EXPECT_THROW(for_bad_alloc.allocate(1), rmm::out_of_memory);  // a derived type counts
    EXPECT_EQ(num_calls, 2);
    static_assert(std::is_same_v<decltype(for_oom)::exception_type, rmm::out_of_memory>);
}

TEST(FailureCallbackAdaptor, is_equal_to_its_own_kind_of_exception_only) {
    cuda_memory_resource cuda;
    const failure_callback_t never = [](std::size_t, void*) { return false; };
    const failure_callback_resource_adaptor<cuda_memory_resource, rmm::bad_alloc> a{&cuda, never, nullptr};
    const failure_callback_resource_adaptor<cuda_memory_resource, rmm::bad_alloc> b{&cuda, never, nullptr};
    const failure_callback_resource_adaptor<cuda_memory_resource> c{&cuda, never, nullptr};
    EXPECT_TRUE(a.is_equal(b));
    EXPECT_FALSE(a.is_equal(c));
    EXPECT_FALSE(c.is_equal(a));
}

// ---- thread_safe

TEST(ThreadSafeAdaptor, lets_one_thread_at_a_time_into_its_upstream) {
    fake_resource upstream;
    std::atomic<int> num_inside{0};
    std::atomic<int> num_overlaps{0};
    const auto look = [&] {
        if (num_inside.fetch_add(1) != 0) ++num_overlaps;
        std::this_thread::yield();
        num_inside.fetch_sub(1);
    };
    upstream.before_allocate = look;
    upstream.before_free = look;
    thread_safe_resource_adaptor<fake_resource> adaptor{&upstream};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 500; ++i) adaptor.deallocate(adaptor.allocate(16), 16);
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(num_overlaps, 0);
    EXPECT_EQ(upstream.allocations.size(), 2000u);
    EXPECT_EQ(upstream.frees.size(), 2000u);
}

// ---- owning_wrapper

/// Tells when it goes.
class mortal_resource final : public device_memory_resource {
  public:
    mortal_resource(std::vector<std::string>* order, std::string name) : order_{order}, name_{std::move(name)} {}
    ~mortal_resource() override { order_->push_back(name_); }

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    std::vector<std::string>* order_;
    std::string name_;
};
template<typename Upstream>
class mortal_adaptor final : public device_memory_resource {
  public:
    mortal_adaptor(Upstream*, std::vector<std::string>* order, std::string name)
        : order_{order}, name_{std::move(name)} {}
    ~mortal_adaptor() override { order_->push_back(name_); }

  private:
    void* do_allocate(std::size_t, rmm::cuda_stream_view) override { return nullptr; }
    void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override {}
    std::vector<std::string>* order_;
    std::string name_;
};

TEST(OwningWrapper, frees_its_resource_before_its_upstreams) {
    std::vector<std::string> order;
    {
        auto wrapper = make_owning_wrapper<mortal_adaptor>(std::make_shared<mortal_resource>(&order, "upstream"),
                                                           &order, "adaptor");
        static_assert(
            std::is_same_v<decltype(wrapper),
                           std::shared_ptr<owning_wrapper<mortal_adaptor<mortal_resource>, mortal_resource>>>);
    }
    EXPECT_EQ(order, (std::vector<std::string>{"adaptor", "upstream"}));
}

TEST(OwningWrapper, keeps_that_order_when_it_is_assigned_over) {
    std::vector<std::string> order;
    using wrapper_type = owning_wrapper<mortal_adaptor<mortal_resource>, mortal_resource>;
    const auto make = [&](const std::string& n) {
        return wrapper_type{std::make_tuple(std::make_shared<mortal_resource>(&order, "upstream " + n)), &order,
                            "adaptor " + n};
    };
    {
        wrapper_type a = make("1");
        a = make("2");
        EXPECT_EQ(order, (std::vector<std::string>{"adaptor 1", "upstream 1"}));
    }
    EXPECT_EQ(order.size(), 4u);
    EXPECT_EQ(order[2], "adaptor 2");
}

TEST(OwningWrapper, forwards_plain_numbers_to_parameters_of_any_integer_type) {
    auto pool = make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 1024, 2048);
    EXPECT_EQ(pool->wrapped().pool_size(), 1024u);
    auto limited = make_owning_wrapper<limiting_resource_adaptor>(pool, 512);
    void* const ptr = limited->allocate(512);
    EXPECT_EQ(limited->wrapped().get_allocated_bytes(), 512u);
    EXPECT_THROW(limited->allocate(1), rmm::out_of_memory);
    limited->deallocate(ptr, 512);
    EXPECT_TRUE(limited->supports_streams());
    EXPECT_FALSE(limited->supports_get_mem_info());
}

template<typename First, typename Second>
class two_upstreams final : public device_memory_resource {
  public:
    two_upstreams(First* first, Second* second, std::int8_t number) : first{first}, second{second}, number{number} {}
    First* first;
    Second* second;
    std::int8_t number;

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return first->allocate(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        first->deallocate(ptr, bytes, stream);
    }
};

TEST(OwningWrapper, owns_any_number_of_upstreams) {
    auto cuda = std::make_shared<cuda_memory_resource>();
    auto fake = std::make_shared<fake_resource>();
    auto two = make_owning_wrapper<two_upstreams>(std::make_tuple(cuda, fake), 5);
    EXPECT_EQ(two->wrapped().first, cuda.get());
    EXPECT_EQ(two->wrapped().second, fake.get());
    EXPECT_EQ(two->wrapped().number, 5);
    owning_wrapper<cuda_memory_resource> none{std::tuple<>{}};
    none.deallocate(none.allocate(100), 100);
    EXPECT_TRUE(none.supports_get_mem_info());
    EXPECT_EQ(none.get_mem_info(rmm::cuda_stream_view{}).second, cuda->get_mem_info(rmm::cuda_stream_view{}).second);
}

TEST(OwningWrapper, is_equal_where_its_resource_is) {
    cuda_memory_resource cuda;
    owning_wrapper<cuda_memory_resource> a{std::tuple<>{}};
    owning_wrapper<cuda_memory_resource> b{std::tuple<>{}};
    EXPECT_TRUE(a.is_equal(b));
    EXPECT_TRUE(a.is_equal(cuda));
    auto pool = make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 0);
    auto other = make_owning_wrapper<pool_memory_resource>(std::make_shared<cuda_memory_resource>(), 0);
    EXPECT_TRUE(pool->is_equal(*pool));
    EXPECT_TRUE(pool->is_equal(pool->wrapped()));
    EXPECT_FALSE(pool->is_equal(*other));
    EXPECT_FALSE(pool->is_equal(a));
    EXPECT_EQ(pool->wrapped().get_upstream()->is_equal(cuda), true);
    static_assert(is_resource_adaptor<std::remove_reference_t<decltype(pool->wrapped())>>);
    static_assert(!is_resource_adaptor<owning_wrapper<cuda_memory_resource>>);
    static_assert(!std::is_copy_constructible_v<owning_wrapper<cuda_memory_resource>> &&
                  std::is_move_constructible_v<owning_wrapper<cuda_memory_resource>> &&
                  std::is_move_assignable_v<owning_wrapper<cuda_memory_resource>>);
}

}  // namespace
