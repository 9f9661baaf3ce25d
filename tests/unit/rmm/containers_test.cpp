// What all containers promise: a device of their own, whichever device is current, and memory of any kind.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "driver/registry.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "support/repeat.hpp"

namespace {

using namespace rmm;
using rmm_test::recording_resource;

// ---- on two devices

template<typename Container>
struct container_maker {
    static Container make(device_async_resource_ref mr) { return Container(100, cuda_stream_view{}, mr); }
};
template<typename T>
struct container_maker<device_scalar<T>> {
    static device_scalar<T> make(device_async_resource_ref mr) { return device_scalar<T>(cuda_stream_view{}, mr); }
};

template<typename Container>
class ContainerOnItsDevice : public testing::Test {
  protected:
    void TearDown() override {
        EXPECT_FALSE(mr_.allocations.empty());
        for (const auto& r : mr_.allocations) EXPECT_EQ(r.device, 0);
        for (const auto& r : mr_.frees) EXPECT_EQ(r.device, 0);
        EXPECT_EQ(mr_.in_use, 0u);
        EXPECT_EQ(get_current_cuda_device().value(), 0);
    }
    std::unique_ptr<Container> make() { return std::make_unique<Container>(container_maker<Container>::make(mr_)); }

    recording_resource mr_;
};
using containers = testing::Types<device_buffer, device_uvector<int>, device_scalar<int>>;
TYPED_TEST_SUITE(ContainerOnItsDevice, containers);

TYPED_TEST(ContainerOnItsDevice, may_be_destroyed_while_another_is_current) {
    auto container = this->make();
    const cuda_set_device_raii on_one{cuda_device_id{1}};
    container.reset();
    EXPECT_EQ(get_current_cuda_device().value(), 1);
}

TYPED_TEST(ContainerOnItsDevice, may_be_moved_while_another_is_current) {
    auto source = this->make();
    auto target = this->make();
    const cuda_set_device_raii on_one{cuda_device_id{1}};
    *target = std::move(*source);
    EXPECT_EQ(this->mr_.frees.size(), 1u);
    const TypeParam constructed{std::move(*target)};
    target.reset();
    source.reset();
    EXPECT_EQ(this->mr_.frees.size(), 1u);
}

template<typename Container>
class ResizedOnItsDevice : public ContainerOnItsDevice<Container> {};
using resizable = testing::Types<device_buffer, device_uvector<int>>;
TYPED_TEST_SUITE(ResizedOnItsDevice, resizable);

TYPED_TEST(ResizedOnItsDevice, may_grow_and_shrink_while_another_is_current) {
    auto container = this->make();
    const cuda_set_device_raii on_one{cuda_device_id{1}};
    container->resize(1024, cuda_stream_view{});
    container->resize(64, cuda_stream_view{});
    container->shrink_to_fit(cuda_stream_view{});
    EXPECT_EQ(this->mr_.allocations.size(), 3u);
    EXPECT_EQ(container->capacity(), 64u);
    container.reset();
}

// ---- on memory of any kind

template<typename Resource>
class BufferOf : public testing::Test {
  protected:
    static std::vector<unsigned char> numbers() {
        std::vector<unsigned char> v(1000);
        std::iota(v.begin(), v.end(), static_cast<unsigned char>(1));
        return v;
    }
    static std::vector<unsigned char> contents(const device_buffer& buffer) {
        std::vector<unsigned char> v(buffer.size());
        EXPECT_TRUE(
            kmm::driver::process_default().copy(v.data(), buffer.data(), v.size(), {buffer.stream().value()}).ok());
        buffer.stream().synchronize();
        return v;
    }
    device_buffer filled(cuda_stream_view stream) {
        const auto source = numbers();
        device_buffer buffer{source.data(), source.size(), stream, mr_};
        stream.synchronize();
        return buffer;
    }
    Resource mr_;
    mr::managed_memory_resource other_mr_;
    cuda_stream stream_;
};
using resources = testing::Types<mr::cuda_memory_resource, mr::managed_memory_resource>;
TYPED_TEST_SUITE(BufferOf, resources);

TYPED_TEST(BufferOf, each_resource_has_size_stream_and_resource_as_they_were_given) {
    for (const cuda_stream_view stream : {cuda_stream_view{}, this->stream_.view()}) {
        const device_buffer by_default{100, stream};
        EXPECT_EQ(by_default.memory_resource(), mr::get_current_device_resource_ref());
        const device_buffer given{100, stream, this->mr_};
        EXPECT_EQ(given.memory_resource(), device_async_resource_ref{this->mr_});
        for (const device_buffer* buffer : {&by_default, &given}) {
            EXPECT_NE(buffer->data(), nullptr);
            EXPECT_EQ(buffer->size(), 100u);
            EXPECT_EQ(buffer->ssize(), 100);
            EXPECT_EQ(buffer->capacity(), 100u);
            EXPECT_EQ(buffer->stream(), stream);
        }
    }
}

TYPED_TEST(BufferOf, each_resource_is_filled_from_host_and_device) {
    const device_buffer from_host = this->filled(this->stream_);
    EXPECT_EQ(this->contents(from_host), this->numbers());
    const device_buffer from_device{from_host.data(), from_host.size(), this->stream_, this->mr_};
    EXPECT_NE(from_device.data(), from_host.data());
    EXPECT_EQ(from_device.size(), 1000u);
    EXPECT_EQ(from_device.capacity(), 1000u);
    EXPECT_EQ(from_device.memory_resource(), device_async_resource_ref{this->mr_});
    EXPECT_EQ(from_device.stream(), this->stream_.view());
    EXPECT_EQ(this->contents(from_device), this->numbers());
}

TYPED_TEST(BufferOf, each_resource_is_copied_to_the_stream_and_resource_that_are_named) {
    const device_buffer source = this->filled(this->stream_);
    const device_buffer by_default{source, cuda_stream_view{}};
    EXPECT_EQ(by_default.memory_resource(), mr::get_current_device_resource_ref());
    EXPECT_EQ(by_default.stream(), cuda_stream_view{});
    const device_buffer alike{source, source.stream(), source.memory_resource()};
    EXPECT_EQ(alike.memory_resource(), source.memory_resource());
    EXPECT_EQ(alike.stream(), source.stream());
    EXPECT_NE(alike.data(), source.data());
    EXPECT_EQ(this->contents(by_default), this->numbers());
    EXPECT_EQ(this->contents(alike), this->numbers());
}

TYPED_TEST(BufferOf, each_resource_is_copied_without_what_was_cut_off) {
    device_buffer source = this->filled(this->stream_);
    source.resize(999, this->stream_);
    auto expected = this->numbers();
    expected.pop_back();
    this->stream_.synchronize();
    const device_buffer by_default{source, this->stream_};
    const cuda_stream another;
    const device_buffer elsewhere{source, another, this->other_mr_};
    EXPECT_EQ(elsewhere.stream(), another.view());
    EXPECT_EQ(elsewhere.memory_resource(), device_async_resource_ref{this->other_mr_});
    for (const device_buffer* copy : {&by_default, &elsewhere}) {
        EXPECT_EQ(copy->size(), 999u);
        EXPECT_EQ(copy->capacity(), 999u);
        EXPECT_EQ(this->contents(*copy), expected);
    }
}

TYPED_TEST(BufferOf, each_resource_moves_into_new_empty_and_filled_buffers) {
    for (const cuda_stream_view stream : {cuda_stream_view{}, this->stream_.view()}) {
        device_buffer source{100, stream, this->mr_};
        void* const ptr = source.data();
        const auto expect_there = [&](const device_buffer& target, const device_buffer& from) {
            EXPECT_EQ(target.data(), ptr);
            EXPECT_EQ(target.size(), 100u);
            EXPECT_EQ(target.capacity(), 100u);
            EXPECT_EQ(target.stream(), stream);
            EXPECT_EQ(target.memory_resource(), device_async_resource_ref{this->mr_});
            EXPECT_EQ(from.data(), nullptr);
            EXPECT_EQ(from.size(), 0u);
            EXPECT_EQ(from.capacity(), 0u);
            EXPECT_EQ(from.stream(), cuda_stream_view{});
        };
        device_buffer constructed{std::move(source)};
        expect_there(constructed, source);  // NOLINT(bugprone-use-after-move): what it is then is promised
        device_buffer empty;
        empty = std::move(constructed);
        expect_there(empty, constructed);  // NOLINT(bugprone-use-after-move)
        device_buffer filled{50, cuda_stream_view{}, this->other_mr_};
        filled = std::move(empty);
        expect_there(filled, empty);  // NOLINT(bugprone-use-after-move)
    }
}

TYPED_TEST(BufferOf, each_resource_is_resized_and_reserved) {
    device_buffer buffer = this->filled(this->stream_);
    void* const first = buffer.data();
    buffer.resize(999, this->stream_);
    buffer.reserve(500, this->stream_);
    EXPECT_EQ(buffer.data(), first);
    EXPECT_EQ(buffer.capacity(), 1000u);
    buffer.shrink_to_fit(this->stream_);
    EXPECT_NE(buffer.data(), first);
    EXPECT_EQ(buffer.capacity(), 999u);
    auto expected = this->numbers();
    expected.pop_back();
    EXPECT_EQ(this->contents(buffer), expected);
    void* const second = buffer.data();
    buffer.resize(1001, this->stream_);
    EXPECT_NE(buffer.data(), second);
    EXPECT_EQ(buffer.size(), 1001u);
    EXPECT_EQ(buffer.capacity(), 1001u);
    void* const third = buffer.data();
    buffer.reserve(2000, this->stream_);
    EXPECT_NE(buffer.data(), third);
    EXPECT_EQ(buffer.size(), 1001u);
    EXPECT_EQ(buffer.capacity(), 2000u);
}

// ---- device_uvector, element by element

TEST(Uvector, every_one_of_many_elements_is_set_and_read) {
    const auto n = static_cast<std::size_t>(repeat(12345, 1234));
    const cuda_stream stream;
    device_uvector<int> v(n, stream);
    for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(v.element_ptr(i), v.data() + i);
        v.set_element(i, static_cast<int>(i), stream);
    }
    std::size_t num_wrong = 0;
    for (std::size_t i = 0; i < n; ++i) num_wrong += v.element(i, stream) != static_cast<int>(i);
    EXPECT_EQ(num_wrong, 0u);
    std::vector<int> values(n);
    std::iota(values.begin(), values.end(), 1);
    for (std::size_t i = 0; i < n; ++i) v.set_element_async(i, values[i], stream);
    for (std::size_t i = 0; i < n; ++i) num_wrong += v.element(i, stream) != values[i];
    for (std::size_t i = 0; i < n; ++i) v.set_element_to_zero_async(i, stream);
    for (std::size_t i = 0; i < n; ++i) num_wrong += v.element(i, stream) != 0;
    EXPECT_EQ(num_wrong, 0u);
    EXPECT_THROW(v.set_element(n + 1, 0, stream), rmm::out_of_range);
    EXPECT_THROW((void)v.element(n + 1, stream), rmm::out_of_range);
}

TEST(Uvector, growing_moves_and_leaves_nothing_to_shrink) {
    const cuda_stream stream;
    device_uvector<double> v(10, stream);
    v.set_element(9, 5.0, stream);
    auto* const small = v.data();
    v.resize(20, stream);
    EXPECT_NE(v.data(), small);
    EXPECT_EQ(v.element(9, stream), 5.0);
    auto* const large = v.data();
    v.shrink_to_fit(stream);
    EXPECT_EQ(v.data(), large);
    EXPECT_EQ(v.size(), 20u);
    EXPECT_EQ(v.capacity(), 20u);
}

TEST(Uvector, reverse_iterators_step_in_from_each_end) {
    const cuda_stream stream;
    device_uvector<int> v(10, stream);
    const auto& constant = v;
    EXPECT_EQ(v.rbegin().base(), v.end());
    EXPECT_EQ(v.rend().base(), v.begin());
    EXPECT_EQ(std::distance(v.rbegin(), v.rend()), v.ssize());
    EXPECT_EQ(std::distance(v.rend(), v.rbegin()), -v.ssize());
    EXPECT_EQ(std::next(v.rbegin()).base(), std::prev(v.end()));
    EXPECT_EQ(std::prev(v.rend()).base(), std::next(v.begin()));
    EXPECT_EQ(std::next(constant.rbegin()).base(), std::prev(constant.end()));
    EXPECT_EQ(std::prev(v.crend()).base(), std::next(v.cbegin()));
}

}  // namespace
