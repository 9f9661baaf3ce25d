// Owns: graphs, built and captured.
#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverGraphs : public DriverTest {
  protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        if (!driver().capabilities().graphs) GTEST_SKIP() << "no graphs";
    }
    GraphHandle new_graph() {
        GraphHandle graph;
        EXPECT_TRUE(driver().create_graph(&graph).ok());
        on_cleanup([this, graph] { EXPECT_TRUE(driver().destroy_graph(graph).ok()); });
        return graph;
    }
    GraphExecHandle new_exec(GraphHandle graph) {
        GraphExecHandle exec;
        EXPECT_TRUE(driver().instantiate(graph, &exec).ok());
        on_cleanup([this, exec] { EXPECT_TRUE(driver().destroy_exec(exec).ok()); });
        return exec;
    }
    GraphHandle end_capture(StreamHandle s) {
        GraphHandle graph;
        const Status status = driver().end_capture(s, &graph);
        EXPECT_TRUE(status.ok()) << driver().error_name(status);
        if (status.ok()) on_cleanup([this, graph] { EXPECT_TRUE(driver().destroy_graph(graph).ok()); });
        return graph;
    }
    KernelLaunch affine(const Parameters& p) { return launch_of(kernels().affine, p); }
};

TEST_P(DriverGraphs, nodes_run_after_what_they_depend_on) {
    // x = 3; y = 2x + 1 and z = 5x + 2 on two branches; then y and z are copied down and the host is called.
    auto* cells = device_memory<unsigned long long>(3);
    auto* down = pinned_memory<unsigned long long>(2);
    const GraphHandle graph = new_graph();
    const Parameters zero_y(&cells[1], 0ull, 3ull), zero_z(&cells[2], 0ull, 3ull);
    const Parameters y(&cells[1], 2ull, 1ull), z(&cells[2], 5ull, 2ull);
    GraphNodeHandle root, set_y, set_z, make_y, make_z, copy_y, copy_z, join, call;
    KMM_OK(driver().add_fill_node(graph, nullptr, 0, cells, 0xabababab, 4, 6, &root));
    KMM_OK(driver().add_kernel_node(graph, &root, 1, affine(zero_y), &set_y));
    KMM_OK(driver().add_kernel_node(graph, &root, 1, affine(zero_z), &set_z));
    KMM_OK(driver().add_kernel_node(graph, &set_y, 1, affine(y), &make_y));
    KMM_OK(driver().add_kernel_node(graph, &set_z, 1, affine(z), &make_z));
    KMM_OK(driver().add_copy_node(graph, &make_y, 1, {&down[0], &cells[1], 8}, &copy_y));
    KMM_OK(driver().add_copy_node(graph, &make_z, 1, {&down[1], &cells[2], 8}, &copy_z));
    const GraphNodeHandle both[] = {copy_y, copy_z};
    KMM_OK(driver().add_empty_node(graph, both, 2, &join));
    struct Seen {
        unsigned long long* down;
        unsigned long long sum = 0;
        int calls = 0;
    } seen{down};
    KMM_OK(driver().add_host_node(
        graph, &join, 1,
        [](void* user) {
            auto& s = *static_cast<Seen*>(user);
            s.sum = s.down[0] + s.down[1];
            ++s.calls;
        },
        &seen, &call));
    const GraphExecHandle exec = new_exec(graph);
    for (int launch = 1; launch <= 5; ++launch) {
        seen.sum = 0;
        KMM_OK(driver().launch_graph(exec, stream()));
        KMM_OK(driver().synchronize_stream(stream()));
        EXPECT_EQ(down[0], 7u);
        EXPECT_EQ(down[1], 17u);
        EXPECT_EQ(seen.sum, 24u);
        EXPECT_EQ(seen.calls, launch);
    }
}

TEST_P(DriverGraphs, launches_are_ordered_with_the_stream_and_with_each_other) {
    const StreamHandle second = new_stream();
    auto* x = device_memory<unsigned long long>(1);
    const unsigned long long one = 1;
    KMM_OK(driver().fill(x, &one, 8, 1, stream()));
    const GraphHandle graph = new_graph();
    const Parameters p(x, 3ull, 1ull);
    GraphNodeHandle a, b;
    KMM_OK(driver().add_kernel_node(graph, nullptr, 0, affine(p), &a));
    KMM_OK(driver().add_kernel_node(graph, &a, 1, affine(p), &b));
    const GraphExecHandle exec = new_exec(graph);
    unsigned long long expected = 1;
    const Parameters q(x, 2ull, 5ull);
    for (int i = 0; i < 10; ++i) {
        KMM_OK(driver().launch_graph(exec, stream()));
        KMM_OK(driver().launch(affine(q), stream()));
        expected = (expected * 3 + 1) * 3 + 1;
        expected = expected * 2 + 5;
    }
    KMM_OK(driver().synchronize_stream(stream()));
    for (int i = 0; i < 10; ++i) {  // one executable graph never runs beside itself
        KMM_OK(driver().launch_graph(exec, i % 2 == 0 ? stream() : second));
        expected = (expected * 3 + 1) * 3 + 1;
    }
    KMM_OK(driver().synchronize_stream(second));
    EXPECT_EQ(read(x, 1)[0], expected);
}

TEST_P(DriverGraphs, wide_graphs_run_every_node_once) {
    constexpr std::size_t width = 100;
    int* data = device_memory<int>(width);
    KMM_OK(fill_ints(data, 0, width, stream()));
    const GraphHandle graph = new_graph();
    GraphNodeHandle root, last;
    KMM_OK(driver().add_empty_node(graph, nullptr, 0, &root));
    std::vector<GraphNodeHandle> middle(width);
    for (std::size_t i = 0; i < width; ++i) {
        const Parameters p(data + i, 1u, static_cast<int>(i));
        KMM_OK(driver().add_kernel_node(graph, &root, 1, launch_of(kernels().add, p), &middle[i]));
    }
    const Parameters all(data, static_cast<unsigned>(width), 1000);
    KMM_OK(driver().add_kernel_node(graph, middle.data(), width, launch_of(kernels().add, all, {1, 1, 1}, {128, 1, 1}),
                                    &last));
    const GraphExecHandle exec = new_exec(graph);
    KMM_OK(driver().launch_graph(exec, stream()));
    const auto result = read(data, width);
    for (std::size_t i = 0; i < width; ++i) EXPECT_EQ(result[i], 1000 + static_cast<int>(i));
}

TEST_P(DriverGraphs, an_updated_node_counts_from_the_next_launch) {
    int* data = device_memory<int>(64);
    KMM_OK(fill_ints(data, 0, 64, stream()));
    const GraphHandle graph = new_graph();
    GraphNodeHandle node;
    const Parameters ten(data, 64u, 10), hundred(data, 64u, 100);
    KMM_OK(driver().add_kernel_node(graph, nullptr, 0, launch_of(kernels().add, ten, {1, 1, 1}, {64, 1, 1}), &node));
    const GraphExecHandle exec = new_exec(graph);
    Gate gate;
    KMM_OK(close(gate, stream()));
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().update_kernel_node(exec, node, launch_of(kernels().add, hundred, {2, 1, 1}, {32, 1, 1})));
    gate.open();
    KMM_OK(driver().launch_graph(exec, stream()));
    EXPECT_EQ(read(data, 64), std::vector<int>(64, 110));
}

TEST_P(DriverGraphs, update_takes_over_a_graph_of_the_same_shape_only) {
    int* data = device_memory<int>(64);
    KMM_OK(fill_ints(data, 0, 64, stream()));
    const auto chain = [&](int value, int length) {
        const GraphHandle graph = new_graph();
        GraphNodeHandle last;
        for (int i = 0; i < length; ++i) {
            const Parameters p(data, 64u, value);
            EXPECT_TRUE(driver()
                            .add_kernel_node(graph, &last, i == 0 ? 0 : 1,
                                             launch_of(kernels().add, p, {1, 1, 1}, {64, 1, 1}), &last)
                            .ok());
        }
        return graph;
    };
    const GraphExecHandle exec = new_exec(chain(1, 3));
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().update_exec(exec, chain(10, 3)));
    KMM_OK(driver().launch_graph(exec, stream()));
    EXPECT_FALSE(driver().update_exec(exec, chain(5, 2)).ok());
    (void)driver().take_last_error();
    EXPECT_EQ(read(data, 64), std::vector<int>(64, 33));
}

TEST_P(DriverGraphs, an_executable_graph_outlives_the_graph_and_its_own_end) {
    int* data = device_memory<int>(64);
    KMM_OK(fill_ints(data, 0, 64, stream()));
    GraphHandle graph;
    GraphExecHandle exec;
    GraphNodeHandle node;
    KMM_OK(driver().create_graph(&graph));
    const Parameters p(data, 64u, 6);
    KMM_OK(driver().add_kernel_node(graph, nullptr, 0, launch_of(kernels().add, p, {1, 1, 1}, {64, 1, 1}), &node));
    KMM_OK(driver().instantiate(graph, &exec));
    KMM_OK(driver().destroy_graph(graph));
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().destroy_exec(exec));
    EXPECT_EQ(read(data, 64), std::vector<int>(64, 12));
}

class DriverCaptures : public DriverGraphs {
  protected:
    void SetUp() override {
        DriverGraphs::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        if (!driver().capabilities().stream_capture) GTEST_SKIP() << "no stream capture";
    }
    CaptureStatus status(StreamHandle s) {
        CaptureStatus result = CaptureStatus::invalidated;
        std::uint64_t id = 0;
        EXPECT_TRUE(driver().capture_status(s, &result, &id).ok());
        return result;
    }
};

TEST_P(DriverCaptures, captured_work_runs_when_the_graph_is_launched) {
    int* data = device_memory<int>(128);
    int* down = pinned_memory<int>(128);
    KMM_OK(fill_ints(data, 1, 128, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    EXPECT_EQ(status(stream()), CaptureStatus::none);
    KMM_OK(driver().begin_capture(stream(), CaptureMode::relaxed));
    EXPECT_EQ(status(stream()), CaptureStatus::active);
    KMM_OK(fill_ints(data, 5, 128, stream()));
    KMM_OK(add(data, 128, 2, stream()));
    KMM_OK(driver().copy(down, data, 512, stream()));
    const GraphHandle graph = end_capture(stream());
    EXPECT_EQ(status(stream()), CaptureStatus::none);
    EXPECT_EQ(read(data, 128), std::vector<int>(128, 1)) << "nothing has run yet";
    const GraphExecHandle exec = new_exec(graph);
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    EXPECT_EQ(down[127], 7);
}

TEST_P(DriverCaptures, events_carry_a_capture_to_other_streams_and_back) {
    const StreamHandle second = new_stream();
    const EventHandle fork = new_event();
    const EventHandle join = new_event();
    auto* cells = device_memory<unsigned long long>(2);
    const Parameters zero_a(&cells[0], 0ull, 2ull), zero_b(&cells[1], 0ull, 3ull), a(&cells[0], 10ull, 1ull),
        b(&cells[1], 10ull, 1ull);
    KMM_OK(driver().begin_capture(stream(), CaptureMode::global));
    KMM_OK(driver().launch(affine(zero_a), stream()));
    KMM_OK(driver().record_event(fork, stream()));
    KMM_OK(driver().wait_event(second, fork));
    EXPECT_EQ(status(second), CaptureStatus::active);
    KMM_OK(driver().launch(affine(zero_b), second));
    KMM_OK(driver().launch(affine(b), second));
    KMM_OK(driver().launch(affine(a), stream()));
    KMM_OK(driver().record_event(join, second));
    KMM_OK(driver().wait_event(stream(), join));
    auto* down = pinned_memory<unsigned long long>(2);
    KMM_OK(driver().copy(down, cells, 16, stream()));
    const GraphExecHandle exec = new_exec(end_capture(stream()));
    EXPECT_EQ(status(second), CaptureStatus::none);
    KMM_OK(driver().launch_graph(exec, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    EXPECT_EQ(down[0], 21u);
    EXPECT_EQ(down[1], 31u);
}

TEST_P(DriverCaptures, a_branch_that_does_not_come_back_is_an_error) {
    const StreamHandle second = new_stream();
    const EventHandle fork = new_event();
    int* data = device_memory<int>(16);
    KMM_OK(driver().begin_capture(stream(), CaptureMode::relaxed));
    KMM_OK(fill_ints(data, 1, 16, stream()));
    KMM_OK(driver().record_event(fork, stream()));
    KMM_OK(driver().wait_event(second, fork));
    KMM_OK(fill_ints(data, 2, 16, second));
    GraphHandle graph;
    KMM_FAILS(driver().end_capture(stream(), &graph), Code::capture_error);
    EXPECT_EQ(graph.native, nullptr);
    EXPECT_EQ(status(stream()), CaptureStatus::none);
    EXPECT_EQ(status(second), CaptureStatus::none);
    KMM_OK(fill_ints(data, 3, 16, stream()));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 3));
}

TEST_P(DriverCaptures, synchronising_a_captured_stream_invalidates_the_capture) {
    int* data = device_memory<int>(16);
    KMM_OK(driver().begin_capture(stream(), CaptureMode::relaxed));
    KMM_OK(fill_ints(data, 1, 16, stream()));
    KMM_FAILS(driver().synchronize_stream(stream()), Code::capture_error);
    EXPECT_EQ(status(stream()), CaptureStatus::invalidated);
    KMM_FAILS(fill_ints(data, 1, 16, stream()), Code::capture_error);
    GraphHandle graph;
    KMM_FAILS(driver().end_capture(stream(), &graph), Code::capture_error);
    KMM_OK(fill_ints(data, 3, 16, stream()));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 3));
}

TEST_P(DriverCaptures, a_captured_event_cannot_be_waited_for_by_the_host) {
    const EventHandle event = new_event();
    KMM_OK(driver().begin_capture(stream(), CaptureMode::relaxed));
    KMM_OK(driver().record_event(event, stream()));
    KMM_FAILS(driver().synchronize_event(event), Code::capture_error);
    GraphHandle graph;
    if (driver().end_capture(stream(), &graph).ok()) KMM_OK(driver().destroy_graph(graph));
    (void)driver().take_last_error();
}

TEST_P(DriverCaptures, the_legacy_stream_cannot_be_captured) {
    KMM_FAILS(driver().begin_capture(StreamHandle{}, CaptureMode::relaxed), Code::capture_error);
}

TEST_P(DriverCaptures, the_legacy_stream_is_closed_while_a_blocking_stream_is_captured) {
    const StreamHandle blocking = new_stream(false);
    int* data = device_memory<int>(16);
    KMM_OK(driver().begin_capture(blocking, CaptureMode::relaxed));
    KMM_FAILS(fill_ints(data, 1, 16, StreamHandle{}), Code::capture_error);
    GraphHandle graph;
    KMM_FAILS(driver().end_capture(blocking, &graph), Code::capture_error);
    KMM_OK(fill_ints(data, 2, 16, StreamHandle{}));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 2));
}

TEST_P(DriverCaptures, memory_and_other_streams_can_be_used_meanwhile) {
    const StreamHandle second = new_stream();
    KMM_OK(driver().begin_capture(stream(), CaptureMode::relaxed));
    void* p = nullptr;
    KMM_OK(driver().allocate(0, 4096, &p));
    KMM_OK(fill_ints(static_cast<int*>(p), 1, 16, second));
    KMM_OK(driver().synchronize_stream(second));
    KMM_OK(fill_ints(static_cast<int*>(p), 2, 16, stream()));
    const GraphExecHandle exec = new_exec(end_capture(stream()));
    KMM_OK(driver().launch_graph(exec, stream()));
    EXPECT_EQ(read(static_cast<int*>(p), 16), std::vector<int>(16, 2));
    KMM_OK(driver().free(p));
}

KMM_ON_EVERY_DRIVER(DriverGraphs);
KMM_ON_EVERY_DRIVER(DriverCaptures);

}  // namespace
}  // namespace driver_test
