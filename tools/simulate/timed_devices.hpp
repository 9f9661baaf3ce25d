// Devices with a virtual clock: how long work takes, by the rates of links and the times of kernels.
//
// Owns: the clock, what is on its way. A lane does its work in order, each when what it waits for is done and the
// device's thread has handed it over. Copies in one direction share the link's rate, both directions of a device
// together have a rate of their own, and kernels that run at the same time share the device. That work is over is seen
// a little later. Must not know: the schedule. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "kmm/trace/events.hpp"
#include "simulate/devices.hpp"

namespace kmm::simulate {

/// Defaults are what was measured on an H200 (docs/simulate.md).
struct Rates {
    // Bytes in a nanosecond are gigabytes in a second.
    double up = 55, down = 55, both = 94, peer = 375;
    double within_device = 1700;       ///< read and written again
    double host = 10;                  ///< one thread moves boxes
    std::int64_t copy_ns = 8'000;      ///< of each copy, before its bytes
    std::int64_t launch_ns = 3'000;    ///< the device's thread hands one instruction over
    std::int64_t seen_ns = 5'000;      ///< from the end of work to the schedule
    std::int64_t kernel_ns = 100'000;  ///< where the program does not say
    std::int64_t function_ns = 20'000;
    std::int64_t grow_ns = 200'000;   ///< asking the driver for memory of a device
    double pin_ns_per_byte = 0.0002;  ///< of the host: 0.2 s a GiB
    std::uint32_t host_threads = 4;
};

class TimedDevices final : public Devices {
  public:
    /// `kernel_ns(task)`: how long the kernel, or what a device function launched, takes alone; 0: `Rates::kernel_ns`.
    using KernelNs = std::function<std::int64_t(graph::TaskNumber)>;
    TimedDevices(const trace::Machine& machine, const Rates& rates, KernelNs kernel_ns);

    void instruct(const schedule::Instruction& instruction) override;
    void run(graph::Task& task) override;
    void grow(memory::MemoryIndex memory, std::size_t bytes) override;
    bool next(Done& done, std::int64_t until_ns) override;
    std::int64_t now_ns() const noexcept override { return static_cast<std::int64_t>(now_); }
    /// Nanoseconds in which a kernel ran on the device.
    double busy_ns(std::uint32_t device) const noexcept { return devices_[device].busy_ns; }

  private:
    enum class Kind : std::uint8_t { compute, up, down, peer, within };
    struct Work {
        Kind kind = Kind::compute;
        graph::Position position = 0;
        graph::TaskNumber task = 0;
        double handed_over = 0;    ///< when it is on the lane
        double latency = 0;        ///< of this work, left
        double left = 0;           ///< nanoseconds alone, or bytes
        double within_device = 0;  ///< bytes, after these
        bool started = false;
        std::vector<graph::Fence> waits;
    };
    struct Lane {
        std::uint32_t device = 0;
        graph::Position done = 0;
        std::deque<Work> work;
    };
    struct Device {
        double thread_is_free = 0;
        double busy_ns = 0;
        std::uint32_t computing = 0, up = 0, down = 0;  ///< work that runs now
    };
    struct Later {
        double at;
        std::uint64_t order;
        Done done;
        friend bool operator>(const Later& a, const Later& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }
    };

    double rate(const Work& work, const Device& device) const noexcept;
    bool may_start(const Lane& lane) const noexcept;
    void start_what_can();
    double next_step() const noexcept;
    void pass(double ns);
    void finish_what_is_done();
    void see(double at, const Done& done) { later_.push({at, num_later_++, done}); }
    void run_functions();

    Rates rates_;
    KernelNs kernel_ns_;
    double now_ = 0;
    std::vector<Lane> lanes_;
    std::vector<Device> devices_;
    std::vector<graph::LaneInfo> infos_;
    std::priority_queue<Later, std::vector<Later>, std::greater<>> later_;
    std::uint64_t num_later_ = 0;
    std::deque<graph::Task*> functions_;
    std::uint32_t running_ = 0;  ///< functions
};

}  // namespace kmm::simulate
