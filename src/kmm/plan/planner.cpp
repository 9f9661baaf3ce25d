#include "kmm/plan/planner.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "kmm/base/block_bytes.hpp"

namespace kmm::plan {

using Reason = Refusal::Reason;

namespace {

// Up to here comparing each with each costs less than sorting.
constexpr std::size_t few_requests = 16;

// Of a task with more such regions all are gathered ahead: placing it would compare their chunks with all it uses.
constexpr std::size_t most_late_regions = 16;

}  // namespace

bool Planner::first_write(const Box& array, const std::vector<Request>& requests,
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
        refusal_.region = boxes::intersection(chunks[first].box, chunks[second].box);
        return refuse(Reason::conflict, order_[first], order_[second]);
    }
    if (Layout::find_gap(array, chunks, &refusal_.region)) return refuse(Reason::gap, positions.front());
    return true;
}

bool Planner::make(const std::vector<Request>& requests, Arrays arrays, const Limits& limits) {
    requests_ = requests;
    arrays_ = arrays;
    limits_ = &limits;
    return decide();
}

/// A region that lies in one chunk is met in place, any other in a temporary. Then what others write decides: a part of
/// a chunk that another memory writes, and a read of what a task writes in place, get temporaries too. Last, which
/// gathers wait until their tasks are placed.
bool Planner::decide() {
    find_chunks();
    if (any_crossing_ && !list_pieces()) return false;
    if (several_memories_) write_each_chunk_in_one_memory();
    if (any_write_ && !check_pairs()) return false;
    if (!plan_.temporaries.empty()) {
        choose_late();
        if (any_out_of_order_) number_temporaries();
        list_transfers();
    }
    return describe();
}

void Planner::find_chunks() {
    const std::size_t count = requests_.size();
    plan_.needs.resize(count);
    used_.resize(count);
    if (!plan_.temporaries.empty() || !shared_.empty()) {
        plan_.temporaries.clear();
        plan_.pieces.clear();
        plan_.transfers.clear();
        shared_.clear();
    }
    if (count > few_requests) first_uses_.clear();  // smaller plans do not use the table
    any_write_ = any_crossing_ = several_memories_ = any_out_of_order_ = false;
    memory::MemoryIndex written_in;
    for (std::size_t i = 0; i < count; ++i) {
        const Request& r = requests_[i];
        Need& need = plan_.needs[i];
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
            use_temporary(static_cast<std::uint32_t>(i));
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
void Planner::use_temporary(std::uint32_t request) {
    const Request& r = requests_[request];
    Need& need = plan_.needs[request];
    const bool is_in_place = need.form == Form::in_place;
    need.form = Form::temporary;
    const auto number = static_cast<std::uint32_t>(plan_.temporaries.size());
    need.temporary = writes(r.kind) ? number : shared_temporary(request, number);
    const std::uint32_t before = need.temporary != number ? need.temporary : number - 1;
    any_out_of_order_ = any_out_of_order_ || (before < number && request < plan_.temporaries[before].request);
    if (need.temporary != number) return;
    Temporary& t = plan_.temporaries.emplace_back();
    t.request = request;
    t.is_filled = r.kind != AccessKind::overwrite;
    t.is_written = writes(r.kind);
    t.is_snapshot = is_in_place && !t.is_written;
    t.chosen_late = !t.is_written && !t.is_snapshot && r.memory.is_device();
    if (!is_in_place) return;
    t.first_piece = static_cast<std::uint32_t>(plan_.pieces.size());
    t.num_pieces = 1;
    plan_.pieces.push_back({need.chunk, need.whole_chunk, r.region, r.memory});
}

/// The chunks that each region across chunks meets. What many tasks want is refused before their regions are looked at
/// chunk by chunk: n tasks that each name all of n chunks would have n^2 pieces.
bool Planner::list_pieces() {
    const bool many = requests_.size() > few_requests;
    if (many && any_write_ && !find_conflicts()) return false;
    for (Temporary& t : plan_.temporaries) {
        const Request& r = requests_[t.request];
        t.first_piece = static_cast<std::uint32_t>(plan_.pieces.size());
        found_.clear();
        const Layout& layout = layout_of(r);
        layout.find_all(r.region, found_);
        const std::size_t rank = layout.rank();
        for (const std::size_t chunk : found_) {
            const Box whole = layout.box(chunk);
            Piece& piece = plan_.pieces.emplace_back();
            piece.chunk = static_cast<std::uint32_t>(chunk);
            piece.box = boxes::intersection(r.region, whole, rank);
            piece.whole_chunk = boxes::equal(piece.box, whole, rank);
            piece.memory = r.memory;
        }
        t.num_pieces = static_cast<std::uint32_t>(found_.size());
        if (t.num_pieces <= most_late_pieces) continue;
        t.chosen_late = false;
        if (!many || t.is_written || check_content(t.request)) continue;
        for (std::uint32_t i = 0; i < t.request; ++i)
            if (!check_content(i)) break;  // an earlier one is named
        return false;
    }
    return true;
}

/// That of the first request that writes it: parts that others write come there afterwards. Else a chunk would go to
/// and fro, and its writers would wait for each other.
void Planner::write_each_chunk_in_one_memory() {
    writes_.clear();
    for (std::uint32_t i = 0; i < requests_.size(); ++i) {
        const Request& r = requests_[i];
        if (r.empty || !writes(r.kind)) continue;
        if (plan_.needs[i].form == Form::in_place) {
            writes_.push_back({r.array, plan_.needs[i].chunk, i, none});
            continue;
        }
        const Temporary& t = plan_.temporaries[plan_.needs[i].temporary];
        for (std::uint32_t p = t.first_piece; p < t.first_piece + t.num_pieces; ++p)
            writes_.push_back({r.array, plan_.pieces[p].chunk, i, p});
    }
    std::sort(writes_.begin(), writes_.end(), [](const Write& a, const Write& b) {
        return std::tuple(a.array, a.chunk, a.request) < std::tuple(b.array, b.chunk, b.request);
    });
    memory::MemoryIndex memory;
    for (std::size_t i = 0; i < writes_.size(); ++i) {
        const Write w = writes_[i];
        const bool is_first = i == 0 || writes_[i - 1].array != w.array || writes_[i - 1].chunk != w.chunk;
        if (is_first) memory = requests_[w.request].memory;
        std::uint32_t piece = w.piece;
        if (piece == none) {
            if (requests_[w.request].memory == memory) continue;
            use_temporary(w.request);
            piece = static_cast<std::uint32_t>(plan_.pieces.size() - 1);
        }
        plan_.pieces[piece].memory = memory;
    }
}

// ----------------------------------------------------------------------------------------------------- each with each

bool Planner::check_pairs() {
    const std::size_t count = requests_.size();
    if (count < 2) return true;
    return count > few_requests ? check_many_pairs() : check_each_with_each();
}

/// Two writers may share no element. What reads where a task writes in place keeps a snapshot; what is written back
/// later comes after all that read there.
bool Planner::check_each_with_each() {
    const std::size_t count = requests_.size();
    for (std::uint32_t i = 0; i < count; ++i) {
        const Request& a = requests_[i];
        if (a.empty) continue;
        const std::size_t end = writes(a.kind) ? count : last_write_ + std::size_t{1};
        for (std::uint32_t j = i + 1; j < end; ++j) {
            const Request& b = requests_[j];
            if (a.array != b.array || b.empty || (!writes(a.kind) && !writes(b.kind))) continue;
            const bool are_in_place = plan_.needs[i].form == Form::in_place && plan_.needs[j].form == Form::in_place;
            if (are_in_place && plan_.needs[i].chunk != plan_.needs[j].chunk) continue;
            ++num_compared_;
            if (!boxes::overlaps(a.region, b.region, layout_of(a).rank())) continue;
            if (writes(a.kind) && writes(b.kind)) {
                refusal_.region = boxes::intersection(a.region, b.region);
                return refuse(Reason::conflict, i, j);
            }
            const std::uint32_t reader = writes(a.kind) ? j : i;
            const std::uint32_t writer = writes(a.kind) ? i : j;
            if (plan_.needs[writer].form != Form::in_place) continue;
            if (plan_.needs[reader].form == Form::in_place)
                use_temporary(reader);
            else
                plan_.temporaries[plan_.needs[reader].temporary].chosen_late = false;
        }
    }
    return true;
}

/// Of requests of one array, all of which write, from `begin` on in `order_`: names two that share an element. Some do.
void Planner::name_conflict(std::size_t begin, const boxes::BoxIndex& written) {
    for (std::size_t i = 0; i < written.size(); ++i) {
        std::size_t other = written.size();
        const auto is_later = [&](std::size_t j) {
            if (j > i) other = std::min(other, j);
            return true;
        };
        const Request& a = requests_[order_[begin + i]];
        written.each_that_meets(a.region, is_later, &num_compared_);
        if (other == written.size()) continue;
        const std::uint32_t first = order_[begin + i], second = order_[begin + other];
        // Of several arrays the pair with the lowest positions is refused.
        if (refusal_.reason != Reason::none && std::pair(refusal_.first, refusal_.second) < std::pair(first, second))
            return;
        refusal_.region = boxes::intersection(a.region, requests_[second].region);
        refuse(Reason::conflict, first, second);
        return;
    }
}

/// Fills `order_`: array by array, those that write before those that read, else as they came. O(requests + arrays).
void Planner::group_by_array() {
    const auto group_of = [](const Request& r) { return 2 * std::size_t{r.array} + (writes(r.kind) ? 0 : 1); };
    ends_.assign(2 * arrays_.size() + 1, 0);
    for (const Request& r : requests_)
        if (!r.empty) ++ends_[group_of(r) + 1];
    for (std::size_t g = 1; g < ends_.size(); ++g) ends_[g] += ends_[g - 1];
    order_.resize(ends_.back());
    for (std::uint32_t i = 0; i < requests_.size(); ++i)
        if (!requests_[i].empty) order_[ends_[group_of(requests_[i])]++] = i;
}

/// Whether each of these requests of one array, all of which write, does so in place and in a chunk of its own. Lists
/// them by chunk. O(requests) where they come in the order of their chunks.
bool Planner::write_chunks_of_their_own(std::size_t begin, std::size_t end) {
    writer_of_.clear();
    bool is_sorted = true;
    for (std::size_t i = begin; i < end; ++i) {
        const Need& need = plan_.needs[order_[i]];
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
bool Planner::is_written_in(std::uint32_t chunk, const Box& region) {
    ++num_compared_;
    const auto found = std::lower_bound(writer_of_.begin(), writer_of_.end(), chunk,
                                        [](const ChunkWriter& w, std::uint32_t c) { return w.chunk < c; });
    if (found == writer_of_.end() || found->chunk != chunk) return false;
    const Request& writer = requests_[found->request];
    return boxes::overlaps(writer.region, region, layout_of(writer).rank());
}

/// Calls `f(begin, readers, end)` for each array that is written: where in `order_` the requests begin that write it
/// and those that read it, and where they end.
template<typename F>
void Planner::each_written_array(F&& f) {
    for (std::size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
        const auto of_array = [&](std::size_t i) {
            return i < order_.size() && requests_[order_[i]].array == requests_[order_[begin]].array;
        };
        for (end = begin; of_array(end) && writes(requests_[order_[end]].kind);) ++end;
        const std::size_t readers = end;
        while (of_array(end)) ++end;
        if (begin != readers) f(begin, readers, end);
    }
}

/// Looks at regions alone. O(n log n) where few regions of one array lie across a cut.
bool Planner::find_conflicts() {
    refusal_.reason = Reason::none;
    written_.clear();
    group_by_array();
    each_written_array([&](std::size_t begin, std::size_t readers, std::size_t end) {
        if (write_chunks_of_their_own(begin, readers)) return;
        boxes::BoxIndex written(layout_of(requests_[order_[begin]]).rank(), readers - begin,
                                [&](std::size_t i) -> const Box& { return requests_[order_[begin + i]].region; });
        std::size_t first = 0, second = 0;
        if (written.find_overlap(&first, &second, &num_compared_))
            name_conflict(begin, written);
        else if (readers != end)
            written_.push_back(std::move(written));
    });
    return refusal_.reason == Reason::none;
}

bool Planner::check_many_pairs() {
    if (!any_crossing_ && !find_conflicts()) return false;
    std::size_t num_indices = 0;
    each_written_array([&](std::size_t begin, std::size_t readers, std::size_t end) {
        if (readers == end) return;
        if (write_chunks_of_their_own(begin, readers))
            look_at_readers(readers, end, [&](std::uint32_t reader) {
                const Need& need = plan_.needs[reader];
                if (need.form == Form::in_place) return is_written_in(need.chunk, requests_[reader].region);
                return std::ranges::any_of(plan_.pieces_of(plan_.temporaries[need.temporary]),
                                           [&](const Piece& p) { return is_written_in(p.chunk, p.box); });
            });
        else
            look_at_readers_of(begin, readers, end, written_[num_indices++]);
    });
    return true;
}

/// Of one array that requests write beside the chunks, or several in one.
void Planner::look_at_readers_of(std::size_t begin, std::size_t readers, std::size_t end,
                                 const boxes::BoxIndex& written) {
    look_at_readers(readers, end, [&](std::uint32_t reader) {
        bool is_written = false;
        written.each_that_meets(
            requests_[reader].region,
            [&](std::size_t w) {
                is_written = plan_.needs[order_[begin + w]].form == Form::in_place;
                return !is_written;
            },
            &num_compared_);
        return is_written;
    });
}

/// What reads where a task writes in place keeps a snapshot, and does not wait to see where the chunks will be.
template<typename F>
void Planner::look_at_readers(std::size_t begin, std::size_t end, F&& is_written) {
    for (std::size_t i = begin; i < end; ++i) {
        const Need& need = plan_.needs[order_[i]];
        const bool is_in_place = need.form == Form::in_place;
        if (!is_in_place && !plan_.temporaries[need.temporary].chosen_late) continue;
        if (!is_written(order_[i])) continue;
        if (is_in_place)
            use_temporary(order_[i]);
        else
            plan_.temporaries[need.temporary].chosen_late = false;
    }
}

// -------------------------------------------------------------------------------------------------------- temporaries

void Planner::choose_late() {
    for (std::size_t begin = 0, end = 0; begin < requests_.size(); begin = end) {
        std::size_t num_late = 0;
        for (end = begin; end < requests_.size() && requests_[end].task == requests_[begin].task; ++end)
            num_late += is_late(plan_.needs[end]) ? 1 : 0;
        for (std::size_t i = begin; i < end && num_late > most_late_regions; ++i)
            if (is_late(plan_.needs[i])) plan_.temporaries[plan_.needs[i].temporary].chosen_late = false;
    }
    for (Temporary& t : plan_.temporaries) {
        const Request& r = requests_[t.request];
        t.may_be_in_place = t.chosen_late && arrays_[r.array]->is_stack && layout_of(r).may_be_read_in_place(r.region);
    }
}

/// That of an earlier request that reads the same region in the same memory; else `number`, which is then this one's.
std::uint32_t Planner::shared_temporary(std::uint32_t request, std::uint32_t number) {
    const Request& r = requests_[request];
    if (shared_.empty()) shared_.assign(std::bit_ceil(2 * requests_.size()), none);
    std::size_t h = std::size_t{r.array} << 16 ^ r.memory.index();
    for (std::size_t k = 0; k < layout_of(r).rank(); ++k)
        for (const std::int64_t x : {r.region.begin[k], r.region.end[k]})
            h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    for (;; ++h) {
        std::uint32_t& at = shared_[h & (shared_.size() - 1)];
        if (at == none) return at = number;
        const Request& other = requests_[plan_.temporaries[at].request];
        if (other.array == r.array && other.memory == r.memory && boxes::equal(other.region, r.region)) return at;
    }
}

/// In the order of the requests that use them first.
void Planner::number_temporaries() {
    std::vector<Temporary> ordered;
    ordered.reserve(plan_.temporaries.size());
    std::vector<std::uint32_t> numbers(plan_.temporaries.size(), none);
    for (std::uint32_t i = 0; i < requests_.size(); ++i) {
        Need& need = plan_.needs[i];
        if (need.form != Form::temporary) continue;
        std::uint32_t& number = numbers[need.temporary];
        if (number == none) {
            number = static_cast<std::uint32_t>(ordered.size());
            ordered.push_back(plan_.temporaries[need.temporary]);
            ordered.back().request = i;
        }
        need.temporary = number;
    }
    plan_.temporaries.swap(ordered);
}

/// Where a piece is written back: where its writers are, if the chunk fits there, else on the host, else anywhere. If
/// it fits nowhere the write-back fails for memory when it is placed.
memory::MemoryIndex Planner::memory_for(const PlannedArray& array, const Piece& piece) const noexcept {
    const std::size_t bytes = block_bytes(array, array.layout->num_elements(piece.chunk));
    const auto fits = [&](memory::MemoryIndex m) { return bytes <= (*limits_)[m]; };
    if (fits(piece.memory)) return piece.memory;
    for (const memory::MemoryIndex m : limits_->memories())
        if (fits(m)) return m;
    return piece.memory;
}

/// A write-back has one piece: beside the temporary only one chunk must find room at a time.
void Planner::list_transfers() {
    const auto number_of = [&](const Temporary& t) {
        return static_cast<std::uint32_t>(&t - plan_.temporaries.data());
    };
    for (const Temporary& t : plan_.temporaries) {
        if (!t.is_filled || t.chosen_late) continue;
        const Request& r = requests_[t.request];
        plan_.transfers.push_back(
            {Transfer::What::gather, r.memory, number_of(t), r.task, t.first_piece, t.num_pieces});
    }
    for (const Temporary& t : plan_.temporaries) {
        if (!t.is_written) continue;
        const Request& r = requests_[t.request];
        for (std::uint32_t p = t.first_piece; p < t.first_piece + t.num_pieces; ++p)
            plan_.transfers.push_back({Transfer::What::write_back, memory_for(*arrays_[r.array], plan_.pieces[p]),
                                       number_of(t), r.task, p, 1});
    }
}

/// Whether what the request reads was written.
bool Planner::check_content(std::uint32_t request) {
    const Request& r = requests_[request];
    const Need& need = plan_.needs[request];
    if (r.kind != AccessKind::read || need.form == Form::nothing) return true;
    const Written& written = *arrays_[r.array]->written;
    const auto check = [&](std::uint32_t chunk, const Box& box) {
        Box missing;
        if (written.covers(chunk, box, &missing)) return true;
        refusal_.region = boxes::intersection(missing, box);
        return refuse(Reason::unwritten, request);
    };
    if (need.form == Form::in_place) return check(need.chunk, r.region);
    const Temporary& t = plan_.temporaries[need.temporary];
    if (t.request != request) return true;  // it was looked at for the first
    return std::ranges::all_of(plan_.pieces_of(t), [&](const Piece& p) { return check(p.chunk, p.box); });
}

/// The first request of the task that uses the same chunk or temporary, from `few` on: none before does. O(1), for
/// tasks with very many accesses too.
std::size_t Planner::first_in_table(std::size_t request, std::size_t few) {
    if (first_uses_.size() < 2 * plan_.needs.size()) first_uses_.assign(std::bit_ceil(2 * plan_.needs.size()), 0);
    std::size_t h = used_[request].use * 0x9e3779b97f4a7c15ull;
    for (h ^= h >> 29;; ++h) {
        // Entries of tasks before count as empty.
        std::uint32_t& at = first_uses_[h & (first_uses_.size() - 1)];
        if (at < few || at >= request) return at = static_cast<std::uint32_t>(request);
        if (used_[at].use == used_[request].use) return at;
    }
}

/// Sets which chunk or temporary the request uses, for those of the same task behind it; returns the need of the first
/// one that does.
Need& Planner::note_use(std::size_t task_begin, std::size_t request, std::uint64_t use) {
    used_[request].use = use;
    const std::size_t few = task_begin + few_requests;
    std::size_t first = task_begin;
    while (first < few && used_[first].use != use) ++first;
    if (first == few) first = first_in_table(request, few);
    if (first == request) plan_.needs[first].first_of_chunk = true, plan_.needs[first].use = num_uses_++;
    plan_.needs[request].use = plan_.needs[first].use;
    return plan_.needs[first];
}

std::size_t Planner::block_bytes(const PlannedArray& array, std::size_t elements) noexcept {
    return memory::rounded(memory::block_bytes_of(elements * array.element_bytes, array.alignment));
}

std::size_t Planner::bytes_of(const std::vector<Request>& requests, Arrays arrays, std::size_t request) const noexcept {
    const Need& need = plan_.needs[request];
    const PlannedArray& array = *arrays[requests[request].array];
    if (need.form == Form::in_place) return block_bytes(array, need.chunk_elements);
    return block_bytes(array, static_cast<std::size_t>(boxes::volume(requests[request].region)));
}

/// After the last request of a task, which needs `bytes`.
void Planner::check_size(std::size_t task_begin, std::size_t bytes) noexcept {
    if (bytes <= (*limits_)[requests_[task_begin].memory] || refusal_.reason == Reason::too_large) return;
    refusal_.bytes = bytes;
    refuse(Reason::too_large, task_begin);
}

bool Planner::describe() {
    constexpr std::uint64_t nothing = ~std::uint64_t{0}, temporary = std::uint64_t{1} << 63;
    std::size_t task_begin = 0, bytes = 0;
    num_uses_ = 0;
    refusal_.reason = Reason::none;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        const Request& r = requests_[i];
        if (r.task != requests_[task_begin].task) {
            check_size(task_begin, bytes);
            task_begin = i, num_uses_ = 0, bytes = 0;
        }
        Need& need = plan_.needs[i];
        const PlannedArray& array = *arrays_[r.array];
        if (need.form != Form::in_place) {
            used_[i] = {nothing, nullptr};
            if (need.form == Form::nothing) continue;
            if (!check_content(static_cast<std::uint32_t>(i))) return false;
            const Temporary& t = plan_.temporaries[need.temporary];
            Need& first = note_use(task_begin, i, temporary | need.temporary);
            first.needs_content = t.is_filled;
            first.writes = first.replaces = t.is_written;
            if (&first == &need)
                bytes = memory::sum_bytes(bytes, block_bytes(array, static_cast<std::size_t>(boxes::volume(r.region))));
            continue;
        }
        const Written::State state = array.written->state_of(need.chunk);
        used_[i].record = state.record;
        if (r.kind == AccessKind::read && !state.all && !check_content(static_cast<std::uint32_t>(i))) return false;
        Need& first = note_use(task_begin, i, std::uint64_t{r.array} << 32 | need.chunk);
        if (&first == &need) bytes = memory::sum_bytes(bytes, block_bytes(array, need.chunk_elements));
        if (r.kind == AccessKind::read) {
            first.needs_content = true;
            continue;
        }
        first.writes = true;
        if (need.whole_chunk) first.replaces = true;
        // What else the chunk holds must stay, even where other tasks will have written it only by the time this one
        // runs.
        if (!need.whole_chunk || (r.kind == AccessKind::write && state.any)) first.needs_content = true;
    }
    if (!requests_.empty()) check_size(task_begin, bytes);
    return refusal_.reason == Reason::none;
}

}  // namespace kmm::plan
