// Random programs that make and drop many more bytes than there is memory, and fit in the order of submission
// (tools/simulate/fitting_programs.hpp): none may run out of memory, whatever order the runtime chooses, and every
// element that is left at the end must be that of a sequential interpreter. Device alone, device and host, host alone;
// 1, 2 and 4 devices; one thread or several, some of them slow.
//
// A program is a number. KMM_TEST_PROGRAMS sets how many run (default 500; 20 000 with KMM_TEST_LONG=1), KMM_TEST_SEED
// the first one; KMM_TEST_VERBOSE=1 prints each before it runs. A seed that failed runs alone with
// KMM_TEST_SEED=N KMM_TEST_PROGRAMS=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kmm/kmm.hpp"
#include "simulate/fitting_programs.hpp"

namespace {

namespace fitting = kmm::simulate::fitting;
using Element = std::int64_t;
using Index = kmm::default_index_type;

KMM_HOST_DEVICE Element mix(Element a, Element b) {
    const auto x =
        static_cast<std::uint64_t>(a) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(b) + 0x7f4a7c15ull;
    return static_cast<Element>((x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull >> 3);
}

/// Element k of a task's chunk is mixed from its seed, the old element if it is kept, and one element of each read.
template<typename V> KMM_HOST_DEVICE Element element_of(const V& read, std::int64_t k) {
    const auto size = static_cast<std::int64_t>(read.size());
    return size == 0 ? 0 : read.data()[k % size];
}

template<typename W, typename... R>
KMM_HOST_DEVICE void apply(const W& out, std::int64_t k, Element seed, bool keeps, const R&... reads) {
    Element v = keeps ? mix(out.data()[k], seed) : seed;
    const Element others[] = {0, element_of(reads, k)...};
    for (std::size_t i = 1; i < sizeof(others) / sizeof(Element); ++i) v = mix(v, others[i]);
    out.data()[k] = v;
}

template<typename... R>
__global__ void apply_kernel(Element seed, bool keeps, kmm::GPUSubviewMut<Element> out, R... reads) {
    const std::int64_t k = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < static_cast<std::int64_t>(out.size())) apply(out, k, seed, keeps, reads...);
}

constexpr unsigned threads_of_a_block = 64;
constexpr unsigned most_blocks = 16 * fitting::elements_of_a_step / threads_of_a_block;

/// One of several parameters of the same type: an alias that drops its argument is no pack to every compiler.
template<std::size_t> struct ReadOf {
    using OnHost = kmm::Subview<Element>;
    using OnGPU = kmm::GPUSubview<Element>;
};

std::string describe(const fitting::Program& p) {
    const fitting::Machine& m = p.machine;
    char text[400];
    std::snprintf(
        text, sizeof text,
        "program %llu: %s; %zu thread(s), %u device(s) of %zu bytes, host %zu; needs %zu of %zu usable bytes, "
        "makes %zu in all",
        static_cast<unsigned long long>(p.seed), p.kinds.c_str(), p.threads.size(), m.num_devices, m.device_bytes,
        m.host_bytes, p.needed_bytes, p.usable_bytes, p.made_bytes);
    return text;
}

/// Runs the steps of one thread, and interprets them.
class Runner {
  public:
    Runner(const kmm::RuntimeHandle& rt, const fitting::Thread& thread)
        : rt_(rt), thread_(thread), arrays_(thread.arrays.size()), values_(thread.arrays.size()) {}

    void run() {
        for (const fitting::Step& step : thread_.steps) {
            switch (step.what) {
            case fitting::Step::What::submit: submit(step.submit); break;
            case fitting::Step::What::drop:
                arrays_[step.array] = {};
                values_[step.array] = {};
                break;
            case fitting::Step::What::synchronize: rt_.synchronize(); break;
            case fitting::Step::What::slowly:
                for (int i = 0; i < 20; ++i) std::this_thread::yield();
                break;
            }
        }
        for (std::size_t a = 0; a < arrays_.size(); ++a)
            if (!values_[a].empty()) compare(a);
    }
    /// Empty: every element that was read is right.
    const std::string& wrong() const noexcept { return wrong_; }

  private:
    void submit(const fitting::Submit& s) {
        const fitting::Array& shape = thread_.arrays[s.out];
        if (values_[s.out].empty()) {
            arrays_[s.out] = rt_.array<Element>(shape.elements, kmm::Dim<1>(shape.chunk_elements));
            values_[s.out].resize(static_cast<std::size_t>(shape.elements));
        }
        std::vector<kmm::DomainChunk> domain;
        for (const fitting::Part& part : s.parts) {
            interpret(s, part);
            const fitting::Range range = fitting::range_of(shape, part.chunk);
            kmm::DomainChunk& chunk = domain.emplace_back();
            chunk.offset[0] = range.begin;
            chunk.size[0] = range.end - range.begin;
            chunk.owner_id = s.how == fitting::How::host
                                 ? kmm::ResourceId::host()
                                 : kmm::ResourceId(kmm::DeviceId(static_cast<std::uint8_t>(part.device)));
        }
        switch (s.reads.size()) {
        case 0: return submit(s, domain, std::make_index_sequence<0>());
        case 1: return submit(s, domain, std::make_index_sequence<1>());
        case 2: return submit(s, domain, std::make_index_sequence<2>());
        case 3: return submit(s, domain, std::make_index_sequence<3>());
        default: return submit(s, domain, std::make_index_sequence<fitting::most_reads>());
        }
    }
    template<std::size_t... I>
    void submit(const fitting::Submit& s, const std::vector<kmm::DomainChunk>& domain, std::index_sequence<I...>) {
        switch (s.how) {
        case fitting::How::host:
            return submit<I...>(s, domain,
                                kmm::Host([](Element seed, bool keeps, kmm::SubviewMut<Element> out,
                                             typename ReadOf<I>::OnHost... reads) {
                                    const auto n = static_cast<std::int64_t>(out.size());
                                    for (std::int64_t k = 0; k < n; ++k) apply(out, k, seed, keeps, reads...);
                                }));
        case fitting::How::function:
            return submit<I...>(s, domain,
                                kmm::GPU([](kmm::DeviceResource& d, Element seed, bool keeps,
                                            kmm::GPUSubviewMut<Element> out, typename ReadOf<I>::OnGPU... reads) {
                                    d.launch(dim3(most_blocks), dim3(threads_of_a_block), 0,
                                             apply_kernel<typename ReadOf<I>::OnGPU...>, seed, keeps, out, reads...);
                                }));
        case fitting::How::kernel: break;
        }
        submit<I...>(s, domain,
                     kmm::GPUKernel(apply_kernel<typename ReadOf<I>::OnGPU...>, dim3(threads_of_a_block))
                         .grid(dim3(most_blocks)));
    }
    static auto mapping(const fitting::Read& r) {
        using namespace kmm::placeholders;
        const bool is_fixed = r.fixed.begin < r.fixed.end;
        const Index factor = is_fixed ? 0 : 1;
        const Index low = is_fixed ? r.fixed.begin : -r.halo, high = is_fixed ? r.fixed.end : r.halo + 1;
        return kmm::bounds(kmm::range(factor * _x + low, factor * _x + high));
    }

    template<std::size_t... I, typename Launcher>
    void submit(const fitting::Submit& s, const std::vector<kmm::DomainChunk>& domain, const Launcher& launcher) {
        using namespace kmm::placeholders;
        auto& out = arrays_[s.out];
        const auto put = [&](auto... reads) {
            if (s.keeps)
                rt_.parallel_submit(domain, launcher, s.seed, s.keeps, write(out[_x]), reads...);
            else
                rt_.parallel_submit(domain, launcher, s.seed, s.keeps, overwrite(out[_x]), reads...);
        };
        // range(a x + b): fixed ranges have a factor of zero.
        put(kmm::read(arrays_[s.reads[I].array], mapping(s.reads[I]))...);
    }
    void interpret(const fitting::Submit& s, const fitting::Part& part) {
        const fitting::Range range = fitting::range_of(thread_.arrays[s.out], part.chunk);
        std::vector<fitting::Range> ranges;
        for (const fitting::Read& read : s.reads) ranges.push_back(fitting::range_of(thread_, s, part, read));
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            Element& to = values_[s.out][static_cast<std::size_t>(i)];
            Element v = s.keeps ? mix(to, s.seed) : s.seed;
            for (std::size_t r = 0; r < ranges.size(); ++r) {
                const std::int64_t k = (i - range.begin) % (ranges[r].end - ranges[r].begin);
                v = mix(v, values_[s.reads[r].array][static_cast<std::size_t>(ranges[r].begin + k)]);
            }
            to = v;
        }
    }
    void compare(std::size_t a) {
        const std::vector<Element> got = arrays_[a].copy_to_vector();
        for (std::size_t i = 0; i < values_[a].size(); ++i)
            if (got.size() != values_[a].size() || got[i] != values_[a][i]) {
                wrong_ = "element " + std::to_string(i) + " of array " + std::to_string(a) + " is wrong";
                return;
            }
    }

    kmm::RuntimeHandle rt_;
    const fitting::Thread& thread_;
    std::vector<kmm::Array<Element>> arrays_;
    std::vector<std::vector<Element>> values_;  ///< the interpreter's
    std::string wrong_;
};

/// What became of a program: empty if all is right.
struct Outcome {
    bool lacked_memory = false;
    std::string what;

    static Outcome of(const kmm::Error& e) {
        const std::string what = e.what();
        return {what.find("memory") != std::string::npos, what};
    }
};

Outcome run_program(const kmm::RuntimeHandle& rt, const fitting::Program& program) {
    std::mutex mutex;
    Outcome outcome;
    const auto run_thread = [&](const fitting::Thread& thread) {
        Outcome mine;
        try {
            Runner runner(rt, thread);
            try {
                runner.run();
                mine.what = runner.wrong();
            } catch (const kmm::Error& e) {
                mine = Outcome::of(e);
            }
        } catch (const std::exception& e) {
            mine.what = e.what();
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (!mine.what.empty()) outcome = mine;
    };
    if (program.threads.size() == 1) {
        run_thread(program.threads.front());
    } else {
        std::vector<std::thread> threads;
        for (const fitting::Thread& t : program.threads) threads.emplace_back([&] { run_thread(t); });
        for (std::thread& t : threads) t.join();
    }
    try {
        rt.synchronize();
    } catch (const kmm::Error& e) {
        if (outcome.what.empty()) outcome = Outcome::of(e);  // no thread read what the task that failed made
    }
    return outcome;
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr && *text != 0 ? std::strtoull(text, nullptr, 10) : otherwise;
}

kmm::RuntimeHandle make_runtime(const fitting::Machine& m) {
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    std::size_t taken_out_of_host = 0;
#if KMM_USE_CUDA
    config.driver = kmm::DriverKind::CUDA;
#else
    config.driver = kmm::DriverKind::Host;
    taken_out_of_host = m.num_devices * m.device_bytes;  // virtual devices
#endif
    config.virtual_devices = m.num_devices;
    config.virtual_device_memory = 16u << 20;
    for (std::uint32_t i = 0; i < m.num_devices; i++) config.devices.push_back(static_cast<int>(i));
    config.device_memory_limit = m.device_bytes;
    config.host_memory_limit = m.host_bytes + taken_out_of_host;
    config.host_threads = 2;
    return kmm::make_runtime(config);
}

std::uint64_t num_devices_present() {
#if KMM_USE_CUDA
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    config.driver = kmm::DriverKind::CUDA;
    return kmm::make_runtime(config).info().num_devices();
#else
    return 4;
#endif
}

/// Ends the process where a program goes on for too long, and says which: a test that stands still would not.
class Patience {
  public:
    Patience() : thread_([this] { wait(); }) {}
    ~Patience() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;
    void begin(std::string program) {
        const std::lock_guard<std::mutex> lock(mutex_);
        program_ = std::move(program);
        ++num_begun_;
        changed_.notify_all();
    }

  private:
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!is_over_) {
            const std::uint64_t seen = num_begun_;
            const auto moved_on = [&] { return is_over_ || num_begun_ != seen; };
            if (changed_.wait_for(lock, std::chrono::minutes(2), moved_on) || seen == 0) continue;
            std::printf("%s\ndoes not end\n", program_.c_str());
            std::fflush(stdout);
            std::abort();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::string program_;
    std::uint64_t num_begun_ = 0;
    bool is_over_ = false;
    std::thread thread_;
};

TEST(ProgramsThatFit, end_with_the_elements_of_a_sequential_interpreter) {
    const bool is_short = number_from("KMM_TEST_SHORT", 0) != 0;
    const bool is_long = number_from("KMM_TEST_LONG", 0) != 0;
    const bool is_verbose = number_from("KMM_TEST_VERBOSE", 0) != 0;
    kmm::set_global_log_level(is_verbose ? "warn" : "off");
    const std::uint64_t count = number_from("KMM_TEST_PROGRAMS", is_short ? 40 : is_long ? 20000 : 500);
    const std::uint64_t first = number_from("KMM_TEST_SEED", 1);
    const std::uint64_t present = num_devices_present();
    std::map<std::size_t, kmm::RuntimeHandle> runtimes;
    std::uint64_t num_run = 0, num_fit = 0, num_failed = 0;
    double moved_bytes = 0;
    Patience patience;
    for (std::uint64_t seed = first; seed < first + count; seed++) {
        const fitting::Program program = fitting::make_program(seed);
        if (program.machine.num_devices > present) continue;
        ++num_run;
        num_fit += program.fits ? 1 : 0;
        if (is_verbose) std::printf("%s%s\n", describe(program).c_str(), program.fits ? "" : " (does not fit)");
        if (is_verbose) std::fflush(stdout);
        patience.begin(describe(program));
        const std::size_t machine = fitting::machine_index(seed);
        if (runtimes.count(machine) == 0) runtimes.emplace(machine, make_runtime(program.machine));
        const kmm::RuntimeHandle& rt = runtimes.at(machine);
        const kmm::RuntimeStats before = rt.stats();
        const Outcome outcome = run_program(rt, program);
        const kmm::RuntimeStats all = rt.stats() - before;
        moved_bytes +=
            static_cast<double>(all.host_to_device.bytes + all.device_to_host.bytes + all.device_to_device.bytes);
        const bool may_fail = !program.fits && outcome.lacked_memory;
        if (outcome.what.empty() || may_fail) continue;
        constexpr std::uint64_t most_texts = 20;
        if (++num_failed <= most_texts) ADD_FAILURE() << describe(program) << "\n" << outcome.what.substr(0, 400);
        // A failure leaves nothing behind for the next program.
        runtimes.erase(machine);
    }
    std::printf("%llu programs from seed %llu: %llu fit, %llu failed; %.3f GB moved\n",
                static_cast<unsigned long long>(num_run), static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(num_fit), static_cast<unsigned long long>(num_failed),
                moved_bytes * 1e-9);
    EXPECT_EQ(num_failed, 0u);
    EXPECT_GE(num_fit * 10, num_run * 9) << "the generator makes programs that fit";
}

}  // namespace
