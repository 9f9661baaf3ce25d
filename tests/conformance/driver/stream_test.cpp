// Owns: the order that streams promise, and the order that they do not.
#include <atomic>
#include <random>
#include <thread>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverStreams : public DriverTest {};

TEST_P(DriverStreams, work_of_one_stream_runs_in_order) {
    int* data = device_memory<int>(4096);
    KMM_OK(fill_ints(data, 0, 4096, stream()));
    for (int i = 1; i <= 50; ++i) {
        KMM_OK(add(data, 4096, i, stream()));
        if (i % 10 == 0) KMM_OK(fill_ints(data, i, 4096, stream()));
    }
    KMM_OK(add(data, 4096, 7, stream()));
    EXPECT_EQ(read(data, 4096), std::vector<int>(4096, 57));
}

TEST_P(DriverStreams, calls_return_before_the_work_runs) {
    Gate gate;
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, stream()));
    KMM_OK(fill_ints(data, 1, 16, stream()));
    KMM_OK(add(data, 16, 1, stream()));
    KMM_FAILS(driver().query_stream(stream()), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_OK(driver().query_stream(stream()));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 2));
}

TEST_P(DriverStreams, streams_do_not_wait_for_each_other) {
    Gate gate;
    const StreamHandle blocked = new_stream();
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, blocked));
    KMM_OK(fill_ints(data, 4, 16, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_FAILS(driver().query_stream(blocked), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(blocked));
}

TEST_P(DriverStreams, host_callbacks_run_in_order_with_their_argument) {
    struct Log {
        std::vector<int> seen;
        std::mutex mutex;
    } log;
    struct Entry {
        Log* log;
        int number;
    };
    std::vector<Entry> entries;
    for (int i = 0; i < 20; ++i) entries.push_back({&log, i});
    for (Entry& entry : entries)
        KMM_OK(driver().host_callback(
            stream(),
            [](void* user) {
                auto& e = *static_cast<Entry*>(user);
                std::lock_guard lock(e.log->mutex);
                e.log->seen.push_back(e.number);
            },
            &entry));
    KMM_OK(driver().synchronize_stream(stream()));
    std::lock_guard lock(log.mutex);
    ASSERT_EQ(log.seen.size(), 20u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(log.seen[static_cast<std::size_t>(i)], i);
}

TEST_P(DriverStreams, a_destroyed_stream_finishes_its_work) {
    Gate gate;
    int* data = device_memory<int>(16);
    KMM_OK(fill_ints(data, 0, 16, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    StreamHandle doomed;
    KMM_OK(driver().create_stream(0, true, 0, &doomed));
    KMM_OK(close(gate, doomed));
    KMM_OK(add(data, 16, 9, doomed));
    KMM_OK(driver().destroy_stream(doomed));
    gate.open();
    KMM_OK(driver().synchronize_device(0));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 9));
}

TEST_P(DriverStreams, ids_are_never_used_twice) {
    if (!driver().capabilities().stream_ids) GTEST_SKIP() << "no stream ids";
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < 20; ++i) {
        StreamHandle s;
        std::uint64_t id = 0;
        std::uint64_t again = 0;
        KMM_OK(driver().create_stream(0, true, 0, &s));
        KMM_OK(driver().stream_id(s, &id));
        KMM_OK(driver().stream_id(s, &again));
        KMM_OK(driver().destroy_stream(s));
        EXPECT_EQ(id, again);
        for (const std::uint64_t other : ids) EXPECT_NE(id, other);
        ids.push_back(id);
    }
}

TEST_P(DriverStreams, a_stream_knows_its_device) {
    for (int device = 0; device < driver().device_count(); ++device) {
        int found = -1;
        KMM_OK(driver().stream_device(new_stream(true, device), &found));
        EXPECT_EQ(found, device);
        KMM_OK(driver().set_current_device(device));
        KMM_OK(driver().stream_device(StreamHandle{}, &found));
        EXPECT_EQ(found, device);
    }
}

TEST_P(DriverStreams, the_legacy_stream_waits_for_blocking_streams) {
    Gate gate;
    const StreamHandle blocking = new_stream(false);
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, blocking));
    KMM_OK(fill_ints(data, 1, 16, blocking));
    KMM_OK(add(data, 16, 1, legacy_stream()));
    KMM_FAILS(driver().query_stream(legacy_stream()), Code::not_ready);
    KMM_FAILS(driver().query_stream(StreamHandle{}), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(legacy_stream()));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 2));
}

TEST_P(DriverStreams, blocking_streams_wait_for_the_legacy_stream) {
    Gate gate;
    const StreamHandle blocking = new_stream(false);
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, StreamHandle{}));
    KMM_OK(fill_ints(data, 5, 16, StreamHandle{}));
    KMM_OK(add(data, 16, 1, blocking));
    KMM_FAILS(driver().query_stream(blocking), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(blocking));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 6));
}

TEST_P(DriverStreams, the_per_thread_stream_waits_for_the_legacy_stream) {
    Gate gate;
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, StreamHandle{}));
    KMM_OK(fill_ints(data, 5, 16, StreamHandle{}));
    KMM_OK(add(data, 16, 2, per_thread_stream()));
    KMM_FAILS(driver().query_stream(per_thread_stream()), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(per_thread_stream()));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 7));
}

TEST_P(DriverStreams, per_thread_streams_of_two_threads_are_two) {
    Gate gate;
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, per_thread_stream()));
    bool other_done = false;
    std::thread([&] {
        other_done =
            fill_ints(data, 3, 16, per_thread_stream()).ok() && driver().synchronize_stream(per_thread_stream()).ok();
    }).join();
    EXPECT_TRUE(other_done);
    KMM_FAILS(driver().query_stream(per_thread_stream()), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(per_thread_stream()));
}

TEST_P(DriverStreams, non_blocking_streams_and_the_legacy_stream_ignore_each_other) {
    Gate gate;
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, StreamHandle{}));
    KMM_OK(fill_ints(data, 5, 16, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_FAILS(driver().query_stream(StreamHandle{}), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(StreamHandle{}));
}

TEST_P(DriverStreams, synchronize_device_waits_for_all_its_streams) {
    std::vector<int*> data;
    for (int i = 0; i < 8; ++i) {
        const StreamHandle s = new_stream(i % 2 == 0);
        data.push_back(device_memory<int>(50000));
        for (int k = 0; k <= i; ++k) KMM_OK(fill_ints(data.back(), k, 50000, s));
    }
    KMM_OK(driver().synchronize_device(0));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(read(data[static_cast<std::size_t>(i)], 50000), std::vector<int>(50000, i));
}

TEST_P(DriverStreams, many_threads_may_use_one_stream) {
    int* data = device_memory<int>(256);
    KMM_OK(fill_ints(data, 0, 256, stream()));
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 100; ++i) failures += add(data, 256, 1, stream()).ok() ? 0 : 1;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(read(data, 256), std::vector<int>(256, 400));
}

TEST_P(DriverStreams, random_work_ordered_by_events_equals_one_after_the_other) {
    constexpr int num_streams = 6, num_cells = 5, num_steps = 600;
    std::mt19937 random(7);
    std::vector<StreamHandle> streams;
    for (int i = 0; i < num_streams; ++i) streams.push_back(new_stream(true, i % driver().device_count()));
    auto* cells = pinned_memory<unsigned long long>(num_cells);
    std::vector<unsigned long long> expected(num_cells, 0);
    std::vector<std::vector<EventHandle>> last_of_device(static_cast<std::size_t>(driver().device_count()));
    for (int i = 0; i < num_cells; ++i)
        for (int d = 0; d < driver().device_count(); ++d)
            last_of_device[static_cast<std::size_t>(d)].push_back(new_event(false, d));
    std::vector<EventHandle> current(num_cells);
    for (int step = 0; step < num_steps; ++step) {
        const std::size_t s = random() % num_streams, c = random() % num_cells;
        const unsigned long long a = random() | 1u, b = random();
        KMM_OK(driver().set_current_device(static_cast<int>(s) % driver().device_count()));
        if (current[c].native != nullptr) KMM_OK(driver().wait_event(streams[s], current[c]));
        const Parameters p(&cells[c], a, b);
        KMM_OK(driver().launch(launch_of(kernels().affine, p), streams[s]));
        current[c] = last_of_device[s % static_cast<std::size_t>(driver().device_count())][c];
        KMM_OK(driver().record_event(current[c], streams[s]));
        expected[c] = expected[c] * a + b;
    }
    for (const StreamHandle s : streams) KMM_OK(driver().synchronize_stream(s));
    for (std::size_t c = 0; c < num_cells; ++c) EXPECT_EQ(cells[c], expected[c]) << c;
}

KMM_ON_EVERY_DRIVER(DriverStreams);

}  // namespace
}  // namespace driver_test
