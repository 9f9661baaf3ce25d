#include "kmm/graph/history.hpp"

#include <algorithm>
#include <type_traits>

namespace kmm::graph {

namespace {

/// Predecessors of one task: few of them are compared with each other, many are sorted in the end.
template<typename Edges> class Collector {
  public:
    Collector(Edges& predecessors, const Past& past) noexcept : predecessors_(predecessors), past_(past) {}
    Collector(const Collector&) = delete;
    Collector& operator=(const Collector&) = delete;
    ~Collector() {
        if (unsorted_) make_unique(predecessors_);
    }
    void add(TaskNumber number, bool data) {
        if (past_.is_forgotten(number)) return;
        if (predecessors_.size() < few) return add_predecessor(predecessors_, number, data);
        predecessors_.emplace_back(number, data);
        unsorted_ = true;
    }

  private:
    static constexpr std::size_t few = 32;
    Edges& predecessors_;
    const Past& past_;
    bool unsorted_ = false;
};

}  // namespace

// ------------------------------------------------------------------------------------------------------------ segments

template<typename F> void ChunkHistory::each_that_meets(const Box& region, F&& f) {
    if (!many_.empty()) return many_.front().tree.each_that_meets(region, f);
    for (Segment& s : segments_)
        if (overlaps(s.box, region, rank_)) f(s);
}

template<typename F> void ChunkHistory::each(F&& f) const {
    if (!many_.empty()) return many_.front().tree.each(f);
    for (const Segment& s : segments_) f(s);
}

template<typename U> void ChunkHistory::insert_in_tree(const Box& box, const U& uses) {
    Many& many = many_.front();
    note_use(uses.writer);
    UsesInTree own{uses.writer, {}};
    each_reader(uses, [&](TaskNumber reader) {
        note_use(reader);
        many.readers.push(own.readers, reader);
    });
    if (many.tree.size() == 0) many.bounds = box;
    for (std::size_t k = 0; k < max_rank; ++k) {
        many.bounds.begin[k] = std::min(many.bounds.begin[k], box.begin[k]);
        many.bounds.end[k] = std::max(many.bounds.end[k], box.end[k]);
    }
    many.written_volume += volume(box);
    many.tree.insert(box, own);
}

void ChunkHistory::insert(const Box& box, const Uses& uses) {
    if (!many_.empty()) return insert_in_tree(box, uses);
    segments_.push_back({box, uses});
    if (segments_.size() <= few_segments) return;
    many_.emplace_back(rank_);
    for (const Segment& s : segments_) insert_in_tree(s.box, s.value);
    Vector<Segment>().swap(segments_);
}

void ChunkHistory::look_at_many(const Box& region, TaskNumber task, const Past& past) {
    const Many& many = many_.front();
    if (!past.is_forgotten(many.latest) || !past.is_forgotten(many.latest_helper) ||
        !contains(region, many.bounds, rank_) || !many.is_whole())
        return note_use(task);
    segments_.push_back({many.bounds, {}});
    many_.clear();
}

/// Takes those out that meet the region: calls `f(Segment&&)` for each.
template<typename F> void ChunkHistory::take_of_few(const Box& region, F&& f) {
    std::size_t kept = 0;
    for (Segment& s : segments_) {
        if (overlaps(s.box, region, rank_))
            f(std::move(s));
        else if (Segment& to = segments_[kept++]; &to != &s)
            to = std::move(s);
    }
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(kept), segments_.end());
}

void ChunkHistory::drop_all_in(const Box& region) {
    if (many_.empty()) return take_of_few(region, [](Segment&&) {});
    Many& many = many_.front();
    many.tree.take(region, [&](Tree::Entry&& s) {
        many.written_volume -= volume(s.box);
        many.readers.clear(s.value.readers);
    });
}

/// Takes the region out of the segments; `meets(segment)` is called for each before.
template<typename F> void ChunkHistory::cut_out(const Box& region, F&& meets) {
    if (many_.empty()) {
        Vector<Segment> cut;
        take_of_few(region, [&](Segment&& s) { cut.push_back(std::move(s)); });
        for (const Segment& s : cut) meets(s);
        for (const Segment& s : cut) subtract(s.box, region, [&](const Box& piece) { insert(piece, s.value); });
        return;
    }
    Many& many = many_.front();
    Vector<Tree::Entry> cut;  // of which none or several boxes are left, as they were
    many.tree.cut(
        region,
        [&](const Tree::Entry& s) {
            many.written_volume -= volume(intersection(s.box, region));
            meets(s);
            return true;
        },
        [&](Tree::Entry&& s) {
            many.written_volume -= volume(s.box) - volume(intersection(s.box, region));
            cut.push_back(s);
        });
    for (Tree::Entry& s : cut) {
        subtract(s.box, region, [&](const Box& piece) { insert_in_tree(piece, s.value); });
        many.readers.clear(s.value.readers);
    }
}

// ---------------------------------------------------------------------------------------------------------------- uses

bool ChunkHistory::covers(const Box& region, Box* missing) const {
    if (segments_.size() == 1 && contains(segments_.front().box, region, rank_)) return true;
    if (!many_.empty() && many_.front().is_whole() && contains(many_.front().bounds, region, rank_)) return true;
    // Segments have nothing in common.
    std::int64_t open_volume = volume(region);
    each_that_meets(region, [&](const auto& s) { open_volume -= volume(intersection(s.box, region)); });
    if (open_volume == 0) return true;
    std::vector<Box> open{region};
    each_that_meets(region, [&](const auto& s) {
        std::vector<Box> next;
        for (const Box& b : open) {
            if (overlaps(b, s.box, rank_))
                subtract(b, s.box, [&](const Box& piece) { next.push_back(piece); });
            else
                next.push_back(b);
        }
        open = std::move(next);
    });
    *missing = open.front();
    return false;
}

template<typename U> void ChunkHistory::add_reader(U& uses, TaskNumber task, Past& past) {
    if (was_read_last_by(uses, task)) return;
    if (num_readers(uses) >= max_readers) make_fewer_readers(uses, past);
    push_reader(uses, task);
}

/// Those that are forgotten go; of the others, if they are still so many, one join stays.
template<typename U> void ChunkHistory::make_fewer_readers(U& uses, Past& past) {
    TaskNumbers open;
    each_reader(uses, [&](TaskNumber reader) {
        if (!past.is_forgotten(reader)) open.push_back(reader);
    });
    if (open.size() >= max_readers)
        if (const TaskNumber joined = past.join(open); joined != 0) {
            if (!many_.empty()) note_use(joined);
            open.assign(1, joined);
        }
    clear_readers(uses);
    for (const TaskNumber reader : open) push_reader(uses, reader);
}

template<typename Edges>
void ChunkHistory::read(const Box& region, TaskNumber task, Edges& predecessors, Past& past) {
    if (!many_.empty()) look_at_many(region, task, past);
    if (segments_.size() == 1) {
        Uses& uses = segments_.front().value;
        if (!past.is_forgotten(uses.writer)) add_predecessor(predecessors, uses.writer, true);
        return add_reader(uses, task, past);
    }
    std::size_t met = 0;
    bool mergeable = true;
    {
        Collector before(predecessors, past);
        each_that_meets(region, [&](auto& s) {
            before.add(s.value.writer, true);
            ++met;
            if (mergeable && past.is_forgotten(s.value.writer) && contains(region, s.box, rank_))
                each_reader(s.value, [&](TaskNumber reader) { mergeable = mergeable && past.is_forgotten(reader); });
            else
                mergeable = false;
            add_reader(s.value, task, past);
        });
    }
    if (!mergeable || met < 2) return;
    drop_all_in(region);
    Uses uses;
    uses.readers.push_back(task);
    insert(region, uses);
}

template<typename Edges>
void ChunkHistory::write(const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors,
                         const Past& past) {
    const auto come_after = [&](const auto& uses, auto&& add) {
        if (uses.writer != task) add(uses.writer, keeps_content);
        each_reader(uses, [&](TaskNumber reader) {
            if (reader != task) add(reader, false);
        });
    };
    const auto replace = [&](auto& uses) {
        come_after(uses, [&](TaskNumber number, bool data) {
            if (!past.is_forgotten(number)) add_predecessor(predecessors, number, data);
        });
        uses.writer = task;
        clear_readers(uses);
    };
    if (segments_.size() == 1 && contains(region, segments_.front().box, rank_)) {
        segments_.front().box = region;
        return replace(segments_.front().value);
    }
    if (!many_.empty()) look_at_many(region, task, past);
    std::size_t met = 0;
    Uses* of_few = nullptr;  // of a segment that is the region: segments have nothing in common, so it is all there is
    UsesInTree* in_tree = nullptr;
    each_that_meets(region, [&](auto& s) {
        ++met;
        if (!equal(s.box, region, rank_)) return;
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(s)>, Segment>)
            of_few = &s.value;
        else
            in_tree = &s.value;
    });
    if (of_few != nullptr) return replace(*of_few);
    if (in_tree != nullptr) return replace(*in_tree);
    if (met != 0) {
        Collector before(predecessors, past);
        cut_out(region, [&](const auto& s) {
            come_after(s.value, [&](TaskNumber number, bool data) { before.add(number, data); });
        });
    }
    Uses uses;
    uses.writer = task;
    insert(region, uses);
}

template void ChunkHistory::read(const Box&, TaskNumber, Predecessors&, Past&);
template void ChunkHistory::read(const Box&, TaskNumber, TaskEdges&, Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, Predecessors&, const Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, TaskEdges&, const Past&);

void ChunkHistory::writers(const Box& region, Predecessors& predecessors, const Past& past) const {
    Collector before(predecessors, past);
    each_that_meets(region, [&](const auto& s) { before.add(s.value.writer, true); });
}

void ChunkHistory::users(Predecessors& tasks, const Past& past) const {
    const auto add = [&](TaskNumber number, bool data) {
        if (!past.is_forgotten(number)) tasks.push_back({number, data});
    };
    each([&](const auto& s) {
        add(s.value.writer, true);
        each_reader(s.value, [&](TaskNumber reader) { add(reader, false); });
    });
}

}  // namespace kmm::graph
