#include "kmm/plan/needs.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "kmm/graph/box_index.hpp"

namespace kmm::plan {

using Reason = Refusal::Reason;

namespace {

// Up to here comparing each with each costs less than sorting.
constexpr std::size_t few = 16;

}  // namespace

bool SubmitPlan::first_write(const Box& array, const std::vector<Request>& requests,
                             const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks) {
    chunks.clear();
    order_.clear();
    for (const std::uint32_t i : positions) {
        const Request& r = requests[i];
        if (!writes(r.kind)) {
            refusal_.region = r.empty ? array : r.region;
            return refuse(Reason::unwritten, i);
        }
        if (r.empty) continue;
        chunks.push_back({r.memory.id(), r.region});
        order_.push_back(i);
    }
    std::size_t first = 0, second = 0;
    if (Layout::find_overlap(chunks, &first, &second)) {
        refusal_.region = graph::intersection(chunks[first].box, chunks[second].box);
        return refuse(Reason::conflict, order_[first], order_[second]);
    }
    if (Layout::find_gap(array, chunks, &refusal_.region)) return refuse(Reason::gap, positions.front());
    return true;
}

bool SubmitPlan::make(const std::vector<Request>& requests) {
    return find_chunks(requests) && check_pairs(requests) && describe(requests);
}

bool SubmitPlan::find_chunks(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    needs_.resize(count);
    used_.resize(count);
    any_write_ = false;
    for (std::size_t i = 0; i < count; ++i) {
        const Request& r = requests[i];
        Need& need = needs_[i];
        need = Need();
        used_[i] = nullptr;
        if (r.empty) continue;
        const Layout& layout = *r.layout;
        const std::size_t chunk = layout.find(r.region);
        if (chunk == Layout::none) {
            refusal_.region = r.region;
            return refuse(Reason::crosses_chunks, i);
        }
        used_[i] = &r.histories[chunk];
        any_write_ = any_write_ || writes(r.kind);
        const Box& box = layout.chunks()[chunk].box;
        std::int64_t offset = 0;
        bool whole = true;
        for (std::size_t k = 0, rank = layout.rank(); k < rank; ++k) {
            const std::int64_t begin = box.begin[k], end = box.end[k];
            offset = offset * (end - begin) + (r.region.begin[k] - begin);
            whole = whole && r.region.begin[k] == begin && r.region.end[k] == end;
        }
        need.offset = static_cast<std::size_t>(offset);
        need.chunk = static_cast<std::uint32_t>(chunk);
        need.form = Form::in_place;
        need.whole_chunk = whole;
    }
    return true;
}

bool SubmitPlan::check_pair(const std::vector<Request>& requests, std::size_t first, std::size_t second) {
    ++num_compared_;
    const Request& a = requests[first];
    const Request& b = requests[second];
    const bool both_write = writes(a.kind) && writes(b.kind);
    if (!writes(a.kind) && !writes(b.kind)) return true;
    if (!graph::overlaps(a.region, b.region, a.layout->rank())) {
        if (both_write && a.memory != b.memory) return refuse(Reason::several_memories, first, second);
        return true;
    }
    refusal_.region = graph::intersection(a.region, b.region);
    if (both_write) return refuse(Reason::conflict, first, second);
    return writes(a.kind) ? refuse(Reason::reads_own_write, second, first)
                          : refuse(Reason::reads_own_write, first, second);
}

bool SubmitPlan::check_pairs(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    if (count < 2 || !any_write_) return true;
    if (count > few) return check_many_pairs(requests);
    const graph::ChunkHistory* const* const used = used_.data();
    for (std::size_t i = 0; i < count; ++i) {
        if (used[i] == nullptr) continue;
        for (std::size_t j = i + 1; j < count; ++j)
            if (used[i] == used[j] && !check_pair(requests, i, j)) return false;
    }
    return true;
}

/// Of requests of one chunk, some of which write. False also where nobody has looked: comparing each with each says
/// then which are refused.
bool SubmitPlan::is_free_of_conflicts(const std::vector<Request>& requests, std::size_t begin, std::size_t end) {
    if (end - begin <= few) return false;
    std::vector<std::uint32_t> writers;
    for (std::size_t i = begin; i < end; ++i)
        if (writes(requests[order_[i]].kind)) writers.push_back(order_[i]);
    for (const std::uint32_t i : writers)
        if (requests[i].memory != requests[writers.front()].memory) return false;
    const std::size_t rank = requests[writers.front()].layout->rank();
    const graph::BoxIndex written(rank, writers.size(),
                                  [&](std::size_t i) -> const Box& { return requests[writers[i]].region; });
    std::size_t first = 0, second = 0;
    if (written.find_overlap(&first, &second, &num_compared_)) return false;
    bool is_free = true;
    for (std::size_t i = begin; i < end && is_free; ++i) {
        const Request& r = requests[order_[i]];
        if (writes(r.kind)) continue;
        written.each_that_meets(r.region, [&](std::size_t) { return is_free = false; }, &num_compared_);
    }
    return is_free;
}

bool SubmitPlan::check_many_pairs(const std::vector<Request>& requests) {
    order_.clear();
    for (std::size_t i = 0; i < requests.size(); ++i)
        if (used_[i] != nullptr) order_.push_back(static_cast<std::uint32_t>(i));
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return used_[a] != used_[b] ? std::less<const graph::ChunkHistory*>()(used_[a], used_[b]) : a < b;
    });
    // Which pair is refused must not depend on where histories lie in memory: the lowest positions of all chunks.
    using Pair = std::pair<std::uint32_t, std::uint32_t>;
    constexpr Pair none(~std::uint32_t{0}, 0);
    Pair refused = none;
    const auto check_chunk = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end && order_[i] < refused.first; ++i) {
            for (std::size_t j = i + 1; j < end; ++j) {
                if (check_pair(requests, order_[i], order_[j])) continue;
                refused = {order_[i], order_[j]};
                return;
            }
        }
    };
    for (std::size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
        bool any_write = false;
        for (end = begin; end < order_.size() && used_[order_[begin]] == used_[order_[end]]; ++end)
            any_write = any_write || writes(requests[order_[end]].kind);
        if (any_write && !is_free_of_conflicts(requests, begin, end)) check_chunk(begin, end);
    }
    return refused == none || check_pair(requests, refused.first, refused.second);
}

bool SubmitPlan::describe(const std::vector<Request>& requests) {
    const graph::ChunkHistory* const* const used = used_.data();
    std::size_t task_begin = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.task != requests[task_begin].task) task_begin = i;
        if (used[i] == nullptr) continue;
        std::size_t j = task_begin;
        while (used[j] != used[i]) ++j;
        const Need& need = needs_[i];
        Need& first = needs_[j];
        first.first_of_chunk = true;
        if (r.kind == AccessKind::read) {
            if (!used[i]->covers(r.region, &refusal_.region)) {
                refusal_.region = graph::intersection(refusal_.region, r.region);
                return refuse(Reason::unwritten, i);
            }
            first.needs_content = true;
            continue;
        }
        first.writes_chunk = true;
        if (need.whole_chunk) first.replaces_chunk = true;
        // What else the chunk holds must stay, even where other tasks will have written it only by the time this one
        // runs.
        if (!need.whole_chunk || (r.kind == AccessKind::write && used[i]->any_content())) first.needs_content = true;
    }
    return true;
}

}  // namespace kmm::plan
