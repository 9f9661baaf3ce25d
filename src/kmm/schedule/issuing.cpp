// What is handed out, on which lane, behind what; and what comes back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kmm/memory/places.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::schedule {

using graph::index_of;
using graph::Predecessor;
using graph::TaskKind;
using graph::TaskState;
using memory::Placement;

void Scheduler::try_issue(Task& task) {
    if (task.has_failed()) {
        cancel(task);
        return;
    }
    Queue& q = queues_[task.memory];
    ++num_steps_;
    const std::optional<memory::Room> room = admission_.room_for(task);
    if (!room) return admission_.hold_back(task, false);
    const Placement placement = residency_.place(task, *room);
    switch (placement) {
    case Placement::granted: break;
    case Placement::lost:
        task.thrown = residency_.lost_cause()->cause;
        cancel(task);
        return;
    case Placement::starved:
        task.thrown = outbox_.no_host_memory();
        cancel(task);
        return;
    case Placement::busy_chunk:
        task.blocked = true;
        ++num_blocked_;
        return;
    case Placement::wait_growth:
    case Placement::wait_pins:
    case Placement::full:
    case Placement::lacks:
        if (*room == memory::Room::idle || *room == memory::Room::in_a_hurry) return admission_.hold_back(task, true);
        if (*room == memory::Room::any && task.is_unplaced && placement != Placement::lacks) admission_.close_for(task);
        task.blocked = true;
        ++num_blocked_;
        ++counters_.memory_waits;
        begin_memory_wait(task);
        if (placement == Placement::lacks && stand_aside(task)) return;
        q.blocked.push_back(&task);
        q.stalled = true;
        any_stalled_ = true;
        return;
    }
    admission_.placed(task);
    end_memory_wait(task);
    has_progressed();
    ++in_flight_;
    ++q.in_flight;
    switch (task.kind) {
    case TaskKind::kernel: issue_kernel(task); break;
    case TaskKind::device_function: issue_launch(task); break;
    case TaskKind::host: issue_host(task); break;
    case TaskKind::transfer: issue_transfer(task); break;
    case TaskKind::join: break;
    }
}

/// The first one: what the choice of a kernel's lane hangs on. Null: there is none. O(uses).
const memory::Chunk* Scheduler::written_chunk(const Task& task) noexcept {
    const auto writes = std::ranges::find_if(task.uses, [](const graph::Use& u) { return u.writes; });
    return writes == task.uses.end() ? nullptr : writes->chunk;
}

void Scheduler::note_lane_wish(Task& task) {
    task.kernel_times = kernel_times_.find(task.kernel);
    if (const memory::Chunk* const c = written_chunk(task); c != nullptr)
        if (memory::Array* const array = c->array(); array != nullptr) array->written_by[task.memory].add(c->index);
}

void Scheduler::note_neighbours(const Task& task) {
    for (const graph::Across& across : task.across()) {
        if (!across.may_be_in_place) continue;
        const memory::Chunk& first = *task.part(across, 0).chunk;
        memory::Neighbours& neighbours = first.array()->neighbours[task.memory];
        neighbours.chunks.add(first.index);
        neighbours.chunks.add(task.part(across, across.num_parts - 1).chunk->index);
    }
}

void Scheduler::foresee(Task& first) {
    if (first.next_published == nullptr) return;
    for (Task* t = &first; t != nullptr; t = t->next_published) {
        admission_.add(*t);
        if (t->kind == TaskKind::kernel) note_lane_wish(*t);
        note_neighbours(*t);
    }
}

LaneWish Scheduler::lane_wish(const Task& task) const noexcept {
    LaneWish wish;
    if (const memory::Chunk* const c = written_chunk(task); c != nullptr) {
        wish.chunk = c->index;
        const memory::Array* const array = c->array();
        wish.used_chunks = array != nullptr ? array->written_by[task.memory] : memory::ChunkRange(0, 0);
    }
    wish.num_threads = 1;
    for (int axis = 0; axis < 3; ++axis)
        wish.num_threads *= std::uint64_t{task.kernel.grid[axis]} * task.kernel.block[axis];
    wish.is_short = kernel_times_.is_short(task.kernel_times);
    wish.allowed = task.where.stream_affinity().bits();
    return wish;
}

/// Of the tasks that come after a kernel some will be on another lane, or wait on the host. A join waits for as much of
/// each lane as there is by then: a mark for each of the many tasks before it would cost more than it saves.
bool Scheduler::is_awaited_elsewhere(const Task& task) const noexcept {
    const std::uint32_t device = task.memory.device();
    const auto lane = static_cast<std::uint32_t>(index_of(task.lane) - index_of(this->lane(device, LaneRole::compute)));
    bool is_first = true;
    for (const Predecessor& s : task.successors) {
        const Task& next = *s.after;
        if (next.kind == TaskKind::join) continue;
        if (next.kind != TaskKind::kernel || next.memory != task.memory) return true;
        if (policies_[device].will_leave(lane, lane_wish(next), next.fences, is_first, compute_lanes(device)))
            return true;
        is_first = false;
    }
    return false;
}

void Scheduler::issue_kernel(Task& task) {
    const std::uint32_t device = task.memory.device();
    LanePolicy& policy = policies_[device];
    const LaneWish wish = lane_wish(task);
    const std::uint32_t index = policy.choose(wish, task.fences, compute_lanes(device));
    const LaneId id = lane(device, LaneRole::compute, index);
    Lane& l = lanes_[index_of(id)];
    const Fence fence{id, ++progress_[index_of(id)].issued};
    policy.put(index, fence.position, wish.is_short);
    task.lane = id;
    task.position = fence.position;
    for (const graph::AddressPatch& p : task.patches) {
        const void* const address = memory::address_of(task, task.views[p.access]);
        std::memcpy(task.kernel.parameters + p.offset, &address, sizeof(void*));
    }
    list_needed_tasks(task);
    list_fills(task);
    instruction_waits_.clear();
    for (const Fence& f : task.fences)
        if (f.lane != id && !passed(f)) instruction_waits_.add(f);
    task.fences.clear();
    task.fences.add(fence);
    Instruction instruction;
    instruction.op = Instruction::Op::kernel;
    instruction.lane = id;
    instruction.position = fence.position;
    instruction.mark = is_awaited_elsewhere(task);
    instruction.measure = kernel_times_.count_launch(task.kernel_times);
    instruction.kernel_times = task.kernel_times;
    instruction.waits = instruction_waits_.view();
    instruction.task = task.number;
    instruction.function = task.kernel.function;
    std::copy_n(task.kernel.grid, 3, instruction.grid);
    std::copy_n(task.kernel.block, 3, instruction.block);
    instruction.shared_bytes = task.kernel.shared_bytes;
    instruction.parameters = {task.kernel.parameters, task.kernel.parameter_bytes};
    instruction.needed_tasks = needed_tasks_;
    instruction.fills = fills_;
    instruction.info = task.info.get();
    residency_.issued(task, fence);
    l.in_flight.push_back({fence.position, &task});
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    ++counters_.kernels;
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::launch, .lane = id, .position = fence.position, .task = task.number},
                &instruction_waits_);
    outbox_.instruct(device, instruction);
    announce(task);
}

void Scheduler::list_fills(const Task& task) {
    fills_.clear();
    for (const graph::Unset& unset : task.unset()) fills_.push_back(fill_of(task, unset));
}

/// Those that have not settled, and whose failure would skip what is handed out now.
void Scheduler::list_needed_tasks(Task& task) {
    needed_tasks_.clear();
    table_.find(task.predecessors, [&](const Predecessor& p, Task* before) {
        if (before == nullptr || !p.data) return;
        if (before->kind != TaskKind::join) return needed_tasks_.push_back(p.number);
        // Of a join its predecessors are listed. The settled ones at the front are skipped from now on, so that a scan
        // is bounded by the tasks under way.
        graph::TaskEdges& joined = before->predecessors;
        std::uint32_t& first = before->num_settled_before;
        while (first != joined.size() && table_.find(joined[first].number) == nullptr) ++first;
        for (std::size_t i = first; i != joined.size(); ++i)
            if (joined[i].data && table_.find(joined[i].number) != nullptr) needed_tasks_.push_back(joined[i].number);
    });
}

void Scheduler::issue_launch(Task& task) {
    list_needed_tasks(task);
    if (!needed_tasks_.empty())
        task.cold_part(graph::UseOfReserve::yes, needed_tasks_.size() * sizeof(TaskNumber))
            .open_data_predecessors.append(needed_tasks_.data(), needed_tasks_.size());
    task.fences.prune([this](const Fence& f) { return passed(f); });
    task.state.store(TaskState::launching, std::memory_order_relaxed);
    if (task.info && task.info->launcher == detail::LauncherInfo::Kind::kernel) ++counters_.kernels;
    residency_.pin(task);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_start(*s, task);
    if (options_.functions_touch_memory)
        start_when_passed(task);
    else
        start(task);
}

void Scheduler::issue_host(Task& task) {
    residency_.pin(task);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        note_start(*s, task);
    start_when_passed(task);
}

/// Of what is read from several memories the one whose link takes longest.
MemoryIndex Scheduler::link_source(const Task& task, const MovedBoxes& boxes) noexcept {
    MemoryIndex from = task.memory;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const MemoryIndex m = boxes.source(i).memory;
        const bool is_better = from == task.memory || memory::Tiers::below(task.memory) == m;
        if (is_better) from = m;
    }
    return from;
}

/// On a copy lane of the device that it writes to or reads from; within a memory without lanes by a thread.
void Scheduler::issue_transfer(Task& task) {
    const MovedBoxes boxes(task);
    if (!memory::Tiers::has_lanes(link_source(task, boxes)) && !memory::Tiers::has_lanes(task.memory))
        return issue_transfer_on_host(task);
    Instruction instruction = put_move(task, boxes, task.fences, nullptr);
    const Fence fence{instruction.lane, instruction.position};
    task.lane = fence.lane;
    task.position = fence.position;
    task.fences.clear();
    task.fences.add(fence);
    list_needed_tasks(task);
    list_fills(task);
    instruction.needed_tasks = needed_tasks_;
    instruction.fills = fills_;
    residency_.issued(task, fence);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    outbox_.instruct(lane_info(fence.lane).device, instruction);
    announce(task);
}

/// Boxes between replicas take a position of a copy lane. `chunk`: they fill it before the task runs; else
/// they are what the task does. The caller hands the instruction out.
Instruction Scheduler::put_move(Task& task, const MovedBoxes& boxes, const FenceSet& waits, memory::Chunk* chunk) {
    const MemoryIndex from = link_source(task, boxes);
    const std::uint32_t device = memory::Tiers::device_of_link(from, task.memory);
    const LaneId id = lane(device, memory::Tiers::lane_role(memory::Tiers::link(from, task.memory)));
    Lane& l = lanes_[index_of(id)];
    Instruction instruction;
    instruction.op = Instruction::Op::move;
    instruction.lane = id;
    instruction.position = ++progress_[index_of(id)].issued;
    moves_.clear();
    std::size_t linked_bytes = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const graph::BoxTransfer box = boxes[i];
        moves_.push_back(
            move_of(box, memory::address_of(task.uses[box.source]), memory::address_of(task.uses[box.destination])));
        instruction.bytes += box.size_bytes();
        linked_bytes += count_moved(task, box, device);
    }
    instruction_waits_.clear();
    for (const Fence& f : waits)
        if (f.lane != id && !passed(f)) instruction_waits_.add(f);
    instruction.waits = instruction_waits_.view();
    instruction.task = task.number;
    instruction.info = task.info.get();
    instruction.moves = moves_;
    instruction.from = from;
    instruction.to = task.memory;
    instruction.chunk = chunk;
    l.in_flight.push_back({instruction.position, chunk == nullptr ? &task : nullptr, chunk, linked_bytes,
                           chunk == nullptr ? 0 : chunk->copied_at, task.memory});
    l.bytes_in_flight += linked_bytes;
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::move,
                 .lane = id,
                 .from = from,
                 .to = task.memory,
                 .position = instruction.position,
                 .task = task.number,
                 .bytes = instruction.bytes},
                &instruction_waits_);
    return instruction;
}

void Scheduler::issue_transfer_on_host(Task& task) {
    task.function = {{run_transfer, nullptr}, &task};
    const MovedBoxes boxes(task);
    for (std::size_t i = 0; i < boxes.size(); ++i) (void)count_moved(task, boxes[i], 0);
    issue_host(task);
}

/// What goes over a link is counted there, and as what it is for. Returns the bytes that go over a link.
std::size_t Scheduler::count_moved(const Task& task, const graph::BoxTransfer& box, std::uint32_t device) noexcept {
    const MemoryIndex from = task.uses[box.source].memory;
    const std::size_t bytes = box.size_bytes();
    if (task.uses[box.destination].chunk->owner->is_temporary())
        (task.for_snapshot ? counters_.snapshot_bytes : counters_.gathered_bytes) += bytes;
    if (from == task.memory) return 0;
    const auto link = static_cast<std::size_t>(memory::Tiers::link(from, task.memory));
    for (TransferCounters* c : {&counters_.transfers, &counters_.by_device[device]}) {
        ++c->copies[link];
        c->bytes[link] += bytes;
    }
    return bytes;
}

/// No thread waits for the fences: the lanes tell when they pass.
void Scheduler::start_when_passed(Task& task) {
    for (const Fence& f : task.fences) {
        if (passed(f)) continue;
        auto& watchers = lanes_[index_of(f.lane)].watchers;
        watchers.push_back({f.position, &task});
        std::push_heap(watchers.begin(), watchers.end(), std::greater<>());
        ++task.unpassed_fences;
    }
    if (task.unpassed_fences == 0) start(task);
}

/// Its inputs are there, or it has failed meanwhile.
void Scheduler::start(Task& task) {
    if (task.kind != TaskKind::transfer) functions_.began(task);
    if (task.has_failed())
        host_done(task, task.thrown);
    else if (task.kind == TaskKind::device_function)
        outbox_.launch(task.memory.device(), task);
    else
        outbox_.run_on_host(task);
}

bool Scheduler::extends(const CopyEnd& last, const Instruction& copy) const noexcept {
    return last.source == copy.source && last.destination == copy.destination && last.position + 1 == copy.position &&
           last.from == copy.from && last.to == copy.to && residency_.space(copy.from).may_copy_across(copy.source) &&
           residency_.space(copy.to).may_copy_across(copy.destination);
}

/// `Op::copy`, or parts of the chunk, in which case it says where from, where to, and how much.
void Scheduler::put_copy(Instruction& instruction, const FenceSet& waits, Task* task) {
    memory::Chunk& chunk = *instruction.chunk;
    const MemoryIndex from = instruction.from;
    const MemoryIndex to = instruction.to;
    const memory::Link link = memory::Tiers::link(from, to);
    const std::uint32_t device = memory::Tiers::device_of_link(from, to);
    instruction.lane = lane(device, memory::Tiers::lane_role(link));
    Lane& l = lanes_[index_of(instruction.lane)];
    instruction.task = task != nullptr ? task->number : 0;
    instruction_waits_.clear();
    for (const Fence& f : waits) {
        if (passed(f)) continue;
        if (f.lane == instruction.lane)
            instruction.after_on_lane = std::max(instruction.after_on_lane, f.position);
        else
            instruction_waits_.add(f);
    }
    instruction.waits = instruction_waits_.view();
    instruction.position = ++progress_[index_of(instruction.lane)].issued;
    if (instruction.op == Instruction::Op::copy) {
        instruction.extends_previous = extends(l.last_copy, instruction);
        l.last_copy = {instruction.position, from, to, instruction.source + instruction.bytes,
                       instruction.destination + instruction.bytes};
    }
    const std::size_t linked_bytes = from == to ? 0 : instruction.bytes;
    l.in_flight.push_back({instruction.position, nullptr, &chunk, linked_bytes, chunk.copied_at, to});
    l.bytes_in_flight += linked_bytes;
    ++in_flight_;
    ++chunk.owner->users;
    const auto direction = static_cast<std::size_t>(link);
    if (from == to) counters_.gathered_bytes += instruction.bytes;  // to lie beside its neighbours
    for (TransferCounters* c : {&counters_.transfers, &counters_.by_device[device]}) {
        if (from == to) break;
        ++c->copies[direction];
        c->bytes[direction] += instruction.bytes;
    }
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::copy,
                 .lane = instruction.lane,
                 .chunk = chunk.index,
                 .from = from,
                 .to = to,
                 .position = instruction.position,
                 .task = instruction.task,
                 .array = chunk.owner->number,
                 .bytes = instruction.bytes},
                &instruction_waits_);
    outbox_.instruct(device, instruction);
}

Fence Scheduler::copy(memory::Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                      std::uintptr_t destination, const FenceSet& waits, Task* task) {
    Instruction instruction;
    instruction.op = Instruction::Op::copy;
    instruction.chunk = &chunk;
    instruction.from = from;
    instruction.to = to;
    instruction.source = source;
    instruction.destination = destination;
    instruction.bytes = chunk.size_bytes;
    put_copy(instruction, waits, task);
    return {instruction.lane, instruction.position};
}

/// What a task reads of a chunk is worth keeping instead of the chunk where it is a small part of it, in long runs, and
/// nothing else of the chunk is used. O(parts).
void Scheduler::mark_small_parts(Task& task) noexcept {
    constexpr std::size_t largest_share = 8;          // an eighth
    constexpr std::size_t shortest_run_bytes = 1024;  // shorter ones, one by one, take a link as long as the chunk
    for (const graph::Across& across : task.across()) {
        const MovedBoxes boxes(task, across);
        for (std::size_t i = 0; i < boxes.size(); ++i) {
            const graph::BoxTransfer box = boxes[i];
            graph::Use& use = task.uses[box.source];
            if (box.size_bytes() > use.chunk->size_bytes / largest_share) continue;
            if (box.run_bytes < shortest_run_bytes && box.num_axes != 0) continue;
            use.is_small_part = use.role == graph::Use::Role::part;
        }
    }
}

Fence Scheduler::copy_parts(memory::Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                            std::uintptr_t destination, const FenceSet& waits, const graph::Vector<TaskNumber>& readers,
                            std::size_t* bytes) {
    Instruction instruction;
    instruction.op = Instruction::Op::move;
    instruction.chunk = &chunk;
    instruction.from = from;
    instruction.to = to;
    moves_.clear();
    for (const TaskNumber number : readers) {
        const Task* const task = table_.find(number);
        if (task == nullptr) continue;  // never: it is in the list of uses, which it leaves before it is settled
        for (const graph::Across& across : task->across()) {
            const MovedBoxes boxes(*task, across);
            for (std::size_t i = 0; i < boxes.size(); ++i) {
                if (boxes.source(i).chunk != &chunk) continue;
                const graph::BoxTransfer box = boxes[i];
                const BoxMove move = part_of(box, source, destination);
                const bool is_there = std::any_of(moves_.begin(), moves_.end(), [&](const BoxMove& other) {
                    return other.source == move.source && same_shape(other, move);
                });
                if (is_there) continue;
                moves_.push_back(move);
                instruction.bytes += box.size_bytes();
            }
        }
    }
    instruction.moves = moves_;
    put_copy(instruction, waits, nullptr);
    *bytes += instruction.bytes;
    return {instruction.lane, instruction.position};
}

Fence Scheduler::copy_part(memory::Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                           std::uintptr_t destination, const FenceSet& waits, Task& task,
                           const graph::BoxTransfer& part) {
    Instruction instruction;
    instruction.op = Instruction::Op::move;
    instruction.chunk = &chunk;
    instruction.from = from;
    instruction.to = to;
    moves_.assign(1, part_of(part, source, destination));
    instruction.moves = moves_;
    instruction.bytes = part.size_bytes();
    put_copy(instruction, waits, &task);
    lanes_[index_of(instruction.lane)].in_flight.back().is_part = true;
    return {instruction.lane, instruction.position};
}

Fence Scheduler::gather(Task& task, const graph::Across& across, const FenceSet& waits) {
    memory::Chunk& chunk = *task.uses[across.use].chunk;
    const Instruction instruction = put_move(task, MovedBoxes(task, across), waits, &chunk);
    ++in_flight_;
    ++chunk.owner->users;
    outbox_.instruct(lane_info(instruction.lane).device, instruction);
    return {instruction.lane, instruction.position};
}

void Scheduler::advance(LaneId lane_id, Position completed) {
    Lane& l = lanes_[index_of(lane_id)];
    LaneProgress& progress = progress_[index_of(lane_id)];
    if (completed <= progress.completed) return;
    progress.completed = completed;
    residency_.residents().advanced(lane_id);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::completed, .lane = lane_id, .position = completed});
    while (!l.in_flight.empty() && l.in_flight.front().position <= completed) {
        const InFlight done = l.in_flight.front();
        l.in_flight.pop_front();
        l.bytes_in_flight -= done.bytes;
        if (done.task != nullptr) {
            executed(*done.task);
        } else {
            --in_flight_;
            drop_user(*done.chunk->owner, 1);
        }
    }
    while (!l.watchers.empty() && l.watchers.front().position <= completed) {
        Task* waiter = l.watchers.front().task;
        std::pop_heap(l.watchers.begin(), l.watchers.end(), std::greater<>());
        l.watchers.pop_back();
        if (--waiter->unpassed_fences == 0) start(*waiter);
    }
    run_steps();
    retry_all();
}

void Scheduler::launched(Task& task, LaneId lane_id, Position position, std::exception_ptr thrown, bool finished) {
    function_ended(task);
    Lane& l = lanes_[index_of(lane_id)];
    const Fence fence{lane_id, position};
    progress_[index_of(lane_id)].issued = position;
    l.in_flight.push_back({position, &task});
    task.lane = lane_id;
    task.position = position;
    task.fences.clear();
    task.fences.add(fence);
    task.state.store(TaskState::issued, std::memory_order_relaxed);
    residency_.unpin(task, &fence);
    if (trace::Sink* const s = options_.trace->sink()) [[unlikely]]
        s->note({.what = trace::What::returned, .lane = lane_id, .position = position, .task = task.number});
    if (thrown != nullptr)
        task.thrown = thrown;
    else
        announce(task);
    if (finished) return advance(lane_id, position);
    Instruction watch;
    watch.op = Instruction::Op::watch;
    watch.lane = lane_id;
    watch.position = position;
    outbox_.instruct(l.info.device, watch);
    run_steps();
    retry_all();
}

void Scheduler::host_done(Task& task, std::exception_ptr thrown) {
    if (task.kind != TaskKind::transfer) function_ended(task);
    if (thrown != nullptr) task.thrown = thrown;
    residency_.unpin(task, nullptr);
    executed(task);
    run_steps();
    retry_all();
}

}  // namespace kmm::schedule
