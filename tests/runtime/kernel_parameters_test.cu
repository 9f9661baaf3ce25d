// Kernel parameters of the program's own types: aggregates, which are filled by the table of addresses, and types that
// are constructed from views: where they are built, what they see, and what becomes of what their constructors throw.
#include "harness.hpp"

#include <numeric>
#include <stdexcept>

namespace {

using kmm::GPUSubview;
using kmm::GPUSubviewMut;
using kmm::GPUView;
using kmm::GPUViewMut;

// ---- types of the program

/// As KMM's users write them: implicit, for both sides.
struct Input {
    GPUView<float> values;
    __host__ __device__ Input(GPUView<float> v) : values(v) {}
};
struct Output {
    GPUSubviewMut<float> values;
    __host__ __device__ Output(GPUSubviewMut<float> v) : values(v) {}
};
/// The rows of a table, with the strides of its chunk.
struct Table {
    GPUSubview<float, 2> cells;
    long stride;
    __host__ __device__ explicit Table(GPUSubview<float, 2> v) : cells(v), stride(v.stride(0)) {}
};

__global__ void scale(kmm::Range<int64_t> range, Output to, Input from, float factor) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x + range.begin;
    if (i < range.end) to.values[i] = factor * from.values[i];
}
__global__ void sum_rows(kmm::Range<int64_t> rows, Output sums, Table table) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x + rows.begin;
    if (i >= rows.end) return;
    float sum = 0;
    for (long k = table.cells.begin(1); k < table.cells.end(1); k++) sum += table.cells[i][k];
    sums.values[i] = sum + static_cast<float>(table.stride);
}

bool none_is_late(const RuntimeHandle& rt) {
    return rt.report(kmm::ReportFormat::Json).find("\"late_kernels\":[]") != std::string::npos;
}

constexpr long n = 1000, chunk = 250;
constexpr long rows = 60, columns = 40;

TEST(KernelParameters, of_the_programs_own_types_are_made_of_views) {
    for_each_configuration(working_set({chunk * 4, n * 4}), [](RuntimeHandle rt) {
        std::vector<float> values(n);
        std::iota(values.begin(), values.end(), 0.0F);
        const Array<float> input = rt.allocate(values);
        Array<float> output{n};
        for (int round = 1; round <= 3; round++) {
            rt.parallel_submit(n, chunk, GPUKernel(scale, 64), _x, overwrite(output[_x]), input,
                               static_cast<float>(round));
            const std::vector<float> result = output.copy_to_vector();
            for (std::size_t i = 0; i < result.size(); i++)
                ASSERT_EQ(result[i], static_cast<float>(round) * values[i]) << "element " << i << " of round " << round;
        }
    });
}

TEST(KernelParameters, of_the_programs_own_types_see_the_strides_of_the_chunk) {
    for_each_configuration(working_set({rows * columns * 4, rows * 4}), [](RuntimeHandle rt) {
        std::vector<float> values(rows * columns);
        for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % columns);
        const Array<float, 2> table = rt.allocate(values.data(), Dim<2>(rows, columns));
        Array<float> sums = rt.array<float>(rows, 7);
        rt.parallel_submit(rows, 7, GPUKernel(sum_rows, 32), _x, overwrite(sums[_x]), table[_x][kmm::range(10, 20)]);
        for (const float sum : sums.copy_to_vector()) ASSERT_EQ(sum, 145.0F + static_cast<float>(columns));
    });
}

/// Each parameter with a way of its own to hold strides, or none.
__global__ void sum_of_each(kmm::GPUSubviewMut<double, 2> sums, kmm::GPUSubview<float, 2> packed,
                            kmm::GPUSubview<float, 2, kmm::views::strided_layout<>> strided,
                            kmm::GPUView<float, 3> whole, const float* first) {
    for (long i = packed.begin(0); i < packed.end(0); i++)
        for (long k = packed.begin(1); k < packed.end(1); k++) {
            sums[sums.begin(0)][0] += packed[i][k];
            sums[sums.begin(0)][1] += strided[i][k];
        }
    for (long i = 0; i < whole.size(0); i++)
        for (long k = 0; k < whole.size(1); k++) sums[sums.begin(0)][2] += whole[i][k][1];
    sums[sums.begin(0)][3] = *first;
}

// Regions in one chunk, across chunks that may be read where they are, and across chunks that are gathered.
TEST(KernelParameters, that_are_views_see_the_strides_of_what_their_task_reads) {
    constexpr long tall = 64, wide = 48, cut = 16;  // chunks of 3 KiB
    for_each_configuration(working_set({tall * wide * 4, 256, 12 * 4, 4096}), [&](RuntimeHandle rt) {
        std::vector<float> values(tall * wide);
        for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i);
        auto table = rt.array<float, 2>(Dim<2>(tall, wide), Dim<2>(cut, wide));
        table.copy_from(values.data());
        Array<float, 3> whole = rt.allocate(values.data(), Dim<3>(2, 3, 2));
        struct Read {
            long top, bottom, left, right;
        };
        for (const Read r : {Read{17, 30, 5, 40}, Read{10, 60, 1, 47}, Read{10, 60, 20, 30}}) {
            const auto region = [&] { return table[kmm::range(r.top, r.bottom)][kmm::range(r.left, r.right)]; };
            const double zeros[4] = {};
            Array<double, 2> sums = rt.allocate(zeros, Dim<2>(1, 4));
            rt.submit(device(0), GPUKernel(sum_of_each, 1), write(sums[kmm::range(0, 1)][_]), region(), region(), whole,
                      region());
            double sum = 0;
            for (long i = r.top; i < r.bottom; i++)
                for (long k = r.left; k < r.right; k++) sum += static_cast<double>(i * wide + k);
            const std::vector<double> result = sums.copy_to_vector();
            EXPECT_EQ(result[0], sum);
            EXPECT_EQ(result[1], sum);
            EXPECT_EQ(result[2], 1 + 3 + 5 + 7 + 9 + 11);
            EXPECT_EQ(result[3], static_cast<double>(r.top * wide + r.left));
        }
    });
}

/// A view and a number in one parameter, by the low-level extension points.
struct Scaled {
    const Array<float>* array;
    float factor;
};
struct StoredScaled {
    kmm::ArgumentHandler<Array<float>>::type view;
    float factor;
};
struct ScaledView {
    GPUView<float> view;
    float factor;
};
__global__ void apply(Output to, ScaledView from) { to.values[threadIdx.x] = from.factor * from.view[threadIdx.x]; }

}  // namespace

template<>
struct kmm::ArgumentHandler<Scaled> {
    using type = StoredScaled;
    explicit ArgumentHandler(const Scaled& argument) : inner_(*argument.array), factor_(argument.factor) {}
    void initialize(const TaskGroupInit& init) { inner_.initialize(init); }
    type before_submit(TaskInstance& task) { return {inner_.before_submit(task), factor_}; }
    void commit(const TaskGroupCommit& commit) { inner_.commit(commit); }
    void after_submit(const TaskSubmissionResult& result) { inner_.after_submit(result); }

  private:
    kmm::ArgumentHandler<Array<float>> inner_;
    float factor_;
};
template<>
struct kmm::ArgumentUnpack<kmm::ExecutionSpace::Device, StoredScaled> {
    static ScaledView call(TaskContext& context, StoredScaled& stored) {
        return {ArgumentUnpack<ExecutionSpace::Device, decltype(stored.view)>::call(context, stored.view),
                stored.factor};
    }
};

namespace {

TEST(KernelParameters, are_unpacked_as_the_program_says) {
    for_each_configuration(working_set({40, 40}), [](RuntimeHandle rt) {
        const Array<float> input = rt.allocate({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F, 9.0F, 10.0F});
        Array<float> output{10};
        rt.submit(device(num_devices(rt) - 1), GPUKernel(apply, 10), overwrite(output[kmm::range(0, 10)]),
                  Scaled{&input, 2.0F});
        EXPECT_EQ(output.copy_to_vector(), (std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}));
        EXPECT_FALSE(none_is_late(rt)) << rt.report();
    });
}

// ---- aggregates: the library initialises their members

/// One view, with functions of the program's.
struct Cells {
    GPUSubviewMut<float> values;
    __host__ __device__ float& last() const { return values[values.end() - 1]; }
};
__global__ void end_with(Cells cells, float value) { cells.last() = value; }

TEST(KernelParameters, that_are_aggregates_of_one_view_are_not_built_by_a_launcher) {
    for_each_configuration(working_set({40}), [](RuntimeHandle rt) {
        Array<float> a = rt.allocate(std::vector<float>(10, 1.0F));
        rt.submit(device(0), GPUKernel(end_with, 1), write(a[kmm::range(2, 5)]), 7.0F);
        EXPECT_EQ(a.copy_to_vector(), (std::vector<float>{1, 1, 1, 1, 7, 1, 1, 1, 1, 1}));
        EXPECT_TRUE(none_is_late(rt)) << rt.report();
    });
}

/// An argument of the program's with two accesses and a value, which has a handler and no ArgumentUnpack.
template<typename To, typename From>
struct Blend {
    To to;
    From from;
    float factor;
};
template<typename To, typename From>
Blend(To, From, float) -> Blend<To, From>;
template<typename To, typename From>
struct StoredBlend {
    kmm::Argument<To> to;
    kmm::Argument<From> from;
    float factor;
};
/// What kernels get of it: members at other offsets and of other types.
struct Source {
    kmm::GPUSubviewStrided<float, 2> cells;
};
struct BlendView {
    GPUSubviewMut<float, 2> to;
    Source from;
    double factor;
};
__global__ void blend(BlendView v) {
    for (long i = v.to.begin(0); i < v.to.end(0); i++)
        for (long k = v.to.begin(1); k < v.to.end(1); k++)
            v.to[i][k] += static_cast<float>(v.factor) * v.from.cells[i][k];
}

}  // namespace

template<typename To, typename From>
struct kmm::ArgumentHandler<Blend<To, From>> {
    using type = StoredBlend<To, From>;
    explicit ArgumentHandler(const Blend<To, From>& that) : to_(that.to), from_(that.from), factor_(that.factor) {}
    void initialize(const TaskGroupInit& init) { to_.initialize(init), from_.initialize(init); }
    type before_submit(TaskInstance& task) { return {to_.before_submit(task), from_.before_submit(task), factor_}; }
    void commit(const TaskGroupCommit& commit) { to_.commit(commit), from_.commit(commit); }
    void after_submit(const TaskSubmissionResult& result) { to_.after_submit(result), from_.after_submit(result); }

  private:
    kmm::ArgumentHandler<To> to_;
    kmm::ArgumentHandler<From> from_;
    float factor_;
};

namespace {

// Regions in one chunk and across chunks, which are evicted between the rounds where memory is tight.
TEST(KernelParameters, that_are_aggregates_of_views_and_values_see_the_memory_of_their_task) {
    constexpr long tall = 64, wide = 48, cut = 16;  // chunks of 3 KiB
    constexpr std::size_t cells = tall * wide;
    const std::size_t largest = working_set({cells * 4, cells * 4});
    for_each_configuration(largest, [&](RuntimeHandle rt, const RuntimeConfig& config) {
        std::vector<std::vector<float>> expected;
        std::vector<Array<float, 2>> tables;
        for (std::size_t t = 0; t < 4; t++) {
            expected.push_back(counting<float>(cells, static_cast<float>(t)));
            tables.push_back(rt.array<float, 2>(Dim<2>(tall, wide), Dim<2>(cut, wide)));
            tables[t].copy_from(expected[t].data());
        }
        struct Region {
            long top, bottom, left, right;
        };
        for (const Region r :
             {Region{17, 30, 5, 40}, Region{10, 60, 1, 47}, Region{10, 60, 20, 30}, Region{0, 16, 0, 48}})
            for (std::size_t pair = 0; pair < 4; pair += 2) {
                const Array<float, 2>& from = tables[pair + 1];
                const auto rows = kmm::range(r.top, r.bottom), columns = kmm::range(r.left, r.right);
                rt.submit(device(0), GPUKernel(blend, 1),
                          Blend{write(tables[pair][rows][columns]), from[rows][columns], 2.0F});
                for (long i = r.top; i < r.bottom; i++)
                    for (long k = r.left; k < r.right; k++) {
                        const auto at = static_cast<std::size_t>(i * wide + k);
                        expected[pair][at] += 2.0F * expected[pair + 1][at];
                    }
            }
        for (std::size_t t = 0; t < 4; t++) EXPECT_EQ(tables[t].copy_to_vector(), expected[t]) << "table " << t;
        EXPECT_TRUE(none_is_late(rt)) << rt.report();
        const bool is_tight = config.device_memory_limit == largest + 256;
        EXPECT_EQ(rt.stats().evictions != 0, is_tight);
    });
}

/// A number that follows from the address.
struct Located {
    GPUViewMut<float> values;
    std::uintptr_t address;
    __host__ __device__ Located(GPUViewMut<float> v) : values(v), address(reinterpret_cast<std::uintptr_t>(v.data())) {}
};
__global__ void check_address(Located from) {
    from.values[0] = from.address == reinterpret_cast<std::uintptr_t>(from.values.data()) ? 1.0F : 0.0F;
}

TEST(KernelParameters, that_compute_with_the_address_are_built_by_a_launcher) {
    for_each_configuration(working_set({40}), [](RuntimeHandle rt) {
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F)), b = rt.allocate(std::vector<float>(10, 0.0F));
        for (int round = 0; round < 3; round++) {
            rt.submit(device(0), GPUKernel(check_address, 1), write(a));
            rt.submit(device(0), GPUKernel(check_address, 1), write(b));
        }
        EXPECT_EQ(a.copy_to_vector()[0], 1.0F);
        EXPECT_EQ(b.copy_to_vector()[0], 1.0F);
        EXPECT_FALSE(none_is_late(rt)) << rt.report();
    });
}

// ---- constructors that do something; for the host alone

std::atomic<int> num_built{0};
std::atomic<int> num_built_elsewhere{0};
std::thread::id submitting_thread;

struct Counted {
    float* first;
    Counted(GPUViewMut<float> v) : first(v.data()) {
        num_built++;
        if (std::this_thread::get_id() != submitting_thread && first != nullptr) num_built_elsewhere++;
    }
};
__global__ void count(Counted c) { c.first[threadIdx.x] += 1; }

TEST(KernelParameters, are_built_once_for_each_task_and_not_by_the_one_who_submits) {
    for_each_configuration(working_set({40}), [](RuntimeHandle rt) {
        num_built = num_built_elsewhere = 0;
        submitting_thread = std::this_thread::get_id();
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        for (int i = 0; i < 50; i++) rt.submit(device(0), GPUKernel(count, 10), write(a));
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(10, 50.0F));
        EXPECT_EQ(num_built, 50);
        EXPECT_EQ(num_built_elsewhere, 50) << "with the address";
        rt.synchronize();
        EXPECT_EQ(rt.stats().kernels_launched, 50u);
    });
}

TEST(KernelParameters, that_a_launcher_builds_are_in_the_report_by_the_place_of_their_submit) {
    RuntimeHandle rt = kmm::make_runtime();
    Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
    rt.submit(host(), Host([] {}));
    EXPECT_EQ(rt.report().find("  late "), std::string::npos);
    EXPECT_NE(rt.report(kmm::ReportFormat::Json).find("\"late_kernels\":[]"), std::string::npos);
    for (int i = 0; i < 3; i++) rt.submit(device(0), GPUKernel(count, 10).named("early"), write(a));
    rt.submit(device(0), GPUKernel(count, 10).named("other"), write(a));
    const std::string text = rt.report(), json = rt.report(kmm::ReportFormat::Json);
    EXPECT_NE(text.find("  late       3 kernels of task \"early\""), std::string::npos) << text;
    EXPECT_NE(text.find("  late       1 kernel of task \"other\""), std::string::npos) << text;
    EXPECT_NE(json.find("\"late_kernels\":[{"), std::string::npos) << json;
}

TEST(KernelParameters, are_not_built_for_an_empty_chunk) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        num_built = 0;
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        std::vector<DomainChunk> chunks{{device(0), {0}, {0}}};
        rt.wait(rt.parallel_submit(chunks, GPUKernel(count, 10), write(a)));
        EXPECT_EQ(num_built, 0);
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(10, 0.0F));
    });
}

// One that waits until what is submitted after it has run.
std::promise<void>* opened = nullptr;
std::atomic<bool> was_opened{false};
struct Waiting {
    float* first;
    Waiting(GPUViewMut<float> v) : first(v.data()) {
        was_opened = opened->get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    }
};
__global__ void wait_then_add(Waiting w) { w.first[threadIdx.x] += 1; }
__global__ void add(GPUViewMut<float> v) { v[threadIdx.x] += 1; }

struct Large {
    char bytes[2048];
};
__global__ void add_first(kmm::Range<int64_t> range, GPUSubviewMut<float> values, Large large) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x + range.begin;
    if (i < range.end) values[i] += static_cast<float>(large.bytes[0]);
}

// Nothing of an empty chunk is set: what is launched must not be what the record held before.
TEST(KernelParameters, of_an_empty_chunk_are_none_whichever_record_it_gets) {
    for_each_configuration(working_set({n * 4}), [](RuntimeHandle rt) {
        Array<float> values = rt.array<float>(n);
        std::vector<kmm::DomainChunk> domain;
        for (int i = 0; i < 64; i++) {
            domain.push_back({kmm::DeviceId(0), kmm::DomainPoint(), kmm::DomainDim(0)});
            if (i == 32) domain.push_back({kmm::DeviceId(0), kmm::DomainPoint(), kmm::DomainDim(n)});
        }
        Large large = {};
        large.bytes[0] = 1;
        for (int round = 0; round < 20; round++) {
            if (round == 1) values.fill(0.0F);
            if (round == 0) domain[33].size = kmm::DomainDim(0);
            rt.parallel_submit(domain, GPUKernel(add_first, 64), _x, write(values[_x]), large);
            if (round == 0) domain[33].size = kmm::DomainDim(n);
            if (round % 4 == 0) rt.synchronize();
        }
        const std::vector<float> result = values.copy_to_vector();
        EXPECT_EQ(result.front(), 19.0F);
        EXPECT_EQ(result.back(), 19.0F);
    });
}

TEST(KernelParameters, are_built_where_a_wait_holds_up_neither_scheduler_nor_device) {
    for_each_configuration(working_set({40, 40}), [](RuntimeHandle rt) {
        std::promise<void> promise;
        opened = &promise;
        was_opened = false;
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        Array<float> b = rt.allocate(std::vector<float>(10, 0.0F));
        rt.submit(device(0), GPUKernel(wait_then_add, 10), write(a));
        // A kernel of the same device, a copy back and a host task, planned and issued after it.
        rt.submit(device(0), GPUKernel(add, 10), write(b));
        rt.submit(host(), Host([&promise](kmm::View<float> v) {
                      if (v[9] == 1.0F) promise.set_value();
                  }),
                  b);
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(10, 1.0F));
        EXPECT_TRUE(was_opened);
    });
}

// One that uses the runtime itself: no lock is held.
const RuntimeHandle* used_runtime = nullptr;
Array<float>* used_array = nullptr;
struct Submitting {
    float* first;
    Submitting(GPUViewMut<float> v) : first(v.data()) {
        used_runtime->submit(device(0), GPUKernel(add, 10), write(*used_array));
    }
};
__global__ void submit_then_add(Submitting s) { s.first[threadIdx.x] += 1; }

TEST(KernelParameters, may_submit_when_they_are_built) {
    for_each_configuration(working_set({40, 40}), [](RuntimeHandle rt) {
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        Array<float> b = rt.allocate(std::vector<float>(10, 0.0F));
        used_runtime = &rt;
        used_array = &b;
        rt.wait(rt.submit(device(0), GPUKernel(submit_then_add, 10), write(a)));
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(10, 1.0F));
        EXPECT_EQ(b.copy_to_vector(), std::vector<float>(10, 1.0F));
    });
}

// ---- constructors that throw

std::atomic<long> refused_chunk{-1};
struct Picky {
    GPUSubviewMut<float> values;
    Picky(GPUSubviewMut<float> v) : values(v) {
        if (v.begin() == refused_chunk) throw std::domain_error("no such values at " + std::to_string(v.begin()));
    }
};
__global__ void add_picky(kmm::Range<int64_t> range, Picky p) {
    const int64_t i = range.begin + threadIdx.x;
    if (i < range.end) p.values[i] += 1;
}

TEST(KernelParameters, that_cannot_be_built_fail_their_task_alone) {
    for_each_configuration(working_set({40 * 4, 40 * 4}), [](RuntimeHandle rt) {
        const long n = 40, chunk = 10;
        Array<float> a = rt.array<float>(n, chunk);
        Array<float> other = rt.allocate(std::vector<float>(10, 0.0F));
        rt.parallel_submit(n, chunk, Host([](kmm::SubviewMut<float> v) {
                               for (long i = v.begin(); i < v.end(); i++) v[i] = 0;
                           }),
                           overwrite(a[_x]));
        refused_chunk = 20;
        const EventId bad = rt.parallel_submit(n, chunk, GPUKernel(add_picky, 16).named("picky"), _x, write(a[_x]));
        const EventId after = rt.parallel_submit(n, chunk, GPUKernel(add_picky, 16).named("after"), _x, write(a[_x]));
        rt.submit(device(0), GPUKernel(add, 10), write(other));
        EXPECT_EQ(other.copy_to_vector(), std::vector<float>(10, 1.0F)) << "independent of the failure";

        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(bad); });
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->task_name(), "picky");
        EXPECT_EQ(error->chunk_index(), 2u);
        EXPECT_TRUE(nests<std::domain_error>(*error, "no such values at 20"));
        EXPECT_NE(std::string(error->what()).find("kernel_parameters_test.cu"), std::string::npos) << error->what();
        const auto cancelled = thrown_by<kmm::TaskError>([&] { rt.wait(after); });
        ASSERT_NE(cancelled, nullptr);
        EXPECT_TRUE(nests<std::domain_error>(*cancelled, "no such values at 20")) << "the root cause";

        // The other chunks have both additions, and what replaces the elements clears the failure.
        std::vector<float> first(10);
        a.copy_to(first.data(), Point<1>(0), Dim<1>(10));
        EXPECT_EQ(first, std::vector<float>(10, 2.0F));
        refused_chunk = -1;
        a.copy_from(std::vector<float>(n, 5.0F));
        rt.parallel_submit(n, chunk, GPUKernel(add_picky, 16), _x, write(a[_x]));
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(n, 6.0F));
        EXPECT_NO_THROW(rt.synchronize()) << "the failure was delivered";
    });
}

TEST(KernelParameters, that_cannot_be_built_are_named_as_kernels) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        refused_chunk = 0;
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        const EventId bad = rt.parallel_submit(10, 10, GPUKernel(add_picky, 16), _x, write(a[_x]));
        const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(bad); });
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->task_name().find("GPUKernel"), 0u) << error->task_name();
        refused_chunk = -1;
    });
}

TEST(KernelParameters, of_the_programs_own_types_are_checked_at_the_submit) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        Array<float> a = rt.allocate(std::vector<float>(10, 0.0F));
        EXPECT_THROW(rt.submit(device(0), GPUKernel(count, 0), write(a)), kmm::InvalidArgument);
        EXPECT_THROW(rt.submit(device(0), GPUKernel(count, 1 << 20), write(a)), kmm::InvalidArgument);
        EXPECT_THROW(rt.submit(host(), GPUKernel(count, 10), write(a)), kmm::InvalidResourceException);
        EXPECT_EQ(a.copy_to_vector(), std::vector<float>(10, 0.0F));
    });
}

}  // namespace
