// When work on a device began and ended, by the device's own clock, told in the host's.
//
// Owns: timed events of one device, and a stream on which a base is recorded: an event whose time is known on the host.
// Must not know: lanes, tasks. One thread. Costs two events for each piece of work, and for times at most once a second
// a wait for a new base: some ten microseconds, or until the device gets round to it. Nothing until the first work is
// timed.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/driver.hpp"

namespace kmm::engine {

/// A piece of work that is being timed; null events: it is not.
struct TimedWork {
    driver::EventHandle begin;
    driver::EventHandle end;
    std::int64_t begun_ns = 0;   ///< when `begin` was on the stream
    std::int64_t waited_ns = 0;  ///< how long the device may have waited for the host in between; -1: not known
};

struct DeviceTimes {
    std::int64_t begin_ns = 0;  ///< of trace::clock_ns; 0: not known
    std::int64_t end_ns = 0;
};

class DeviceClock {
  public:
    DeviceClock(driver::Driver& driver, int ordinal) noexcept : driver_(driver), ordinal_(ordinal) {}
    ~DeviceClock();
    DeviceClock(const DeviceClock&) = delete;
    DeviceClock& operator=(const DeviceClock&) = delete;

    /// What is put on the stream between the two calls is timed. What the driver refuses is not timed.
    /// `with_times`: `read` is going to be asked for; otherwise only `duration_ns`, which needs no base.
    TimedWork begin(driver::StreamHandle stream, bool with_times) noexcept;
    /// The work that is measured for `duration_ns` has just been put on the stream.
    void put(TimedWork& work) noexcept;
    void end(TimedWork& work, driver::StreamHandle stream) noexcept;
    /// Of work that is done. Its events are used again.
    DeviceTimes read(const TimedWork& work) noexcept;
    /// Likewise, without what the device waited for the host; -1: not known.
    std::int64_t duration_ns(const TimedWork& work) noexcept;
    /// The work never came to the stream, or is not known to be done.
    void drop(const TimedWork& work) noexcept;

  private:
    driver::EventHandle take() noexcept;
    void give(driver::EventHandle event) noexcept;
    bool set_base() noexcept;

    driver::Driver& driver_;
    int ordinal_;
    driver::StreamHandle base_stream_;
    driver::EventHandle base_;
    std::int64_t base_ns_ = 0;  ///< 0: there is none
    std::vector<driver::EventHandle> free_;
};

}  // namespace kmm::engine
