// y = a * x + y over four times the memory that the device may use, ten passes submitted pass by pass: whether the
// runtime moves each chunk little more than once. Raw: all passes of a chunk before the next, by hand. Output:
// common.hpp.
#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::GPUKernel;
using kmm::GPUSubview;
using kmm::GPUSubviewMut;
using kmm::RuntimeHandle;
using kmm::RuntimeStats;

constexpr unsigned block_threads = 256;
constexpr int num_passes = 10;
constexpr int num_chunks = 128;
constexpr float factor = 0.5f;

// Small whole numbers and halves: all sums are exact, so that every element can be compared for equality.
__host__ __device__ inline float x_at(std::int64_t i) { return static_cast<float>(i % 1009); }
__host__ __device__ inline float y_at(std::int64_t i) { return static_cast<float>(i % 7); }

__global__ void initialize(kmm::Range<std::int64_t> range, GPUSubviewMut<float> x, GPUSubviewMut<float> y) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    x[i] = x_at(i);
    y[i] = y_at(i);
}

__global__ void axpy(kmm::Range<std::int64_t> range, float a, GPUSubview<float> x, GPUSubviewMut<float> y) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] += a * x[i];
}

__global__ void count_wrong(kmm::Range<std::int64_t> range, float sum_of_factors, GPUSubview<float> y,
                            kmm::GPUViewMut<unsigned long long> wrong) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= range.end) return;
    if (y[i] != y_at(i) + sum_of_factors * x_at(i)) atomicAdd(wrong.data(), 1ull);
}

/// Seconds spent in page-locking so far.
double pinning_seconds(const RuntimeHandle& rt) {
    const std::string text = rt.report(kmm::ReportFormat::Json);
    const std::size_t part = text.find("\"pinning\":{");
    const std::size_t field = part == std::string::npos ? part : text.find("\"seconds\":", part);
    if (field == std::string::npos) Report::stop("the runtime's report has no pinning.seconds");
    return std::strtod(text.c_str() + field + std::strlen("\"seconds\":"), nullptr);
}

class OutOfCore {
  public:
    OutOfCore(Report& report, std::size_t chunk_bytes)
        : report_(report),
          chunk_bytes_(chunk_bytes),
          chunk_(static_cast<std::int64_t>(chunk_bytes / sizeof(float))),
          count_(chunk_ * num_chunks),
          rt_(kmm::make_runtime(config(chunk_bytes))),
          x_(count_),
          y_(count_) {
        x_.named("x");
        y_.named("y");
    }

    void run(const raw::Measured& streamed) {
        first_touch();
        measure_first(streamed);
        measure_again(streamed);
        verify();
    }

  private:
    /// A quarter of x and y.
    static kmm::RuntimeConfig config(std::size_t chunk_bytes) {
        const std::size_t limit = 2 * chunk_bytes * num_chunks / 4;
        kmm::RuntimeConfig result = config_for(1, limit);
        result.device_memory_limit = limit;
        return result;
    }

    void first_touch() {
        const auto begin = Clock::now();
        rt_.parallel_submit(count_, chunk_, GPUKernel(initialize, block_threads), _x, overwrite(x_[_x]),
                            overwrite(y_[_x]));
        rt_.synchronize();
        const double elapsed = seconds_since(begin);
        const RuntimeStats stats = rt_.stats();
        report_.add("out_of_core/first_touch", {elapsed}, seconds(),
                    {std::nullopt, std::nullopt, note_of("written by kernels, spilled")});
        report_.add("out_of_core/first_touch_down", {double(stats.device_to_host.bytes)}, decimal_gigabytes());
        report_.add("out_of_core/first_touch_pinning", {pinning_seconds(rt_)}, seconds());
    }

    double passes() {
        const auto begin = Clock::now();
        for (int pass = 0; pass < num_passes; ++pass)
            rt_.parallel_submit(count_, chunk_, GPUKernel(axpy, block_threads), _x, factor, x_[_x], write(y_[_x]));
        const double submitted = seconds_since(begin);
        rt_.synchronize();
        const double elapsed = seconds_since(begin);
        sum_of_factors_ += factor * num_passes;
        submit_seconds_.push_back(submitted);
        return elapsed;
    }

    void measure_first(const raw::Measured& streamed) {
        const RuntimeStats before = rt_.stats();
        const double elapsed = passes();
        const RuntimeStats moved = rt_.stats() - before;
        const double whole = 2.0 * static_cast<double>(chunk_bytes_) * num_chunks;
        report_.add("out_of_core/passes", {elapsed}, seconds(),
                    {samples_of(streamed), must_on_gpu(report_, 1.5), with_raw_error(note_of("ten passes"), streamed)});
        report_.add("out_of_core/passes_up", {double(moved.host_to_device.bytes)}, decimal_gigabytes(),
                    {std::nullopt, must_on_gpu(report_, 1.15 * whole / 1e9), note_of("all of x and y once, and 15 %")});
        report_.add("out_of_core/passes_down", {double(moved.device_to_host.bytes)}, decimal_gigabytes(),
                    {std::nullopt, must_on_gpu(report_, 1.15 * whole / 2e9), note_of("all of y once, and 15 %")});
        report_.add("out_of_core/passes_evictions", {double(moved.evictions)}, plain_count());
        report_.add("out_of_core/pinning", {pinning_seconds(rt_)}, seconds(),
                    {std::nullopt, must_on_gpu(report_, 1.2), note_of("page-locking, first touch and passes")});
        report_.add("out_of_core/submit", submit_seconds_, microseconds_each(num_passes * num_chunks));
    }

    /// Everything that will be page-locked is.
    void measure_again(const raw::Measured& streamed) {
        Samples samples, up, down;
        for (int i = 0; i < report_.repetitions(3); ++i) {
            const RuntimeStats before = rt_.stats();
            samples.push_back(passes());
            const RuntimeStats moved = rt_.stats() - before;
            up.push_back(double(moved.host_to_device.bytes));
            down.push_back(double(moved.device_to_host.bytes));
        }
        report_.add("out_of_core/passes_again", samples, seconds(),
                    {samples_of(streamed), std::nullopt, with_raw_error(note_of("ten more passes"), streamed)});
        report_.add("out_of_core/passes_again_up", up, decimal_gigabytes());
        report_.add("out_of_core/passes_again_down", down, decimal_gigabytes());
    }

    void verify() {
        Array<unsigned long long> wrong = rt_.allocate<unsigned long long>({0ull});
        for (int chunk = 0; chunk < num_chunks; ++chunk) {
            const std::vector<kmm::DomainChunk> part{
                {device(0), kmm::DomainPoint(chunk * chunk_), kmm::DomainDim(chunk_)}};
            rt_.parallel_submit(part, GPUKernel(count_wrong, block_threads), _x, sum_of_factors_, y_[_x], write(wrong));
        }
        const auto found = static_cast<double>(wrong.copy_to_vector().at(0));
        report_.add("out_of_core/wrong_elements", {found}, plain_count(),
                    {std::nullopt, 0.0, "of " + std::to_string(count_) + ", all compared"});
        if (found != 0) Report::stop("out_of_core: elements are wrong");
    }

    static Unit microseconds_each(double things) { return {"us", Better::lower, 1e6 / things}; }

    Report& report_;
    std::size_t chunk_bytes_;
    std::int64_t chunk_;
    std::int64_t count_;
    RuntimeHandle rt_;
    Array<float> x_;
    Array<float> y_;
    float sum_of_factors_ = 0;
    Samples submit_seconds_;
};

void run(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) return report.skip("out_of_core/passes", missing);
    const std::size_t chunk_bytes =
        sized<std::size_t>(report, std::size_t{64} << 20, std::size_t{4} << 20, std::size_t{64} << 10);
    // Before the runtime is there: it would share the host's memory with 16 GiB of the raw program.
    const raw::Measured streamed = raw::axpy_streamed(chunk_bytes, num_chunks, num_passes, report.repetitions(3));
    OutOfCore(report, chunk_bytes).run(streamed);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
