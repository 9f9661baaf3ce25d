#include "kmm/graph/history.hpp"

#include <algorithm>

namespace kmm::graph {

void add_predecessor(Predecessors& predecessors, TaskNumber number, bool data) {
    for (Predecessor& p : predecessors) {
        if (p.number == number) {
            p.data = p.data || data;
            return;
        }
    }
    predecessors.push_back({number, data});
}

void make_unique(Predecessors& predecessors) {
    std::sort(predecessors.begin(), predecessors.end(), [](const Predecessor& a, const Predecessor& b) {
        return a.number != b.number ? a.number < b.number : a.data > b.data;
    });
    const auto same = [](const Predecessor& a, const Predecessor& b) { return a.number == b.number; };
    predecessors.erase(std::unique(predecessors.begin(), predecessors.end(), same), predecessors.end());
}

bool ChunkHistory::content_outside(const Box& region) const noexcept {
    for (const Segment& s : segments_)
        if (!contains(region, s.box, rank_)) return true;
    return false;
}

bool ChunkHistory::covers(const Box& region, Box* missing) const {
    if (segments_.size() == 1 && contains(segments_.front().box, region, rank_)) return true;
    std::vector<Box> open{region};
    for (const Segment& s : segments_) {
        std::vector<Box> next;
        for (const Box& b : open) {
            if (overlaps(b, s.box, rank_))
                subtract(b, s.box, [&](const Box& piece) { next.push_back(piece); });
            else
                next.push_back(b);
        }
        open = std::move(next);
        if (open.empty()) return true;
    }
    *missing = open.front();
    return false;
}

void ChunkHistory::read(const Box& region, TaskNumber task, Predecessors& predecessors, JoinMaker& joins) {
    for (Segment& s : segments_) {
        if (!overlaps(s.box, region, rank_)) continue;
        add_predecessor(predecessors, s.writer, true);
        if (!s.readers.empty() && s.readers.back() == task) continue;
        if (s.readers.size() >= max_readers) {
            const TaskNumber joined = joins.join(s.readers);
            if (joined != 0) s.readers.assign(1, joined);
        }
        s.readers.push_back(task);
    }
}

void ChunkHistory::write(const Box& region, TaskNumber task, bool keeps_content, Predecessors& predecessors) {
    const auto come_after = [&](const Segment& s) {
        if (s.writer != task) add_predecessor(predecessors, s.writer, keeps_content);
        for (const TaskNumber reader : s.readers)
            if (reader != task) add_predecessor(predecessors, reader, false);
    };
    if (segments_.size() == 1 && contains(region, segments_.front().box, rank_)) {
        Segment& s = segments_.front();
        come_after(s);
        s.box = region;
        s.writer = task;
        s.readers.clear();
        return;
    }
    scratch_.clear();
    for (Segment& s : segments_) {
        if (!overlaps(s.box, region, rank_)) {
            scratch_.push_back(std::move(s));
            continue;
        }
        come_after(s);
        subtract(s.box, region, [&](const Box& piece) { scratch_.push_back({piece, s.writer, s.readers}); });
    }
    scratch_.push_back({region, task, {}});
    segments_.swap(scratch_);
}

void ChunkHistory::writers(const Box& region, Predecessors& predecessors) const {
    for (const Segment& s : segments_)
        if (overlaps(s.box, region, rank_)) add_predecessor(predecessors, s.writer, true);
}

void ChunkHistory::users(Predecessors& tasks) const {
    for (const Segment& s : segments_) {
        tasks.push_back({s.writer, true});
        for (const TaskNumber reader : s.readers) tasks.push_back({reader, false});
    }
}

}  // namespace kmm::graph
