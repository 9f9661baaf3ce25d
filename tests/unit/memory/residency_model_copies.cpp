// What residency asks the machine of the model for: copies of chunks and of parts of them, some of which fail.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "residency_model.hpp"

namespace kmm::residency_model {

/// What stands at the sources must be what the order says. False: it failed, and this is what the destinations have.
bool Machine::move(const std::vector<Move>& moves, std::uint64_t copied_at, std::size_t fails_one_in) {
    const bool fails = copies_fail_ && dice_.one_in(fails_one_in);
    for (const Move& move : moves) {
        const auto found = memories_.range(move.from, move.source, move.units.size() * unit);
        const auto left = memories_.range(move.to, move.destination, move.units.size() * unit);
        for (std::size_t i = 0; i < move.units.size(); ++i) {
            // From before the failure of a copy was known, or by a task that failed.
            const bool may_be_bad =
                move.was_lost || copied_at < move.chunk->spoiled_at || has_failed(move.units[i].writer);
            EXPECT_TRUE(found[i] == move.units[i].value || (found[i] == bad && may_be_bad))
                << "at the source of a copy";
            left[i] = fails ? bad : found[i];
        }
    }
    return !fails;
}

Fence Machine::transfer(const Transfer& t, const FenceSet& waits) {
    std::size_t bytes = 0;
    for (const kmm::memory::BoxMove& box : t.boxes) bytes += box.run_bytes;
    EXPECT_EQ(t.bytes, t.what == Transfer::What::chunk ? t.chunk->size_bytes : bytes) << "all arrays have one axis";
    switch (t.what) {
    case Transfer::What::chunk: return copy(t, waits);
    case Transfer::What::parts: return copy_parts(t, waits);
    case Transfer::What::ghost: return copy_ghost(t, waits);
    case Transfer::What::gather: return gather(t, waits);
    case Transfer::What::task: break;
    }
    ADD_FAILURE() << "not asked for by residency";
    return {};
}

const Task* Machine::find(kmm::graph::TaskNumber number) noexcept {
    looked_for_.push_back(number);
    for (const Waiting& w : waiting_)
        if (w.task->number == number) return w.task.get();
    return nullptr;
}

Fence Machine::copy(const Transfer& t, const FenceSet& waits) {
    Chunk& chunk = *t.chunk;
    if (t.from == t.to) ++counts_.moves;
    EXPECT_TRUE(chunk.replicas[t.from].writer_pins == 0 && !chunk.replicas[t.to].pinned()) << "in use";
    const std::vector<Move> moves{
        {&chunk, t.from, t.to, t.source, t.destination, expected_.at(&chunk).units, chunk.lost != nullptr}};
    const auto lane = static_cast<LaneId>(1000 + 16 * t.from.index() + t.to.index());
    ++copies_[chunk.owner];
    return lanes_.put(lane, waits, [this, &chunk, moves, copied_at = chunk.copied_at] {
        --copies_[chunk.owner];
        if (!move(moves, copied_at, 40)) fail_copy(chunk, copied_at);
    });
}

/// Other parts of the chunk may be.
bool Machine::is_being_written(const Chunk& chunk, const Part& part) const {
    return std::any_of(pinned_.begin(), pinned_.end(), [&](const auto& running) {
        return std::any_of(running->accesses.begin(), running->accesses.end(), [&](const Access& a) {
            return running->task->uses[a.use].chunk == &chunk && a.writes() && a.part.begin < part.end &&
                   part.begin < a.part.end;
        });
    });
}

Fence Machine::gather(const Transfer& t, const FenceSet& waits) {
    Task& task = *t.task;
    Chunk& temporary = *t.chunk;
    std::vector<Move> moves;
    const auto across =
        std::ranges::find_if(task.across(), [&](const Across& a) { return task.uses[a.use].chunk == &temporary; });
    const kmm::memory::MovedBoxes boxes(task, *across);
    EXPECT_EQ(boxes.size(), t.boxes.size());
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const kmm::graph::BoxTransfer box = boxes[i];
        const Use& piece = task.uses[box.source];
        const auto source = reinterpret_cast<std::uintptr_t>(address_of(piece));
        const auto destination = reinterpret_cast<std::uintptr_t>(address_of(task.uses[box.destination]));
        if (source == 0 || destination == 0) {
            ADD_FAILURE() << "gathered from nowhere, or to it";
            continue;
        }
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.boxes[i].source), source + box.source_offset_bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.boxes[i].destination), destination + box.destination_offset_bytes);
        const std::size_t first = box.source_offset_bytes / unit;
        EXPECT_FALSE(is_being_written(*piece.chunk, {first, first + box.size_bytes() / unit}));
        const std::vector<Expected::Unit>& units = expected_.at(piece.chunk).units;
        const auto begin = units.begin() + static_cast<std::ptrdiff_t>(first);
        moves.push_back({piece.chunk,
                         piece.memory,
                         task.memory,
                         source + box.source_offset_bytes,
                         destination + box.destination_offset_bytes,
                         {begin, begin + static_cast<std::ptrdiff_t>(box.size_bytes() / unit)},
                         false});
        if (piece.chunk->is_in_parts()) ++counts_.from_parts;
    }
    EXPECT_FALSE(temporary.replicas[task.memory].pinned()) << "gathered over what is in use";
    ++copies_[temporary.owner];
    const auto lane = static_cast<LaneId>(1500 + task.memory.index());
    return lanes_.put(lane, waits, [this, &temporary, moves, copied_at = temporary.copied_at] {
        --copies_[temporary.owner];
        ++counts_.gathers;
        if (move(moves, copied_at, 15)) return;
        ++counts_.gathers_failed;
        fail_copy(temporary, copied_at);
    });
}

/// What else the destination holds is lost.
Fence Machine::copy_parts(const Transfer& t, const FenceSet& waits) {
    ++counts_.parts;
    Chunk& chunk = *t.chunk;
    EXPECT_FALSE(chunk.replicas[t.from].pinned() || chunk.replicas[t.to].pinned()) << "in use";
    const std::uintptr_t source = chunk.replicas[t.from].address, destination = chunk.replicas[t.to].address;
    const std::vector<Expected::Unit>& units = expected_.at(&chunk).units;
    std::set<std::size_t> read;
    for (const kmm::graph::TaskNumber number : std::exchange(looked_for_, {})) {
        const auto reader =
            std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.task->number == number; });
        EXPECT_TRUE(reader != waiting_.end() && uses(*reader->task, chunk)) << "parts for nobody";
        if (reader == waiting_.end()) continue;
        for (const Access& a : reader->accesses) {
            if (reader->task->uses[a.use].chunk != &chunk) continue;
            EXPECT_TRUE(reader->task->uses[a.use].is_small_part);
            for (std::size_t k = a.part.begin; k < a.part.end; ++k) read.insert(k);
        }
    }
    std::set<std::size_t> moved;
    for (const kmm::memory::BoxMove& box : t.boxes) {
        const std::size_t offset = reinterpret_cast<std::uintptr_t>(box.source) - source;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(box.destination) - destination, offset);
        for (std::size_t k = 0; k < box.run_bytes / unit; ++k) moved.insert(offset / unit + k);
    }
    EXPECT_EQ(moved, read);
    std::vector<Move> moves;
    for (const std::size_t k : read)
        moves.push_back({&chunk, t.from, t.to, source + k * unit, destination + k * unit, {units[k]}, false});
    const auto lane = static_cast<LaneId>(1400 + t.from.index());
    ++copies_[chunk.owner];
    return lanes_.put(lane, waits, [this, &chunk, to = t.to, destination, moves, copied_at = chunk.copied_at] {
        --copies_[chunk.owner];
        for (Value& v : memories_.range(to, destination, chunk.size_bytes)) v = garbage;
        if (move(moves, copied_at, 8)) return;
        ++counts_.parts_failed;
        fail_copy(chunk, copied_at);
    });
}

/// What else the destination holds stays as it is.
Fence Machine::copy_ghost(const Transfer& t, const FenceSet& waits) {
    ++counts_.ghosts;
    Chunk& chunk = *t.chunk;
    EXPECT_TRUE(t.from != t.to && t.to == t.task->memory && uses(*t.task, chunk));
    EXPECT_TRUE(chunk.replicas[t.from].writer_pins == 0 && chunk.replicas[t.to].writer_pins == 0) << "in use";
    EXPECT_EQ(t.boxes.size(), 1u);
    const auto source = reinterpret_cast<std::uintptr_t>(t.boxes[0].source);
    const auto destination = reinterpret_cast<std::uintptr_t>(t.boxes[0].destination);
    const std::size_t offset = source - chunk.replicas[t.from].address;
    EXPECT_EQ(destination - chunk.replicas[t.to].address, offset);
    const std::vector<Expected::Unit>& units = expected_.at(&chunk).units;
    const auto begin = units.begin() + static_cast<std::ptrdiff_t>(offset / unit);
    const std::vector<Move> moves{{&chunk,
                                   t.from,
                                   t.to,
                                   source,
                                   destination,
                                   {begin, begin + static_cast<std::ptrdiff_t>(t.bytes / unit)},
                                   false}};
    const auto lane = static_cast<LaneId>(1600 + 16 * t.from.index() + t.to.index());
    ++copies_[chunk.owner];
    return lanes_.put(lane, waits, [this, &chunk, to = t.to, moves, copied_at = chunk.copied_at] {
        --copies_[chunk.owner];
        if (move(moves, copied_at, 6)) return;
        ++counts_.ghosts_failed;
        ++counts_.copies_failed;
        residency_->part_failed(chunk, to, copied_at);
        for (const auto& r : issued_)
            for (const Use& u : r->task->uses)
                r->has_failed |= u.chunk == &chunk && kmm::memory::may_have_taken_part(u, to, copied_at);
    });
}

/// Tasks that were issued behind it take what never arrived for the content: they fail (Scheduler::copy_failed).
void Machine::fail_copy(Chunk& chunk, std::uint64_t copied_at) {
    ++counts_.copies_failed;
    residency_->copy_failed(chunk, copied_at, cause_);
    for (const auto& r : issued_)
        for (const Use& u : r->task->uses)
            r->has_failed |= u.chunk == &chunk && kmm::memory::may_have_taken(u, copied_at);
}

}  // namespace kmm::residency_model
