#include "kmm/engine/device_thread.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "kmm/engine/debug_pattern.hpp"
#include "kmm/engine/named_range.hpp"
#include "kmm/graph/task.hpp"

namespace kmm::engine {

namespace {

// Recording an event for each tiny kernel would cost a twentieth of its launch; sixteen of them take 50 us.
constexpr Position events_every = 16;
// How many instructions are fed between two looks at what has completed.
constexpr std::size_t feed_between_polls = 8;
// Polling interval while work is pending: a failed device makes no callbacks (CUDA drops those of a broken context).
constexpr std::chrono::milliseconds look_again{20};
// A copy that the driver refuses is tried again this often: what it carries may be the only copy of a chunk.
constexpr int copy_attempts = 3;
// Bounds of a burst: small copies in a row on one lane that become one driver call with one event. A call and an event
// for each would take longer than the copies. A wait for one copy of a burst takes some tens of microseconds more.
constexpr std::size_t fewest_in_burst = 8;
constexpr std::size_t most_in_burst = 256;
constexpr std::size_t most_bytes_of_one = std::size_t{64} << 10;
constexpr std::size_t most_bytes_in_burst = std::size_t{1} << 20;
// Dynamic shared memory that every kernel may use without being prepared for it (CUDA's rule).
constexpr std::uint32_t default_shared_bytes = 48 * 1024;

Link link_of(const Instruction& copy) noexcept { return memory::Tiers::link(copy.from, copy.to); }

}  // namespace

DeviceThread::DeviceThread(std::uint32_t device, std::uint32_t num_launcher_lanes, Lanes& lanes, FailedTasks& failed,
                           const void* runtime, Mailbox& mailbox, ErrorMaker& errors, const trace::Emitter& emitter,
                           bool device_times, bool nvtx, bool leaves_turns)
    : device_(device),
      lanes_(lanes),
      driver_(lanes.driver()),
      failed_(failed),
      runtime_(runtime),
      mailbox_(mailbox),
      errors_(errors),
      emitter_(emitter),
      device_times_(device_times),
      nvtx_(nvtx),
      leaves_turns_(leaves_turns),
      asks_about_kernels_(driver_.capabilities().asynchronous_kernel_errors),
      batches_copies_(driver_.capabilities().batch_copies && !device_times && !nvtx),
      clock_(driver_, lanes.ordinal(device)),
      states_(lanes.size() / lanes.num_devices()),
      num_own_lanes_(states_.size() - num_launcher_lanes),
      first_lane_(static_cast<LaneId>(device * (lanes.size() / lanes.num_devices()))),
      scratch_(lanes) {
    lanes_.set_feeder(device_, this);
    thread_ = std::thread([this] { run(); });
}

DeviceThread::~DeviceThread() {
    stop_.store(true);
    sleeper_.wake();
    thread_.join();
    lanes_.set_feeder(device_, nullptr);
    for (const Lane& l : states_) {
        if (l.watch_stream.native == nullptr) continue;
        (void)driver_.synchronize_stream(l.watch_stream);  // its callbacks name this object
        (void)driver_.destroy_stream(l.watch_stream);
    }
    for (const EventHandle e : events_) lanes_.keep_event(e);
}

void DeviceThread::push(schedule::InstructionList& instructions) {
    {
        const locks::Guard guard(queue_lock_);
        queue_.take(instructions);
        queue_filled_.store(true, std::memory_order_seq_cst);
    }
    sleeper_.wake();
}

void DeviceThread::stop_feeding() noexcept {
    stops_feeding_.store(true);
    sleeper_.wake();
}

bool DeviceThread::take() noexcept {
    if (!queue_filled_.load(std::memory_order_seq_cst)) return false;
    const locks::Guard guard(queue_lock_);
    batch_.swap(queue_);
    queue_filled_.store(false, std::memory_order_seq_cst);
    return !batch_.empty();
}

void DeviceThread::run() {
    const RuntimeThread mark(runtime_);
    (void)driver_.set_current_device(lanes_.ordinal(device_));
    // Before there is work that the load of a kernel would wait for, and that may wait for what this thread feeds.
    (void)driver_.prepare_boxes(lanes_.ordinal(device_));
    while (!stops_feeding_.load()) {
        try {
            if (!step()) return;
        } catch (const std::bad_alloc&) {
            // The reserve of host memory is used up as well.
            stops_feeding_.store(true);
            mailbox_.lost();
        }
    }
    end_without_feeding();
}

/// Needs no host memory. Until the thread is ended.
void DeviceThread::end_without_feeding() noexcept {
    failed_.add_all();
    burst_.clear();
    batch_.clear();
    for (Lane& l : states_) {
        for (const Pending& p : l.pending) lanes_.keep_event(p.event);
        l.pending.clear();
        for (; !l.timed.empty(); l.timed.pop_front()) clock_.drop(l.timed.front().work);
        if (l.copying != nullptr) std::exchange(l.copying, nullptr)->end();
        l.held.clear();
    }
    // So that no launcher waits for what never comes; the device itself waits only for what was put on its lanes.
    for (std::size_t slot = 0; slot < num_own_lanes_; ++slot) lanes_.enqueued(lane_at(slot), Lanes::end_of_lane);
    for (std::size_t slot = 0; slot < states_.size(); ++slot) {
        const Position end = lanes_.enqueued(lane_at(slot));
        Status status;
        if (const StreamHandle stream = lanes_.stream(lane_at(slot), &status); status.ok())
            (void)driver_.synchronize_stream(stream);
        lanes_.completed(lane_at(slot), end);
    }
    has_stopped_.store(true);
    has_stopped_.notify_all();
    sleeper_.wait([this] { return stop_.load(); });
}

/// False: everything is done, and the thread should stop.
bool DeviceThread::step() {
    const bool stopping = stop_.load();
    if (take()) {
        std::size_t fed = 0;
        batch_.for_each([&](const Instruction& i) {
            feed_or_hold(i);
            if (++fed % feed_between_polls == 0 && poll()) see_to_turn(true);
        });
        feed_burst();
        batch_.clear();
    }
    if (num_holding_ != 0 || came_further_.load(std::memory_order_relaxed)) feed_held();
    if (!touched_.empty() && !queue_filled_.load(std::memory_order_seq_cst)) record_touched();
    if (poll()) see_to_turn(has_news());
    if (has_news()) return true;
    const bool pending = anything_pending();
    if (stopping && !pending) return false;
    signalled_.store(false, std::memory_order_seq_cst);
    if (!pending) {
        sleeper_.wait([this] { return has_news() || stop_.load(); });
        return true;
    }
    // Looks for completions itself for a while (fast answers to short kernels), then lets the device call.
    const auto until = std::chrono::steady_clock::now() + spin_time;
    bool busy = false;
    do {
        if (poll()) {
            mailbox_.help();
            busy = true;
        }
        if (has_news()) busy = true;
        if (!busy && !many_cores()) std::this_thread::yield();
    } while (!busy && std::chrono::steady_clock::now() < until);
    if (busy) return true;
    arm_watches();
    sleeper_.wait([this] { return signalled_.load(std::memory_order_seq_cst) || has_news(); }, look_again);
    return true;
}

/// What waits for work that another thread has not put on its lane yet is held, and all that follows it on its own
/// lane; the other lanes go on. It comes in the end: work is handed out in an order that agrees with the dependencies.
void DeviceThread::feed_or_hold(const Instruction& i) {
    bool joins = joins_burst(i);
    if (!joins && !burst_.empty()) {
        feed_burst();
        joins = joins_burst(i);
    }
    if (joins) {
        burst_.push_back(&i);
        burst_bytes_ += i.bytes;
        return;
    }
    Lane& l = state(i.lane);
    if (l.held.empty() && lanes_.are_enqueued(i.waits, device_)) return feed(i);
    if (l.held.empty()) ++num_holding_;
    l.held.push(i);
}

/// Whether the copy may begin a burst, or join the one that was begun. To join, its dependencies must be a subset of
/// the first copy's: copies of a burst are unordered, and a further wait would delay those before it.
bool DeviceThread::joins_burst(const Instruction& i) noexcept {
    if (!batches_copies_ || !i.is_whole_chunk() || i.bytes > most_bytes_of_one) return false;
    if (link_of(i) == Link::device_to_device || !state(i.lane).held.empty()) return false;
    if (burst_.empty()) return lanes_.are_enqueued(i.waits, device_);
    const Instruction& first = *burst_.front();
    return first.lane == i.lane && burst_.size() < most_in_burst && burst_bytes_ + i.bytes <= most_bytes_in_burst &&
           i.after_on_lane < first.position && lanes_.comes_after(i.lane, i.waits);
}

void DeviceThread::feed_burst() {
    if (burst_.empty()) return;
    // What the driver refuses it may take one by one; which copy failed is told then.
    if (burst_.size() < fewest_in_burst || !copy_at_once())
        for (const Instruction* const i : burst_) feed(*i);
    burst_.clear();
    burst_bytes_ = 0;
}

bool DeviceThread::copy_at_once() {
    const Instruction& last = *burst_.back();
    Lane& l = state(last.lane);
    Status status;
    const StreamHandle stream = lanes_.stream(last.lane, &status);
    if (status.ok()) status = lanes_.come_after(last.lane, burst_.front()->waits, scratch_, &own_events_);
    pieces_.clear();
    for (const Instruction* const i : burst_) {
        if (i->extends_previous && !pieces_.empty())
            pieces_.back().size_bytes += i->bytes;
        else
            pieces_.push_back(
                {reinterpret_cast<void*>(i->destination), reinterpret_cast<const void*>(i->source), i->bytes});
    }
    if (status.ok()) {
        l.copying = &links_[static_cast<std::size_t>(link_of(last))];
        l.copying->begin();
        status = driver_.copy_batch(pieces_.data(), pieces_.size(), stream);
    }
    if (!status.ok()) return false;
    fed(last, l);
    if (trace::Sink* const s = emitter_.sink()) [[unlikely]]
        for (const Instruction* const i : burst_)
            s->note({.what = trace::What::fed, .lane = i->lane, .position = i->position});
    return true;
}

void DeviceThread::feed_held() {
    came_further_.store(false, std::memory_order_seq_cst);
    std::size_t fed = 0;
    for (bool any = true; any && num_holding_ != 0;) {  // what one lane held may be what another one waits for
        any = false;
        for (Lane& l : states_) {
            if (l.held.empty()) continue;
            l.held.consume([&](const Instruction& i) {
                if (!lanes_.are_enqueued(i.waits, device_)) return false;
                feed(i);
                if (++fed % feed_between_polls == 0 && poll()) see_to_turn(true);
                any = true;
                return true;
            });
            if (l.held.empty()) --num_holding_;
        }
    }
}

void DeviceThread::feed(const Instruction& i) {
    Lane& l = state(i.lane);
    const bool is_here = i.op != Instruction::Op::watch;  // else a launcher has put it there
    if (is_here)
        if (const Status status = put_on_stream(i, l); !status.ok()) report_failure(i, status);
    fed(i, l);
    if (!is_here) return;
    if (trace::Sink* const s = emitter_.sink()) [[unlikely]]
        s->note({.what = trace::What::fed, .lane = i.lane, .position = i.position});
}

/// All up to this instruction is on the lane's stream.
void DeviceThread::fed(const Instruction& i, Lane& l) {
    l.fed = i.position;
    if (!l.touched) {
        l.touched = true;
        touched_.push_back(i.lane);
    }
    // Before others hear that the work is there: they find the mark.
    if (i.mark || i.op != Instruction::Op::kernel || i.position - l.recorded >= events_every) record(i.lane);
    if (i.op != Instruction::Op::watch) lanes_.enqueued(i.lane, i.position);
}

/// Behind what it comes after.
Status DeviceThread::put_on_stream(const Instruction& i, Lane& l) {
    Status status;
    const StreamHandle stream = lanes_.stream(i.lane, &status);
    if (status.ok()) status = lanes_.come_after(i.lane, i.waits, scratch_, &own_events_);
    if (!status.ok()) return status;
    const bool is_kernel = i.op == Instruction::Op::kernel;
    // What fills a chunk is not left out for the sake of one task: others may use the chunk.
    if (i.chunk == nullptr) {
        if (!may_run(i)) return {};
        status = is_kernel ? prepare(i, stream) : fill_unset(i.fills, driver_, stream);
        if (!status.ok()) return status;
    }
    const bool for_trace = device_times_ && emitter_.sink() != nullptr;
    const bool timed = for_trace || i.measure;
    TimedWork work;
    if (timed) work = clock_.begin(stream, for_trace);
    status = is_kernel ? launch(i, stream, l) : feed_copy(i, stream, l);
    if (timed) {
        if (i.measure) clock_.put(work);
        clock_.end(work, stream);
        l.timed.push_back({i.position, work, for_trace, i.measure && status.ok(), i.kernel_times});
    }
    return status;
}

Status DeviceThread::feed_copy(const Instruction& i, StreamHandle stream, Lane& l) {
    // A copy lane serves one link, so that one begin and one end cover all that is on it at a time.
    l.copying = &links_[static_cast<std::size_t>(link_of(i))];
    l.copying->begin();
    if (!i.is_whole_chunk()) {
        const NamedRange range = i.info == nullptr ? NamedRange(nvtx_, *i.chunk) : NamedRange(nvtx_, i.info);
        // What it reads may turn out to have failed: then what follows must know it when it begins.
        if (asks_about_kernels_ && !i.needed_tasks.empty()) {
            l.tickets.push_back({i.position, {&failed_, i.task, {i.needed_tasks.begin(), i.needed_tasks.end()}, {}}});
            const Status status =
                driver_.host_callback(stream, &KernelTicket::pass_on_failure, &l.tickets.back().second);
            if (!status.ok()) return status;
        }
        Status status;
        // What fills a chunk may be needed by others than its task.
        for (int attempt = 0; attempt < (i.chunk != nullptr ? copy_attempts : 1); ++attempt) {
            status = driver_.move_boxes(i.boxes.data(), i.boxes.size(), stream);
            if (status.ok()) break;
        }
        return status;
    }
    auto* const to = reinterpret_cast<void*>(i.destination);
    const auto* const from = reinterpret_cast<const void*>(i.source);
    const NamedRange range(nvtx_, *i.chunk);
    Status status;
    for (int attempt = 0; attempt < copy_attempts; ++attempt) {
        if (link_of(i) == Link::device_to_device)
            status = driver_.copy_peer(to, lanes_.ordinal(i.to.device()), from, lanes_.ordinal(i.from.device()),
                                       i.bytes, stream);
        else
            status = driver_.copy(to, from, i.bytes, stream);
        if (status.ok()) break;
    }
    return status;
}

void DeviceThread::report_failure(const Instruction& i, Status status) {
    Message m;
    m.error = errors_.device_error(device_, status,
                                   i.op == Instruction::Op::kernel ? "launching the kernel"
                                   : i.is_whole_chunk()            ? "copying a chunk"
                                                                   : "moving parts of chunks");
    if (i.task != 0) {
        failed_.add(i.task);
        m.what = Message::What::task_failed;
        m.task_number = i.task;
        mailbox_.post(Message(m));
    }
    if (i.chunk == nullptr) return;
    m.what = Message::What::copy_failed;
    m.lane = i.lane;
    m.position = i.position;
    mailbox_.post(std::move(m));
}

/// Of what has been seen to be done.
void DeviceThread::tell_times(LaneId id, Lane& lane, Position done) {
    for (; !lane.timed.empty() && lane.timed.front().position <= done; lane.timed.pop_front()) {
        const Timed& timed = lane.timed.front();
        DeviceTimes times;
        std::int64_t duration_ns = -1;
        if (timed.for_trace) {
            times = clock_.read(timed.work);
            if (times.begin_ns != 0 && timed.work.waited_ns >= 0)
                duration_ns = std::max<std::int64_t>(0, times.end_ns - times.begin_ns - timed.work.waited_ns);
        } else {
            duration_ns = clock_.duration_ns(timed.work);
        }
        if (trace::Sink* const s = emitter_.sink(); s != nullptr && times.begin_ns != 0)
            s->note({.what = trace::What::ran,
                     .lane = id,
                     .position = timed.position,
                     .begin_ns = times.begin_ns,
                     .end_ns = times.end_ns});
        if (!timed.is_measured || duration_ns < 0) continue;
        Message m;
        m.what = Message::What::measured;
        m.kernel_times = timed.kernel_times;
        m.duration_ns = duration_ns;
        mailbox_.post(std::move(m));
    }
}

/// Kernels that threw are told before the lane advances past them.
void DeviceThread::end_tickets(Lane& lane, Position done) {
    for (; !lane.tickets.empty() && lane.tickets.front().first <= done; lane.tickets.pop_front()) {
        KernelTicket& ticket = lane.tickets.front().second;
        if (ticket.failure.error == nullptr) continue;
        Message m;
        m.what = Message::What::kernel_threw;
        m.task_number = ticket.task;
        m.error = std::exchange(ticket.failure.error, nullptr);
        mailbox_.post(std::move(m));
    }
}

/// False: what the kernel needs is not there, or it is one of an empty chunk.
bool DeviceThread::may_run(const Instruction& i) {
    const bool skip = failed_.concern(i.task, i.needed_tasks);
    if (skip) failed_.add(i.task);
    return !skip && (i.function != nullptr || i.op == Instruction::Op::transfer);
}

/// The first launch of a kernel loads it, which waits for the device; and above the default limit of shared memory it
/// must be told that it may use that much. Both are asked for once, before the launch.
Status DeviceThread::prepare(const Instruction& i, StreamHandle stream) {
    if (const Status status = fill_unset(i.fills, driver_, stream); !status.ok()) return status;
    const PreparedKernel wanted{i.function, i.shared_bytes > default_shared_bytes ? i.shared_bytes : 0};
    if (wanted.function == last_prepared_.function && wanted.shared_bytes <= last_prepared_.shared_bytes) return {};
    std::uint32_t& prepared = prepared_[wanted.function];  // one more than the bytes; 0: not loaded
    if (prepared <= wanted.shared_bytes) {
        const Status status = driver_.prepare_kernel(wanted.function, wanted.shared_bytes);
        if (!status.ok()) return status;
        prepared = wanted.shared_bytes + 1;
    }
    last_prepared_ = {wanted.function, prepared - 1};
    return {};
}

Status DeviceThread::launch(const Instruction& i, StreamHandle stream, Lane& l) {
    driver::KernelLaunch launch;
    launch.function = i.function;
    launch.grid = {i.grid[0], i.grid[1], i.grid[2]};
    launch.block = {i.block[0], i.block[1], i.block[2]};
    launch.shared_bytes = i.shared_bytes;
    launch.parameters = i.parameters.data();
    launch.parameter_bytes = i.parameters.size();
    if (asks_about_kernels_) {
        l.tickets.push_back({i.position, {&failed_, i.task, {i.needed_tasks.begin(), i.needed_tasks.end()}, {}}});
        launch.hooks = l.tickets.back().second.hooks();
    }
    const NamedRange range(nvtx_, i.info);
    return driver_.launch(launch, stream);
}

EventHandle DeviceThread::take_event(Status* status) {
    EventHandle e;
    if (!events_.empty()) {
        e = events_.back();
        events_.pop_back();
        return e;
    }
    *status = driver_.create_event(lanes_.ordinal(device_), false, false, &e);
    return e;
}

void DeviceThread::record(LaneId lane) {
    Lane& l = state(lane);
    if (l.recorded == l.fed) return;
    l.pending.push_back({{}, l.fed});  // first: where the host has no memory, no event has been taken
    l.recorded = l.fed;
    Status status;
    const StreamHandle stream = lanes_.stream(lane, &status);
    EventHandle event;
    if (status.ok()) event = take_event(&status);
    if (status.ok()) status = driver_.record_event(event, stream);
    if (status.ok()) {
        l.pending.back().event = event;
        return lanes_.marked(lane, l.fed, event);
    }
    // Without an event we cannot know when; with everything waited for we do.
    if (event.native != nullptr) events_.push_back(event);
    const Status waited = stream.native != nullptr ? driver_.synchronize_stream(stream) : Status{};
    if (!waited.ok() && waited.code != driver::Code::launch_failed) lane_lost(lane, waited);
}

Lanes::Recorded DeviceThread::OwnEvents::at(graph::Fence fence) {
    const std::size_t slot = graph::index_of(fence.lane) - graph::index_of(thread_.first_lane_);
    if (slot >= thread_.states_.size()) return {};
    const Lane& lane = thread_.states_[slot];
    // The schedule did not mark this position: an event at the lane's current end, which later waits can use too.
    if (lane.recorded < fence.position && fence.position <= lane.fed) thread_.record(fence.lane);
    const graph::Deque<Pending>& pending = lane.pending;
    const auto found = std::lower_bound(pending.begin(), pending.end(), fence.position,
                                        [](const Pending& p, Position position) { return p.position < position; });
    if (found == pending.end()) return {};
    return {found->event, found->position};
}

void DeviceThread::record_touched() {
    for (const LaneId lane : touched_) {
        record(lane);
        state(lane).touched = false;
    }
    touched_.clear();
}

bool DeviceThread::poll() {
    bool progress = false;
    for (std::size_t slot = 0; slot < states_.size(); ++slot) {
        Lane& l = states_[slot];
        Position done = 0;
        const LaneId lane = lane_at(slot);
        while (!l.pending.empty()) {
            const Pending& head = l.pending.front();
            if (head.event.native != nullptr) {
                const Status status = driver_.query_event(head.event);
                if (status.code == driver::Code::not_ready) break;
                if (!status.ok() && status.code != driver::Code::launch_failed) {
                    lane_lost(lane, status);
                    progress = true;
                    done = 0;
                    break;
                }
                events_.push_back(head.event);
            }
            done = head.position;
            l.pending.pop_front();
        }
        if (done == 0) continue;
        progress = true;
        if (l.copying != nullptr && done == l.fed) std::exchange(l.copying, nullptr)->end();
        lanes_.completed(lane, done);
        if (!l.tickets.empty()) end_tickets(l, done);
        if (!l.timed.empty()) [[unlikely]]
            tell_times(lane, l, done);
        Message m;
        m.what = Message::What::advance;
        m.lane = lane;
        m.position = done;
        mailbox_.post(std::move(m));
    }
    return progress;
}

// The device reports an error that stays: nothing that was put on the lane can be trusted. Its tasks fail with it.
void DeviceThread::lane_lost(LaneId lane, Status status) {
    Lane& l = state(lane);
    for (; !l.pending.empty(); l.pending.pop_front())
        if (const EventHandle e = l.pending.front().event; e.native != nullptr) events_.push_back(e);
    l.recorded = l.fed;
    if (l.copying != nullptr) std::exchange(l.copying, nullptr)->end();
    for (; !l.timed.empty(); l.timed.pop_front()) clock_.drop(l.timed.front().work);
    lanes_.completed(lane, l.fed);
    Message m;
    m.what = Message::What::advance;
    m.lane = lane;
    m.position = l.fed;
    m.error = errors_.device_error(device_, status, "waiting for work of the device");
    mailbox_.post(std::move(m));
}

bool DeviceThread::anything_pending() const noexcept {
    if (num_holding_ != 0) return true;
    for (const Lane& l : states_)
        if (!l.pending.empty()) return true;
    return false;
}

void DeviceThread::watch_fired(void* self) {
    auto* thread = static_cast<DeviceThread*>(self);
    thread->signalled_.store(true, std::memory_order_seq_cst);
    thread->sleeper_.wake();
}

// A stream of its own waits for the oldest event of each lane and calls back: the thread sleeps until the first of
// them.
void DeviceThread::arm_watches() {
    bool armed = true;
    for (std::size_t slot = 0; slot < states_.size(); ++slot) {
        Lane& l = states_[slot];
        if (l.pending.empty() || l.watched >= l.pending.front().position || l.pending.front().event.native == nullptr)
            continue;
        Status status;
        if (l.watch_stream.native == nullptr)
            status = driver_.create_stream(lanes_.ordinal(device_), true, 0, &l.watch_stream);
        if (status.ok()) status = driver_.wait_event(l.watch_stream, l.pending.front().event);
        if (status.ok()) status = driver_.host_callback(l.watch_stream, &DeviceThread::watch_fired, this);
        if (status.ok())
            l.watched = l.pending.front().position;
        else
            armed = false;
    }
    // Without a callback the thread must look by itself: it waits for the device in a call that ends.
    if (!armed) {
        for (Lane& l : states_) {
            if (l.pending.empty()) continue;
            (void)driver_.synchronize_event(l.pending.front().event);
            break;
        }
        signalled_.store(true, std::memory_order_seq_cst);
    }
}

}  // namespace kmm::engine
