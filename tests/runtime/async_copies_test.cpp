// copy_to_async and copy_from_async: when their events are done, what they see, what a failed one leaves.
#include "harness.hpp"

#include "kmm/dynamic.hpp"

namespace {

const std::int64_t n = 1000;

std::vector<std::int32_t> all(std::int32_t value) { return std::vector<std::int32_t>(n, value); }

/// A task that overwrites the array with `value` once the gate is open.
void write_behind(const RuntimeHandle& rt, const Gate& gate, Array<std::int32_t>& a, std::int32_t value) {
    rt.submit(host(), Host([gate, value](kmm::ViewMut<std::int32_t> v) {
                  gate.wait();
                  for (std::int64_t i = 0; i < n; i++) v[i] = value;
              }),
              overwrite(a));
}

TEST(AsyncCopies, one_to_the_program_sees_earlier_submits_and_no_later_ones) {
    for (const std::size_t num_devices : {1, 2, 4}) {
        if (num_devices > devices_available()) break;
        const RuntimeHandle rt = kmm::make_runtime(config_with(num_devices));
        auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
        std::vector<std::vector<std::int32_t>> seen(20, all(-1));
        std::vector<EventId> done;
        for (std::int32_t i = 0; i < 20; i++) {
            a.fill(i);
            done.push_back(a.copy_to_async(seen[static_cast<std::size_t>(i)].data()));
        }
        a.fill(100);
        for (std::int32_t i = 0; i < 20; i++) {
            rt.wait(done[static_cast<std::size_t>(i)]);
            EXPECT_EQ(seen[static_cast<std::size_t>(i)], all(i));
        }
        EXPECT_EQ(a.copy_to_vector(), all(100));
    }
}

TEST(AsyncCopies, their_events_are_done_only_when_the_buffer_is_filled_or_no_longer_read) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    const Gate gate;
    const OpenAtEnd at_end(gate);
    auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
    std::vector<std::int32_t> out = all(-1), in = all(2);
    write_behind(rt, gate, a, 1);
    const EventId filled = a.copy_to_async(out.data());
    const EventId read = a.copy_from_async(in.data());
    const EventId taken_over = a.copy_from_async(all(3));
    EXPECT_FALSE(rt.is_done(filled));
    EXPECT_FALSE(rt.is_done(read));
    EXPECT_FALSE(rt.is_done(taken_over));
    EXPECT_EQ(out, all(-1));
    gate.open();
    rt.wait(filled);
    EXPECT_EQ(out, all(1));
    rt.wait(read);
    in = all(-1);  // the program's again
    EXPECT_EQ(a.copy_to_vector(), all(3));
    rt.wait(taken_over);
}

TEST(AsyncCopies, regions_and_views_come_and_go_as_with_blocking_ones) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(std::min<std::size_t>(2, devices_available())));
    auto a = rt.array<std::int32_t, 2>({6, 8}, {2, 3});
    std::vector<std::int32_t> source(48), wide(6 * 10, -1), part(6, -1), square(4, 100);
    for (std::size_t i = 0; i < source.size(); i++) source[i] = static_cast<std::int32_t>(i);
    a.copy_from_async(source.data(), 48);
    a.copy_from_async(square.data(), kmm::Bounds<2>(kmm::Range<>(1, 3), kmm::Range<>(2, 4)));
    const std::int64_t strides[] = {10, 1};
    const auto rows =
        kmm::ViewStridedMut<std::int32_t, 2>::from_region(wide.data(), kmm::Bounds<2>(Dim<2>(6, 8)), strides);
    const EventId whole = a.copy_to_async(rows);
    const EventId corner = a.copy_to_async(part.data(), Point<2>(0, 1), Dim<2>(2, 3));
    rt.wait(whole);
    rt.wait(corner);
    for (const std::size_t i : {1, 2})
        for (const std::size_t j : {2, 3}) source[i * 8 + j] = 100;
    for (std::size_t i = 0; i < 6; i++)
        for (std::size_t j = 0; j < 10; j++) EXPECT_EQ(wide[i * 10 + j], j < 8 ? source[i * 8 + j] : -1);
    for (std::size_t i = 0; i < 2; i++)
        for (std::size_t j = 0; j < 3; j++) EXPECT_EQ(part[i * 3 + j], source[i * 8 + j + 1]);
}

TEST(AsyncCopies, wrong_counts_and_unwritten_elements_are_refused_at_the_call) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
    std::vector<std::int32_t> buffer = all(-1);
    EXPECT_THROW(a.copy_to_async(buffer.data()), kmm::UninitializedRead);
    EXPECT_THROW(a.copy_to_async(buffer.data(), n - 1), kmm::InvalidArgument);
    EXPECT_THROW(a.copy_from_async(buffer.data(), Point<1>(1), Dim<1>(n)), kmm::InvalidArgument);
    std::vector<std::int32_t> short_one(3, 7);
    EXPECT_THROW(a.copy_from_async(std::move(short_one)), kmm::InvalidArgument);
    EXPECT_EQ(short_one, std::vector<std::int32_t>(3, 7));
    Array<std::int32_t> unbound{Dim<1>(n)};
    std::vector<std::int32_t> kept = all(5);
    EXPECT_THROW(unbound.copy_from_async(std::move(kept)), kmm::InvalidArgument);
    EXPECT_EQ(kept, all(5));
    rt.synchronize();
    EXPECT_EQ(buffer, all(-1));
}

TEST(AsyncCopies, one_of_lost_data_fails_and_leaves_its_destination_as_it_was) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
    a.fill(1);
    const EventId failed =
        rt.submit(host(), Host([](kmm::SubviewMut<std::int32_t>) { throw std::runtime_error("no"); }),
                  write(a[kmm::range(n / 4, n / 2)]));
    std::vector<std::int32_t> out = all(-1);
    const EventId copied = a.copy_to_async(out.data());
    EXPECT_THROW(rt.wait(copied), kmm::TaskError);
    EXPECT_EQ(out, all(-1));
    EXPECT_THROW(rt.wait(failed), kmm::TaskError);
    rt.wait(a.copy_from_async(all(2)));  // heals it
    EXPECT_EQ(a.copy_to_vector(), all(2));
}

TEST(AsyncCopies, tasks_may_make_them_and_go_on) {
    const RuntimeHandle rt = kmm::make_runtime(config_with(1));
    auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
    std::vector<std::int32_t> in = all(4), out = all(-1);
    EventId done;
    rt.wait(rt.submit(host(), Host([&] {
                          a.copy_from_async(in.data());
                          done = a.copy_to_async(out.data());
                      })));
    rt.wait(done);
    EXPECT_EQ(out, all(4));
}

TEST(AsyncCopies, arrays_and_the_runtime_may_go_before_they_have_ended) {
    std::vector<std::int32_t> out = all(-1);
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        const Gate gate;
        auto a = rt.array<std::int32_t>(n, Dim<1>(n / 4));
        write_behind(rt, gate, a, 6);
        a.copy_to_async(out.data());
        a.copy_from_async(all(7));
        a.reset();
        gate.open();
    }
    EXPECT_EQ(out, all(6));
}

}  // namespace
