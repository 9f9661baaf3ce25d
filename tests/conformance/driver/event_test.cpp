// Owns: what events order and what they tell.
#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverEvents : public DriverTest {};

TEST_P(DriverEvents, an_event_recorded_on_one_stream_orders_another) {
    Gate gate;
    const StreamHandle second = new_stream();
    const EventHandle event = new_event();
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, stream()));
    KMM_OK(fill_ints(data, 1, 16, stream()));
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().wait_event(second, event));
    KMM_OK(add(data, 16, 1, second));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    KMM_FAILS(driver().query_stream(second), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(second));
    KMM_OK(driver().query_event(event));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 2));
}

TEST_P(DriverEvents, an_event_that_was_never_recorded_is_over) {
    const EventHandle event = new_event();
    KMM_OK(driver().query_event(event));
    KMM_OK(driver().synchronize_event(event));
    KMM_OK(driver().wait_event(stream(), event));
    KMM_OK(driver().synchronize_stream(stream()));
}

TEST_P(DriverEvents, a_wait_means_the_record_of_that_moment_not_a_later_one) {
    Gate gate;
    const StreamHandle second = new_stream();
    const EventHandle event = new_event();
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().wait_event(second, event));
    KMM_OK(close(gate, stream()));
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().synchronize_stream(second));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_event(event));
}

TEST_P(DriverEvents, recording_again_does_not_release_who_waits_for_the_earlier_record) {
    Gate gate;
    const StreamHandle second = new_stream();
    const StreamHandle third = new_stream();
    const EventHandle event = new_event();
    KMM_OK(close(gate, stream()));
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().wait_event(second, event));
    KMM_OK(driver().record_event(event, third));
    KMM_OK(driver().synchronize_event(event));
    int* data = device_memory<int>(4);
    KMM_OK(fill_ints(data, 1, 4, second));
    KMM_FAILS(driver().query_stream(second), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(second));
}

TEST_P(DriverEvents, a_destroyed_event_still_orders_what_waits_for_it) {
    Gate gate;
    const StreamHandle second = new_stream();
    EventHandle event;
    KMM_OK(driver().create_event(0, false, false, &event));
    int* data = device_memory<int>(16);
    KMM_OK(close(gate, stream()));
    KMM_OK(fill_ints(data, 1, 16, stream()));
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().wait_event(second, event));
    KMM_OK(driver().destroy_event(event));
    KMM_OK(add(data, 16, 1, second));
    gate.open();
    KMM_OK(driver().synchronize_stream(second));
    EXPECT_EQ(read(data, 16), std::vector<int>(16, 2));
}

TEST_P(DriverEvents, an_event_of_a_destroyed_stream_stays_true) {
    Gate gate;
    const EventHandle event = new_event();
    StreamHandle doomed;
    KMM_OK(driver().create_stream(0, true, 0, &doomed));
    KMM_OK(close(gate, doomed));
    KMM_OK(driver().record_event(event, doomed));
    KMM_OK(driver().destroy_stream(doomed));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    const StreamHandle next = new_stream();
    KMM_OK(driver().synchronize_stream(next));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_event(event));
    KMM_OK(driver().query_event(event));
}

TEST_P(DriverEvents, elapsed_time_needs_timing_and_both_records) {
    const EventHandle begin = new_event(true);
    const EventHandle end = new_event(true);
    const EventHandle untimed = new_event(false);
    int* data = device_memory<int>(100000);
    float ms = -1;
    EXPECT_FALSE(driver().elapsed_ms(begin, end, &ms).ok()) << "nothing was recorded";
    Gate gate;
    KMM_OK(driver().record_event(begin, stream()));
    KMM_OK(close(gate, stream()));
    KMM_OK(fill_ints(data, 1, 100000, stream()));
    KMM_OK(driver().record_event(end, stream()));
    KMM_OK(driver().record_event(untimed, stream()));
    KMM_FAILS(driver().elapsed_ms(begin, end, &ms), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_event(end));
    KMM_OK(driver().elapsed_ms(begin, end, &ms));
    EXPECT_GT(ms, 0);
    EXPECT_LT(ms, 60'000);
    KMM_OK(driver().synchronize_event(untimed));
    EXPECT_FALSE(driver().elapsed_ms(begin, untimed, &ms).ok());
    (void)driver().take_last_error();
}

TEST_P(DriverEvents, a_device_event_fences_every_stream_destroyed_ones_too) {
    if (!driver().capabilities().device_event) GTEST_SKIP() << "no device events";
    const EventHandle event = new_event();
    Gate gate;
    KMM_OK(close(gate, stream()));
    KMM_OK(driver().device_event_record(0, event));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_event(event));

    // One gate at a time: the callbacks of all streams may share a thread.
    Gate next_gate;
    StreamHandle doomed;
    KMM_OK(driver().create_stream(0, true, 0, &doomed));
    KMM_OK(close(next_gate, doomed));
    KMM_OK(driver().destroy_stream(doomed));
    KMM_OK(driver().device_event_record(0, event));
    KMM_OK(driver().synchronize_stream(stream()));
    KMM_FAILS(driver().query_event(event), Code::not_ready);
    next_gate.open();
    KMM_OK(driver().synchronize_event(event));
}

TEST_P(DriverEvents, events_order_streams_of_two_devices) {
    if (driver().device_count() < 2) GTEST_SKIP() << "one device";
    Gate gate;
    const StreamHandle second = new_stream(true, 1);
    const EventHandle event = new_event();
    int* data = pinned_memory<int>(16);
    KMM_OK(close(gate, stream()));
    KMM_OK(add(data, 16, 1, stream()));
    KMM_OK(driver().record_event(event, stream()));
    KMM_OK(driver().wait_event(second, event));
    KMM_OK(driver().set_current_device(1));
    KMM_OK(add(data, 16, 1, second));
    KMM_FAILS(driver().query_stream(second), Code::not_ready);
    gate.open();
    KMM_OK(driver().synchronize_stream(second));
    for (int i = 0; i < 16; ++i) EXPECT_EQ(data[i], 2);
}

KMM_ON_EVERY_DRIVER(DriverEvents);

}  // namespace
}  // namespace driver_test
