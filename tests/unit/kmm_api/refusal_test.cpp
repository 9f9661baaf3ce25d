// What this version does not offer says so, at the call, and leaves no trace.
#include <gtest/gtest.h>

#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm_test::contains;
using kmm_test::small_runtime;
using kmm_test::text_of;

namespace {
const auto no_function = kmm::Host([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
}  // namespace

namespace {
void does_nothing() {}
}  // namespace

TEST(Refusals, null_pointers_are_refused_and_the_process_lives) {
    const kmm::RuntimeHandle rt = small_runtime();
    EXPECT_THROW(rt.allocate(static_cast<const float*>(nullptr), 3), kmm::InvalidArgument);
    EXPECT_EQ(rt.allocate(static_cast<const float*>(nullptr), 0).volume(), 0) << "nothing is looked at";
    const auto a = rt.allocate({1.0f, 2.0f});
    EXPECT_THROW(a.copy_to(static_cast<float*>(nullptr)), kmm::InvalidArgument);
    EXPECT_THROW(a.copy_from(static_cast<const float*>(nullptr)), kmm::InvalidArgument);
    using Function = void (*)();
    EXPECT_THROW(rt.submit(kmm::ResourceId::host(), kmm::Host(Function{nullptr})), kmm::InvalidArgument);
    EXPECT_NO_THROW(rt.wait(rt.submit(kmm::ResourceId::host(), kmm::Host(Function{&does_nothing}))));
    EXPECT_THROW(rt.submit(kmm::ResourceId(kmm::DeviceId(0)), kmm::GPUKernel(Function{nullptr}, 32)),
                 kmm::InvalidArgument);
    EXPECT_EQ(a.copy_to_vector(), (std::vector<float>{1, 2}));
}

TEST(Refusals, each_feature_that_waits_names_itself) {
    auto rt = small_runtime();
    auto A = rt.allocate({1.0F, 2.0F});
    std::vector<float> memory(2);
    const auto refused = [&](const char* part, auto&& call) {
        const std::string text = text_of<kmm::NotAvailable>(call);
        EXPECT_TRUE(contains(text, part)) << text;
    };
    const std::uint64_t before = rt.stats().tasks_submitted;
    refused("reduce", [&] { rt.parallel_submit(2, no_function, reduce(kmm::Reduction::Sum, A)); });
    refused("accumulate",
            [&] { rt.parallel_submit(2, no_function, accumulate(kmm::Reduction::Max, privatize(_y), A[_x])); });
    refused("follow", [&] { rt.parallel_submit(follow(2, 1, A[_x]), no_function); });
    refused("chunks_of", [&] { rt.parallel_submit(chunks_of(A), no_function); });
    refused("stream",
            [&] { rt.submit(kmm::ResourceId(kmm::DeviceId(0), {1}), kmm::GPU([](kmm::DeviceResource&) {})); });
    refused("scratch", [&] { rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource&) {}).scratch(10)); });
    refused("constrain_to", [&] { rt.constrain_to(kmm::DeviceId(0)); });
    refused("adopt", [&] { rt.adopt(memory.data(), 2); });
    refused("lease", [&] { rt.lease(A); });
    refused("lease", [&] { rt.lease_chunk(write(A), 0); });
    refused("record_stream", [&] { rt.record_stream(kmm::DeviceId(0), nullptr); });
    refused("stream_wait", [&] { rt.stream_wait(kmm::DeviceId(0), nullptr, kmm::EventId()); });
    refused("copy", [&] { rt.copy(A, A); });
    refused("redistribute", [&] { rt.redistribute(A, kmm::Distribution<1>::single(2)); });
    refused("copy_to_async", [&] { A.copy_to_async(memory.data()); });
    refused("copy_from_async", [&] { A.copy_from_async(memory.data()); });
    refused("MemoryManager", [] { kmm::MemoryManager manager; });
    EXPECT_EQ(rt.stats().tasks_submitted, before);
}

TEST(Refusals, blas_and_scratch_fail_the_task_that_asks) {
    auto rt = small_runtime();
    for (const auto& event :
         {rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource& d) { static_cast<void>(d.blas()); })),
          rt.submit(kmm::DeviceId(0),
                    kmm::GPU([](kmm::DeviceResource& d) { static_cast<void>(d.scratch<int>(3)); }))}) {
        try {
            rt.wait(event);
            FAIL() << "the task did not fail";
        } catch (const kmm::TaskError& error) {
            EXPECT_THROW(std::rethrow_if_nested(error), kmm::NotAvailable);
        }
    }
}

TEST(Refusals, a_refused_first_write_leaves_the_array_unbound_and_usable) {
    auto rt = small_runtime();
    kmm::Array<int> A{10};
    auto B = rt.allocate({1.0F, 2.0F});
    EXPECT_THROW(rt.parallel_submit(10, 5, no_function, write(A[_x]), reduce(kmm::Reduction::Sum, B)),
                 kmm::NotAvailable);
    EXPECT_FALSE(A.has_instance());
    rt.parallel_submit(10, 5, kmm::Host([](kmm::SubviewMut<int> v) {
                           for (auto i = v.begin(); i < v.end(); i++) v[i] = 3;
                       }),
                       write(A[_x]));
    EXPECT_EQ(A.copy_to_vector(), std::vector<int>(10, 3));
}
