// What tasks receive: views, ranges, values, own handlers and domains.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm_test::small_runtime;

namespace {

std::vector<int> numbers(std::size_t n) {
    std::vector<int> result(n);
    std::iota(result.begin(), result.end(), 0);
    return result;
}

struct Seen {
    std::atomic<int64_t> begin{-1}, end{-1}, sum{0};
    std::atomic<int> calls{0};
};

}  // namespace

TEST(Arguments, a_host_function_sees_exactly_its_region_with_global_indices) {
    auto rt = small_runtime();
    auto A = rt.allocate(numbers(10));
    Seen seen[3];
    rt.parallel_submit(10, 4, kmm::Host([&](kmm::Range<int64_t> where, kmm::Subview<int> v) {
                           Seen& s = seen[where.begin / 4];
                           s.begin = v.begin();
                           s.end = v.end();
                           for (int64_t i = v.begin(); i < v.end(); i++) s.sum += v[i];
                           s.calls++;
                       }),
                       _x, A[range(_x - 1, _x + 2)]);
    rt.synchronize();
    const int64_t expected[3][2] = {{0, 5}, {3, 9}, {7, 10}};
    for (int k = 0; k < 3; k++) {
        EXPECT_EQ(seen[k].calls, 1);
        EXPECT_EQ(seen[k].begin, expected[k][0]);
        EXPECT_EQ(seen[k].end, expected[k][1]);
        EXPECT_EQ(seen[k].sum, (expected[k][0] + expected[k][1] - 1) * (expected[k][1] - expected[k][0]) / 2);
    }
}

TEST(Arguments, a_region_wholly_outside_is_an_empty_view_at_the_border) {
    auto rt = small_runtime();
    auto A = rt.allocate(numbers(10));
    std::atomic<int> empty{0};
    rt.wait(rt.parallel_submit(10, kmm::Host([&](kmm::Subview<int> left, kmm::Subview<int> right) {
                                   if (left.is_empty() && left.begin() == 0 && right.is_empty() && right.begin() == 10)
                                       empty++;
                               }),
                               A[_x - 100], A[_x + 100]));
    EXPECT_EQ(empty, 2);
}

namespace {

/// Of one axis of an array, as a program writes it and as plain arithmetic: floor((scale * i + offset + [0, length)) /
/// divisor) for i along an axis of the domain, of which `axis` 3 has the single index 0.
struct RandomIndex {
    std::size_t axis;
    std::int64_t scale, offset, length, divisor;

    explicit RandomIndex(std::mt19937_64& random) {
        const auto pick = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        axis = static_cast<std::size_t>(pick(0, 3));
        scale = pick(-3, 3);
        offset = pick(-12, 12);
        length = pick(1, 5);
        divisor = pick(1, 3);
    }
    kmm::IndexMap map() const { return kmm::IndexMap(kmm::Axis(axis), scale, offset, length, divisor); }
    /// Over all indices of a chunk, one by one; not clipped.
    kmm::Range<> region(const kmm::DomainChunk& chunk) const {
        const std::int64_t first = axis < 3 ? chunk.offset[axis] : 0, end = axis < 3 ? first + chunk.size[axis] : 1;
        std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = std::numeric_limits<std::int64_t>::min();
        for (std::int64_t i = first; i < end; i++) {
            for (std::int64_t l = 0; l < length; l++) {
                const double exact = static_cast<double>(scale * i + offset + l) / static_cast<double>(divisor);
                low = std::min(low, static_cast<std::int64_t>(std::floor(exact)));
                high = std::max(high, static_cast<std::int64_t>(std::floor(exact)));
            }
        }
        return {low, high + 1};
    }
    kmm::Range<> clipped(const kmm::DomainChunk& chunk, std::int64_t size) const {
        const kmm::Range<> all = region(chunk);
        const std::int64_t begin = std::clamp<std::int64_t>(all.begin, 0, size);
        return {begin, std::clamp(all.end, begin, size)};
    }
};

}  // namespace

TEST(Arguments, regions_of_random_mappings_and_functions_are_those_of_plain_arithmetic) {
    auto rt = small_runtime();
    auto A = rt.allocate(std::vector<int>(9 * 7).data(), 9, 7);
    auto B = rt.allocate(numbers(9));
    std::mt19937_64 random(4);
    std::atomic<int> wrong{0}, calls{0}, empty{0};
    for (int round = 0; round < 200; round++) {
        const RandomIndex y(random), x(random);
        const auto both = [=](kmm::DomainChunk chunk, kmm::Bounds<2>) {
            return kmm::Bounds<2>(y.region(chunk), x.region(chunk));
        };
        using View = kmm::Subview<int, 2>;
        const auto check = [&, y, x](kmm::Bounds<3> box, View written, View called, View row, View same,
                                     kmm::Subview<int> line, kmm::View<int, 2> whole) {
            const kmm::DomainChunk chunk{{}, kmm::DomainPoint(box.begin()), kmm::DomainDim(box.size())};
            const kmm::Bounds<2> expected(y.clipped(chunk, 9), x.clipped(chunk, 7));
            if (written.bounds() != expected || called.bounds() != expected || line.bounds()[0] != expected[0]) wrong++;
            if (row.bounds() != kmm::Bounds<2>(kmm::Range<>(3, 4), kmm::Range<>(0, 7))) wrong++;
            if (same.bounds() != kmm::Bounds<2>(box[0], box[1]) || whole.size(0) != 9 || whole.size(1) != 7) wrong++;
            if (expected.is_empty()) empty++;
            calls++;
        };
        rt.parallel_submit({9, 7}, {4, 3}, kmm::Host(check), one_to_one, A[y.map()][x.map()], read(A, both), A[3][_],
                           read(A, one_to_one), read(B, y.map()), A);
    }
    rt.synchronize();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(calls, 200 * 9);
    EXPECT_GT(empty, 100) << "of regions outside the array";
}

TEST(Arguments, in_debug_mode_what_mappings_of_any_kind_ask_for_outside_is_logged_but_an_open_end_is_not) {
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.debug_mode = true;
    auto rt = kmm::make_runtime(config);
    auto A = rt.allocate(numbers(10));
    std::vector<std::string> lines;
    kmm::set_log_handler(
        [](int, const char* text, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(text); },
        &lines);
    int evaluations = 0;
    const auto beyond = [&](kmm::DomainChunk chunk, kmm::Bounds<1>) {
        evaluations++;
        return kmm::Bounds<1>(kmm::Range<>(-1, chunk.size[0]));
    };
    const auto rest = [](kmm::DomainChunk, kmm::Bounds<1>) {
        return kmm::Bounds<1>(kmm::Range<>(8, std::numeric_limits<std::int64_t>::max()));
    };
    using View = kmm::Subview<int>;
    rt.wait(rt.parallel_submit(12, 12, kmm::Host([](View, View, View, View, View, kmm::View<int>) {}), read(A, beyond),
                               read(A, rest), A[_], read(A, one_to_one), read(A, _x - 2), A));
    kmm::set_log_handler(nullptr, nullptr);
    EXPECT_EQ(evaluations, 1);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_TRUE(kmm_test::contains(lines[0], "argument 0 of chunk 0") && kmm_test::contains(lines[0], "{-1...12}"));
    EXPECT_TRUE(kmm_test::contains(lines[1], "argument 3 of chunk 0") && kmm_test::contains(lines[1], "{0...12}"));
    EXPECT_TRUE(kmm_test::contains(lines[2], "argument 4 of chunk 0") && kmm_test::contains(lines[2], "{-2...10}"));
}

TEST(Arguments, a_mapping_that_overflows_leaves_the_submit_without_effect) {
    auto rt = small_runtime();
    auto A = rt.allocate(numbers(10));
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    EXPECT_THROW(rt.parallel_submit(10, 5, kmm::Host([](kmm::SubviewMut<int> a, kmm::Subview<int>) { a[a.begin()]++; }),
                                    write(A[_x]), A[_x + (most - 7)]),
                 std::overflow_error);
    EXPECT_EQ(A.copy_to_vector(), numbers(10));
}

TEST(Arguments, a_two_dimensional_region_keeps_the_strides_of_its_chunk_on_host_and_device) {
    auto rt = small_runtime();
    std::vector<int> data = numbers(6 * 10);
    auto A = rt.allocate(data.data(), 6, 10);
    std::atomic<int> wrong{0}, seen{0};
    auto check = [&](auto where, auto view) {
        for (int64_t i = where.begin(0); i < where.end(0); i++) {
            for (int64_t j = where.begin(1); j < where.end(1); j++) {
                seen++;
                if (view[i][j] != i * 10 + j) wrong++;
            }
        }
        if (view.stride(0) != 10 || view.bounds() != where) wrong++;
    };
    rt.wait(rt.parallel_submit({10, 6}, {5, 3}, kmm::Host(check), bounds(_y, _x), A[_y][_x]));
    rt.wait(rt.parallel_submit({10, 6}, {5, 3}, kmm::GPU([&](kmm::DeviceResource& device, auto where, auto view) {
                                   device.synchronize();  // the content is there in stream order
                                   check(where, view);
                               }),
                               bounds(_y, _x), A[_y][_x]));
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(seen, 2 * 60);
}

TEST(Arguments, values_are_copied_for_each_task_and_the_callers_variables_are_free_after_submit) {
    auto rt = small_runtime();
    std::atomic<int> sum{0};
    std::vector<int> value = {1, 2, 3};
    auto event = rt.parallel_submit(4, 1, kmm::Host([&](std::vector<int>& mine) {
                                        mine[0] += 10;
                                        sum += mine[0];
                                    }),
                                    value);
    value.clear();
    rt.wait(event);
    EXPECT_EQ(sum, 4 * 11);
}

TEST(Arguments, a_function_may_take_references_values_and_rvalue_references) {
    auto rt = small_runtime();
    std::atomic<int> calls{0};
    rt.submit(kmm::ResourceId::host(), kmm::Host([&](int& a, const int& b, int c) { calls += a + b + c; }), 1, 2, 3);
    rt.submit(kmm::ResourceId::host(), kmm::Host([&](std::vector<int>&& a) { calls += a[0]; }), std::vector<int>{10});
    rt.submit(kmm::ResourceId::host(), kmm::Host([&calls, n = 0]() mutable {
                  n++;
                  calls += 100 * n;
              }));
    rt.synchronize();
    EXPECT_EQ(calls, 116);
}

TEST(Arguments, a_scalar_arrives_as_a_view_of_rank_0) {
    auto rt = small_runtime();
    kmm::Scalar<int> s;
    rt.submit(kmm::ResourceId::host(), kmm::Host([](kmm::ViewMut<int, 0> v) { *v = 41; }), write(s));
    rt.submit(kmm::DeviceId(1), kmm::GPU([](kmm::DeviceResource& device, kmm::GPUViewMut<int, 0> v) {
                  device.synchronize();
                  v()++;
              }),
              write(s));
    EXPECT_EQ(s.get(), 42);
}

TEST(Arguments, an_axis_converts_to_another_index_type_and_a_narrow_one_fails_the_task) {
    auto rt = small_runtime();
    std::atomic<int> end{0};
    rt.wait(rt.submit(kmm::ResourceId::host(),
                      kmm::Host([&](kmm::Range<int> r, kmm::Bounds<1, int> b) { end = r.end + b.end(0); }),
                      kmm::range(3, 7), bounds(_x + 4)));
    EXPECT_EQ(end, 12);
    auto event = rt.submit(kmm::ResourceId::host(), kmm::Host([](kmm::Range<signed char>) {}), kmm::range(0, 1000));
    try {
        rt.wait(event);
        FAIL() << "the task did not fail";
    } catch (const kmm::TaskError& error) {
        EXPECT_THROW(std::rethrow_if_nested(error), std::overflow_error);
    }
}

TEST(Arguments, an_overflowing_mapping_throws_at_submit_and_queues_nothing) {
    auto rt = small_runtime();
    kmm::Array<int> A(10);
    const auto nothing = kmm::Host([](auto&&...) { FAIL(); });
    EXPECT_THROW(rt.parallel_submit(10, nothing, write(A[_x]), (_x + INT64_MAX) * 2), std::overflow_error);
    EXPECT_EQ(rt.stats().tasks_submitted, 0U);
    EXPECT_FALSE(A.has_instance());
}

// ---- extension points

namespace {
struct Labelled {
    int value;
};
struct LabelledTask {
    int value;
    int64_t offset;
};
}  // namespace
template<>
struct kmm::ArgumentHandler<Labelled> {
    using type = LabelledTask;
    explicit ArgumentHandler(Labelled that) : that_(that) {}
    void initialize(const kmm::TaskGroupInit& init) {
        that_.value += 100 * static_cast<int>(init.domain.chunks.size());
    }
    type before_submit(kmm::TaskInstance& task) { return {that_.value, task.chunk.offset[0]}; }
    void commit(const kmm::TaskGroupCommit&) {}
    void after_submit(const kmm::TaskSubmissionResult& result) { last_event = result.event_id; }
    static inline kmm::EventId last_event;

  private:
    Labelled that_;
};
template<kmm::ExecutionSpace Space>
struct kmm::ArgumentUnpack<Space, LabelledTask> {
    static int64_t call(kmm::TaskContext&, LabelledTask& stored) { return stored.value + stored.offset; }
};

TEST(Arguments, an_own_handler_sees_the_domain_each_chunk_and_the_event) {
    auto rt = small_runtime();
    std::atomic<int64_t> sum{0};
    auto event = rt.parallel_submit(4, 2, kmm::Host([&](int64_t value) { sum += value; }), Labelled{1});
    rt.wait(event);
    EXPECT_EQ(sum, 2 * (1 + 200) + 2);
    EXPECT_EQ(kmm::ArgumentHandler<Labelled>::last_event, event);
    sum = 0;
    rt.wait(rt.submit(kmm::ResourceId::host(), kmm::Host([&](int64_t value) { sum += value; }), Labelled{1}));
    EXPECT_EQ(sum, 101);
}

namespace {
struct OwnDomain {
    int chunks;
};
struct OwnLauncher {
    static constexpr kmm::ExecutionSpace execution_space = kmm::ExecutionSpace::Host;
    std::atomic<int64_t>* sum;
    std::string name() const { return "own"; }
    kmm::SourceLocation location() const { return kmm::SourceLocation("own.cpp", 7, "f"); }
    void operator()(kmm::Resource& resource, kmm::DomainChunk chunk, int factor) {
        if (factor < 0) throw std::runtime_error("negative");
        if (resource.is<kmm::HostResource>() && resource.cast_if<kmm::DeviceResource>() == nullptr)
            *sum += factor * chunk.offset[0];
    }
};
}  // namespace
template<>
struct kmm::IntoDomain<OwnDomain> {
    static kmm::Domain call(OwnDomain that, const kmm::SystemInfo&, kmm::ExecutionSpace) {
        if (that.chunks < 0) throw std::logic_error("no such domain");
        kmm::Domain domain;
        for (int i = 0; i < that.chunks; i++) domain.chunks.push_back({kmm::DeviceId(0), i, 1});
        return domain;
    }
};

TEST(Arguments, an_own_domain_and_an_own_launcher_work_together) {
    auto rt = small_runtime();
    std::atomic<int64_t> sum{0};
    rt.wait(rt.parallel_submit(OwnDomain{4}, OwnLauncher{&sum}, 10));
    EXPECT_EQ(sum, 60);
    EXPECT_THROW(rt.parallel_submit(OwnDomain{-1}, OwnLauncher{&sum}, 10), std::logic_error);
    const std::string text =
        kmm_test::text_of<kmm::TaskError>([&] { rt.wait(rt.parallel_submit(OwnDomain{1}, OwnLauncher{&sum}, -1)); });
    EXPECT_TRUE(kmm_test::contains(text, "task \"own\"") && kmm_test::contains(text, "own.cpp:7")) << text;
}

TEST(Arguments, two_plain_integers_before_the_launcher_tile_the_domain) {
    auto rt = small_runtime();
    std::atomic<int> tasks{0};
    const long n = 10;
    const long chunk = 3;
    rt.wait(rt.parallel_submit(n, chunk, kmm::Host([&](kmm::Range<int64_t>) { tasks++; }), _x));
    EXPECT_EQ(tasks, 4);
    rt.wait(rt.parallel_submit({4, 4}, {2, 2}, kmm::Host([&](kmm::Bounds<2>) { tasks++; }), _xy));
    EXPECT_EQ(tasks, 8);
    EXPECT_EQ(rt.parallel_submit(0, 3, kmm::Host([&] { tasks++; })), kmm::EventId());
    EXPECT_EQ(tasks, 8);
}
