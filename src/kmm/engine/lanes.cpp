#include "kmm/engine/lanes.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace kmm::engine {

Lanes::Lanes(Driver& driver, std::vector<int> ordinals, std::uint32_t lanes_per_device)
    : driver_(driver),
      ordinals_(std::move(ordinals)),
      lanes_per_device_(lanes_per_device),
      lanes_(ordinals_.size() * lanes_per_device),
      feeders_(ordinals_.size()) {
    for (Lane& l : lanes_) {
        l.known = std::make_unique<std::atomic<Position>[]>(lanes_.size());
        l.awaited = std::make_unique<std::atomic<Position>[]>(ordinals_.size());
    }
}

Lanes::~Lanes() {
    const locks::Guard guard(kept_lock_);
    for (const EventHandle e : kept_events_) (void)driver_.destroy_event(e);
    for (Lane& l : lanes_)
        if (const StreamHandle s = l.stream.load(); s.native != nullptr) (void)driver_.destroy_stream(s);
}

StreamHandle Lanes::stream(LaneId lane, Status* status) noexcept {
    Lane& l = lanes_[index(lane)];
    StreamHandle s = l.stream.load(std::memory_order_acquire);
    if (s.native == nullptr) {
        const int priority = l.is_urgent ? driver::most_urgent : 0;
        *status = driver_.create_stream(ordinal(device(lane)), true, priority, &s);
        if (!status->ok()) return {};
        // Several threads may make it at the same time: the first one counts.
        StreamHandle other{};
        if (!l.stream.compare_exchange_strong(other, s, std::memory_order_acq_rel)) {
            (void)driver_.destroy_stream(s);
            s = other;
        }
    }
    *status = {};
    return s;
}

void Lanes::make_streams(std::uint32_t device) noexcept {
    for (std::uint32_t i = 0; i < lanes_per_device_; ++i) {
        Status status;
        (void)stream(static_cast<LaneId>(device * lanes_per_device_ + i), &status);
        if (!status.ok()) return (void)driver_.take_last_error();
    }
}

driver::KernelHooks KernelTicket::hooks() noexcept {
    driver::KernelHooks hooks;
    hooks.failure = &failure;
    hooks.user = this;
    hooks.skip = [](void* user) { return static_cast<const KernelTicket*>(user)->must_skip(); };
    hooks.failed = [](void* user) {
        const auto& ticket = *static_cast<const KernelTicket*>(user);
        ticket.failed_tasks->add(ticket.task);
    };
    return hooks;
}

bool KernelTicket::must_skip() const noexcept {
    const bool skip = failed_tasks->concern(task, needed);
    if (skip) failed_tasks->add(task);
    return skip;
}

void KernelTicket::pass_on_failure(void* ticket) noexcept {
    (void)static_cast<const KernelTicket*>(ticket)->must_skip();
}

Lanes::Scratch::~Scratch() {
    for (const EventHandle e : events_)
        if (e.native != nullptr) (void)lanes_.driver_.destroy_event(e);
}

void Lanes::set_feeder(std::uint32_t device, Feeder* feeder) noexcept {
    const locks::Guard guard(feeders_[device].lock);
    feeders_[device].feeder = feeder;
}

void Lanes::keep_event(EventHandle event) noexcept {
    if (event.native == nullptr) return;
    if (ordinals_.size() == 1) return (void)driver_.destroy_event(event);
    const locks::Guard guard(kept_lock_);
    try {
        kept_events_.push_back(event);
    } catch (const std::bad_alloc&) {
        return;  // the driver keeps it
    }
}

Lanes::Recorded Lanes::Marks::find(Position position) const noexcept {
    Recorded best;
    for (const Mark& m : marks_) {
        const Position p = m.position.load(std::memory_order_acquire);
        if (p < position || (best.position != 0 && p >= best.position)) continue;
        best = {m.event.load(std::memory_order_acquire), p};
    }
    return best;
}

bool Lanes::are_enqueued(std::span<const graph::Fence> fences, std::uint32_t device) noexcept {
    for (const graph::Fence& f : fences) {
        Lane& l = lanes_[index(f.lane)];
        if (l.enqueued.load(std::memory_order_acquire) >= f.position) continue;
        // Either the other thread sees the mark behind its store, or this one sees what it stored.
        await(l, f.position, device);
        if (l.enqueued.load(std::memory_order_seq_cst) < f.position) return false;
    }
    return true;
}

void Lanes::await(Lane& lane, Position position, std::uint32_t device) noexcept {
    const std::uint64_t mark = std::uint64_t{1} << device;
    const bool waits = (lane.awaited_by.load(std::memory_order_relaxed) & mark) != 0;
    std::atomic<Position>& awaited = lane.awaited[device];
    if (!waits || awaited.load(std::memory_order_relaxed) > position)
        awaited.store(position, std::memory_order_seq_cst);
    lane.awaited_by.fetch_or(mark, std::memory_order_seq_cst);
}

/// A mark that is taken away is always told of, so that a feeder which has set it again meanwhile looks again as well.
void Lanes::tell_feeders(Lane& lane, Position position) noexcept {
    std::uint64_t devices = lane.awaited_by.load(std::memory_order_seq_cst);
    for (; devices != 0; devices &= devices - 1) {
        const auto device = static_cast<std::size_t>(std::countr_zero(devices));
        if (lane.awaited[device].load(std::memory_order_seq_cst) > position) continue;
        lane.awaited_by.fetch_and(~(std::uint64_t{1} << device), std::memory_order_seq_cst);
        FeederOfDevice& of = feeders_[device];
        const locks::Guard guard(of.lock);
        if (of.feeder != nullptr) of.feeder->lanes_came_further();
    }
}

Position Lanes::wait_until_enqueued(Lane& lane, Position position) noexcept {
    Position there = lane.enqueued.load(std::memory_order_acquire);
    while (there < position) {
        lane.enqueued.wait(there, std::memory_order_acquire);
        there = lane.enqueued.load(std::memory_order_acquire);
    }
    return there;
}

/// `stream` comes after what is on the lane now.
Status Lanes::wait_for_lane(StreamHandle stream, LaneId lane, Scratch& scratch) noexcept {
    const StreamHandle other = lanes_[index(lane)].stream.load(std::memory_order_acquire);
    if (other.native == nullptr) return {};  // nothing was ever put there: its work failed before it began
    const std::uint32_t d = device(lane);
    EventHandle& event = scratch.events_[d];
    if (event.native == nullptr) {
        const Status status = driver_.create_event(ordinal(d), false, false, &event);
        if (!status.ok()) return status;
    }
    const Status status = driver_.record_event(event, other);
    return status.ok() ? driver_.wait_event(stream, event) : status;
}

Status Lanes::come_after(LaneId lane, std::span<const graph::Fence> fences, Scratch& scratch,
                         RecordedEvents* recorded) {
    Lane& mine = lanes_[index(lane)];
    for (const graph::Fence& f : fences) {
        std::atomic<Position>& known = mine.known[index(f.lane)];
        if (f.lane == lane || known.load(std::memory_order_acquire) >= f.position || passed(f)) continue;
        Recorded there = recorded != nullptr ? recorded->at(f) : Recorded{};
        if (there.event.native == nullptr && ordinals_.size() != 1)
            there = lanes_[index(f.lane)].marks.find(f.position);
        const bool has_event = there.event.native != nullptr;
        const Position reached = has_event ? there.position : wait_until_enqueued(lanes_[index(f.lane)], f.position);
        Status status;
        const StreamHandle own_stream = stream(lane, &status);
        if (status.ok())
            status =
                has_event ? driver_.wait_event(own_stream, there.event) : wait_for_lane(own_stream, f.lane, scratch);
        if (!status.ok()) return status;
        // After the wait is on the stream: another feeder that reads this enqueues behind it. One that stores less than
        // is known makes a later wait superfluous, never one missing.
        known.store(reached, std::memory_order_release);
    }
    return {};
}

bool Lanes::comes_after(LaneId lane, std::span<const graph::Fence> fences) const noexcept {
    const Lane& mine = lanes_[index(lane)];
    return std::all_of(fences.begin(), fences.end(), [&](const graph::Fence& f) {
        return f.lane == lane || mine.known[index(f.lane)].load(std::memory_order_acquire) >= f.position || passed(f);
    });
}

Status Lanes::order_after(StreamHandle stream, const FenceSet& fences, Scratch& scratch) noexcept {
    for (const graph::Fence& f : fences) {
        if (passed(f)) continue;
        (void)wait_until_enqueued(lanes_[index(f.lane)], f.position);
        const Status status = wait_for_lane(stream, f.lane, scratch);
        if (!status.ok()) return status;
    }
    return {};
}

void Lanes::synchronize() noexcept {
    for (Lane& l : lanes_)
        if (const StreamHandle s = l.stream.load(std::memory_order_acquire); s.native != nullptr)
            (void)driver_.synchronize_stream(s);
}

void Lanes::wait_on_host(const FenceSet& fences) noexcept {
    for (const graph::Fence& f : fences) {
        const std::atomic<Position>& completed = lanes_[index(f.lane)].completed;
        for (Position now = completed.load(std::memory_order_acquire); now < f.position;
             now = completed.load(std::memory_order_acquire))
            completed.wait(now, std::memory_order_acquire);
    }
}

}  // namespace kmm::engine
