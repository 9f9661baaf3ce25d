#include "kmm/graph/history.hpp"

#include <algorithm>

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

void ChunkHistory::insert_in_tree(const Box& box, Uses uses) {
    note_use(uses.writer);
    for (const TaskNumber reader : uses.readers) note_use(reader);
    Many& many = many_.front();
    if (many.tree.size() == 0) many.bounds = box;
    for (std::size_t k = 0; k < max_rank; ++k) {
        many.bounds.begin[k] = std::min(many.bounds.begin[k], box.begin[k]);
        many.bounds.end[k] = std::max(many.bounds.end[k], box.end[k]);
    }
    many.written_volume += volume(box);
    many.tree.insert(box, std::move(uses));
}

void ChunkHistory::insert(const Box& box, Uses uses) {
    if (!many_.empty()) return insert_in_tree(box, std::move(uses));
    segments_.push_back({box, std::move(uses)});
    if (segments_.size() <= few_segments) return;
    many_.emplace_back(rank_);
    for (Segment& s : segments_) insert_in_tree(s.box, std::move(s.value));
    segments_ = {};
}

void ChunkHistory::look_at_many(const Box& region, TaskNumber task, const Past& past) {
    const Many& many = many_.front();
    if (!past.is_forgotten(many.latest) || !past.is_forgotten(many.latest_helper) ||
        !contains(region, many.bounds, rank_) || !many.is_whole())
        return note_use(task);
    segments_.push_back({many.bounds, {}});
    many_ = {};
}

void ChunkHistory::take(const Box& region, Vector<Segment>& taken) {
    if (!many_.empty())
        return many_.front().tree.take(region, [&](Segment&& s) {
            many_.front().written_volume -= volume(s.box);
            taken.push_back(std::move(s));
        });
    std::size_t kept = 0;
    for (Segment& s : segments_) {
        if (overlaps(s.box, region, rank_))
            taken.push_back(std::move(s));
        else if (Segment& to = segments_[kept++]; &to != &s)
            to = std::move(s);
    }
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(kept), segments_.end());
}

/// Takes the region out of the segments; appends those of which none or several boxes are left, as they were.
template<typename F> void ChunkHistory::cut_tree(const Box& region, F&& meets, Vector<Segment>& cut) {
    Many& many = many_.front();
    many.tree.cut(
        region,
        [&](const Segment& s) {
            many.written_volume -= volume(intersection(s.box, region));
            return meets(s);
        },
        [&](Segment&& s) {
            many.written_volume -= volume(s.box) - volume(intersection(s.box, region));
            cut.push_back(std::move(s));
        });
}

// ---------------------------------------------------------------------------------------------------------------- uses

bool ChunkHistory::covers(const Box& region, Box* missing) const {
    if (segments_.size() == 1 && contains(segments_.front().box, region, rank_)) return true;
    if (!many_.empty() && many_.front().is_whole() && contains(many_.front().bounds, region, rank_)) return true;
    // Segments have nothing in common.
    std::int64_t open_volume = volume(region);
    each_that_meets(region, [&](const Segment& s) { open_volume -= volume(intersection(s.box, region)); });
    if (open_volume == 0) return true;
    std::vector<Box> open{region};
    each_that_meets(region, [&](const Segment& s) {
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

void ChunkHistory::add_reader(Uses& uses, TaskNumber task, Past& past) {
    TaskNumbers& readers = uses.readers;
    if (!readers.empty() && readers.back() == task) return;
    if (readers.size() >= max_readers)
        readers.erase(std::remove_if(readers.begin(), readers.end(),
                                     [&](TaskNumber reader) { return past.is_forgotten(reader); }),
                      readers.end());
    if (readers.size() >= max_readers)
        if (const TaskNumber joined = past.join(readers); joined != 0) {
            if (!many_.empty()) note_use(joined);
            readers.assign(1, joined);
        }
    readers.push_back(task);
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
        each_that_meets(region, [&](Segment& s) {
            before.add(s.value.writer, true);
            ++met;
            mergeable = mergeable && past.is_forgotten(s.value.writer) && contains(region, s.box, rank_) &&
                        std::all_of(s.value.readers.begin(), s.value.readers.end(),
                                    [&](TaskNumber reader) { return past.is_forgotten(reader); });
            add_reader(s.value, task, past);
        });
    }
    if (!mergeable || met < 2) return;
    Vector<Segment> merged;
    take(region, merged);
    Uses uses;
    uses.readers.push_back(task);
    insert(region, std::move(uses));
}

template<typename Edges>
void ChunkHistory::write(const Box& region, TaskNumber task, bool keeps_content, Edges& predecessors,
                         const Past& past) {
    const auto come_after = [&](const Uses& uses, auto&& add) {
        if (uses.writer != task) add(uses.writer, keeps_content);
        for (const TaskNumber reader : uses.readers)
            if (reader != task) add(reader, false);
    };
    const auto replace = [&](Uses& uses) {
        come_after(uses, [&](TaskNumber number, bool data) {
            if (!past.is_forgotten(number)) add_predecessor(predecessors, number, data);
        });
        uses.writer = task;
        uses.readers.clear();
    };
    if (segments_.size() == 1 && contains(region, segments_.front().box, rank_)) {
        segments_.front().box = region;
        return replace(segments_.front().value);
    }
    if (!many_.empty()) look_at_many(region, task, past);
    Segment* last = nullptr;
    std::size_t met = 0;
    each_that_meets(region, [&](Segment& s) { last = &s, ++met; });
    if (met == 1 && equal(last->box, region, rank_)) return replace(last->value);
    Vector<Segment> cut;
    if (met != 0) {
        Collector before(predecessors, past);
        const auto meets = [&](const Segment& s) {
            come_after(s.value, [&](TaskNumber number, bool data) { before.add(number, data); });
            return true;
        };
        if (many_.empty()) {
            take(region, cut);
            for (const Segment& s : cut) meets(s);
        } else {
            cut_tree(region, meets, cut);
        }
    }
    for (const Segment& s : cut) subtract(s.box, region, [&](const Box& piece) { insert(piece, s.value); });
    Uses uses;
    uses.writer = task;
    insert(region, std::move(uses));
}

template void ChunkHistory::read(const Box&, TaskNumber, Predecessors&, Past&);
template void ChunkHistory::read(const Box&, TaskNumber, TaskEdges&, Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, Predecessors&, const Past&);
template void ChunkHistory::write(const Box&, TaskNumber, bool, TaskEdges&, const Past&);

void ChunkHistory::writers(const Box& region, Predecessors& predecessors, const Past& past) const {
    Collector before(predecessors, past);
    each_that_meets(region, [&](const Segment& s) { before.add(s.value.writer, true); });
}

void ChunkHistory::users(Predecessors& tasks, const Past& past) const {
    const auto add = [&](TaskNumber number, bool data) {
        if (!past.is_forgotten(number)) tasks.push_back({number, data});
    };
    each([&](const Segment& s) {
        add(s.value.writer, true);
        for (const TaskNumber reader : s.value.readers) add(reader, false);
    });
}

}  // namespace kmm::graph
