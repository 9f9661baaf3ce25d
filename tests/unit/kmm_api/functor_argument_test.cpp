// Functors of the program as plain arguments: a task receives the box that the functor gives for the task's chunk, for
// each kind of launcher; other callables are values.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <type_traits>
#include <vector>

#include "small_runtime.hpp"

using namespace kmm::placeholders;
using kmm::Bounds;
using kmm::DomainChunk;
using kmm::Range;
using kmm_test::small_runtime;

namespace {

constexpr int size = 10, chunk_size = 4;
// What every mapping here gives, summed over the three chunks of a domain of ten: begin + 10 * end.
constexpr int64_t sum_expected = (0 + 10 * 6) + (4 + 10 * 10) + (8 + 10 * 12);

Bounds<1> halo_of(const DomainChunk& chunk) {
    const int64_t begin = chunk.offset.x;
    return Bounds<1>(Range<>(begin, begin + (chunk.size.x + 1) / 2 * 2 + 2));
}

struct Functor {
    Bounds<1> operator()(DomainChunk chunk) const { return halo_of(chunk); }
};
struct WithConstructor final {
    explicit WithConstructor(int w) : width(w) {}
    Bounds<1> operator()(const DomainChunk& chunk) const noexcept {
        return Bounds<1>(Range<>(chunk.offset.x, halo_of(chunk).end(0) - 2 + width));
    }

  private:
    int width;
};
/// For accesses and as a plain argument.
class Overloaded {
  public:
    explicit Overloaded(int w) : width_(w) {}
    template<std::size_t N>
    static Bounds<N> whole(Bounds<N> array) {
        return array;
    }
    Bounds<1> operator()(DomainChunk, Bounds<1> array) const { return whole(array); }
    Bounds<2> operator()(DomainChunk, Bounds<2> array) const { return whole(array); }
    Bounds<1> operator()(DomainChunk chunk) const { return WithConstructor(width_)(chunk); }

  private:
    int width_;
};
struct Templated {
    static constexpr bool is_mapper = true;
    template<typename Chunk>
    auto operator()(const Chunk& chunk) const {
        return halo_of(chunk);
    }
};
struct Virtual {
    virtual ~Virtual() = default;
    virtual Bounds<1> operator()(DomainChunk chunk) const { return halo_of(chunk); }
};
Bounds<1> function(DomainChunk chunk) { return halo_of(chunk); }
Bounds<1> function_without_throw(const DomainChunk& chunk) noexcept { return halo_of(chunk); }
Bounds<1> first_two(DomainChunk, Bounds<1>) { return Bounds<1>(2); }

__global__ void add_ends(Bounds<1> where, std::atomic<int64_t>* sum) {
    if (threadIdx.x == 0) *sum += where.begin(0) + 10 * where.end(0);
}

template<typename M>
void expect_evaluated(const M& mapping) {
    auto rt = small_runtime();
    std::atomic<int64_t> host{0}, device{0}, kernel{0};
    rt.parallel_submit(size, chunk_size, kmm::Host([&](Bounds<1> b) { host += b.begin(0) + 10 * b.end(0); }), mapping);
    rt.parallel_submit(size, chunk_size,
                       kmm::GPU([&](kmm::DeviceResource&, Bounds<1> b) { device += b.begin(0) + 10 * b.end(0); }),
                       mapping);
    rt.parallel_submit(size, chunk_size, kmm::GPUKernel(add_ends, 32), mapping, &kernel);
    rt.synchronize();
    EXPECT_EQ(host, sum_expected);
    EXPECT_EQ(device, sum_expected);
    EXPECT_EQ(kernel, sum_expected);
}

/// A value whose call operator would not compile for a chunk.
struct Square {
    template<typename T>
    auto operator()(T x) const {
        return x * x;
    }
};
struct Scale {
    int by;
    int operator()(int x) const { return by * x; }
};
__global__ void apply(Square square, Scale scale, int* out) { *out = square(3) + scale(5); }

}  // namespace

TEST(Row051, a_functor_as_a_plain_argument_arrives_as_the_box_of_each_chunk) { expect_evaluated(Functor()); }

TEST(Row051, a_functor_with_a_constructor_arrives_as_its_box) { expect_evaluated(WithConstructor(2)); }

TEST(Row051, a_lambda_of_a_chunk_arrives_as_its_box) {
    int more = 0;
    expect_evaluated([](DomainChunk chunk) { return halo_of(chunk); });
    expect_evaluated([&more](const DomainChunk& chunk) noexcept { return WithConstructor(2 + more)(chunk); });
}

TEST(Row051, a_functor_with_several_call_operators_is_evaluated_by_the_one_for_a_chunk) {
    expect_evaluated(Overloaded(2));
    auto rt = small_runtime();
    const auto a = rt.allocate({1, 2, 3});
    std::atomic<std::size_t> volume{0};
    rt.wait(rt.parallel_submit(2, 1, kmm::Host([&](kmm::Subview<int> v, Bounds<1>) { volume += v.size(); }),
                               read(a, Overloaded(2)), Overloaded(2)));
    EXPECT_EQ(volume, 6U);
}

TEST(Row051, a_functor_whose_call_operator_is_a_template_says_that_it_is_a_mapping) { expect_evaluated(Templated()); }

TEST(Row051, functions_virtual_functors_and_std_functions_are_evaluated) {
    expect_evaluated(function);
    expect_evaluated(&function_without_throw);
    expect_evaluated(Virtual());
    expect_evaluated(std::function<Bounds<1>(DomainChunk)>(function));
}

TEST(Row051, a_function_by_its_name_maps_an_access) {
    auto rt = small_runtime();
    const auto a = rt.allocate({1, 2, 3});
    std::atomic<std::size_t> volume{0};
    rt.wait(rt.parallel_submit(2, 1, kmm::Host([&](kmm::Subview<int> v) { volume += v.size(); }), read(a, first_two)));
    EXPECT_EQ(volume, 4U);
    static_assert(std::is_same_v<decltype(privatize(function).private_mapper), Bounds<1> (*)(DomainChunk)>);
}

TEST(Row051, a_functor_of_any_rank_and_index_type_fits_its_parameter) {
    auto rt = small_runtime();
    std::atomic<int64_t> sum{0};
    const auto rows = [](DomainChunk c) { return Bounds<2>(Range<>(c.offset.x, c.offset.x + 1), Range<>(0, 7)); };
    rt.wait(rt.parallel_submit(3, 1, kmm::Host([&](Bounds<2, int> b) { sum += b.begin(0) + b.end(1); }), rows));
    EXPECT_EQ(sum, 0 + 1 + 2 + 3 * 7);
}

TEST(Row051, what_a_functor_throws_reaches_the_caller_and_queues_nothing) {
    auto rt = small_runtime();
    const auto thrower = [](DomainChunk) -> Bounds<1> { throw std::out_of_range("mine"); };
    EXPECT_THROW(rt.parallel_submit(10, kmm::Host([](Bounds<1>) {}), thrower), std::out_of_range);
    EXPECT_EQ(rt.stats().tasks_submitted, 0U);
}

TEST(Row051, callables_that_do_not_map_a_chunk_arrive_as_they_are) {
    auto rt = small_runtime();
    std::atomic<int> sum{0};
    rt.wait(rt.submit(
        kmm::ResourceId::host(), kmm::Host([&](auto square, Scale scale, int (*negate)(int), auto less) {
            sum += square(3) + scale(5) + negate(2) + int(less(1, 2));
        }),
        [](auto x) { return x * x; }, Scale{2}, +[](int x) { return -x; }, std::less<>()));
    EXPECT_EQ(sum, 9 + 10 - 2 + 1);
    int out = 0;
    rt.wait(rt.submit(kmm::DeviceId(0), kmm::GPUKernel(apply, 1), Square(), Scale{2}, &out));
    EXPECT_EQ(out, 19);
}
