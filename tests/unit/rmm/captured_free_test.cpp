// Blocks of resources that free at once, freed on a stream that is being captured: they live as long as what was made
// of the capture, and go back to the driver then.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rmm/cuda_stream.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/ledger.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/status.hpp"
#include "rmm/stream_registry.hpp"
#include "stream_tools.hpp"
#include "support/forwarding_driver.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using namespace kmm::driver;
using rmm_test::foreign_stream;

Driver& the_driver() { return rmm_test::driver(); }
StreamHandle handle_of(cuda_stream_view stream) { return {stream.value()}; }

constexpr std::size_t block_bytes = 64 * KiB;

struct resource_kind {
    const char* name;
    std::unique_ptr<mr::device_memory_resource> (*make)();
    bool is_known_to_the_driver = true;
};

class CapturedFree : public ::testing::TestWithParam<resource_kind> {
  protected:
    void SetUp() override {
        if (std::string(GetParam().name) == "system" && !mr::detail::is_system_memory_supported(cuda_device_id{0}))
            GTEST_SKIP() << "this device does not reach pageable memory";
        resource = GetParam().make();
        block = resource->allocate(block_bytes, stream.view());
        ASSERT_TRUE(the_driver().allocate_pinned(4, &out).ok());
    }
    void TearDown() override {
        if (out != nullptr) {
            EXPECT_TRUE(the_driver().free_pinned(out).ok());
        }
    }
    /// Fills the block, copies a word of it to `out`, and frees the block.
    void use_and_free() {
        const std::uint32_t value = 42;
        ASSERT_TRUE(the_driver().fill(block, &value, 4, block_bytes / 4, handle_of(stream.view())).ok());
        ASSERT_TRUE(
            the_driver().copy(out, static_cast<char*>(block) + block_bytes - 4, 4, handle_of(stream.view())).ok());
        resource->deallocate(block, block_bytes, stream.view());
    }
    void capture() {
        ASSERT_TRUE(the_driver().begin_capture(handle_of(stream.view()), CaptureMode::global).ok());
        use_and_free();
        ASSERT_TRUE(the_driver().end_capture(handle_of(stream.view()), &graph).ok());
    }
    void expect_replay(GraphExecHandle exec) {
        std::memset(out, 0, 4);
        ASSERT_TRUE(the_driver().launch_graph(exec, handle_of(stream.view())).ok());
        ASSERT_TRUE(the_driver().synchronize_stream(handle_of(stream.view())).ok());
        std::uint32_t found = 0;
        std::memcpy(&found, out, 4);
        EXPECT_EQ(found, 42u);
    }
    /// Of blocks that the driver has allocated.
    bool is_there() {
        PointerInfo info;
        const bool known = the_driver().pointer_info(block, &info).ok();
        if (!known) (void)the_driver().take_last_error();
        return known && info.kind != MemoryKind::pageable;
    }
    /// What frees the blocks whose graphs have ended.
    void use_resource() { resource->deallocate(resource->allocate(1), 1); }
    /// The driver may tell of the end of a graph from a thread of its own.
    void expect_it_goes() {
        use_resource();
        if (!GetParam().is_known_to_the_driver) return;
        while (is_there()) {
            std::this_thread::yield();
            use_resource();
        }
    }

    foreign_stream stream;
    std::unique_ptr<mr::device_memory_resource> resource;
    void* block = nullptr;
    void* out = nullptr;  // one word of page-locked memory
    GraphHandle graph;
};

template<typename Resource>
std::unique_ptr<mr::device_memory_resource> make() {
    return std::make_unique<Resource>();
}

INSTANTIATE_TEST_SUITE_P(of, CapturedFree,
                         ::testing::Values(resource_kind{"cuda", &make<mr::cuda_memory_resource>},
                                           resource_kind{"managed", &make<mr::managed_memory_resource>},
                                           resource_kind{"pinned", &make<mr::pinned_host_memory_resource>},
                                           resource_kind{"system", &make<mr::system_memory_resource>, false}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(CapturedFree, the_block_lives_as_long_as_graph_and_executable) {
    capture();
    use_resource();
    GraphExecHandle exec;
    ASSERT_TRUE(the_driver().instantiate(graph, &exec).ok());
    expect_replay(exec);
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
    use_resource();
    expect_replay(exec);
    ASSERT_TRUE(the_driver().destroy_exec(exec).ok());
    expect_it_goes();
}

TEST_P(CapturedFree, a_graph_of_which_nothing_is_made_gives_the_block_back) {
    capture();
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
    expect_it_goes();
}

TEST_P(CapturedFree, a_capture_that_fails_gives_the_block_back) {
    ASSERT_TRUE(the_driver().begin_capture(handle_of(stream.view()), CaptureMode::relaxed).ok());
    use_and_free();
    EXPECT_FALSE(the_driver().synchronize_stream(handle_of(stream.view())).ok());  // spoils it
    (void)the_driver().take_last_error();
    EXPECT_FALSE(the_driver().end_capture(handle_of(stream.view()), &graph).ok());
    (void)the_driver().take_last_error();
    expect_it_goes();
}

/// Refuses to tell of the end of graphs.
class without_ends final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    Status keep_with_capture(StreamHandle, HostCallback, void*) noexcept override { return {Code::not_supported}; }

  private:
    void called(const char*) noexcept override {}
};

TEST_P(CapturedFree, where_the_driver_tells_no_end_the_block_stays_and_that_is_said) {
    without_ends refusing(the_driver());
    {
        const rmm::detail::driver_scope scope(refusing);
        ::testing::internal::CaptureStderr();
        capture();
        EXPECT_EQ(::testing::internal::GetCapturedStderr().find(
                      "rmm: could not defer the free of memory that a graph uses (it is never freed): "),
                  0u);
    }
    GraphExecHandle exec;
    ASSERT_TRUE(the_driver().instantiate(graph, &exec).ok());
    expect_replay(exec);
    ASSERT_TRUE(the_driver().destroy_exec(exec).ok());
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
    use_resource();
    if (GetParam().is_known_to_the_driver) {
        EXPECT_TRUE(is_there());
    }
    resource->deallocate(block, block_bytes, stream.view());
}

std::size_t held_bytes() {
    std::size_t sum = 0;
    rmm::detail::for_each_holder(0, [&](rmm::detail::memory_holder& h) {
        const rmm::detail::holder_figures f = h.figures();
        if (f.kind == "cuda_memory_resource") sum += f.held_bytes;
    });
    return sum;
}

TEST(CapturedFrees, a_block_that_a_graph_uses_is_held_until_a_request_needs_its_memory) {
    if (the_driver().kind() != Kind::host) GTEST_SKIP() << "would take all of a GPU's memory";
    mr::cuda_memory_resource cuda;
    mr::vmm_memory_resource vmm;
    const foreign_stream stream;
    const std::size_t before = held_bytes();
    constexpr std::size_t most = 200 * MiB;  // of 256
    void* const block = cuda.allocate(most, stream.view());
    GraphHandle graph;
    ASSERT_TRUE(the_driver().begin_capture(handle_of(stream.view()), CaptureMode::global).ok());
    cuda.deallocate(block, most, stream.view());
    ASSERT_TRUE(the_driver().end_capture(handle_of(stream.view()), &graph).ok());
    EXPECT_THROW((void)vmm.allocate(most), rmm::out_of_memory);
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
    EXPECT_EQ(held_bytes(), before + most);
    void* const other = vmm.allocate(most);
    EXPECT_EQ(held_bytes(), before);
    vmm.deallocate(other, most);
}

TEST(CapturedFrees, containers_over_adaptors_may_end_in_a_capture) {
    mr::cuda_memory_resource cuda;
    mr::statistics_resource_adaptor<mr::cuda_memory_resource> counted{&cuda};
    const foreign_stream stream;
    device_uvector<int> result(1, stream.view(), counted);
    auto temporary = std::make_unique<device_uvector<int>>(1000, stream.view(), counted);
    GraphHandle graph;
    GraphExecHandle exec;
    ASSERT_TRUE(the_driver().begin_capture(handle_of(stream.view()), CaptureMode::global).ok());
    const std::uint32_t value = 7;
    ASSERT_TRUE(the_driver().fill(temporary->data(), &value, 4, 1000, handle_of(stream.view())).ok());
    ASSERT_TRUE(the_driver().copy(result.data(), temporary->data() + 999, 4, handle_of(stream.view())).ok());
    temporary.reset();
    EXPECT_EQ(counted.get_allocations_counter().value, 1);
    ASSERT_TRUE(the_driver().end_capture(handle_of(stream.view()), &graph).ok());
    ASSERT_TRUE(the_driver().instantiate(graph, &exec).ok());
    for (int i = 0; i < 3; ++i) {
        result.set_element_to_zero_async(0, stream.view());
        const device_uvector<int> others(1000, stream.view(), counted);  // would get its memory
        ASSERT_TRUE(the_driver().launch_graph(exec, handle_of(stream.view())).ok());
        EXPECT_EQ(result.element(0, stream.view()), 7);
    }
    ASSERT_TRUE(the_driver().destroy_exec(exec).ok());
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
}

TEST_P(CapturedFree, a_block_may_outlive_a_stream_of_the_library) {
    cuda_stream_view dead;
    {
        const cuda_stream ends;
        dead = ends.view();
        void* const others = resource->allocate(block_bytes, dead);
        resource->deallocate(others, block_bytes, dead);
    }
    EXPECT_TRUE(rmm::detail::is_handle_of_ended_stream(dead.value()));
    ::testing::internal::CaptureStderr();
    resource->deallocate(block, block_bytes, dead);  // on a GPU the driver would end the process if it were asked
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    expect_it_goes();
    const cuda_stream next;
    void* const others = resource->allocate(block_bytes, next.view());
    EXPECT_FALSE(rmm::detail::is_handle_of_ended_stream(next.value()));
    resource->deallocate(others, block_bytes, next.view());
}

/// Counts the waits for a whole device.
class WaitingDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    WaitingDriver() : ForwardingDriver(the_driver()) {}
    int num_waits = 0;

  private:
    void called(const char* call) noexcept override { num_waits += std::string(call) == "synchronize_device" ? 1 : 0; }
};

TEST(CapturedFrees, memory_that_goes_at_once_waits_for_the_work_that_a_stream_left_behind) {
    WaitingDriver waiting;
    const rmm::detail::driver_scope on(waiting);
    std::vector<std::unique_ptr<mr::device_memory_resource>> resources;
    resources.push_back(std::make_unique<mr::pinned_host_memory_resource>());
    if (mr::detail::is_system_memory_supported(cuda_device_id{0}))  // as on the host driver
        resources.push_back(std::make_unique<mr::system_memory_resource>());
    for (const auto& from : resources) {
        cuda_stream_view dead;
        void* large = nullptr;
        {
            const cuda_stream ends;
            dead = ends.view();
            large = from->allocate(64 * MiB, dead);
        }
        const int before = waiting.num_waits;
        from->deallocate(large, 64 * MiB, dead);
        EXPECT_EQ(waiting.num_waits, before + 1);
    }
}

TEST(CapturedFrees, a_foreign_stream_with_the_handle_of_one_that_has_ended_is_asked_once_it_is_known_to_be_there) {
    mr::cuda_memory_resource cuda;
    cudaStream_t handle = nullptr;
    { handle = cuda_stream().value(); }
    ASSERT_TRUE(rmm::detail::is_handle_of_ended_stream(handle));
    cuda.deallocate(cuda.allocate(block_bytes, handle), block_bytes);
    EXPECT_FALSE(rmm::detail::is_handle_of_ended_stream(handle));
}

TEST(CapturedFrees, a_free_outside_of_the_capture_is_not_deferred) {
    mr::cuda_memory_resource cuda;
    const foreign_stream stream;
    const foreign_stream other;
    const std::size_t before = held_bytes();
    void* const block = cuda.allocate(block_bytes);
    void* const second = cuda.allocate(block_bytes);
    GraphHandle graph;
    ASSERT_TRUE(the_driver().begin_capture(handle_of(stream.view()), CaptureMode::relaxed).ok());
    cuda.deallocate(block, block_bytes, other.view());
    cuda.deallocate(second, block_bytes);
    EXPECT_LE(held_bytes(), before) << "what an earlier graph kept may have gone meanwhile";
    ASSERT_TRUE(the_driver().end_capture(handle_of(stream.view()), &graph).ok());
    ASSERT_TRUE(the_driver().destroy_graph(graph).ok());
}

}  // namespace
