#include "kmm/plan/needs.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "kmm/graph/across.hpp"

namespace kmm::plan {

using Reason = Refusal::Reason;

namespace {

// Up to here comparing each with each costs less than sorting.
constexpr std::size_t few_requests = 16;

// Of a task with more such regions all are gathered ahead: placing it would compare their chunks with all it uses.
constexpr std::size_t most_late_regions = 16;

// Up to this number of chunks in a region, each task that reads it uses each chunk. Beyond, one gather
// serves all tasks.
constexpr std::uint32_t most_late_pieces = 16;
static_assert(most_late_pieces <= graph::Across::most_parts);

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

bool SubmitPlan::make(const std::vector<Request>& requests, std::span<const PlannedArray> arrays) {
    arrays_ = arrays;
    const bool is_made = decide(requests);
    arrays_ = {};
    return is_made;
}

bool SubmitPlan::decide(const std::vector<Request>& requests) {
    find_chunks(requests);
    if (any_crossing_ && !list_pieces(requests)) return false;
    if (several_memories_) write_each_chunk_in_one_memory(requests);
    if (any_write_ && !check_pairs(requests)) return false;
    if (!temporaries_.empty()) {
        choose_late(requests);
        if (any_out_of_order_) number_temporaries(requests);
    }
    return describe(requests);
}

void SubmitPlan::find_chunks(const std::vector<Request>& requests) {
    const std::size_t count = requests.size();
    needs_.resize(count);
    used_.resize(count);
    if (!temporaries_.empty() || !shared_.empty()) {
        temporaries_.clear();
        pieces_.clear();
        shared_.clear();
    }
    if (count > few_requests) first_uses_.clear();  // smaller plans do not use the table
    any_write_ = any_crossing_ = several_memories_ = any_out_of_order_ = false;
    memory::MemoryIndex written_in;
    for (std::size_t i = 0; i < count; ++i) {
        const Request& r = requests[i];
        Need& need = needs_[i];
        need = Need();
        if (r.empty) continue;
        if (writes(r.kind)) {
            several_memories_ = several_memories_ || (any_write_ && r.memory != written_in);
            written_in = r.memory;
            any_write_ = true;
            last_write_ = static_cast<std::uint32_t>(i);
        }
        const Place place = layout_of(r).locate(r.region);
        if (place.chunk == Layout::none) {
            any_crossing_ = true;
            use_temporary(requests, static_cast<std::uint32_t>(i));
            continue;
        }
        need.offset = place.offset;
        need.chunk_elements = place.chunk_elements;
        need.chunk = static_cast<std::uint32_t>(place.chunk);
        need.form = Form::in_place;
        need.whole_chunk = place.is_whole;
    }
}

/// The request works beside the chunks, in memory of its own or, where it only reads, in that of an earlier request. A
/// region across chunks has its pieces later: see `list_pieces`.
void SubmitPlan::use_temporary(const std::vector<Request>& requests, std::uint32_t request) {
    const Request& r = requests[request];
    Need& need = needs_[request];
    const bool is_in_place = need.form == Form::in_place;
    need.form = Form::temporary;
    const auto number = static_cast<std::uint32_t>(temporaries_.size());
    need.temporary = writes(r.kind) ? number : shared_temporary(requests, request, number);
    const std::uint32_t before = need.temporary != number ? need.temporary : number - 1;
    any_out_of_order_ = any_out_of_order_ || (before < number && request < temporaries_[before].request);
    if (need.temporary != number) return;
    Temporary& t = temporaries_.emplace_back();
    t.request = request;
    t.is_filled = r.kind != AccessKind::overwrite;
    t.is_written = writes(r.kind);
    t.is_snapshot = is_in_place && !t.is_written;
    t.chosen_late = !t.is_written && !t.is_snapshot && r.memory.is_device();
    if (!is_in_place) return;
    t.first_piece = static_cast<std::uint32_t>(pieces_.size());
    t.num_pieces = 1;
    pieces_.push_back({need.chunk, need.whole_chunk, r.region, r.memory});
}

/// The chunks that each region across chunks meets. What many tasks want is refused before their regions are looked at
/// chunk by chunk: n tasks that each name all of n chunks would have n^2 pieces.
bool SubmitPlan::list_pieces(const std::vector<Request>& requests) {
    const bool many = requests.size() > few_requests;
    if (many && any_write_ && !find_conflicts(requests)) return false;
    for (Temporary& t : temporaries_) {
        const Request& r = requests[t.request];
        t.first_piece = static_cast<std::uint32_t>(pieces_.size());
        found_.clear();
        const Layout& layout = layout_of(r);
        layout.find_all(r.region, found_);
        const std::size_t rank = layout.rank();
        for (const std::size_t chunk : found_) {
            const Box whole = layout.box(chunk);
            Piece& piece = pieces_.emplace_back();
            piece.chunk = static_cast<std::uint32_t>(chunk);
            piece.box = graph::intersection(r.region, whole, rank);
            piece.whole_chunk = graph::equal(piece.box, whole, rank);
            piece.memory = r.memory;
        }
        t.num_pieces = static_cast<std::uint32_t>(found_.size());
        if (t.num_pieces <= most_late_pieces) continue;
        t.chosen_late = false;
        if (!many || t.is_written || check_content(requests, t.request)) continue;
        for (std::uint32_t i = 0; i < t.request; ++i)
            if (!check_content(requests, i)) break;  // an earlier one is named
        return false;
    }
    return true;
}

/// That of the first request that writes it: parts that others write come there afterwards. Else a chunk would go to
/// and fro, and its writers would wait for each other.
void SubmitPlan::write_each_chunk_in_one_memory(const std::vector<Request>& requests) {
    writes_.clear();
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.empty || !writes(r.kind)) continue;
        if (needs_[i].form == Form::in_place) {
            writes_.push_back({r.array, needs_[i].chunk, i, none});
            continue;
        }
        const Temporary& t = temporaries_[needs_[i].temporary];
        for (std::uint32_t p = t.first_piece; p < t.first_piece + t.num_pieces; ++p)
            writes_.push_back({r.array, pieces_[p].chunk, i, p});
    }
    std::sort(writes_.begin(), writes_.end(), [](const Write& a, const Write& b) {
        return std::tuple(a.array, a.chunk, a.request) < std::tuple(b.array, b.chunk, b.request);
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
        const std::size_t end = writes(a.kind) ? count : last_write_ + std::size_t{1};
        for (std::uint32_t j = i + 1; j < end; ++j) {
            const Request& b = requests[j];
            if (a.array != b.array || b.empty || (!writes(a.kind) && !writes(b.kind))) continue;
            const bool are_in_place = needs_[i].form == Form::in_place && needs_[j].form == Form::in_place;
            if (are_in_place && needs_[i].chunk != needs_[j].chunk) continue;
            ++num_compared_;
            if (!graph::overlaps(a.region, b.region, layout_of(a).rank())) continue;
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

/// Of requests of one array, all of which write, from `begin` on in `order_`: names two that share an element. Some do.
void SubmitPlan::name_conflict(const std::vector<Request>& requests, std::size_t begin,
                               const graph::BoxIndex& written) {
    for (std::size_t i = 0; i < written.size(); ++i) {
        std::size_t other = written.size();
        const auto is_later = [&](std::size_t j) {
            if (j > i) other = std::min(other, j);
            return true;
        };
        const Request& a = requests[order_[begin + i]];
        written.each_that_meets(a.region, is_later, &num_compared_);
        if (other == written.size()) continue;
        const std::uint32_t first = order_[begin + i], second = order_[begin + other];
        // Of several arrays the pair with the lowest positions is refused.
        if (refusal_.reason != Reason::none && std::pair(refusal_.first, refusal_.second) < std::pair(first, second))
            return;
        refusal_.region = graph::intersection(a.region, requests[second].region);
        refuse(Reason::conflict, first, second);
        return;
    }
}

/// Fills `order_`: array by array, those that write before those that read, else as they came. O(requests + arrays).
void SubmitPlan::group_by_array(const std::vector<Request>& requests) {
    const auto group_of = [](const Request& r) { return 2 * std::size_t{r.array} + (writes(r.kind) ? 0 : 1); };
    ends_.assign(2 * arrays_.size() + 1, 0);
    for (const Request& r : requests)
        if (!r.empty) ++ends_[group_of(r) + 1];
    for (std::size_t g = 1; g < ends_.size(); ++g) ends_[g] += ends_[g - 1];
    order_.resize(ends_.back());
    for (std::uint32_t i = 0; i < requests.size(); ++i)
        if (!requests[i].empty) order_[ends_[group_of(requests[i])]++] = i;
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
    return graph::overlaps(writer.region, region, layout_of(writer).rank());
}

/// Calls `f(begin, readers, end)` for each array that is written: where in `order_` the requests begin that write it
/// and those that read it, and where they end.
template<typename F>
void SubmitPlan::each_written_array(const std::vector<Request>& requests, F&& f) {
    for (std::size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
        const auto of_array = [&](std::size_t i) {
            return i < order_.size() && requests[order_[i]].array == requests[order_[begin]].array;
        };
        for (end = begin; of_array(end) && writes(requests[order_[end]].kind);) ++end;
        const std::size_t readers = end;
        while (of_array(end)) ++end;
        if (begin != readers) f(begin, readers, end);
    }
}

/// Looks at regions alone. O(n log n) where few regions of one array lie across a cut.
bool SubmitPlan::find_conflicts(const std::vector<Request>& requests) {
    refusal_.reason = Reason::none;
    written_.clear();
    group_by_array(requests);
    each_written_array(requests, [&](std::size_t begin, std::size_t readers, std::size_t end) {
        if (write_chunks_of_their_own(begin, readers)) return;
        graph::BoxIndex written(layout_of(requests[order_[begin]]).rank(), readers - begin,
                                [&](std::size_t i) -> const Box& { return requests[order_[begin + i]].region; });
        std::size_t first = 0, second = 0;
        if (written.find_overlap(&first, &second, &num_compared_))
            name_conflict(requests, begin, written);
        else if (readers != end)
            written_.push_back(std::move(written));
    });
    return refusal_.reason == Reason::none;
}

bool SubmitPlan::check_many_pairs(const std::vector<Request>& requests) {
    if (!any_crossing_ && !find_conflicts(requests)) return false;
    std::size_t num_indices = 0;
    each_written_array(requests, [&](std::size_t begin, std::size_t readers, std::size_t end) {
        if (readers == end) return;
        if (write_chunks_of_their_own(begin, readers))
            look_at_readers(requests, readers, end, [&](std::uint32_t reader) {
                const Need& need = needs_[reader];
                if (need.form == Form::in_place) return is_written_in(requests, need.chunk, requests[reader].region);
                return std::ranges::any_of(pieces(temporaries_[need.temporary]),
                                           [&](const Piece& p) { return is_written_in(requests, p.chunk, p.box); });
            });
        else
            look_at_readers_of(requests, begin, readers, end, written_[num_indices++]);
    });
    return true;
}

/// Of one array that requests write beside the chunks, or several in one.
void SubmitPlan::look_at_readers_of(const std::vector<Request>& requests, std::size_t begin, std::size_t readers,
                                    std::size_t end, const graph::BoxIndex& written) {
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

void SubmitPlan::choose_late(const std::vector<Request>& requests) {
    for (std::size_t begin = 0, end = 0; begin < requests.size(); begin = end) {
        std::size_t num_late = 0;
        for (end = begin; end < requests.size() && requests[end].task == requests[begin].task; ++end)
            num_late += is_late(needs_[end]) ? 1 : 0;
        for (std::size_t i = begin; i < end && num_late > most_late_regions; ++i)
            if (is_late(needs_[i])) temporaries_[needs_[i].temporary].chosen_late = false;
    }
    for (Temporary& t : temporaries_) {
        const Request& r = requests[t.request];
        t.may_be_in_place = t.chosen_late && layout_of(r).may_be_read_in_place(r.region);
    }
}

/// That of an earlier request that reads the same region in the same memory; else `number`, which is then this one's.
std::uint32_t SubmitPlan::shared_temporary(const std::vector<Request>& requests, std::uint32_t request,
                                           std::uint32_t number) {
    const Request& r = requests[request];
    if (shared_.empty()) shared_.assign(std::bit_ceil(2 * requests.size()), none);
    std::size_t h = std::size_t{r.array} << 16 ^ r.memory.index();
    for (std::size_t k = 0; k < layout_of(r).rank(); ++k)
        for (const std::int64_t x : {r.region.begin[k], r.region.end[k]})
            h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    for (;; ++h) {
        std::uint32_t& at = shared_[h & (shared_.size() - 1)];
        if (at == none) return at = number;
        const Request& other = requests[temporaries_[at].request];
        if (other.array == r.array && other.memory == r.memory && graph::equal(other.region, r.region)) return at;
    }
}

/// In the order of the requests that use them first.
void SubmitPlan::number_temporaries(const std::vector<Request>& requests) {
    std::vector<Temporary> ordered;
    ordered.reserve(temporaries_.size());
    std::vector<std::uint32_t> numbers(temporaries_.size(), none);
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
        Need& need = needs_[i];
        if (need.form != Form::temporary) continue;
        std::uint32_t& number = numbers[need.temporary];
        if (number == none) {
            number = static_cast<std::uint32_t>(ordered.size());
            ordered.push_back(temporaries_[need.temporary]);
            ordered.back().request = i;
        }
        need.temporary = number;
    }
    temporaries_.swap(ordered);
}

/// Whether what the request reads was written.
bool SubmitPlan::check_content(const std::vector<Request>& requests, std::uint32_t request) {
    const Request& r = requests[request];
    const Need& need = needs_[request];
    if (r.kind != AccessKind::read || need.form == Form::nothing) return true;
    const auto check = [&](const graph::CompactHistory* history, const Box& box) {
        if (history != nullptr && history->covers(box, &refusal_.region)) return true;
        // Of a chunk without a history nothing was written.
        refusal_.region = history == nullptr ? box : graph::intersection(refusal_.region, box);
        return refuse(Reason::unwritten, request);
    };
    if (need.form == Form::in_place) return check(history_of(r, need.chunk), r.region);
    const Temporary& t = temporaries_[need.temporary];
    if (t.request != request) return true;  // it was looked at for the first
    return std::ranges::all_of(pieces(t), [&](const Piece& p) { return check(history_of(r, p.chunk), p.box); });
}

/// The first request of the task that uses the same chunk or temporary, from `few` on: none before does. O(1), for
/// tasks with very many accesses too.
std::size_t SubmitPlan::first_in_table(std::size_t request, std::size_t few) {
    if (first_uses_.size() < 2 * needs_.size()) first_uses_.assign(std::bit_ceil(2 * needs_.size()), 0);
    std::size_t h = used_[request] * 0x9e3779b97f4a7c15ull;
    for (h ^= h >> 29;; ++h) {
        // Entries of tasks before count as empty.
        std::uint32_t& at = first_uses_[h & (first_uses_.size() - 1)];
        if (at < few || at >= request) return at = static_cast<std::uint32_t>(request);
        if (used_[at] == used_[request]) return at;
    }
}

/// Sets which chunk or temporary the request uses, for those of the same task behind it; returns the need of the first
/// one that does.
Need& SubmitPlan::note_use(std::size_t task_begin, std::size_t request, std::uint64_t use) {
    used_[request] = use;
    const std::size_t few = task_begin + few_requests;
    std::size_t first = task_begin;
    while (first < few && used_[first] != use) ++first;
    if (first == few) first = first_in_table(request, few);
    if (first == request) needs_[first].first_of_chunk = true, needs_[first].use = num_uses_++;
    needs_[request].use = needs_[first].use;
    return needs_[first];
}

bool SubmitPlan::describe(const std::vector<Request>& requests) {
    constexpr std::uint64_t nothing = ~std::uint64_t{0}, temporary = std::uint64_t{1} << 63;
    std::size_t task_begin = 0;
    num_uses_ = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request& r = requests[i];
        if (r.task != requests[task_begin].task) task_begin = i, num_uses_ = 0;
        const Need& need = needs_[i];
        if (need.form != Form::in_place) {
            used_[i] = nothing;
            if (need.form == Form::nothing) continue;
            if (!check_content(requests, static_cast<std::uint32_t>(i))) return false;
            const Temporary& t = temporaries_[need.temporary];
            Need& first = note_use(task_begin, i, temporary | need.temporary);
            first.needs_content = t.is_filled;
            first.writes = first.replaces = t.is_written;
            continue;
        }
        const graph::CompactHistory* const history = history_of(r, need.chunk);
        // Which gives the same answer as `check_content`, and most requests come here.
        if (r.kind == AccessKind::read && (history == nullptr || !history->covers(r.region, &refusal_.region)))
            return check_content(requests, static_cast<std::uint32_t>(i));
        Need& first = note_use(task_begin, i, std::uint64_t{r.array} << 32 | need.chunk);
        if (r.kind == AccessKind::read) {
            first.needs_content = true;
            continue;
        }
        first.writes = true;
        if (need.whole_chunk) first.replaces = true;
        // What else the chunk holds must stay, even where other tasks will have written it only by the time this one
        // runs.
        const bool any_content = history != nullptr && history->any_content();
        if (!need.whole_chunk || (r.kind == AccessKind::write && any_content)) first.needs_content = true;
    }
    return true;
}

}  // namespace kmm::plan
