#include "kmm/plan/needs.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "kmm/graph/box_index.hpp"

namespace kmm::plan {

using Reason = Refusal::Reason;

namespace {

// Up to here comparing each with each costs less than sorting.
constexpr std::size_t few_requests = 16;

// A stencil leaves out the border of its array; what leaves out more is better off with a copy of just the region.
constexpr std::int64_t most_wider = 16;

// Each task that reads so many chunks as one region has an access to each; of more one gather for all tasks knows them.
constexpr std::uint32_t most_late_pieces = 16;

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
    find_chunks(requests);
    if (any_crossing_ || several_memories_) write_each_chunk_in_one_memory(requests);
    if (any_write_ && !check_pairs(requests)) return false;
    if (!temporaries_.empty()) {
        choose_late(requests);
        share_temporaries(requests);
    }
    return describe(requests);
}

void SubmitPlan::find_chunks(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    needs_.resize(count);
    used_.resize(count);
    temporaries_.clear();
    pieces_.clear();
    any_write_ = any_crossing_ = several_memories_ = false;
    memory::MemoryIndex written_in;
    for (std::size_t i = 0; i < count; ++i) {
        const Request& r = requests[i];
        Need& need = needs_[i];
        need = Need();
        used_[i] = nullptr;
        if (r.empty) continue;
        if (writes(r.kind)) {
            several_memories_ = several_memories_ || (any_write_ && r.memory != written_in);
            written_in = r.memory;
            any_write_ = true;
        }
        const Place place = r.layout->locate(r.region);
        if (place.chunk == Layout::none) {
            any_crossing_ = true;
            use_temporary(requests, static_cast<std::uint32_t>(i));
            continue;
        }
        // What reads a chunk that has no history is refused; until then nobody must tell it from others.
        used_[i] = writes(r.kind)
                       ? &r.histories->touch(place.chunk, [&] { return graph::CompactHistory(r.layout->rank()); })
                       : r.histories->find(place.chunk);
        need.offset = place.offset;
        need.chunk_elements = place.chunk_elements;
        need.chunk = static_cast<std::uint32_t>(place.chunk);
        need.form = Form::in_place;
        need.whole_chunk = place.is_whole;
    }
}

/// The request works beside the chunks, in memory of its own.
void SubmitPlan::use_temporary(const std::vector<Request>& requests, std::uint32_t request) {
    const Request& r = requests[request];
    Need& need = needs_[request];
    Temporary& t = temporaries_.emplace_back();
    t.request = request;
    t.is_filled = r.kind != AccessKind::overwrite;
    t.is_written = writes(r.kind);
    t.is_snapshot = need.form == Form::in_place && !t.is_written;
    t.chosen_late = !t.is_written && !t.is_snapshot && r.memory.is_device();
    t.box = r.region;
    t.first_piece = static_cast<std::uint32_t>(pieces_.size());
    if (need.form == Form::in_place) {
        pieces_.push_back({need.chunk, r.region, r.memory});
    } else {
        found_.clear();
        r.layout->find_all(r.region, found_);
        for (const std::size_t chunk : found_)
            pieces_.push_back(
                {static_cast<std::uint32_t>(chunk), graph::intersection(r.region, r.layout->box(chunk)), r.memory});
    }
    t.num_pieces = static_cast<std::uint32_t>(pieces_.size()) - t.first_piece;
    t.chosen_late = t.chosen_late && t.num_pieces <= most_late_pieces;
    need.form = Form::temporary;
    need.temporary = static_cast<std::uint32_t>(temporaries_.size() - 1);
    used_[request] = nullptr;
}

/// That of the first request that writes it: parts that others write come there afterwards. Else a chunk would go to
/// and fro, and its writers would wait for each other.
void SubmitPlan::write_each_chunk_in_one_memory(const std::vector<Request>& requests) {
    if (!several_memories_) return;  // pieces name the memory of their request
    writes_.clear();
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.empty || !writes(r.kind)) continue;
        if (needs_[i].form == Form::in_place) {
            writes_.push_back({r.histories, needs_[i].chunk, i, none});
            continue;
        }
        const Temporary& t = temporaries_[needs_[i].temporary];
        for (std::uint32_t p = t.first_piece; p < t.first_piece + t.num_pieces; ++p)
            writes_.push_back({r.histories, pieces_[p].chunk, i, p});
    }
    std::sort(writes_.begin(), writes_.end(), [](const Write& a, const Write& b) {
        if (a.array != b.array) return std::less<const graph::ChunkHistories*>()(a.array, b.array);
        return std::pair(a.chunk, a.request) < std::pair(b.chunk, b.request);
    });
    memory::MemoryIndex memory;
    for (std::size_t i = 0; i < writes_.size(); ++i) {
        const Write w = writes_[i];
        const bool is_first = i == 0 || writes_[i - 1].array != w.array || writes_[i - 1].chunk != w.chunk;
        if (is_first) memory = requests[w.request].memory;
        std::uint32_t piece = w.piece;
        if (piece == none) {
            if (requests[w.request].memory == memory) continue;
            use_temporary(requests, w.request);
            piece = static_cast<std::uint32_t>(pieces_.size() - 1);
        }
        pieces_[piece].memory = memory;
    }
}

// ----------------------------------------------------------------------------------------------------- each with each

bool SubmitPlan::check_pairs(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    if (count < 2) return true;
    return count > few_requests ? check_many_pairs(requests) : check_each_with_each(requests);
}

/// Two writers may share no element. What reads where a task writes in place keeps a snapshot; what is written back
/// later comes after all that read there.
bool SubmitPlan::check_each_with_each(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    for (std::uint32_t i = 0; i < count; ++i) {
        const Request& a = requests[i];
        if (a.empty) continue;
        for (std::uint32_t j = i + 1; j < count; ++j) {
            const Request& b = requests[j];
            if (b.empty || a.histories != b.histories || (!writes(a.kind) && !writes(b.kind))) continue;
            if (used_[i] != used_[j] && used_[i] != nullptr && used_[j] != nullptr) continue;  // different chunks
            ++num_compared_;
            if (!graph::overlaps(a.region, b.region, a.layout->rank())) continue;
            if (writes(a.kind) && writes(b.kind)) {
                refusal_.region = graph::intersection(a.region, b.region);
                return refuse(Reason::conflict, i, j);
            }
            const std::uint32_t reader = writes(a.kind) ? j : i;
            const std::uint32_t writer = writes(a.kind) ? i : j;
            if (needs_[writer].form != Form::in_place) continue;
            if (needs_[reader].form == Form::in_place)
                use_temporary(requests, reader);
            else
                temporaries_[needs_[reader].temporary].chosen_late = false;
        }
    }
    return true;
}

/// Of requests of one array, all of which write. A conflict is named by comparing each with each.
bool SubmitPlan::check_writers(const std::vector<Request>& requests, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        for (std::size_t j = i + 1; j < end; ++j) {
            const Request& a = requests[order_[i]];
            const Request& b = requests[order_[j]];
            ++num_compared_;
            if (!graph::overlaps(a.region, b.region, a.layout->rank())) continue;
            // Which pair is refused must not depend on where histories lie in memory: the lowest positions of all.
            if (refusal_.reason != Reason::none &&
                std::pair(refusal_.first, refusal_.second) < std::pair(order_[i], order_[j]))
                return false;
            refusal_.region = graph::intersection(a.region, b.region);
            return refuse(Reason::conflict, order_[i], order_[j]);
        }
    }
    return true;
}

/// Fills `order_`: array by array, those that write before those that read, else as they came. O(requests) for a few
/// arrays.
void SubmitPlan::group_by_array(const std::vector<Request>& requests) {
    constexpr std::size_t few_arrays = 16;
    const graph::ChunkHistories* arrays[few_arrays] = {};
    std::size_t num_arrays = 0;
    std::size_t ends[2 * few_arrays + 1] = {};  // of those that write, and of those that read, one further on
    group_of_.resize(requests.size());
    std::size_t array = 0;
    for (std::size_t i = 0; i < requests.size() && num_arrays <= few_arrays; ++i) {
        const Request& r = requests[i];
        if (r.empty) continue;
        if (num_arrays == 0 || arrays[array] != r.histories)
            array = static_cast<std::size_t>(std::find(arrays, arrays + num_arrays, r.histories) - arrays);
        if (array == num_arrays) {
            if (array < few_arrays) arrays[array] = r.histories;
            ++num_arrays;
        }
        group_of_[i] = static_cast<std::uint8_t>(2 * array + (writes(r.kind) ? 0 : 1));
        if (array < few_arrays) ++ends[group_of_[i] + 1];
    }
    order_.clear();
    if (num_arrays <= few_arrays) {
        for (std::size_t g = 0; g < 2 * num_arrays; ++g) ends[g + 1] += ends[g];
        order_.resize(ends[2 * num_arrays]);
        for (std::uint32_t i = 0; i < requests.size(); ++i)
            if (!requests[i].empty) order_[ends[group_of_[i]]++] = i;
        return;
    }
    for (std::uint32_t i = 0; i < requests.size(); ++i)
        if (!requests[i].empty) order_.push_back(i);
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
        if (requests[a].histories != requests[b].histories)
            return std::less<const graph::ChunkHistories*>()(requests[a].histories, requests[b].histories);
        const bool a_reads = !writes(requests[a].kind), b_reads = !writes(requests[b].kind);
        return a_reads != b_reads ? b_reads : a < b;
    });
}

/// Whether each of these requests of one array, all of which write, does so in place and in a chunk of its own. Lists
/// them by chunk. O(requests) where they come in the order of their chunks.
bool SubmitPlan::write_chunks_of_their_own(std::size_t begin, std::size_t end) {
    writer_of_.clear();
    bool is_sorted = true;
    for (std::size_t i = begin; i < end; ++i) {
        const Need& need = needs_[order_[i]];
        if (need.form != Form::in_place) return false;
        is_sorted = is_sorted && (writer_of_.empty() || writer_of_.back().chunk <= need.chunk);
        writer_of_.push_back({need.chunk, order_[i]});
    }
    const auto by_chunk = [](const ChunkWriter& a, const ChunkWriter& b) { return a.chunk < b.chunk; };
    if (!is_sorted) std::sort(writer_of_.begin(), writer_of_.end(), by_chunk);
    const auto same = [](const ChunkWriter& a, const ChunkWriter& b) { return a.chunk == b.chunk; };
    return std::adjacent_find(writer_of_.begin(), writer_of_.end(), same) == writer_of_.end();
}

/// Whether a request in `writer_of_` writes an element of the region, which lies in the chunk.
bool SubmitPlan::is_written_in(const std::vector<Request>& requests, std::uint32_t chunk, const Box& region) {
    ++num_compared_;
    const auto found = std::lower_bound(writer_of_.begin(), writer_of_.end(), chunk,
                                        [](const ChunkWriter& w, std::uint32_t c) { return w.chunk < c; });
    if (found == writer_of_.end() || found->chunk != chunk) return false;
    const Request& writer = requests[found->request];
    return graph::overlaps(writer.region, region, writer.layout->rank());
}

bool SubmitPlan::check_many_pairs(const std::vector<Request>& requests) {
    refusal_.reason = Reason::none;
    group_by_array(requests);
    for (std::size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
        const auto of_array = [&](std::size_t i) {
            return i < order_.size() && requests[order_[i]].histories == requests[order_[begin]].histories;
        };
        for (end = begin; of_array(end) && writes(requests[order_[end]].kind);) ++end;
        const std::size_t readers = end;
        while (of_array(end)) ++end;
        if (begin == readers) continue;
        if (write_chunks_of_their_own(begin, readers))
            look_at_readers(requests, readers, end, [&](std::uint32_t reader) {
                const Need& need = needs_[reader];
                if (need.form == Form::in_place) return is_written_in(requests, need.chunk, requests[reader].region);
                const Temporary& t = temporaries_[need.temporary];
                return std::any_of(pieces_.begin() + t.first_piece, pieces_.begin() + t.first_piece + t.num_pieces,
                                   [&](const Piece& p) { return is_written_in(requests, p.chunk, p.box); });
            });
        else
            check_writers_anywhere(requests, begin, readers, end);
    }
    return refusal_.reason == Reason::none;
}

/// Of one array: requests that write, some of them beside the chunks or several in one, and those that read.
void SubmitPlan::check_writers_anywhere(const std::vector<Request>& requests, std::size_t begin, std::size_t readers,
                                        std::size_t end) {
    const std::size_t rank = requests[order_[begin]].layout->rank();
    const graph::BoxIndex written(rank, readers - begin,
                                  [&](std::size_t i) -> const Box& { return requests[order_[begin + i]].region; });
    std::size_t first = 0, second = 0;
    if (written.find_overlap(&first, &second, &num_compared_)) {
        check_writers(requests, begin, readers);
        return;
    }
    look_at_readers(requests, readers, end, [&](std::uint32_t reader) {
        bool is_written = false;
        written.each_that_meets(
            requests[reader].region,
            [&](std::size_t w) {
                is_written = needs_[order_[begin + w]].form == Form::in_place;
                return !is_written;
            },
            &num_compared_);
        return is_written;
    });
}

/// What reads where a task writes in place keeps a snapshot, and does not wait to see where the chunks will be.
template<typename F>
void SubmitPlan::look_at_readers(const std::vector<Request>& requests, std::size_t begin, std::size_t end,
                                 F&& is_written) {
    for (std::size_t i = begin; i < end; ++i) {
        const Need& need = needs_[order_[i]];
        const bool is_in_place = need.form == Form::in_place;
        if (!is_in_place && !temporaries_[need.temporary].chosen_late) continue;
        if (!is_written(order_[i])) continue;
        if (is_in_place)
            use_temporary(requests, order_[i]);
        else
            temporaries_[need.temporary].chosen_late = false;
    }
}

// -------------------------------------------------------------------------------------------------------- temporaries

/// Those that could be read where the chunks are take as much memory as these do between the first and the last row of
/// the region, if that is little more than the region.
void SubmitPlan::choose_late(const std::vector<Request>& requests) {
    for (Temporary& t : temporaries_) {
        const Layout& layout = *requests[t.request].layout;
        if (!t.chosen_late || !layout.is_stack()) continue;
        const Box& whole = layout.array();
        Box rows = t.box;
        for (std::size_t k = 1; k < layout.rank(); ++k) rows.begin[k] = whole.begin[k], rows.end[k] = whole.end[k];
        if (graph::volume(rows) - graph::volume(t.box) > graph::volume(t.box) / most_wider) continue;
        t.box = rows;
        t.may_be_in_place = true;
    }
}

namespace {

/// What tasks may share: a region of an array in one memory.
struct SameRegion {
    const std::vector<Request>& requests;
    bool operator()(std::uint32_t a, std::uint32_t b) const noexcept {
        const Request& x = requests[a];
        const Request& y = requests[b];
        return x.histories == y.histories && x.memory == y.memory && graph::equal(x.region, y.region);
    }
};

struct RegionHash {
    const std::vector<Request>& requests;
    std::size_t operator()(std::uint32_t i) const noexcept {
        const Request& r = requests[i];
        std::size_t h = std::hash<const void*>()(r.histories) ^ r.memory.index();
        for (std::size_t k = 0; k < r.layout->rank(); ++k)
            for (const std::int64_t x : {r.region.begin[k], r.region.end[k]})
                h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15ull;
        return h ^ h >> 29;
    }
};

}  // namespace

/// In the order of the requests, and each region that is only read once for each memory.
void SubmitPlan::share_temporaries(const std::vector<Request>& requests) {
    std::unordered_map<std::uint32_t, std::uint32_t, RegionHash, SameRegion> shared(
        2 * temporaries_.size(), RegionHash{requests}, SameRegion{requests});
    std::vector<Temporary> kept;
    kept.reserve(temporaries_.size());
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
        Need& need = needs_[i];
        if (need.form != Form::temporary) continue;
        const Temporary& t = temporaries_[need.temporary];
        const auto number = static_cast<std::uint32_t>(kept.size());
        if (!t.is_written) {
            const auto [at, is_new] = shared.try_emplace(i, number);
            need.temporary = at->second;
            if (!is_new) continue;
        }
        kept.push_back(t);
        need.temporary = number;
    }
    temporaries_.swap(kept);
}

bool SubmitPlan::describe_temporary(const std::vector<Request>& requests, std::uint32_t request,
                                    std::size_t task_begin) {
    const Request& r = requests[request];
    const Temporary& t = temporaries_[needs_[request].temporary];
    if (r.kind == AccessKind::read && t.request == request) {
        for (const Piece* p = pieces(t); p != pieces(t) + t.num_pieces; ++p) {
            const graph::CompactHistory* const history = r.histories->find(p->chunk);
            if (history != nullptr && history->covers(p->box, &refusal_.region)) continue;
            // Of a chunk without a history nothing was written.
            refusal_.region = history == nullptr ? p->box : graph::intersection(refusal_.region, p->box);
            return refuse(Reason::unwritten, request);
        }
    }
    std::size_t first = task_begin;
    while (needs_[first].form != Form::temporary || needs_[first].temporary != needs_[request].temporary) ++first;
    Need& need = needs_[first];
    need.first_of_chunk = true;
    need.needs_content = t.is_filled;
    need.writes_chunk = need.replaces_chunk = t.is_written;
    return true;
}

bool SubmitPlan::describe(const std::vector<Request>& requests) {
    const graph::CompactHistory* const* const used = used_.data();
    std::size_t task_begin = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.task != requests[task_begin].task) task_begin = i;
        const Need& need = needs_[i];
        if (need.form != Form::in_place) {
            if (need.form == Form::temporary &&
                !describe_temporary(requests, static_cast<std::uint32_t>(i), task_begin))
                return false;
            continue;
        }
        if (used[i] == nullptr) {
            refusal_.region = r.region;
            return refuse(Reason::unwritten, i);
        }
        std::size_t j = task_begin;
        while (used[j] != used[i]) ++j;
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
