// Streams of a pool that is not there: their timelines, on the scripted driver, and what was freed on them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "rmm/pool/engine_mutex.hpp"
#include "rmm/pool/pool_facts.hpp"
#include "rmm/pool/timeline.hpp"
#include "rmm/status.hpp"
#include "scripted_driver.hpp"

namespace rmm_test {

namespace in_pool = rmm::mr::detail;

/// Under the lock of an engine, as far as clang checks it.
class pool_streams {
  public:
    explicit pool_streams(const in_pool::pool_options& options = {}, const in_pool::growth_traits& traits = {},
                          const kmm::driver::testing::ScriptedOptions& scripted = {})
        : driver(scripted), facts(driver, 0, traits, options), times(driver, 0, mutex.gone()) {}

    /// A stream that the library knows nothing of.
    in_pool::timeline& add(std::uint64_t number) {
        return times.at({rmm::detail::stream_kind::foreign, number, nullptr});
    }
    /// Of what is freed now.
    static rmm::heap::fence free_on(in_pool::timeline& stream) { return stream.fence_now(); }
    /// Records an event that covers all frees on the stream so far.
    void record(in_pool::timeline& stream) {
        give_event();
        in_pool::recording now;
        ASSERT_TRUE(times.begin_recording(stream, &now));
        ASSERT_TRUE(driver.record_event(now.event, handle()).ok());
        times.end_recording(stream, now, true);
    }
    /// Asks the driver about all events.
    void ask() {
        std::vector<in_pool::timelines::question> questions = times.questions(~std::size_t{0});
        times.ask(questions);
        times.answer(questions);
    }
    /// All frees on the stream so far have passed, as the pool will know.
    void pass(in_pool::timeline& stream) {
        record(stream);
        ask();
    }
    void give_event() {
        times.spare().expect(1);
        std::vector<kmm::driver::EventHandle> made;
        ASSERT_TRUE(times.spare().create(1, &made).ok());
        times.spare().give(made.front());
    }
    /// On which events are recorded.
    kmm::driver::StreamHandle handle() {
        if (stream_.native == nullptr) {
            EXPECT_TRUE(driver.create_stream(0, true, 0, &stream_).ok());
        }
        return stream_;
    }
    /// Events that are recorded from now on do not pass until `go_on`.
    void hold() {
        driver.hold(handle());
        EXPECT_TRUE(driver.host_callback(handle(), [](void*) {}, nullptr).ok());
    }
    void go_on() { driver.release(handle()); }

    kmm::driver::testing::ScriptedDriver driver;
    const rmm::detail::driver_scope on{driver};
    in_pool::engine_mutex mutex;
    in_pool::pool_facts facts;
    in_pool::timelines times;

  private:
    kmm::driver::StreamHandle stream_;
};

}  // namespace rmm_test
