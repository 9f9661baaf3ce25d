// What is issued for some programs, as kept in goldens/: a change of the schedule or of residency shows here.
//
// Each program runs on the scripted driver and is recorded; the record is then played (tools/simulate/player.hpp),
// because what a runtime issues depends on when its devices are seen to be done. What the play issues is compared with
// the file. Where a change is meant, KMM_TEST_WRITE_GOLDENS=<folder> writes the files anew: the commit says why they
// differ.
#include "harness.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "kmm/runtime/runtime_core.hpp"
#include "kmm/trace/record_file.hpp"
#include "kmm/trace/record_reader.hpp"
#include "scripted_driver.hpp"
#include "simulate/player.hpp"

namespace {

using kmm::driver::testing::ScriptedDriver;
using kmm::driver::testing::ScriptedOptions;
using kmm::simulate::Player;
using kmm::simulate::Program;
using kmm::simulate::UntimedDevices;

constexpr std::int64_t n = 512;
constexpr std::size_t chunk_bytes = n * sizeof(std::int64_t);

__global__ void add(kmm::Range<std::int64_t> range, std::int64_t value, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] += value;
}

__global__ void axpy(kmm::Range<std::int64_t> range, std::int64_t a, kmm::GPUSubview<std::int64_t> x,
                     kmm::GPUSubviewMut<std::int64_t> y) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) y[i] += a * x[i];
}

__global__ void step(kmm::Range<std::int64_t> range, kmm::GPUSubview<std::int64_t> from,
                     kmm::GPUSubviewMut<std::int64_t> to) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) to[i] = from[i] + 1;
}

__global__ void multiply(kmm::GPUSubview<std::int64_t> a, kmm::GPUSubview<std::int64_t> b,
                         kmm::GPUSubviewMut<std::int64_t> c) {
    const std::int64_t i = threadIdx.x;
    c[c.begin() + i] += a[a.begin() + i] * b[b.begin() + i];
}

__global__ void fail_at_7(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i == 7) throw std::runtime_error("seven");
    if (i < range.end) x[i] = i;
}

kmm::Domain chunks_on(const std::vector<ResourceId>& owners) {
    kmm::Domain domain;
    for (std::size_t c = 0; c < owners.size(); ++c)
        domain.chunks.push_back(chunk_of(owners[c], static_cast<std::int64_t>(c) * n, n));
    return domain;
}

kmm::Domain chunks_on_device(std::size_t count) { return chunks_on(std::vector<ResourceId>(count, device(0))); }

Array<std::int64_t> filled(const RuntimeHandle& rt, std::int64_t chunks, const char* name) {
    Array<std::int64_t> a = rt.array<std::int64_t>(chunks * n, Dim<1>(n)).named(name);
    a.copy_from(std::vector<std::int64_t>(static_cast<std::size_t>(chunks * n), 1));
    return a;
}

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

/// A file of this process, which is gone at the end.
class TemporaryFile {
  public:
    explicit TemporaryFile(const char* name)
        : path_(::testing::TempDir() + "kmm_" + name + "_" + std::to_string(getpid())) {}
    ~TemporaryFile() { std::remove(path_.c_str()); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

template<typename F>
Program record(std::size_t devices, std::size_t chunks_in_memory, F&& program) {
    const TemporaryFile file("record");
    ScriptedOptions options;
    options.num_devices = static_cast<int>(devices);
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = devices;
    config.host_threads = 1;
    config.device_concurrent_streams = 2;
    config.device_memory_limit = chunks_in_memory * chunk_bytes;
    config.host_memory_limit = std::size_t{4} << 20;
    config.record = file.path();
    {
        const RuntimeHandle rt(kmm::detail::RuntimeCore::start(config, std::make_shared<ScriptedDriver>(options)));
        program(rt);
    }
    Program recorded;
    std::ifstream in(file.path());
    bool complete = false;
    recorded.machine = kmm::trace::read_record(in, file.path(), recorded, &complete);
    EXPECT_TRUE(complete);
    return recorded;
}

std::string play(const Program& program) {
    const TemporaryFile file("play");
    {
        kmm::trace::RecordWriter writer(file.path(), "the play", program.machine);
        UntimedDevices devices;
        Player player(program, devices, &writer);
        EXPECT_TRUE(player.play()) << "the schedule stands still";
        writer.finish(0);
    }
    return text_of_file(file.path());
}

template<typename F>
void expect_golden(const std::string& name, std::size_t devices, std::size_t chunks_in_memory, F&& program) {
    const std::string played = play(record(devices, chunks_in_memory, program));
    if (const char* folder = std::getenv("KMM_TEST_WRITE_GOLDENS")) {
        ASSERT_TRUE(std::ofstream(std::string(folder) + "/" + name + ".txt") << played) << folder << " is no folder";
    }
    std::istringstream is(played), must(text_of_file(std::string(KMM_GOLDENS) + "/" + name + ".txt"));
    std::string line, expected;
    for (int number = 1; std::getline(must, expected); ++number) {
        ASSERT_TRUE(std::getline(is, line)) << name << ".txt goes on with \"" << expected << '"';
        ASSERT_EQ(line, expected) << name << ".txt, line " << number;
    }
    ASSERT_FALSE(std::getline(is, line)) << name << ".txt ends before \"" << line << '"';
}

TEST(Goldens, chain) {
    expect_golden("chain", 1, 64, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 1, "x");
        for (std::int64_t i = 0; i < 6; ++i)
            rt.parallel_submit(chunks_on_device(1), GPUKernel(add, dim3(64)).named("add"), _x, i, write(x[_x]));
        rt.synchronize();
    });
}

TEST(Goldens, stencil_without_halo) {
    expect_golden("stencil_without_halo", 1, 64, [](const RuntimeHandle& rt) {
        auto a = filled(rt, 8, "a"), b = filled(rt, 8, "b");
        for (int i = 0; i < 6; ++i)
            rt.parallel_submit(chunks_on_device(8), GPUKernel(step, dim3(64)).named("step"), _x,
                               (i % 2 == 0 ? a : b)[_x], overwrite((i % 2 == 0 ? b : a)[_x]));
        rt.synchronize();
    });
}

TEST(Goldens, tiled_product_on_columns_of_chunks) {
    expect_golden("tiled_product", 1, 7, [](const RuntimeHandle& rt) {
        constexpr std::int64_t tiles = 3;
        auto a = filled(rt, tiles * tiles, "a"), b = filled(rt, tiles * tiles, "b"), c = filled(rt, tiles * tiles, "c");
        const auto tile = [](std::int64_t row, std::int64_t column) {
            const std::int64_t first = (row * tiles + column) * n;
            return kmm::range(first, first + n);
        };
        for (std::int64_t k = 0; k < tiles; ++k)
            for (std::int64_t i = 0; i < tiles; ++i)
                for (std::int64_t j = 0; j < tiles; ++j)
                    rt.submit(device(0), GPUKernel(multiply, dim3(64)).grid(dim3(1)).named("multiply"), a[tile(i, k)],
                              b[tile(k, j)], write(c[tile(i, j)]));
        rt.synchronize();
    });
}

TEST(Goldens, axpy_out_of_core) {
    expect_golden("axpy_out_of_core", 1, 6, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 8, "x"), y = filled(rt, 8, "y");
        for (std::int64_t pass = 1; pass <= 3; ++pass)
            rt.parallel_submit(chunks_on_device(8), GPUKernel(axpy, dim3(64)).named("axpy"), _x, pass, x[_x],
                               write(y[_x]));
        rt.synchronize();
    });
}

TEST(Goldens, two_devices) {
    expect_golden("two_devices", 2, 16, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 4, "x"), y = filled(rt, 4, "y");
        std::vector<ResourceId> owners = {device(0), device(1), device(0), device(1)};
        for (std::int64_t pass = 1; pass <= 3; ++pass) {
            rt.parallel_submit(chunks_on(owners), GPUKernel(axpy, dim3(64)).named("axpy"), _x, pass, x[_x],
                               write(y[_x]));
            std::rotate(owners.begin(), owners.begin() + 1, owners.end());
        }
        rt.synchronize();
    });
}

TEST(Goldens, host_and_device_mixed) {
    expect_golden("host_and_device", 1, 6, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 4, "x");
        for (std::int64_t pass = 1; pass <= 2; ++pass) {
            rt.parallel_submit(chunks_on_device(4), GPUKernel(add, dim3(64)).named("add"), _x, pass, write(x[_x]));
            rt.parallel_submit(chunks_on({host(), host(), host(), host()}),
                               Host([](kmm::SubviewMut<std::int64_t> v) {
                                   for (std::int64_t i = v.begin(); i < v.end(); ++i) v[i] *= 2;
                               }).named("double"),
                               write(x[_x]));
            rt.parallel_submit(chunks_on_device(4),
                               GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int64_t>) {}).named("function"),
                               write(x[_x]));
        }
        rt.synchronize();
    });
}

TEST(Goldens, failures) {
    expect_golden("failures", 1, 8, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 3, "x"), y = filled(rt, 3, "y");
        const auto everywhere = chunks_on_device(3);
        rt.parallel_submit(everywhere, GPUKernel(fail_at_7, dim3(64)).named("fail"), _x, write(x[_x]));
        rt.parallel_submit(everywhere, GPUKernel(axpy, dim3(64)).named("axpy"), _x, std::int64_t{2}, x[_x],
                           write(y[_x]));
        rt.parallel_submit(chunks_on({host(), host(), host()}), Host([](kmm::SubviewMut<std::int64_t> v) {
                                                                    if (v.begin() > 0)
                                                                        throw std::runtime_error("not the first");
                                                                }).named("check"),
                           write(y[_x]));
        rt.parallel_submit(everywhere, GPUKernel(step, dim3(64)).named("replace"), _x, x[_x], overwrite(y[_x]));
        EXPECT_THROW(rt.synchronize(), kmm::Error);
    });
}

TEST(Goldens, partial_writes) {
    expect_golden("partial_writes", 1, 4, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 4, "x");
        for (std::int64_t pass = 1; pass <= 2; ++pass) {
            kmm::Domain halves;
            for (std::int64_t h = 0; h < 8; ++h) halves.chunks.push_back(chunk_of(device(0), h * n / 2, n / 2));
            rt.parallel_submit(halves, GPUKernel(add, dim3(64)).named("halves"), _x, pass, write(x[_x]));
            rt.parallel_submit(std::vector{chunk_of(host(), 0, 100), chunk_of(host(), n + 7, 9)},
                               Host([](kmm::SubviewMut<std::int64_t> v) { v[v.begin()] = 3; }).named("some"),
                               write(x[_x]));
        }
        rt.synchronize();
    });
}

TEST(Goldens, halo) {
    expect_golden("halo", 2, 7, [](const RuntimeHandle& rt) {
        auto a = filled(rt, 6, "a"), b = filled(rt, 6, "b");
        const std::vector<ResourceId> owners = {device(0), device(0), device(0), device(1), device(1), device(1)};
        for (int i = 0; i < 2; ++i)
            rt.parallel_submit(chunks_on(owners), GPUKernel(step, dim3(64)).named("step"), _x,
                               (i % 2 == 0 ? a : b)[kmm::range(_x - 3, _x + 4)], overwrite((i % 2 == 0 ? b : a)[_x]));
        rt.synchronize();
    });
}

TEST(Goldens, halo_in_memory) {
    expect_golden("halo_in_memory", 1, 40, [](const RuntimeHandle& rt) {
        auto a = filled(rt, 4, "a"), b = filled(rt, 4, "b");
        for (int i = 0; i < 4; ++i)
            rt.parallel_submit(chunks_on_device(4), GPUKernel(step, dim3(64)).named("step"), _x,
                               (i % 2 == 0 ? a : b)[kmm::range(_x - 3, _x + 4)], overwrite((i % 2 == 0 ? b : a)[_x]));
        rt.synchronize();
    });
}

TEST(Goldens, writes_across_chunks_and_snapshots) {
    expect_golden("across_chunks", 2, 7, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 4, "x");
        // Shifted by half a chunk; the middle one on another device than its neighbours.
        rt.parallel_submit(std::vector{chunk_of(device(0), n / 2, n), chunk_of(device(1), 3 * n / 2, n),
                                       chunk_of(device(0), 5 * n / 2, n)},
                           GPUKernel(add, dim3(64)).named("shifted"), _x, std::int64_t{1}, write(x[_x]));
        rt.parallel_submit(chunks_on({device(0), device(1), device(0), device(1)}),
                           GPUKernel(step, dim3(64)).named("in place"), _x, x[kmm::range(_x, _x + 1)],
                           overwrite(x[_x]));
        rt.parallel_submit(std::vector{chunk_of(device(0), 0, n / 2), chunk_of(device(1), n / 2, n / 2)},
                           GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<std::int64_t>) {}).named("two memories"),
                           overwrite(x[_x]));
        rt.submit(host(), Host([](kmm::View<std::int64_t>) {}).named("all"), x);
        rt.synchronize();
    });
}

// What the goldens rest on.
TEST(Goldens, a_record_says_the_same_when_it_is_read_and_written_again) {
    const Program program = record(1, 6, [](const RuntimeHandle& rt) {
        auto x = filled(rt, 8, "a \"name\"\n");
        rt.parallel_submit(chunks_on_device(8), GPUKernel(add, dim3(64)), _x, std::int64_t{1}, write(x[_x]));
        rt.synchronize();
    });
    const std::string once = play(program);
    Program again;
    std::istringstream in(once);
    bool complete = false;
    again.machine = kmm::trace::read_record(in, "the first", again, &complete);
    EXPECT_TRUE(complete);
    EXPECT_EQ(play(again), once);
}

}  // namespace
