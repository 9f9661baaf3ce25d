#include "kmm/graph/history.hpp"

#include <algorithm>
#include <type_traits>

namespace kmm::graph {

namespace {

// Up to this number of segments, to subtract them one by one from a region is cheap.
constexpr std::size_t most_subtracted = 64;

/// A dependency, unless that task is forgotten.
template<typename Edges> void come_after(TaskNumber number, bool data, Edges& predecessors, const Past& past) {
    if (!past.is_forgotten(number)) add_predecessor(predecessors, number, data);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ segments

template<typename F> void ChunkHistory::each_that_meets(const Box& region, F&& f) {
    if (many_) return many_->tree.each_that_meets(region, f);
    for (Segment& s : segments_)
        if (boxes::overlaps(s.box, region, rank_)) f(s);
}

template<typename F> void ChunkHistory::each(F&& f) const {
    if (many_) return many_->tree.each(f);
    for (const Segment& s : segments_) f(s);
}

template<typename U> void ChunkHistory::insert_in_tree(const Box& box, const U& uses) {
    Many& many = *many_;
    note_use(uses.writer);
    UsesInTree own{uses.writer, {}};
    each_reader(uses, [&](TaskNumber reader) {
        note_use(reader);
        many.readers.push(own.readers, reader);
    });
    if (many.tree.size() == 0) many.bounds = box;
    for (std::size_t k = 0; k < boxes::max_rank; ++k) {
        many.bounds.begin[k] = std::min(many.bounds.begin[k], box.begin[k]);
        many.bounds.end[k] = std::max(many.bounds.end[k], box.end[k]);
    }
    many.written_volume += boxes::volume(box);
    many.tree.insert(box, own);
}

void ChunkHistory::insert(const Box& box, const Uses& uses) {
    if (many_) return insert_in_tree(box, uses);
    segments_.push_back({box, uses});
    if (segments_.size() <= few_segments) return;
    many_.make(rank_);
    if (part_readers_) part_readers_->each_task([this](TaskNumber reader) { note_use(reader); });
    for (const Segment& s : segments_) insert_in_tree(s.box, s.value);
    Vector<Segment>().swap(segments_);
}

void ChunkHistory::look_at_many(const Box& region, TaskNumber task, const Past& past) {
    static_assert(std::is_trivially_destructible_v<Tree::Entry>, "that many end in few steps");
    const Many& many = *many_;
    if (!past.is_forgotten(many.latest) || !past.is_forgotten(many.latest_helper) ||
        !boxes::contains(region, many.bounds, rank_) || !many.is_whole())
        return note_use(task);
    segments_.push_back({many.bounds, {}});
    many_.reset();
    part_readers_.reset();
}

/// Removes the segments that meet the region: calls `f(Segment&&)` for each.
template<typename F> void ChunkHistory::take_of_few(const Box& region, F&& f) {
    std::size_t kept = 0;
    for (Segment& s : segments_) {
        if (boxes::overlaps(s.box, region, rank_))
            f(std::move(s));
        else if (Segment& to = segments_[kept++]; &to != &s)
            to = std::move(s);
    }
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(kept), segments_.end());
}

void ChunkHistory::drop_all_in(const Box& region) {
    if (!many_) return take_of_few(region, [](Segment&&) {});
    Many& many = *many_;
    many.tree.take(region, [&](Tree::Entry&& s) {
        many.written_volume -= boxes::volume(s.box);
        many.readers.clear(s.value.readers);
    });
}

/// Cuts the region out of the segments that meet it, after `meets(segment)` for each.
template<typename F> void ChunkHistory::cut_out(const Box& region, F&& meets) {
    if (!many_) {
        Vector<Segment> cut;
        take_of_few(region, [&](Segment&& s) { cut.push_back(std::move(s)); });
        for (const Segment& s : cut) meets(s);
        for (const Segment& s : cut) boxes::subtract(s.box, region, [&](const Box& piece) { insert(piece, s.value); });
        return;
    }
    Many& many = *many_;
    Vector<Tree::Entry> cut;  // the segments before the cut, of which no box or several remain
    many.tree.cut(
        region,
        [&](const Tree::Entry& s) {
            many.written_volume -= boxes::volume(boxes::intersection(s.box, region));
            meets(s);
            return true;
        },
        [&](Tree::Entry&& s) {
            many.written_volume -= boxes::volume(s.box) - boxes::volume(boxes::intersection(s.box, region));
            cut.push_back(s);
        });
    for (Tree::Entry& s : cut) {
        boxes::subtract(s.box, region, [&](const Box& piece) { insert_in_tree(piece, s.value); });
        many.readers.clear(s.value.readers);
    }
}

// ---------------------------------------------------------------------------------------------------------------- uses

/// `*met`, unless null: number of segments that overlap the region.
bool ChunkHistory::is_all_written(const Box& region, std::size_t* met) const {
    std::int64_t open_volume = boxes::volume(region);
    std::size_t count = 0;
    // Segments are disjoint.
    each_that_meets(region,
                    [&](const auto& s) { ++count, open_volume -= boxes::volume(boxes::intersection(s.box, region)); });
    if (met != nullptr) *met = count;
    return open_volume == 0;
}

bool ChunkHistory::covers(const Box& region, Box* missing) const {
    if (segments_.size() == 1 && boxes::contains(segments_.front().box, region, rank_)) return true;
    if (many_ && many_->is_whole() && boxes::contains(many_->bounds, region, rank_)) return true;
    if (is_all_written(region, nullptr)) return true;
    // Bisects to a part that is not covered, until few segments overlap it.
    Box part = region;
    for (std::size_t met = 0; static_cast<void>(is_all_written(part, &met)), met > most_subtracted;) {
        std::size_t axis = 0;
        for (std::size_t k = 1; k < rank_; ++k)
            if (part.end[k] - part.begin[k] > part.end[axis] - part.begin[axis]) axis = k;
        Box low = part, high = part;
        low.end[axis] = high.begin[axis] = part.begin[axis] + (part.end[axis] - part.begin[axis]) / 2;
        part = is_all_written(low, nullptr) ? high : low;
    }
    std::vector<Box> open{part};
    each_that_meets(part, [&](const auto& s) {
        std::vector<Box> next;
        for (const Box& b : open) {
            if (boxes::overlaps(b, s.box, rank_))
                boxes::subtract(b, s.box, [&](const Box& piece) { next.push_back(piece); });
            else
                next.push_back(b);
        }
        open = std::move(next);
    });
    *missing = open.front();
    return false;
}

/// `reads_now`: the task for which this is done; a join comes before it.
template<typename U> void ChunkHistory::add_reader(U& uses, TaskNumber task, TaskNumber reads_now, Past& past) {
    if (was_read_last_by(uses, task)) return;
    if (num_readers(uses) >= max_readers) make_fewer_readers(uses, reads_now, past);
    push_reader(uses, task);
}

/// Drops readers that are forgotten; replaces the others by a join if they are still too many.
template<typename U> void ChunkHistory::make_fewer_readers(U& uses, TaskNumber reads_now, Past& past) {
    TaskNumbers open;
    bool is_reader = false;
    each_reader(uses, [&](TaskNumber reader) {
        is_reader = is_reader || reader == reads_now;
        if (reader != reads_now && !past.is_forgotten(reader)) open.push_back(reader);
    });
    if (open.size() + (is_reader ? 1 : 0) >= max_readers)
        if (const TaskNumber joined = past.join(open, false); joined != 0) {
            if (many_) note_use(joined);
            open.assign(1, joined);
        }
    clear_readers(uses);
    for (const TaskNumber reader : open) push_reader(uses, reader);
    if (is_reader) push_reader(uses, reads_now);
}

void ChunkHistory::add_part_reader(const Box& region, TaskNumber task, Past& past) {
    if (!part_readers_) part_readers_.make(rank_);
    if (part_readers_->was_read_last_by(region, task)) return;
    if (part_readers_->size() >= max_part_readers) make_fewer_part_readers(task, past);
    part_readers_->add(region, task);
}

/// Drops forgotten readers; if that does not suffice, turns the oldest half into readers of whole segments.
void ChunkHistory::make_fewer_part_readers(TaskNumber reads_now, Past& past) {
    part_readers_->drop_if([&](TaskNumber reader) { return past.is_forgotten(reader); });
    if (part_readers_->size() < max_part_readers) return;
    part_readers_->shorten(max_part_readers / 2, [&](TaskNumber reader, const Box& region) {
        each_that_meets(region, [&](auto& s) { add_reader(s.value, reader, reads_now, past); });
    });
}

template<typename Edges>
void ChunkHistory::read(const Box& region, TaskNumber task, Edges& predecessors, Past& past) {
    if (many_) {
        look_at_many(region, task, past);
        if (many_ && read_as_others(region, task, predecessors, past)) return;
    }
    if (segments_.size() == 1) {
        Uses& uses = segments_.front().value;
        come_after(uses.writer, true, predecessors, past);
        if (!boxes::contains(region, segments_.front().box, rank_)) return add_part_reader(region, task, past);
        return add_reader(uses, task, task, past);
    }
    const std::size_t num_before = predecessors.size();
    std::size_t met = 0;
    bool mergeable = true, any_part = false;
    each_that_meets(region, [&](auto& s) {
        come_after(s.value.writer, true, predecessors, past);
        ++met;
        if (!boxes::contains(region, s.box, rank_)) {
            any_part = true;
            return;
        }
        mergeable = mergeable && past.is_forgotten(s.value.writer);
        if (mergeable)
            each_reader(s.value, [&](TaskNumber reader) { mergeable = mergeable && past.is_forgotten(reader); });
        add_reader(s.value, task, task, past);
    });
    if (many_ && predecessors.size() > num_before + few_predecessors)
        share_read(region, task, num_before, predecessors, past);
    if (any_part) return add_part_reader(region, task, past);
    if (!mergeable || met < 2) return;
    drop_all_in(region);
    Uses uses;
    uses.readers.push_back(task);
    insert(region, uses);
}

/// True: the same region was read since its latest write, and the task depends on that read's join of the writers.
/// O(1), but for a join of the readers.
template<typename Edges>
bool ChunkHistory::read_as_others(const Box& region, TaskNumber task, Edges& predecessors, Past& past) {
    for (SharedRead& s : many_->shared) {
        if (s.writers == 0 || !boxes::equal(s.region, region, rank_)) continue;
        come_after(s.writers, true, predecessors, past);
        if (!s.readers.empty() && s.readers.back() == task) return true;
        if (s.readers.size() >= max_readers) make_fewer_shared_readers(s, past);
        s.readers.push_back(task);
        return true;
    }
    return false;
}

/// First read of the region since a write: replaces the dependencies on its writers by one join, which later readers of
/// the region share.
template<typename Edges>
void ChunkHistory::share_read(const Box& region, TaskNumber task, std::size_t num_before, Edges& predecessors,
                              Past& past) {
    TaskNumbers writers;
    each_that_meets(region, [&](const auto& s) {
        if (!past.is_forgotten(s.value.writer)) writers.push_back(s.value.writer);
    });
    std::sort(writers.begin(), writers.end());
    writers.erase(std::unique(writers.begin(), writers.end()), writers.end());
    if (writers.size() <= few_predecessors || std::binary_search(writers.begin(), writers.end(), task)) return;
    const TaskNumber joined = past.join(writers, true);
    if (joined == 0) return;
    note_use(joined);
    predecessors.resize(num_before);
    add_predecessor(predecessors, joined, true);
    Vector<SharedRead>& shared = many_->shared;
    const auto is_same = [&](const SharedRead& s) { return boxes::equal(s.region, region, rank_); };
    auto at = std::find_if(shared.begin(), shared.end(), is_same);
    if (at == shared.end()) {
        if (shared.size() == max_shared) {
            const SharedRead oldest = std::move(shared.front());
            shared.erase(shared.begin());
            for (const TaskNumber reader : oldest.readers) add_part_reader(oldest.region, reader, past);
        }
        shared.push_back(SharedRead{region, 0, {}});
        at = shared.end() - 1;
    }
    at->writers = joined;
}

/// Drops readers that are forgotten; replaces the others by a join if they are still too many.
void ChunkHistory::make_fewer_shared_readers(SharedRead& shared, Past& past) {
    std::erase_if(shared.readers, [&](TaskNumber reader) { return past.is_forgotten(reader); });
    if (shared.readers.size() < max_readers) return;
    const TaskNumber joined = past.join(shared.readers, false);
    if (joined == 0) return;
    note_use(joined);
    shared.readers.assign(1, joined);
}

/// A write of `region` depends on the readers of each shared region that it overlaps. One that it covers is dropped.
template<typename Edges>
void ChunkHistory::come_after_shared_readers(const Box& region, TaskNumber task, Edges& predecessors,
                                             const Past& past) {
    std::erase_if(many_->shared, [&](SharedRead& s) {
        if (!boxes::overlaps(s.region, region, rank_)) return false;
        s.writers = 0;
        for (const TaskNumber reader : s.readers)
            if (reader != task) come_after(reader, false, predecessors, past);
        return boxes::contains(region, s.region, rank_);
    });
}

template<typename Edges>
void ChunkHistory::come_after_part_readers(const Box& region, TaskNumber task, Edges& predecessors, const Past& past) {
    part_readers_->cut(region, [&](TaskNumber reader) {
        if (reader != task) come_after(reader, false, predecessors, past);
    });
}

/// The dependencies of a writer on earlier uses: calls `add(number, data)` for the writer and each reader.
template<typename U, typename F>
void ChunkHistory::each_before(const U& uses, TaskNumber task, bool keeps_content, F&& add) const {
    if (uses.writer != task) add(uses.writer, keeps_content);
    each_reader(uses, [&](TaskNumber reader) {
        if (reader != task) add(reader, false);
    });
}

/// Writes a segment that equals the region.
template<typename U, typename Edges>
void ChunkHistory::replace(U& uses, const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors,
                           const Past& past) {
    each_before(uses, task, keeps_content,
                [&](TaskNumber number, bool data) { come_after(number, data, predecessors, past); });
    uses.writer = task;
    clear_readers(uses);
    if (part_readers_) [[unlikely]]
        come_after_part_readers(region, task, predecessors, past);
}

template<typename Edges>
void ChunkHistory::write(const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors,
                         const Past& past) {
    Uses* same = nullptr;
    if (segments_.size() == 1 && boxes::contains(region, segments_.front().box, rank_)) {
        segments_.front().box = region;
        same = &segments_.front().value;
    } else {
        same = write_among(region, task, keeps_content, predecessors, past);
    }
    if (same != nullptr) replace(*same, region, task, keeps_content, predecessors, past);
}

/// For several segments, or one of which a part stays. If one of few segments equals the region, returns its uses with
/// nothing done; else null.
template<typename Edges>
ChunkHistory::Uses* ChunkHistory::write_among(const Box& region, TaskNumber task, bool keeps_content,
                                              Edges& predecessors, const Past& past) {
    if (many_) look_at_many(region, task, past);
    if (many_ && !many_->shared.empty()) [[unlikely]]
        come_after_shared_readers(region, task, predecessors, past);
    std::size_t met = 0;
    Uses* of_few = nullptr;  // of the segment that equals the region; disjoint from all others
    UsesInTree* in_tree = nullptr;
    each_that_meets(region, [&](auto& s) {
        ++met;
        if (!boxes::equal(s.box, region, rank_)) return;
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(s)>, Segment>)
            of_few = &s.value;
        else
            in_tree = &s.value;
    });
    if (of_few != nullptr) return of_few;
    if (in_tree != nullptr) {
        replace(*in_tree, region, task, keeps_content, predecessors, past);
        return nullptr;
    }
    if (met != 0) {
        cut_out(region, [&](const auto& s) {
            each_before(s.value, task, keeps_content,
                        [&](TaskNumber number, bool data) { come_after(number, data, predecessors, past); });
        });
        if (part_readers_) [[unlikely]]
            come_after_part_readers(region, task, predecessors, past);
    }
    Uses uses;
    uses.writer = task;
    insert(region, uses);
    return nullptr;
}

template void ChunkHistory::read(const Box&, TaskNumber, Predecessors&, Past&);
template void ChunkHistory::read(const Box&, TaskNumber, TaskEdges&, Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, Predecessors&, const Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, TaskEdges&, const Past&);

void ChunkHistory::writers(const Box& region, Predecessors& predecessors, const Past& past) const {
    each_that_meets(region, [&](const auto& s) { come_after(s.value.writer, true, predecessors, past); });
}

void ChunkHistory::users(Predecessors& tasks, const Past& past) const {
    const auto add = [&](TaskNumber number, bool data) {
        if (!past.is_forgotten(number)) tasks.push_back({number, data});
    };
    each([&](const auto& s) {
        add(s.value.writer, true);
        each_reader(s.value, [&](TaskNumber reader) { add(reader, false); });
    });
    if (part_readers_) part_readers_->each_task([&](TaskNumber reader) { add(reader, false); });
    if (!many_) return;
    for (const SharedRead& s : many_->shared)
        for (const TaskNumber reader : s.readers) add(reader, false);
}

}  // namespace kmm::graph
