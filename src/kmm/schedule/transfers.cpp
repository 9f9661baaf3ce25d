#include "kmm/schedule/transfers.hpp"

#include <algorithm>

namespace kmm::schedule {

using graph::index_of;
using memory::Tiers;
using memory::Transfer;

Transfers::Transfers(Outbox& outbox, graph::TaskTable& table, LanePositions& lanes, memory::Residency& residency,
                     const SchedulerOptions& options, SchedulerCounters& counters)
    : outbox_(outbox),
      table_(table),
      lanes_(lanes),
      residency_(residency),
      options_(options),
      counters_(counters),
      last_copies_(lanes.size()) {}

Fence Transfers::put(const Transfer& t, const FenceSet& waits, std::span<const TaskNumber> needed_tasks,
                     std::span<const Fill> fills) {
    const std::uint32_t device = Tiers::device_of_link(t.from, t.to);
    const LaneId lane = lanes_.id(device, Tiers::lane_role(Tiers::link(t.from, t.to)));
    Instruction i;
    i.op = Instruction::Op::transfer;
    i.lane = lane;
    i.what = t.what;
    i.from = t.from;
    i.to = t.to;
    i.chunk = t.chunk;
    i.task = t.task != nullptr ? t.task->number : 0;
    // Boxes of several chunks are told by the task that they are moved for.
    const bool is_told_by_task = t.what == Transfer::What::gather || t.what == Transfer::What::task;
    if (is_told_by_task) i.info = t.task->info.get();
    i.source = t.source;
    i.destination = t.destination;
    i.bytes = t.bytes;
    i.boxes = t.boxes;
    i.needed_tasks = needed_tasks;
    i.fills = fills;
    const FenceSet& open = lanes_.waits_of(lane, waits, &i.after_on_lane);
    i.waits = open.view();
    const Fence fence = lanes_.take(lane);
    i.position = fence.position;
    if (i.is_whole_chunk()) {
        CopyEnd& last = last_copies_[index_of(lane)];
        i.extends_previous = extends(last, i);
        last = {i.position, t.from, t.to, t.source + t.bytes, t.destination + t.bytes};
    }
    std::size_t linked_bytes = 0;
    for (const std::uint64_t bytes : t.over_links.bytes) linked_bytes += bytes;
    if (t.chunk == nullptr) {
        lanes_.add(lane, {.position = i.position, .task = t.task, .bytes = linked_bytes});
    } else {
        lanes_.add(lane, {.position = i.position,
                          .chunk = t.chunk,
                          .bytes = linked_bytes,
                          .copied_at = t.chunk->copied_at,
                          .to = t.to,
                          .is_ghost = t.what == Transfer::What::ghost});
        ++num_in_flight_;
        ++t.chunk->owner->users;
    }
    count(t);
    counters_.by_device[device] += t.over_links;
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = is_told_by_task ? trace::What::move : trace::What::copy,
                 .lane = lane,
                 .chunk = is_told_by_task ? 0 : t.chunk->index,
                 .from = t.from,
                 .to = t.to,
                 .position = i.position,
                 .task = i.task,
                 .array = is_told_by_task ? 0 : t.chunk->owner->number,
                 .bytes = t.bytes},
                &open);
    outbox_.instruct(device, i);
    return fence;
}

void Transfers::count(const Transfer& t) noexcept {
    counters_.transfers += t.over_links;
    const bool lies_beside_others = t.what == Transfer::What::chunk && t.from == t.to;
    const bool fills_temporary = t.what == Transfer::What::task && t.task->uses[0].chunk->owner->is_temporary();
    if (fills_temporary && t.task->for_snapshot)
        counters_.snapshot_bytes += t.bytes;
    else if (lies_beside_others || fills_temporary || t.what == Transfer::What::gather)
        counters_.gathered_bytes += t.bytes;
}

bool Transfers::extends(const CopyEnd& last, const Instruction& copy) const noexcept {
    return last.source == copy.source && last.destination == copy.destination && last.position + 1 == copy.position &&
           last.from == copy.from && last.to == copy.to && residency_.space(copy.from).may_copy_across(copy.source) &&
           residency_.space(copy.to).may_copy_across(copy.destination);
}

bool Transfers::may_fetch(MemoryIndex m) const noexcept {
    if (!Tiers::has_lanes(m)) return true;
    // In a small memory a few chunks are a large part of it: no more than a quarter of it is on its way.
    const std::size_t quarter = std::max<std::size_t>(1, residency_.space(m).counters.limit_bytes / 4);
    std::size_t in = 0;
    for (const LaneRole role : {LaneRole::up, LaneRole::peer, LaneRole::down}) {
        const LaneId lane = lanes_.id(m.device(), role);
        const std::size_t most =
            lanes_.num_in_flight(lane) < 2 ? quarter : std::min(options_.link_bytes_in_flight, quarter);
        if (lanes_.bytes_in_flight(lane) >= most) return false;
        if (role != LaneRole::down) in += lanes_.bytes_in_flight(lane);
    }
    return in < quarter;
}

// ----------------------------------------------------------------------------------------------------------- failures

void Transfers::lane_failed(LaneId lane, Position position, const std::exception_ptr& error) {
    graph::Vector<InFlight> transfers;
    lanes_.each_in_flight(lane, position, [&](const InFlight& work) {
        if (work.task != nullptr)
            work.task->note_thrown(error);
        else
            transfers.push_back(work);
    });
    fail(transfers, error);
}

void Transfers::failed(LaneId lane, Position position, const std::exception_ptr& error) {
    graph::Vector<InFlight> transfers;
    lanes_.each_in_flight(lane, position, [&](const InFlight& work) {
        if (work.position == position && work.chunk != nullptr) transfers.push_back(work);
    });
    fail(transfers, error);
}

void Transfers::fail(std::span<InFlight> transfers, const std::exception_ptr& error) {
    if (transfers.empty()) return;
    for (const InFlight& t : transfers) {
        if (t.is_ghost) {
            residency_.part_failed(*t.chunk, t.to, t.copied_at);
            continue;
        }
        auto cause = std::allocate_shared<graph::RootFailure>(graph::ReservedAllocator<graph::RootFailure>());
        cause->cause = error;
        cause->error = error;
        cause->number = table_.last();
        cause->delivered = true;  // who needs the chunk reports it
        residency_.copy_failed(*t.chunk, t.copied_at, cause);
    }
    // Whether a placed task may have taken for content what never came.
    std::sort(transfers.begin(), transfers.end(),
              [](const InFlight& a, const InFlight& b) { return a.chunk < b.chunk; });
    const auto is_bad = [&](const graph::Use& u) {
        const auto first = std::lower_bound(transfers.begin(), transfers.end(), u.chunk,
                                            [](const InFlight& t, const memory::Chunk* c) { return t.chunk < c; });
        for (auto t = first; t != transfers.end() && t->chunk == u.chunk; ++t)
            if (t->is_ghost ? memory::may_have_taken_part(u, t->to, t->copied_at)
                            : memory::may_have_taken(u, t->copied_at))
                return true;
        return false;
    };
    table_.for_each([&](Task& t) {
        const graph::TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != graph::TaskState::issued && state != graph::TaskState::launching) return;
        for (const graph::Use& u : t.uses)
            if (is_bad(u)) t.note_thrown(error);
    });
}

}  // namespace kmm::schedule
