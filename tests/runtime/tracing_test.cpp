// Traces of whole programs, read back by the reader of `kmm trace`: they show what the runtime's own figures say.
#include "harness.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "trace_reader.hpp"

namespace {

using kmm::tools::Slice;
using kmm::tools::Trace;

constexpr std::int64_t n = 4096;

class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string& name)
        : path_(::testing::TempDir() + "kmm_" + std::to_string(getpid()) + "_" + name) {}
    ~TemporaryFile() { std::remove(path_.c_str()); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

std::size_t count(const Trace& trace, const char* category) {
    std::size_t found = 0;
    for (const Slice& s : trace.slices) found += trace.text(s.category) == category;
    return found;
}

std::size_t count_marks(const Trace& trace, const char* category) {
    std::size_t found = 0;
    for (const kmm::tools::Mark& m : trace.marks) found += trace.text(m.category) == category;
    return found;
}

kmm::Domain chunks_over_devices(const RuntimeHandle& rt, std::int64_t chunks) {
    kmm::Domain domain;
    for (std::int64_t c = 0; c < chunks; ++c)
        domain.chunks.push_back(chunk_of(device(static_cast<std::size_t>(c) % num_devices(rt)), c * n, n));
    return domain;
}

void add_one(const RuntimeHandle& rt, Array<float>& x, std::int64_t chunks, const char* name) {
    rt.parallel_submit(chunks_over_devices(rt, chunks),
                       GPU([](kmm::DeviceResource& gpu, kmm::GPUSubviewMut<float> v) {
                           const float one = 1;
                           gpu.fill_bytes(v.data(), static_cast<std::size_t>(v.size()) * sizeof(float), &one,
                                          sizeof one);
                       }).named(name),
                       write(x[_x]));
}

void double_on_host(const RuntimeHandle& rt, Array<float>& x, std::int64_t chunks) {
    kmm::Domain domain;
    for (std::int64_t c = 0; c < chunks; ++c) domain.chunks.push_back(chunk_of(host(), c * n, n));
    rt.parallel_submit(domain, Host([](kmm::SubviewMut<float> v) {
                                   for (std::int64_t i = v.begin(); i < v.end(); ++i) v[i] *= 2;
                               }).named("double"),
                       write(x[_x]));
}

TEST(Tracing, a_trace_shows_every_task_copy_and_eviction_that_the_runtime_counts) {
    for (const std::size_t devices : {1, 2, 4}) {
        KMM_NEED_DEVICES(devices);
        const TemporaryFile file("trace.json");
        RuntimeConfig config = config_with(devices);
        config.device_memory_limit = 3 * n * sizeof(float);
        config.trace = file.path();
        constexpr std::int64_t chunks = 12;
        kmm::RuntimeStats stats;
        {
            const RuntimeHandle rt = kmm::make_runtime(config);
            Array<float> x = rt.array<float>(chunks * n, Dim<1>(n)).named("x");
            x.copy_from(std::vector<float>(chunks * n, 0.0f));
            for (int pass = 0; pass < 3; ++pass) {
                add_one(rt, x, chunks, "add");
                double_on_host(rt, x, chunks);
            }
            rt.synchronize();
            stats = rt.stats();
            rt.close();
        }
        const Trace trace = kmm::tools::read_trace(file.path());
        EXPECT_EQ(trace.said("dropped_events", "?"), "0");
        EXPECT_EQ(count(trace, "function"), 3u * chunks);
        EXPECT_EQ(count(trace, "host task"), 4u * chunks);  // the copy into the array among them
        EXPECT_EQ(count(trace, "submit"), 6u);
        for (const Slice& s : trace.slices) {
            if (trace.text(s.category) != "submit") continue;
            EXPECT_TRUE(trace.text(s.name) == "add" || trace.text(s.name) == "double") << trace.text(s.name);
        }
        EXPECT_GT(count(trace, "turn"), 0u);
        std::map<std::string, kmm::CopyStats> copies;
        for (const Slice& s : trace.slices) {
            if (trace.text(s.category) != "copy") continue;
            const kmm::tools::Argument* const from = trace.find(s.arguments, "from");
            const kmm::tools::Argument* const to = trace.find(s.arguments, "to");
            ASSERT_TRUE(from != nullptr && to != nullptr);
            kmm::CopyStats& c = copies[trace.text(from->text) == "host" ? "up"
                                       : trace.text(to->text) == "host" ? "down"
                                                                        : "peer"];
            ++c.copies;
            c.bytes += static_cast<std::uint64_t>(trace.number(s.arguments, "bytes"));
            EXPECT_EQ(trace.text(s.name).substr(0, 2), "x[");
        }
        EXPECT_EQ(copies["up"].copies, stats.host_to_device.copies);
        EXPECT_EQ(copies["up"].bytes, stats.host_to_device.bytes);
        EXPECT_EQ(copies["down"].copies, stats.device_to_host.copies);
        EXPECT_EQ(copies["peer"].copies, stats.device_to_device.copies);
        EXPECT_EQ(count_marks(trace, "evict"), stats.evictions);
        EXPECT_EQ(count_marks(trace, "fail"), 0u);
        EXPECT_FALSE(trace.samples.empty());
    }
}

TEST(Tracing, a_trace_by_hand_shows_what_happens_until_the_next_begins) {
    const TemporaryFile first("first.json"), second("second.json");
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    Array<float> x = rt.array<float>(4 * n, Dim<1>(n));
    x.copy_from(std::vector<float>(4 * n, 0.0f));
    double_on_host(rt, x, 4);
    rt.synchronize();
    rt.trace(first.path());
    double_on_host(rt, x, 4);
    rt.synchronize();
    rt.trace(second.path());
    double_on_host(rt, x, 4);
    double_on_host(rt, x, 4);
    rt.synchronize();
    rt.trace("");
    double_on_host(rt, x, 4);
    rt.synchronize();
    EXPECT_EQ(count(kmm::tools::read_trace(first.path()), "host task"), 4u);
    EXPECT_EQ(count(kmm::tools::read_trace(second.path()), "host task"), 8u);
    rt.trace("");  // nothing to end
}

TEST(Tracing, copies_have_the_devices_own_times_where_these_are_asked_for) {
    const TemporaryFile file("device_times.json");
    for (const bool asked : {false, true}) {
        RuntimeConfig config = config_with(1);
        config.device_memory_limit = 3 * n * sizeof(float);
        config.trace = file.path();
        config.trace_device_times = asked;
        {
            const RuntimeHandle rt = kmm::make_runtime(config);
            Array<float> x = rt.array<float>(8 * n, Dim<1>(n));
            x.copy_from(std::vector<float>(8 * n, 0.0f));
            for (int pass = 0; pass < 3; ++pass) {
                add_one(rt, x, 8, "add");
                double_on_host(rt, x, 8);
            }
            rt.synchronize();
        }
        const Trace trace = kmm::tools::read_trace(file.path());
        EXPECT_EQ(trace.said("device_times", "?"), asked ? "device" : "host");
        ASSERT_GT(count(trace, "copy"), 0u);
        for (const Slice& s : trace.slices) {
            const bool timed = trace.find(s.arguments, "timed") != nullptr;
            EXPECT_EQ(timed, asked && trace.text(s.category) == "copy") << trace.text(s.name);
        }
    }
}

TEST(Tracing, failed_and_cancelled_tasks_are_marked) {
    const TemporaryFile file("failures.json");
    RuntimeConfig config = config_with(1);
    config.trace = file.path();
    {
        const RuntimeHandle rt = kmm::make_runtime(config);
        Array<float> x = rt.array<float>(n, Dim<1>(n));
        x.copy_from(std::vector<float>(n, 0.0f));
        rt.submit(host(), Host([](kmm::SubviewMut<float>) { throw std::runtime_error("no"); }).named("fails"),
                  write(x[kmm::range(0, n)]));
        double_on_host(rt, x, 1);
        EXPECT_THROW(rt.synchronize(), kmm::Error);
    }
    const Trace trace = kmm::tools::read_trace(file.path());
    ASSERT_EQ(count_marks(trace, "fail"), 2u);
    int cancelled = 0;
    for (const kmm::tools::Mark& m : trace.marks) {
        if (trace.text(m.category) != "fail") continue;
        const bool by_another = trace.find(m.arguments, "cancelled_by") != nullptr;
        cancelled += by_another;
        EXPECT_EQ(trace.text(m.name), by_another ? "double" : "fails");
    }
    EXPECT_EQ(cancelled, 1);
}

TEST(Tracing, the_child_of_a_fork_leaves_the_trace_of_its_parent_alone) {
    const TemporaryFile file("fork.json");
    RuntimeConfig config = config_with(1);
    config.trace = file.path();
    {
        const RuntimeHandle rt = kmm::make_runtime(config);
        Array<float> x = rt.array<float>(8 * n, Dim<1>(n));
        x.copy_from(std::vector<float>(8 * n, 0.0f));
        for (int pass = 0; pass < 500; ++pass) double_on_host(rt, x, 8);  // more than a megabyte
        rt.synchronize();
        const pid_t child = fork();
        if (child == 0) {
            x.named("of the child");
            // As at an exit, but without a look for leaks: the threads that own memory are not in the child.
            std::fflush(nullptr);
            _exit(0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        double_on_host(rt, x, 8);
        rt.synchronize();
    }
    EXPECT_EQ(count(kmm::tools::read_trace(file.path()), "host task"), 502u * 8);
}

TEST(Tracing, a_trace_is_on_the_disk_while_the_runtime_does_nothing) {
    const TemporaryFile file("alive.json");
    RuntimeConfig config = config_with(1);
    config.trace = file.path();
    const RuntimeHandle rt = kmm::make_runtime(config);
    Array<float> x = rt.array<float>(n, Dim<1>(n));
    x.copy_from(std::vector<float>(n, 0.0f));
    double_on_host(rt, x, 1);
    rt.synchronize();
    const auto text = [&] {
        std::ifstream in(file.path());
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (text().find("\"double\"") == std::string::npos && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
    EXPECT_NE(text().find("\"double\""), std::string::npos);
}

TEST(Tracing, a_second_runtime_puts_its_number_into_the_names_of_its_files) {
    const std::string base = ::testing::TempDir() + "kmm_second_" + std::to_string(getpid());
    RuntimeConfig config = config_with(1);
    config.trace = base + ".json";
    config.record = base + "_record";
    std::vector<std::string> traces, records;
    {
        const RuntimeHandle a = kmm::make_runtime(config), b = kmm::make_runtime(config);
        const std::string number = "." + std::to_string(b.info().runtime_number());
        traces = {config.trace, base + number + ".json"};
        records = {config.record, config.record + number};
        EXPECT_THROW(b.trace(config.trace), kmm::InvalidArgument) << "that name was asked for";
    }
    for (const std::string& path : traces) EXPECT_NO_THROW((void)kmm::tools::read_trace(path)) << path;
    for (const std::string& path : records) EXPECT_TRUE(std::ifstream(path).good()) << path;
    for (const auto& paths : {traces, records})
        for (const std::string& path : paths) std::remove(path.c_str());
}

TEST(Tracing, file_names_may_hold_the_numbers_of_process_and_runtime) {
    const std::string base = ::testing::TempDir() + "kmm_numbers_";
    RuntimeConfig config = config_with(1);
    config.trace = base + "%p_%r.json";
    std::vector<std::string> paths;
    {
        const RuntimeHandle a = kmm::make_runtime(config), b = kmm::make_runtime(config);
        for (const RuntimeHandle& rt : {a, b})
            paths.push_back(base + std::to_string(getpid()) + "_" + std::to_string(rt.info().runtime_number()) +
                            ".json");
    }
    EXPECT_NE(paths[0], paths[1]);
    for (const std::string& path : paths) {
        EXPECT_NO_THROW((void)kmm::tools::read_trace(path)) << path;
        std::remove(path.c_str());
    }
}

template<typename F>
std::string refusal_of(F&& f) {
    try {
        f();
    } catch (const kmm::InvalidArgument& e) {
        return e.what();
    }
    return "nothing was refused";
}

TEST(Tracing, a_file_that_cannot_be_written_is_refused_and_the_runtime_goes_on) {
    RuntimeConfig config = config_with(1);
    config.trace = "/no/such/folder/t.json";
    EXPECT_NE(refusal_of([&] { (void)kmm::make_runtime(config); }).find("trace (KMM_TRACE) is \"/no/such/folder"),
              std::string::npos);
    config.trace.clear();
    config.record = "/no/such/folder/r.txt";
    EXPECT_NE(refusal_of([&] { (void)kmm::make_runtime(config); }).find("record (KMM_RECORD) is \"/no/such/folder"),
              std::string::npos);
    config.record.clear();
    const RuntimeHandle rt = kmm::make_runtime(config);
    EXPECT_NE(refusal_of([&] { rt.trace("/no/such/folder/t.json"); }).find("the path of the trace is"),
              std::string::npos);
    Array<float> x = rt.array<float>(n, Dim<1>(n));
    x.copy_from(std::vector<float>(n, 1.0f));
    EXPECT_EQ(x.copy_to_vector()[0], 1.0f);
}

}  // namespace
