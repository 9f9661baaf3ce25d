#include "simulate/timed_devices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace kmm::simulate {

namespace {

constexpr double at_no_time = std::numeric_limits<double>::infinity();
// Work of which less than this is left is done: what is left of a sum of doubles.
constexpr double nothing = 1e-3;

}  // namespace

TimedDevices::TimedDevices(const trace::Machine& machine, const Rates& rates, KernelNs kernel_ns)
    : rates_(rates), kernel_ns_(std::move(kernel_ns)), infos_(machine.lanes) {
    devices_.resize(machine.limits_bytes.num_devices());
    for (const graph::LaneInfo& info : infos_) lanes_.push_back({.device = info.device, .done = 0, .work = {}});
}

void TimedDevices::instruct(const schedule::Instruction& i) {
    Lane& lane = lanes_[graph::index_of(i.lane)];
    Device& device = devices_[lane.device];
    Work& work = lane.work.emplace_back();
    work.position = i.position;
    work.waits.assign(i.waits.begin(), i.waits.end());
    device.thread_is_free = std::max(device.thread_is_free, now_) + static_cast<double>(rates_.launch_ns);
    work.handed_over = device.thread_is_free;
    switch (i.op) {
    case schedule::Instruction::Op::kernel: work.task = i.task; [[fallthrough]];
    case schedule::Instruction::Op::watch: {
        const std::int64_t own_ns = kernel_ns_ ? kernel_ns_(i.task) : 0;
        work.left = static_cast<double>(own_ns != 0 ? own_ns : rates_.kernel_ns);
        return;
    }
    case schedule::Instruction::Op::transfer: break;
    }
    work.latency = static_cast<double>(rates_.copy_ns);
    double over_link = static_cast<double>(i.from == i.to ? 0 : i.bytes);
    if (!i.is_whole_chunk()) {
        over_link = 0;
        for (const schedule::BoxMove& box : i.boxes) {
            double bytes = static_cast<double>(box.run_bytes);
            for (std::uint32_t k = 0; k < box.num_axes; ++k) bytes *= static_cast<double>(box.counts[k]);
            const auto source = index_of_memory(reinterpret_cast<std::uintptr_t>(box.source));
            if (source != i.to.index()) over_link += bytes;
        }
    }
    work.within_device = static_cast<double>(i.bytes) - over_link;
    work.left = over_link;
    work.kind = i.from == i.to ? Kind::within : i.from.is_host() ? Kind::up : i.to.is_host() ? Kind::down : Kind::peer;
}

void TimedDevices::run(graph::Task& task) {
    functions_.push_back(&task);
    run_functions();
}

void TimedDevices::run_functions() {
    for (; !functions_.empty() && running_ < rates_.host_threads; functions_.pop_front(), ++running_)
        see(now_ + static_cast<double>(rates_.function_ns),
            {.what = Done::What::function, .function = functions_.front()});
}

void TimedDevices::grow(memory::MemoryIndex memory, std::size_t bytes) {
    const double ns =
        memory.is_host() ? static_cast<double>(bytes) * rates_.pin_ns_per_byte : static_cast<double>(rates_.grow_ns);
    see(now_ + ns, {.what = Done::What::grown, .memory = memory, .bytes = bytes});
}

double TimedDevices::rate(const Work& work, const Device& device) const noexcept {
    switch (work.kind) {
    case Kind::compute: return 1.0 / device.computing;
    case Kind::up:
    case Kind::down: {
        const double alone = work.kind == Kind::up ? rates_.up : rates_.down;
        return device.up != 0 && device.down != 0 ? std::min(alone, rates_.both / 2) : alone;
    }
    case Kind::peer: return rates_.peer;
    case Kind::within: break;
    }
    return rates_.within_device;
}

bool TimedDevices::may_start(const Lane& lane) const noexcept {
    const Work& work = lane.work.front();
    return work.handed_over <= now_ + nothing &&
           std::all_of(work.waits.begin(), work.waits.end(),
                       [this](const graph::Fence& f) { return lanes_[graph::index_of(f.lane)].done >= f.position; });
}

void TimedDevices::start_what_can() {
    for (Lane& lane : lanes_) {
        if (lane.work.empty() || lane.work.front().started || !may_start(lane)) continue;
        Work& work = lane.work.front();
        work.started = true;
        Device& device = devices_[lane.device];
        if (work.kind == Kind::compute) ++device.computing;
        if (work.kind == Kind::up) ++device.up;
        if (work.kind == Kind::down) ++device.down;
    }
}

/// So long nothing changes on the lanes.
double TimedDevices::next_step() const noexcept {
    double step = at_no_time;
    for (const Lane& lane : lanes_) {
        if (lane.work.empty()) continue;
        const Work& work = lane.work.front();
        if (!work.started) {
            if (work.handed_over > now_ + nothing) step = std::min(step, work.handed_over - now_);
            continue;
        }
        const Device& device = devices_[lane.device];
        step = std::min(step, work.latency > 0 ? work.latency
                              : work.left > 0  ? work.left / rate(work, device)
                                               : work.within_device / rates_.within_device);
    }
    return step;
}

void TimedDevices::pass(double ns) {
    for (Lane& lane : lanes_) {
        if (lane.work.empty() || !lane.work.front().started) continue;
        Work& work = lane.work.front();
        if (work.latency > 0)
            work.latency -= ns;
        else if (work.left > 0)
            work.left -= ns * rate(work, devices_[lane.device]);
        else
            work.within_device -= ns * rates_.within_device;
    }
    for (Device& device : devices_)
        if (device.computing != 0) device.busy_ns += ns;
    now_ += ns;
}

void TimedDevices::finish_what_is_done() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        Lane& lane = lanes_[i];
        if (lane.work.empty() || !lane.work.front().started) continue;
        Work& work = lane.work.front();
        if (work.latency > nothing || work.left > nothing || work.within_device > nothing) continue;
        Device& device = devices_[lane.device];
        if (work.kind == Kind::compute) --device.computing;
        if (work.kind == Kind::up) --device.up;
        if (work.kind == Kind::down) --device.down;
        lane.done = work.position;
        see(now_ + static_cast<double>(rates_.seen_ns), {.what = Done::What::lane,
                                                         .lane = static_cast<graph::LaneId>(i),
                                                         .position = work.position,
                                                         .task = work.task});
        lane.work.pop_front();
    }
}

bool TimedDevices::next(Done& done, std::int64_t until_ns) {
    const double until = until_ns == never ? at_no_time : static_cast<double>(until_ns);
    for (;;) {
        start_what_can();
        const double seen = later_.empty() ? at_no_time : later_.top().at;
        const double step = next_step();
        if (now_ + step < std::min(seen, until)) {
            pass(step);
            finish_what_is_done();
            continue;
        }
        if (std::min(seen, until) != at_no_time) pass(std::max(0.0, std::min(seen, until) - now_));
        if (seen > until || seen == at_no_time) return false;
        done = later_.top().done;
        later_.pop();
        if (done.what == Done::What::function) {
            --running_;
            run_functions();
        }
        return true;
    }
}

}  // namespace kmm::simulate
