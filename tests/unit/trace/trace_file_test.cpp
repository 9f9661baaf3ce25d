// The picture that is made of events, read back by the reader of `kmm trace`.
#include "kmm/trace/trace_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "trace_reader.hpp"

namespace {

using kmm::trace::Array;
using kmm::trace::Event;
using kmm::trace::Fence;
using kmm::trace::LaneId;
using kmm::trace::LaneRole;
using kmm::trace::Machine;
using kmm::trace::Memory;
using kmm::trace::Task;
using kmm::trace::TaskKind;
using kmm::trace::TraceWriter;
using kmm::trace::What;

constexpr Memory gpu = Memory::of_device(0);

/// A trace of one device whose events the test tells, at the times that it says.
class Written {
  public:
    Written() : path_(::testing::TempDir() + "kmm_trace_" + std::to_string(getpid()) + ".json") {
        Machine machine;
        machine.driver = "host";
        machine.runtime = 1;
        machine.memories = {"host", "GPU 0: a \"card\"\xff"};
        machine.limits_bytes = {1000, 100};
        machine.lanes = {{0, LaneRole::compute, 0}, {0, LaneRole::up, 0}};
        writer = std::make_unique<TraceWriter>(path_, "the test", machine, begin_ns, false);
    }
    ~Written() { std::remove(path_.c_str()); }

    void kernel(std::uint64_t number, const std::string& name) {
        Task t;
        t.number = number;
        t.kind = TaskKind::kernel;
        t.memory = gpu;
        t.name = name;
        writer->submitted(t, begin_ns);
    }
    /// `us` microseconds after the beginning.
    void tell(std::int64_t us, const Event& event, const std::vector<Fence>& fences = {}) {
        writer->note(event, fences.data(), fences.size(), begin_ns + us * 1000, 1);
    }
    kmm::tools::Trace read() {
        writer->finish(0);
        writer.reset();
        return kmm::tools::read_trace(path_);
    }

    static constexpr std::int64_t begin_ns = 1'000'000;
    static constexpr LaneId compute{0};
    static constexpr LaneId up{1};
    std::unique_ptr<TraceWriter> writer;

  private:
    std::string path_;
};

TEST(TraceFile, work_that_is_seen_to_be_done_together_shares_the_time) {
    Written w;
    for (std::uint64_t i = 1; i <= 4; ++i) {
        w.kernel(i, "k");
        w.tell(0, {.what = What::launch, .lane = Written::compute, .position = i, .task = i});
        w.tell(10, {.what = What::fed, .lane = Written::compute, .position = i});
    }
    w.tell(50, {.what = What::completed, .lane = Written::compute, .position = 4});
    const kmm::tools::Trace trace = w.read();
    ASSERT_EQ(trace.slices.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_DOUBLE_EQ(trace.slices[i].begin_us, 10.0 + 10.0 * static_cast<double>(i));
        EXPECT_DOUBLE_EQ(trace.slices[i].duration_us, 10.0);
        EXPECT_EQ(trace.text(trace.slices[i].name), "k");
    }
}

TEST(TraceFile, work_begins_when_what_it_comes_after_was_seen_to_be_done) {
    Written w;
    w.kernel(1, "k");
    w.tell(0, {.what = What::copy,
               .lane = Written::up,
               .from = Memory::host(),
               .to = gpu,
               .position = 1,
               .task = 1,
               .array = 1});
    w.tell(0, {.what = What::launch, .lane = Written::compute, .position = 1, .task = 1}, {{Written::up, 1}});
    w.tell(5, {.what = What::fed, .lane = Written::up, .position = 1});
    w.tell(5, {.what = What::fed, .lane = Written::compute, .position = 1});
    w.tell(40, {.what = What::completed, .lane = Written::up, .position = 1});
    w.tell(60, {.what = What::completed, .lane = Written::compute, .position = 1});
    const kmm::tools::Trace trace = w.read();
    ASSERT_EQ(trace.slices.size(), 2u);
    for (const kmm::tools::Slice& s : trace.slices) {
        const bool is_copy = trace.text(s.category) == "copy";
        EXPECT_DOUBLE_EQ(s.begin_us, is_copy ? 5.0 : 40.0);
        EXPECT_DOUBLE_EQ(s.end_us(), is_copy ? 40.0 : 60.0);
    }
}

TEST(TraceFile, the_times_of_the_device_count_where_they_are_known) {
    Written w;
    w.kernel(1, "k");
    w.tell(0, {.what = What::launch, .lane = Written::compute, .position = 1, .task = 1});
    w.tell(1, {.what = What::fed, .lane = Written::compute, .position = 1});
    w.tell(90, {.what = What::ran,
                .lane = Written::compute,
                .position = 1,
                .begin_ns = Written::begin_ns + 20'500,
                .end_ns = Written::begin_ns + 30'250});
    w.tell(91, {.what = What::completed, .lane = Written::compute, .position = 1});
    const kmm::tools::Trace trace = w.read();
    ASSERT_EQ(trace.slices.size(), 1u);
    EXPECT_DOUBLE_EQ(trace.slices[0].begin_us, 20.5);
    EXPECT_DOUBLE_EQ(trace.slices[0].duration_us, 9.75);
}

TEST(TraceFile, what_has_not_ended_ends_with_the_trace) {
    Written w;
    w.kernel(1, "k");
    w.tell(0, {.what = What::launch, .lane = Written::compute, .position = 1, .task = 1});
    w.tell(1, {.what = What::wait_begins, .from = gpu, .task = 1, .bytes = 7});
    const kmm::tools::Trace trace = w.read();
    EXPECT_EQ(trace.slices.size(), 1u);
    EXPECT_EQ(trace.waits.size(), 1u);
}

TEST(TraceFile, what_was_submitted_before_it_began_is_called_by_its_number) {
    Written w;
    w.tell(0, {.what = What::launch, .lane = Written::compute, .position = 9, .task = 8});
    w.tell(0, {.what = What::copy,
               .lane = Written::up,
               .chunk = 2,
               .from = Memory::host(),
               .to = gpu,
               .position = 5,
               .array = 3});
    w.tell(9, {.what = What::completed, .lane = Written::compute, .position = 9});
    w.tell(9, {.what = What::completed, .lane = Written::up, .position = 5});
    const kmm::tools::Trace trace = w.read();
    ASSERT_EQ(trace.slices.size(), 2u);
    EXPECT_EQ(trace.text(trace.slices[0].name), "task 8");
    EXPECT_EQ(trace.text(trace.slices[1].name), "array 3[2]");
}

TEST(TraceFile, names_may_hold_any_bytes) {
    Written w;
    w.kernel(1, "a\"b\\c\n\xc3\xa4\xff</script>");
    w.tell(0, {.what = What::launch, .lane = Written::compute, .position = 1, .task = 1});
    w.tell(1, {.what = What::completed, .lane = Written::compute, .position = 1});
    const kmm::tools::Trace trace = w.read();
    ASSERT_EQ(trace.slices.size(), 1u);
    EXPECT_EQ(trace.text(trace.slices[0].name), "a\"b\\c\n\xc3\xa4\xc3\xbf</script>");
}

}  // namespace
