// What one task costs: 100 000 kernels and empty host tasks over 4 KiB each, in three shapes, and one task waited for;
// how soon a burst of host tasks has as many threads. Raw: the same kernels launched by hand on streams and events;
// threads at a condition variable. Output: common.hpp.
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using kmm::Array;
using kmm::GPUKernel;
using kmm::Host;
using kmm::ResourceId;
using kmm::RuntimeHandle;

constexpr std::int64_t tiny_elements = 1024;  // 4 KiB of floats
constexpr unsigned block_threads = 256;
constexpr int num_arrays = 64;
constexpr int num_chunks = 16;

__global__ void set_zero(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<float> data) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) data[i] = 0;
}

__global__ void increment(kmm::GPUViewMut<float> data) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < static_cast<std::int64_t>(data.size())) data[i] += 1;
}

/// One more than the largest of three neighbours: after n steps from zeros every element is n.
__global__ void relax(kmm::GPUSubviewMut<float> out, kmm::GPUSubview<float> left, kmm::GPUSubview<float> middle,
                      kmm::GPUSubview<float> right) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= tiny_elements) return;
    out[out.begin() + i] =
        fmaxf(fmaxf(left[left.begin() + i], middle[middle.begin() + i]), right[right.begin() + i]) + 1;
}

enum class Work { kernel, host_task };

struct ShapeName {
    raw::Shape shape;
    const char* name;
};
constexpr ShapeName shapes[] = {
    {raw::Shape::independent, "independent"}, {raw::Shape::chain, "chain"}, {raw::Shape::stencil, "stencil"}};

/// The arrays of a shape and the order of its tasks; task numbers go on from one repetition to the next.
class TinyTasks {
  public:
    TinyTasks(RuntimeHandle rt, raw::Shape shape, Work work)
        : rt_(std::move(rt)),
          shape_(shape),
          work_(work),
          where_(work == Work::kernel ? device(0) : ResourceId::host()),
          increment_(increment, block_threads),
          relax_(relax, block_threads) {
        constexpr unsigned blocks = tiny_elements / block_threads;
        increment_ = increment_.grid(blocks);
        relax_ = relax_.grid(blocks);
        if (shape == raw::Shape::stencil) {
            for (int i = 0; i < 2; ++i) make_array(tiny_elements * num_chunks);
        } else {
            for (int i = 0; i < (shape == raw::Shape::chain ? 1 : num_arrays); ++i) make_array(tiny_elements);
        }
        rt_.synchronize();
    }

    void submit(long task) {
        if (shape_ == raw::Shape::stencil) return submit_stencil(task);
        Array<float>& array = arrays_[static_cast<std::size_t>(task) % arrays_.size()];
        if (work_ == Work::kernel) {
            rt_.submit(where_, increment_, write(array));
        } else {
            rt_.submit(where_, Host([](kmm::ViewMut<float>) {}), write(array));
        }
    }

    void expect_done(long tasks) const {
        if (work_ == Work::host_task) return;
        const long steps = tasks / (shape_ == raw::Shape::stencil ? num_chunks : static_cast<long>(arrays_.size()));
        const std::size_t last = shape_ == raw::Shape::stencil ? static_cast<std::size_t>(steps + 1) % 2 : 0;
        for (const float value : arrays_[last].copy_to_vector()) {
            if (value != static_cast<float>(steps))
                Report::stop("tiny kernels left " + std::to_string(value) + " instead of " + std::to_string(steps));
        }
    }

  private:
    void make_array(std::int64_t size) {
        using namespace kmm::placeholders;
        std::vector<kmm::DomainChunk> chunks;
        for (std::int64_t first = 0; first < size; first += tiny_elements)
            chunks.push_back({where_, kmm::DomainPoint(first), kmm::DomainDim(tiny_elements)});
        Array<float> array(size);
        if (work_ == Work::kernel) {
            rt_.parallel_submit(chunks, GPUKernel(set_zero, block_threads), _x, overwrite(array[_x]));
        } else {
            const auto set = [](kmm::Range<std::int64_t> range, kmm::SubviewMut<float> data) {
                for (std::int64_t i = range.begin; i < range.end; ++i) data[i] = 0;
            };
            rt_.parallel_submit(chunks, Host(set), _x, overwrite(array[_x]));
        }
        arrays_.push_back(array);
    }

    static kmm::Range<std::int64_t> chunk_range(long chunk) {
        const std::int64_t first = (chunk + num_chunks) % num_chunks * tiny_elements;
        return {first, first + tiny_elements};
    }

    void submit_stencil(long task) {
        using kmm::range;
        const long chunk = task % num_chunks;
        const auto step = static_cast<std::size_t>(task / num_chunks);
        Array<float>& out = arrays_[step % 2];
        const Array<float>& in = arrays_[(step + 1) % 2];
        const auto left = chunk_range(chunk - 1), middle = chunk_range(chunk), right = chunk_range(chunk + 1);
        const auto submit_as = [&](const auto& launcher) {
            rt_.submit(where_, launcher, overwrite(out[range(middle.begin, middle.end)]),
                       in[range(left.begin, left.end)], in[range(middle.begin, middle.end)],
                       in[range(right.begin, right.end)]);
        };
        if (work_ == Work::kernel) {
            submit_as(relax_);
        } else {
            submit_as(
                Host([](kmm::SubviewMut<float>, kmm::Subview<float>, kmm::Subview<float>, kmm::Subview<float>) {}));
        }
    }

    RuntimeHandle rt_;
    raw::Shape shape_;
    Work work_;
    ResourceId where_;
    GPUKernel<decltype(&increment)> increment_;
    GPUKernel<decltype(&relax)> relax_;
    std::vector<Array<float>> arrays_;
};

struct Times {
    Samples submit;
    Samples total;
};

Times measure(const RuntimeHandle& rt, raw::Shape shape, Work work, int num_tasks, int repetitions) {
    // Whole rounds over the arrays, so that every array has had the same number of tasks.
    const int tasks = std::max(1, num_tasks / num_arrays) * num_arrays;
    TinyTasks tiny(rt, shape, work);
    Times times;
    long next = 0;
    for (int i = 0; i <= repetitions; ++i) {
        const auto begin = Clock::now();
        for (int task = 0; task < tasks; ++task) tiny.submit(next++);
        const double submitted = seconds_since(begin);
        rt.synchronize();
        const double total = seconds_since(begin);
        if (i == 0) continue;
        times.submit.push_back(submitted / tasks);
        times.total.push_back(total / tasks);
    }
    tiny.expect_done(next);
    return times;
}

/// One task at a time: from the submit until the wait for it returns.
Samples submit_and_wait(const RuntimeHandle& rt, Work work, int count) {
    Array<float> array = rt.allocate(std::vector<float>(tiny_elements, 0.0f));
    const GPUKernel add_one = GPUKernel(increment, block_threads).grid(tiny_elements / block_threads);
    Samples samples;
    const auto once = [&] {
        if (work == Work::kernel) return rt.submit(device(0), add_one, write(array));
        return rt.submit(ResourceId::host(), Host([](kmm::ViewMut<float>) {}), write(array));
    };
    for (int i = 0; i < count + count / 10; ++i) {
        const auto begin = Clock::now();
        rt.wait(once());
        const double elapsed = seconds_since(begin);
        if (i >= count / 10) samples.push_back(elapsed);  // the first ones warm up
    }
    return samples;
}

void measure_kernels(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) return report.skip("tiny_tasks/kernel", missing);
    const RuntimeHandle rt = kmm::make_runtime(config_for(1, std::size_t{64} << 20));
    const int tasks = sized(report, 100'000, 10'000, 5'000);
    const int repetitions = report.repetitions(on_gpu ? 5 : 3);
    for (const ShapeName& shape : shapes) {
        const std::string name = std::string("tiny_tasks/kernel/") + shape.name;
        if (!report.wants(name + "/submit") && !report.wants(name + "/total")) continue;
        const Times times = measure(rt, shape.shape, Work::kernel, tasks, repetitions);
        const raw::Measured total = raw::tiny_kernels(shape.shape, tasks, repetitions);
        const raw::Measured enqueue = raw::tiny_kernels_enqueue(shape.shape, tasks, repetitions);
        report.add(name + "/submit", times.submit, microseconds(),
                   {samples_of(enqueue), must_on_gpu(report, 1.5),
                    with_raw_error(note_of("the program's thread, a task"), enqueue)});
        report.add(name + "/total", times.total, microseconds(),
                   {samples_of(total), must_on_gpu(report, 6),
                    with_raw_error(note_of("until synchronize returns, a task"), total)});
    }
    const std::string name = "tiny_tasks/kernel/submit_and_wait";
    if (!report.wants(name)) return;
    const Samples waits = submit_and_wait(rt, Work::kernel, report.size(2000, 200));
    const raw::Measured launch = raw::call_costs(repetitions).launch_and_wait;
    report.add(name, waits, microseconds(),
               {samples_of(launch), must_on_gpu(report, 30), with_raw_error(note_of("one task"), launch)});
}

/// On the host driver in every build: what is measured is the host's part.
void measure_host_tasks(Report& report) {
    kmm::RuntimeConfig config = config_for(1, std::size_t{64} << 20);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    const RuntimeHandle rt = kmm::make_runtime(config);
    const std::optional<double> must = report.quick() ? std::nullopt : std::optional<double>(3);
    for (const ShapeName& shape : shapes) {
        const std::string name = std::string("tiny_tasks/host_task/") + shape.name;
        if (!report.wants(name + "/submit") && !report.wants(name + "/total")) continue;
        const Times times =
            measure(rt, shape.shape, Work::host_task, report.size(100'000, 10'000), report.repetitions(5));
        report.add(name + "/submit", times.submit, microseconds(),
                   {std::nullopt, std::nullopt, "the program's thread, a task"});
        report.add(name + "/total", times.total, microseconds(),
                   {std::nullopt, must, "empty, host driver, until synchronize returns, a task"});
    }
    const std::string name = "tiny_tasks/host_task/submit_and_wait";
    if (!report.wants(name)) return;
    report.add(name, submit_and_wait(rt, Work::host_task, report.size(2000, 200)), microseconds(),
               {std::nullopt, std::nullopt, "one empty task, host driver"});
}

constexpr int burst_tasks = 16;
constexpr double burst_seconds = 100e-6;

/// When functions of 100 us each began, and when the last had ended, from the first submit on.
struct Burst {
    Samples last_start;
    Samples total;
};

/// No thread of this process but the calling one runs or wants to: what the system says.
bool all_others_sleep() {
    int awake = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(thread.path() / "stat");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const std::size_t name_end = text.rfind(") ");
        if (name_end != std::string::npos && text[name_end + 2] == 'R') ++awake;
    }
    return awake <= 1;
}

/// `submit(f)` has f run on one of 16 threads that sleep; `wait()` returns when all have.
template<typename Submit, typename Wait>
Burst measure_burst(int repetitions, Submit submit, Wait wait) {
    Burst burst;
    for (int i = 0; i <= repetitions; ++i) {
        while (!all_others_sleep()) std::this_thread::yield();
        double starts[burst_tasks];
        const auto begin = Clock::now();
        for (double& start : starts) {
            submit([begin, &start] {
                start = seconds_since(begin);
                while (seconds_since(begin) < start + burst_seconds) {}
            });
        }
        wait();
        const double total = seconds_since(begin);
        if (i == 0) continue;  // it warms up
        burst.last_start.push_back(*std::max_element(starts, starts + burst_tasks));
        burst.total.push_back(total);
    }
    return burst;
}

/// Threads that wait for functions at a condition variable, each of which is told of with one call.
class RawThreads {
  public:
    explicit RawThreads(int num_threads) {
        for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
    }
    ~RawThreads() {
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (std::thread& t : threads_) t.join();
    }
    void push(std::function<void()> function) {
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            functions_.push_back(std::move(function));
            ++unfinished_;
        }
        wake_.notify_one();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        all_done_.wait(lock, [&] { return unfinished_ == 0; });
    }

  private:
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stop_ || !functions_.empty(); });
            if (functions_.empty()) return;
            const std::function<void()> function = std::move(functions_.back());
            functions_.pop_back();
            lock.unlock();
            function();
            lock.lock();
            if (--unfinished_ == 0) all_done_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable all_done_;
    std::vector<std::function<void()>> functions_;
    int unfinished_ = 0;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

/// Independent functions that find the whole pool asleep.
void measure_bursts(Report& report) {
    const std::string name = "tiny_tasks/burst/16x100us";
    if (!report.wants(name + "/last_start") && !report.wants(name + "/total")) return;
    kmm::RuntimeConfig config = config_for(1, std::size_t{64} << 20);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.host_threads = burst_tasks;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const int repetitions = report.repetitions(200);
    const Burst ours = measure_burst(
        repetitions, [&](auto function) { rt.submit(ResourceId::host(), Host(function)); }, [&] { rt.synchronize(); });
    RawThreads threads(burst_tasks);
    const Burst raw =
        measure_burst(repetitions, [&](auto function) { threads.push(function); }, [&] { threads.wait(); });
    report.add(name + "/last_start", ours.last_start, microseconds(),
               {raw.last_start, std::nullopt, "16 host tasks, idle pool of 16 threads, first submit to last begin"});
    report.add(name + "/total", ours.total, microseconds(),
               {raw.total, std::nullopt, "16 host tasks, idle pool of 16 threads, until synchronize returns"});
}

void run(Report& report) {
    measure_kernels(report);
    measure_host_tasks(report);
    measure_bursts(report);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
