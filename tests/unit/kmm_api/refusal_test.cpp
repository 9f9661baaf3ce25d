// What this version does not offer says so, at the call, and leaves no trace.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
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
    refused("scratch", [&] { rt.submit(kmm::DeviceId(0), kmm::GPU([](kmm::DeviceResource&) {}).scratch(10)); });
    refused("adopt", [&] { rt.adopt(memory.data(), 2); });
    refused("lease", [&] { rt.lease(A); });
    refused("lease", [&] { rt.lease_chunk(write(A), 0); });
    refused("record_stream", [&] { rt.record_stream(kmm::DeviceId(0), nullptr); });
    refused("stream_wait", [&] { rt.stream_wait(kmm::DeviceId(0), nullptr, kmm::EventId()); });
    refused("copy", [&] { rt.copy(A, A); });
    refused("redistribute", [&] { rt.redistribute(A, kmm::Distribution<1>::single(2)); });
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

namespace {

struct Two {
    kmm::Array<int> left, right;
};

/// A handle, what is refused, and the launcher's line.
struct Refused {
    const kmm::RuntimeHandle rt = small_runtime();
    kmm::Array<int> a = rt.allocate({1, 2, 3, 4});

    /// `submit(launcher)` throws an `E` with `part` in its text, which names the task and this place.
    template<typename E, typename L, typename F>
    void check(const L& launcher, const std::string& part, const F& submit) const {
        const std::uint64_t before = rt.stats().tasks_submitted;
        const std::string at = " submitted at " + to_string(launcher.location()) + ": ";
        for (const bool named : {false, true}) {
            const L used = named ? launcher.named("axpy") : launcher;
            try {
                submit(used);
                ADD_FAILURE() << "no exception: " << part;
            } catch (const E& error) {
                const std::string text = error.what();
                const std::size_t begin = text.find(named ? "task \"axpy\"" + at : " task" + at);
                EXPECT_NE(begin, std::string::npos) << text;
                EXPECT_EQ(text.find("submitted at"), text.rfind("submitted at")) << text;
                EXPECT_TRUE(contains(text, part)) << text;
                EXPECT_EQ(error.where().line(), launcher.location().line()) << text;
            }
        }
        EXPECT_EQ(rt.stats().tasks_submitted, before);
    }
};

kmm::DomainChunk owned_by(kmm::ResourceId owner) { return {owner, kmm::DomainPoint(), kmm::DomainDim(4)}; }

}  // namespace

KMM_DEFINE_STRUCT_ARGUMENT(Two, it.left, it.right)

TEST(Refusals, what_is_not_offered_names_the_task_and_the_place_of_its_submit) {
    const Refused r;
    const auto host = kmm::Host([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
    const auto gpu = kmm::GPU([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
    using kmm::NotAvailable;
    r.check<NotAvailable>(host, "reduce", [&](const auto& f) {
        r.rt.parallel_submit(4, f, reduce(kmm::Reduction::Sum, kmm::Array<int>(r.a)));
    });
    r.check<NotAvailable>(host, "struct arguments", [&](const auto& f) { r.rt.parallel_submit(4, f, Two{r.a, r.a}); });
    r.check<NotAvailable>(host, "follow", [&](const auto& f) { r.rt.parallel_submit(follow(4, 1, r.a[_x]), f); });
    r.check<NotAvailable>(host, "chunks_of", [&](const auto& f) { r.rt.parallel_submit(chunks_of(r.a), f); });
    r.check<NotAvailable>(gpu.scratch(10), "scratch", [&](const auto& f) { r.rt.submit(kmm::DeviceId(0), f); });
}

TEST(Refusals, a_resource_that_does_not_fit_names_the_task_and_the_place_of_its_submit) {
    const Refused r;
    const auto host = kmm::Host([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
    const auto gpu = kmm::GPU([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
    const auto missing = [&](const auto& f) { r.rt.submit(kmm::DeviceId(7), f); };
    const auto missing_in_a_list = [&](const auto& f) {
        r.rt.parallel_submit(std::vector{owned_by(kmm::DeviceId(1)), owned_by(kmm::DeviceId(7))}, f);
    };
    using kmm::InvalidResourceException;
    const std::string remedy = "the runtime has no virtual GPU 7, only 2 devices: name a device from 0 to 1";
    r.check<InvalidResourceException>(host, remedy, missing);
    r.check<InvalidResourceException>(gpu, remedy, missing);
    r.check<InvalidResourceException>(host, remedy, missing_in_a_list);
    r.check<InvalidResourceException>(gpu, remedy, missing_in_a_list);
    r.check<InvalidResourceException>(gpu, "use Host(f)",
                                      [&](const auto& f) { r.rt.submit(kmm::ResourceId::host(), f); });
    r.check<InvalidResourceException>(gpu, "domain chunk 0 is owned by the host", [&](const auto& f) {
        r.rt.parallel_submit(std::vector{owned_by(kmm::ResourceId::host())}, f);
    });
}

TEST(Refusals, a_host_task_runs_on_the_host_near_any_device_that_there_is) {
    const auto rt = small_runtime();
    std::atomic<int> calls{0};
    const auto f = kmm::Host([&] { ++calls; });
    rt.wait(rt.submit(kmm::DeviceId(1), f));
    rt.wait(rt.submit(kmm::ResourceId::host(), f));
    rt.wait(rt.parallel_submit(std::vector{owned_by(kmm::DeviceId(0)), owned_by(kmm::DeviceId(1))}, f));
    EXPECT_EQ(calls, 4);
}

TEST(Refusals, other_mistakes_at_submit_name_the_task_and_the_place) {
    const Refused r;
    const auto host = kmm::Host([](auto&&...) { ADD_FAILURE() << "a refused task ran"; });
    using kmm::InvalidArgument;
    r.check<InvalidArgument>(host, "no task writes to region {8...10} of mine", [&](const auto& f) {
        kmm::Array<int> unbound(10);
        unbound.named("mine");
        r.rt.parallel_submit(2, f, write(unbound[range(4 * _x, 4 * _x + 4)]));
    });
    r.check<InvalidArgument>(host, "belongs to runtime", [&](const auto& f) {
        const auto other = small_runtime();
        r.rt.parallel_submit(2, f, other.allocate({1, 2}));
    });
    r.check<InvalidArgument>(host, "use tiles of at least 1",
                             [&](const auto& f) { r.rt.parallel_submit(kmm::TileDomain({4}, {0}), f); });
    using Function = void (*)();
    r.check<InvalidArgument>(kmm::Host(Function{nullptr}), "null pointer: name a function",
                             [&](const auto& f) { r.rt.submit(kmm::ResourceId::host(), f); });
    r.check<InvalidArgument>(kmm::GPUKernel(&does_nothing, 100000), "block x is 100000",
                             [&](const auto& f) { r.rt.submit(kmm::DeviceId(0), f); });
}

TEST(Refusals, a_read_of_what_nothing_wrote_names_task_and_array) {
    const auto rt = small_runtime();
    auto a = rt.array<int>(10, 5).named("mine");
    const std::string text = text_of<kmm::UninitializedRead>(
        [&] { rt.parallel_submit(10, 5, kmm::Host([](auto&&...) {}).named("sum"), a[_x]); });
    EXPECT_TRUE(contains(text, "task \"sum\" chunk 0 of 2: read of array \"mine\" at {0...5}")) << text;
    EXPECT_TRUE(contains(text, ", submitted at refusal_test.cpp:")) << text;
}

TEST(Refusals, what_a_mapping_of_the_program_throws_passes_as_it_is) {
    struct Mine : kmm::InvalidArgument {
        Mine() : InvalidArgument("mine") {}
    };
    const auto rt = small_runtime();
    const auto thrower = [](kmm::DomainChunk) -> kmm::Bounds<1> { throw Mine(); };
    EXPECT_EQ(text_of<Mine>([&] { rt.parallel_submit(2, no_function, thrower); }), "mine");
}

TEST(Refusals, no_text_advises_what_is_not_offered) {
    auto rt = small_runtime();
    auto a = rt.allocate({1, 2, 3, 4});
    const std::string text = text_of<kmm::ConflictingAccess>([&] { rt.parallel_submit(4, 1, no_function, write(a)); });
    EXPECT_FALSE(contains(text, "reduce")) << text;
    EXPECT_TRUE(contains(text, "let each task write elements of its own")) << text;
}

TEST(Refusals, wrong_counts_regions_and_shapes_name_the_array) {
    const auto rt = small_runtime();
    auto a = rt.allocate({1, 2, 3, 4});
    a.named("mine");
    int memory[8] = {};
    const std::vector<int> five(5);
    const auto refused = [](const std::string& text, const auto& call) {
        EXPECT_EQ(text_of<kmm::InvalidArgument>(call), text);
    };
    refused("copy_to: 3 elements were given, but array \"mine\" has 4 elements", [&] { a.copy_to(memory, 3); });
    refused("copy_from: 5 elements were given, but array \"mine\" has 4 elements", [&] { a.copy_from(five); });
    refused("copy_bytes_from: 15 bytes were given, but array \"mine\" has 16 bytes",
            [&] { a.copy_bytes_from(memory, 15); });
    refused("copy_to: the region {2...6} is not inside array \"mine\", whose indices are {0...4} (axis 0)",
            [&] { a.copy_to(memory, kmm::Bounds<1>(kmm::Range<>(2, 6))); });
    refused("copy_from: the region at offset {3} of size {2} is not inside array \"mine\", whose indices are {0...4} "
            "(axis 0)",
            [&] { a.copy_from(memory, kmm::Point<1>(3), kmm::Dim<1>(2)); });
    refused("copy_to: the view has shape {3}, but array \"mine\" has shape {4}",
            [&] { a.copy_to(kmm::ViewMut<int>(memory, kmm::Dim<1>(3))); });
    refused("array \"mine\" has elements of type Int32, and was taken for an array of Float32",
            [&] { kmm::Array<float> other(a.instance()); });
}
