// A fuzz target: any sequence of submits to arrays that are cut in any way, planned by plan::Planner and by a model
// that knows nothing but the elements of each region.
//
// What the model says: of writes of one element the first pair is refused, then the first read of an element that was
// never written; which accesses work in a chunk and which beside it; what each chunk and temporary must hold, and that
// pieces are their regions. Submits follow each other: what one has written, the next ones may read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "elements.hpp"
#include "kmm/base/block_bytes.hpp"
#include "kmm/graph/compact_history.hpp"
#include "kmm/plan/planner.hpp"

namespace {

using namespace kmm;
using kmm_fuzz::Box;
using kmm_fuzz::Elements;
using kmm_fuzz::Input;
using kmm_fuzz::is_inside;
using kmm_fuzz::require;
using kmm_fuzz::Space;
using plan::AccessKind;
using plan::Form;
using plan::Layout;
using plan::Need;
using plan::Piece;
using plan::Refusal;
using plan::Request;
using plan::Planner;
using plan::Transfer;
using plan::Temporary;
using Reason = Refusal::Reason;

/// plan::most_late_pieces, and most_late_regions of planner.cpp.
constexpr std::size_t few_pieces = 16, few_regions = 16;
constexpr std::size_t none = ~std::size_t{0};

/// Nothing is joined, as if there were no memory for joins; what settled is forgotten.
struct FuzzPast final : graph::Past {
    graph::TaskNumber join(const graph::TaskNumbers&, bool) override { return 0; }
    void forget(graph::TaskNumber number) { forget_up_to(number, 0); }
};

constexpr std::size_t element_bytes = 4;

struct FuzzArray final : plan::Written {
    FuzzArray(Space its_space, Layout its_layout)
        : space(std::move(its_space)), layout(std::move(its_layout)), histories(layout.num_chunks()) {
        Elements seen;
        for (std::size_t c = 0; c < layout.num_chunks(); ++c) {
            chunks.push_back(space.in(layout.box(c)));
            require(chunks[c].any() && (seen & chunks[c]).none(), "chunks share elements");
            seen |= chunks[c];
        }
        require(seen == space.all(), "chunks do not cover the array");
    }
    State state_of(std::uint32_t chunk) const noexcept override {
        const graph::CompactHistory* const h = histories.find(chunk);
        return h == nullptr ? State() : State{nullptr, h->any_content(), h->is_whole()};
    }
    bool covers(std::uint32_t chunk, const Box& region, Box* missing) const override {
        const graph::CompactHistory* const h = histories.find(chunk);
        if (h != nullptr) return h->covers(region, missing);
        *missing = region;
        return false;
    }

    Space space;
    Layout layout;
    graph::ChunkHistories histories;
    plan::PlannedArray planned{&layout, this, element_bytes, memory::heap_alignment, true};
    std::vector<Elements> chunks;
    Elements written;
};

/// A request, and its elements.
struct Access {
    std::size_t array = 0;
    Elements elements;
    bool writes = false;
    // As the model has it:
    std::size_t chunk = none;  ///< which holds them all
    bool is_beside = false;
    bool is_snapshot = false;
    bool is_kept = false;  ///< beside, and some of it is written in place meanwhile
};

/// Several arrays and submits to them.
class World {
  public:
    World(Input& in, Planner& plan) : in_(in), plan_(plan) {
        const std::size_t count = in.one_in(16) ? 18 + in.number(4) : 1 + in.number(3);
        for (std::size_t i = 0; i < count; ++i) add_array(count > 3 ? 12 : in.one_in(4) ? 200 : 48);
        for (FuzzArray& a : arrays_) write_before(a);
    }

    void run() {
        for (std::size_t submits = 1 + in_.number(4); submits > 0; --submits) {
            make_requests();
            check();
        }
        check_first_write();
    }

  private:
    // -------------------------------------------------------------------------------------------------- the input

    void add_array(std::int64_t most) {
        std::size_t rank = in_.number(16) == 0 ? 0 : 1 + in_.number(4);
        std::vector<std::int64_t> extents = kmm_fuzz::random_extents(in_, rank, most);
        const bool has_long_rows = most > 12 && in_.one_in(6);
        if (has_long_rows) rank = 2, extents = {in_.between(1, 20), in_.one_in(2) ? 16 : in_.between(14, 24)};
        Space space(rank, extents.data());
        std::vector<Box> boxes;
        const std::size_t kind = in_.number(4);
        if (has_long_rows || kind > 1) {
            std::vector<std::int64_t> cell;
            for (const std::int64_t n : extents)
                cell.push_back(in_.one_in(2) || (has_long_rows && !cell.empty()) ? n : in_.between(1, n));
            if (in_.one_in(2)) {
                arrays_.emplace_back(space, Layout(rank, space.array(), cell.data(), plan::ChunkHomes()));
                return;
            }
            boxes = kmm_fuzz::grid_cells(space.array(), rank, cell.data());
            in_.shuffle(boxes);
        } else if (kind == 1) {  // slabs of any length
            boxes = kmm_fuzz::random_cuts(in_, space.array(), std::min<std::size_t>(rank, 1), 1 + in_.number(24));
        } else {
            boxes = kmm_fuzz::random_cuts(in_, space.array(), rank, 1 + in_.number(in_.one_in(3) ? 60 : 8));
        }
        std::vector<detail::ChunkGeometry> geometry;
        for (const Box& b : boxes) geometry.push_back({MemoryId::host(), b});
        Layout layout(rank, space.array(), std::move(geometry));
        arrays_.emplace_back(std::move(space), std::move(layout));
    }

    void write_before(FuzzArray& a) {
        const std::size_t unwritten = in_.number(4);  // in 8 chunks
        for (std::size_t c = 0; c < a.chunks.size(); ++c) {
            if (in_.number(8) < unwritten) continue;
            const Box whole = a.layout.box(c);
            for (std::size_t parts = in_.one_in(4) ? 1 + in_.number(20) : 1; parts > 0; --parts)
                use(a, parts > 1 || in_.one_in(6) ? kmm_fuzz::random_part(in_, whole, a.layout.rank()) : whole, true);
        }
    }

    /// A task uses a region, as if it had been submitted: of a read everything was written.
    void use(FuzzArray& a, const Box& region, bool writes) {
        ++task_;
        graph::Predecessors predecessors;
        const Elements elements = a.space.in(region);
        for (std::size_t c = 0; c < a.chunks.size(); ++c) {
            if ((a.chunks[c] & elements).none()) continue;
            const auto box = [&] { return a.layout.box(c); };
            const Box part = boxes::intersection(region, box());
            const bool is_whole = is_inside(a.chunks[c], elements);
            auto& history = a.histories.touch(c, [&] { return graph::CompactHistory(a.layout.rank()); });
            if (writes)
                history.write(part, is_whole, box, task_, false, predecessors, past_);
            else
                history.read(part, is_whole, box, task_, predecessors, past_);
        }
        if (writes) a.written |= elements;
    }

    Box random_region(const FuzzArray& a) {
        const std::size_t rank = a.layout.rank();
        const Box chunk = a.layout.box(in_.number(a.chunks.size()));
        switch (in_.number(16)) {
        case 0: return a.space.array();
        case 1:
        case 2: return kmm_fuzz::random_part(in_, a.space.array(), rank);
        case 3:
        case 4:
        case 5: return kmm_fuzz::random_part(in_, chunk, rank);
        case 6:
        case 7:
        case 8: {  // with what lies around it
            Box wide = chunk;
            for (std::size_t k = 0; k < rank; ++k) {
                wide.begin[k] = std::max<std::int64_t>(0, wide.begin[k] - in_.between(0, 2));
                wide.end[k] = std::min(a.space.array().end[k], wide.end[k] + in_.between(0, 2));
            }
            return wide;
        }
        case 9: {  // rows, or nearly
            Box rows = a.space.array();
            if (rank == 0) return rows;
            rows.begin[0] = in_.between(0, rows.end[0] - 1);
            rows.end[0] = in_.between(rows.begin[0] + 1, rows.end[0]);
            const std::size_t k = in_.number(rank);
            if (k > 0 && rows.end[k] > 1) in_.one_in(2) ? ++rows.begin[k] : --rows.end[k];
            return rows;
        }
        case 10: {  // no elements
            Box empty = chunk;
            if (rank > 0 && in_.one_in(2)) std::swap(empty.begin[in_.number(rank)], empty.end[0]);
            if (rank > 0 && !boxes::is_empty(empty, rank)) empty.end[0] = empty.begin[0] - in_.between(0, 2);
            return empty;
        }
        default: return chunk;
        }
    }

    void make_requests() {
        requests_.clear();
        accesses_.clear();
        const bool may_conflict = in_.one_in(6), may_be_unwritten = in_.one_in(6);
        const std::size_t num_memories = 1 + in_.number(3), reads_in_8 = in_.number(8);
        const std::size_t tasks = 1 + (in_.one_in(4) ? in_.number(30) : in_.number(6));
        const std::size_t most = in_.one_in(8) ? 60 : 4;
        std::vector<Elements> claimed(arrays_.size());
        for (std::size_t task = 0; task < tasks; ++task) {
            const auto memory = memory_of(in_.number(num_memories));
            for (std::size_t n = in_.number(most) + 1; n > 0; --n) {
                const std::size_t array = in_.number(arrays_.size());
                FuzzArray& a = arrays_[array];
                Request r;
                r.region = random_region(a);
                r.array = static_cast<std::uint32_t>(array);
                r.empty = boxes::is_empty(r.region, a.layout.rank());
                r.task = static_cast<std::uint32_t>(task);
                r.argument = static_cast<std::uint32_t>(n);
                r.memory = memory;
                const Elements elements = a.space.in(r.region);
                require(r.empty == elements.none(), "a region is empty, or is not, against what its elements say");
                if (in_.number(8) >= reads_in_8) r.kind = in_.one_in(2) ? AccessKind::write : AccessKind::overwrite;
                if (!may_conflict && plan::writes(r.kind) && (claimed[array] & elements).any())
                    r.kind = AccessKind::read;
                if (r.kind == AccessKind::read && !may_be_unwritten && !is_inside(elements, a.written)) continue;
                if (plan::writes(r.kind)) claimed[array] |= elements;
                requests_.push_back(r);
                accesses_.push_back({array, elements, plan::writes(r.kind), none, false, false, false});
            }
        }
    }
    static memory::MemoryIndex memory_of(std::size_t i) {
        return i == 0   ? memory::MemoryIndex::of_device(0)
               : i == 1 ? memory::MemoryIndex::host()
                        : memory::MemoryIndex::of_device(1);
    }

    // -------------------------------------------------------------------------------------------------- the model

    std::size_t count() const { return requests_.size(); }
    bool share(std::size_t i, std::size_t j) const {
        return accesses_[i].array == accesses_[j].array && (accesses_[i].elements & accesses_[j].elements).any();
    }
    FuzzArray& array_of(std::size_t i) { return arrays_[accesses_[i].array]; }
    bool meets(std::size_t i, std::size_t chunk) { return (accesses_[i].elements & array_of(i).chunks[chunk]).any(); }
    /// The memory of the first request that writes a chunk of the array of request `i`.
    memory::MemoryIndex written_in(std::size_t i, std::size_t chunk) {
        for (std::size_t j = 0; j < count(); ++j)
            if (accesses_[j].writes && accesses_[j].array == accesses_[i].array && meets(j, chunk))
                return requests_[j].memory;
        kmm_fuzz::fail("a chunk was to be written that no request writes");
    }
    bool use_same_temporary(std::size_t i, std::size_t j) const {
        return i == j || (accesses_[i].is_beside && accesses_[j].is_beside && !accesses_[i].writes &&
                          !accesses_[j].writes && accesses_[i].array == accesses_[j].array &&
                          requests_[i].memory == requests_[j].memory && accesses_[i].elements == accesses_[j].elements);
    }

    void decide() {
        for (std::size_t i = 0; i < count(); ++i) {
            Access& a = accesses_[i];
            if (a.elements.none()) continue;
            for (std::size_t c = 0; c < array_of(i).chunks.size(); ++c)
                if (is_inside(a.elements, array_of(i).chunks[c])) a.chunk = c;
            a.is_beside = a.chunk == none || (a.writes && written_in(i, a.chunk) != requests_[i].memory);
        }
        std::vector<std::size_t> in_place_writers;
        for (std::size_t i = 0; i < count(); ++i)
            if (accesses_[i].writes && accesses_[i].elements.any() && !accesses_[i].is_beside)
                in_place_writers.push_back(i);
        for (std::size_t i = 0; i < count(); ++i) {
            Access& a = accesses_[i];
            if (a.writes) continue;
            a.is_kept = std::any_of(in_place_writers.begin(), in_place_writers.end(),
                                    [&](std::size_t w) { return share(i, w); });
            a.is_snapshot = a.is_kept && !a.is_beside;
            a.is_beside = a.is_beside || a.is_snapshot;
        }
    }

    /// Why the submit must be refused; of an unwritten read `region` is all that is missing.
    struct Expected {
        Reason reason = Reason::none;
        std::size_t first = 0, second = 0;
        Elements region;
        std::size_t bytes = 0;
    };
    std::size_t limit() { return in_.one_in(8) ? in_.number(24) * memory::heap_alignment : SIZE_MAX; }
    /// Whether no request from `begin` on, of the same task, uses the same chunk or temporary.
    bool is_new_use(std::size_t begin, std::size_t i) const {
        const Access& a = accesses_[i];
        if (a.elements.none()) return false;
        for (std::size_t j = begin; j < i; ++j) {
            const Access& b = accesses_[j];
            if (b.elements.none() || a.array != b.array || a.is_beside != b.is_beside) continue;
            if (a.is_beside ? use_same_temporary(j, i) : a.chunk == b.chunk) return false;
        }
        return true;
    }
    std::size_t bytes_of(std::size_t i) {
        const Access& a = accesses_[i];
        return memory::rounded(element_bytes * (a.is_beside ? a.elements : array_of(i).chunks[a.chunk]).count());
    }
    Expected expect() {
        for (std::size_t i = 0; i < count(); ++i)
            for (std::size_t j = i + 1; j < count(); ++j)
                if (accesses_[i].writes && accesses_[j].writes && share(i, j))
                    return {Reason::conflict, i, j, accesses_[i].elements & accesses_[j].elements};
        for (std::size_t i = 0; i < count(); ++i) {
            const Elements missing = accesses_[i].elements & ~array_of(i).written;
            if (!accesses_[i].writes && missing.any()) return {Reason::unwritten, i, 0, missing};
        }
        decide();
        for (std::size_t begin = 0, end = 0; begin < count(); begin = end) {
            std::size_t bytes = 0;
            for (end = begin; end < count() && requests_[end].task == requests_[begin].task; ++end)
                if (is_new_use(begin, end)) bytes += bytes_of(end);
            if (bytes > limits_[requests_[begin].memory]) return {Reason::too_large, begin, 0, {}, bytes};
        }
        return {};
    }

    // -------------------------------------------------------------------------------------------------- the comparison

    void check() {
        limits_ = {limit(), limit(), limit()};
        const Expected expected = expect();
        std::vector<const plan::PlannedArray*> planned;
        for (const FuzzArray& a : arrays_) planned.push_back(&a.planned);
        const bool is_made = plan_.make(requests_, planned, limits_);
        require(is_made == (expected.reason == Reason::none), "a submit is refused, or is not, against its elements");
        if (!is_made) {
            const Refusal& r = plan_.refusal();
            require(r.reason == expected.reason, "a submit is refused for the wrong reason");
            require(r.first == expected.first, "the first request of a refusal is not the lowest");
            if (r.reason == Reason::too_large) return require(r.bytes == expected.bytes, "a task has the wrong size");
            const Elements region = array_of(r.first).space.in(r.region);
            require(boxes::contains(requests_[r.first].region, r.region), "a refusal names what is not requested");
            if (r.reason == Reason::conflict) {
                require(r.second == expected.second, "the second request of a conflict is not the lowest");
                require(region == expected.region, "a conflict is not what both requests write");
            } else {
                require(region.any() && is_inside(region, expected.region), "what is unwritten was written");
            }
            return;
        }
        require(plan_.plan().needs.size() == count(), "not each request has a need");
        std::size_t num_temporaries = 0;
        for (std::size_t i = 0; i < count(); ++i) {
            const Need& need = plan_.plan().needs[i];
            const Access& a = accesses_[i];
            const Form form = a.elements.none() ? Form::nothing : a.is_beside ? Form::temporary : Form::in_place;
            require(need.form == form, "a need is met in the wrong form");
            if (form == Form::nothing) require(!need.first_of_chunk, "an empty region uses a chunk");
            if (form == Form::in_place) check_in_place(i);
            if (form == Form::temporary) check_temporary(i, num_temporaries);
            if (form != Form::nothing) check_use(i);
        }
        require(plan_.plan().temporaries.size() == num_temporaries, "there is a temporary that no request uses");
        check_late();
        check_transfers();
        if (!in_.one_in(4)) submit();
    }

    /// The uses of a task are numbered as it names them first.
    void check_use(std::size_t i) {
        const Need& need = plan_.plan().needs[i];
        std::uint32_t num_before = 0;
        bool is_known = false;
        for (std::size_t j = 0; j < i; ++j) {
            const Need& other = plan_.plan().needs[j];
            if (requests_[j].task != requests_[i].task || other.form == Form::nothing) continue;
            num_before += other.first_of_chunk;
            const bool is_same =
                other.form == need.form &&
                (need.form == Form::temporary ? other.temporary == need.temporary
                                              : accesses_[j].array == accesses_[i].array && other.chunk == need.chunk);
            require(is_same == (other.use == need.use), "two accesses are of one use, or are not");
            is_known = is_known || is_same;
        }
        if (!is_known) require(need.use == num_before, "uses are not numbered in the order of their first accesses");
    }

    void check_in_place(std::size_t i) {
        const Need& need = plan_.plan().needs[i];
        const Access& a = accesses_[i];
        FuzzArray& array = array_of(i);
        require(need.chunk == a.chunk, "the wrong chunk");
        const Elements& chunk = array.chunks[a.chunk];
        require(need.chunk_elements == chunk.count(), "the elements of a chunk are counted wrongly");
        require(need.whole_chunk == (a.elements == chunk), "a region is the chunk, or is not, against its elements");
        const std::size_t begin = kmm_fuzz::first_of(a.elements);
        std::size_t offset = 0;
        for (std::size_t e = 0; e < begin; ++e) offset += chunk[e];
        require(need.offset == offset, "the offset is not the number of elements before the region");

        bool is_first = true, reads = false, writes = false, replaces = false, keeps = false;
        for (std::size_t j = 0; j < count(); ++j) {
            const Access& b = accesses_[j];
            if (requests_[j].task != requests_[i].task || b.array != a.array || b.chunk != a.chunk || b.is_beside)
                continue;
            is_first = is_first && j >= i;
            reads = reads || !b.writes;
            writes = writes || b.writes;
            replaces = replaces || (b.writes && b.elements == chunk);
            const bool finds_content = requests_[j].kind == AccessKind::write && (array.written & chunk).any();
            keeps = keeps || (b.writes && (b.elements != chunk || finds_content));
        }
        require(need.first_of_chunk == is_first, "the first access of a task to a chunk");
        if (!is_first) return;
        require(need.writes == writes, "a chunk is written, or is not");
        require(need.replaces == replaces, "a chunk is replaced, or is not");
        require(need.needs_content == (reads || keeps), "content is needed, or is not");
    }

    void check_temporary(std::size_t i, std::size_t& num_temporaries) {
        const Need& need = plan_.plan().needs[i];
        const Access& a = accesses_[i];
        const Request& r = requests_[i];
        std::size_t first_user = count(), first_of_task = count();
        for (std::size_t j = count(); j-- > 0;) {
            const bool is_same = use_same_temporary(i, j);
            if (accesses_[j].is_beside)
                require((plan_.plan().needs[j].temporary == need.temporary) == is_same,
                        "temporaries are shared wrongly");
            if (!is_same) continue;
            first_user = j;
            if (requests_[j].task == r.task) first_of_task = j;
        }
        if (first_user == i) {
            require(need.temporary == num_temporaries, "temporaries are not in the order of their first requests");
            ++num_temporaries;
        }
        require(need.temporary < plan_.plan().temporaries.size(), "there is no such temporary");
        const Temporary& t = plan_.plan().temporaries[need.temporary];
        require(t.request == first_user, "a temporary does not name its first request");
        require(t.is_filled == (r.kind != AccessKind::overwrite), "a temporary is filled, or is not");
        require(t.is_written == a.writes, "a temporary is written back, or is not");
        require(t.is_snapshot == a.is_snapshot, "a temporary is a snapshot, or is not");
        require(need.first_of_chunk == (first_of_task == i), "the first access of a task to a temporary");
        if (need.first_of_chunk)
            require(need.needs_content == t.is_filled && need.writes == t.is_written && need.replaces == t.is_written,
                    "a need is not as its temporary");
        if (first_user == i) check_pieces(i, t);
    }

    void check_pieces(std::size_t i, const Temporary& t) {
        const Access& a = accesses_[i];
        FuzzArray& array = array_of(i);
        require(t.first_piece + t.num_pieces <= plan_.plan().pieces.size(), "pieces that are not listed");
        Elements covered;
        std::size_t last = none;
        for (const Piece& p : plan_.plan().pieces_of(t)) {
            const Elements piece = array.space.in(p.box);
            require(piece.any() && is_inside(piece, a.elements), "a piece is not inside its region");
            require(p.chunk < array.chunks.size() && is_inside(piece, array.chunks[p.chunk]),
                    "a piece is not inside its chunk");
            require(p.whole_chunk == (piece == array.chunks[p.chunk]), "a piece is its chunk, or is not");
            require((piece & covered).none(), "pieces share elements");
            covered |= piece;
            require(last == none || p.chunk > last, "a chunk has two pieces, or pieces are not in order");
            last = p.chunk;
            if (t.is_written) require(p.memory == written_in(i, p.chunk), "a chunk is written in two memories");
        }
        require(covered == a.elements, "pieces are not the region");
        require(!t.is_snapshot || t.num_pieces == 1, "a snapshot of several chunks");

        const Box& region = requests_[i].region;
        const std::size_t rank = array.layout.rank();
        Box rows = region;
        for (std::size_t k = 1; k < rank; ++k) rows.begin[k] = 0, rows.end[k] = array.space.array().end[k];
        bool is_cut_by_rows = array.layout.is_grid();
        for (const Elements& chunk : array.chunks) {
            const Box box = box_around(array, chunk);
            for (std::size_t k = 1; k < rank; ++k)
                is_cut_by_rows = is_cut_by_rows && box.end[k] - box.begin[k] == array.space.array().end[k];
        }
        const std::size_t wider = array.space.in(rows).count() - a.elements.count();
        const bool may_be_in_place = t.chosen_late && is_cut_by_rows && 16 * wider <= a.elements.count();
        require(t.may_be_in_place == may_be_in_place, "a gather may be read in place, or may not");
        if (may_be_in_place)
            require(t.num_pieces == last - plan_.plan().pieces_of(t)[0].chunk + 1, "pieces are not neighbours");
    }

    static Box box_around(const FuzzArray& array, const Elements& elements) {
        Box box;
        bool is_first = true;
        for (std::size_t e = 0; e < array.space.size(); ++e) {
            if (!elements[e]) continue;
            for (std::size_t k = 0; k < array.space.rank(); ++k) {
                const std::int64_t at = array.space.elements()[e].at[k];
                box.begin[k] = is_first ? at : std::min(box.begin[k], at);
                box.end[k] = is_first ? at + 1 : std::max(box.end[k], at + 1);
            }
            is_first = false;
        }
        return box;
    }

    /// What is filled when a task is placed: few pieces, on a device, nothing of it is written meanwhile, and a task
    /// has few of them.
    void check_late() {
        std::vector<bool> may_be(count(), false), is_in_large_task(plan_.plan().temporaries.size(), false);
        std::vector<std::size_t> num_late(count() == 0 ? 0 : requests_.back().task + 1, 0), num_that_may = num_late;
        for (std::size_t i = 0; i < count(); ++i) {
            const Need& need = plan_.plan().needs[i];
            if (need.form != Form::temporary) continue;
            const Access& a = accesses_[i];
            const Temporary& t = plan_.plan().temporaries[need.temporary];
            may_be[i] = !a.writes && !a.is_kept && requests_[i].memory.is_device() && t.num_pieces <= few_pieces;
            require(may_be[i] || !t.chosen_late, "what must be gathered ahead is chosen late");
            num_that_may[requests_[i].task] += may_be[i];
            num_late[requests_[i].task] += t.chosen_late;
        }
        for (std::size_t i = 0; i < count(); ++i)
            if (may_be[i] && num_that_may[requests_[i].task] > few_regions)
                is_in_large_task[plan_.plan().needs[i].temporary] = true;
        for (std::size_t i = 0; i < count(); ++i) {
            require(num_late[requests_[i].task] <= few_regions, "a task has many regions that are chosen late");
            if (!may_be[i] || is_in_large_task[plan_.plan().needs[i].temporary]) continue;
            require(plan_.plan().temporaries[plan_.plan().needs[i].temporary].chosen_late,
                    "what could wait is gathered ahead");
        }
    }

    /// All gathers, then all write-backs, each in the order of the temporaries.
    void check_transfers() {
        const plan::SubmitPlan& plan = plan_.plan();
        std::vector<Transfer> expected;
        for (std::uint32_t t = 0; t < plan.temporaries.size(); ++t) {
            const Temporary& of = plan.temporaries[t];
            const Request& r = requests_[of.request];
            if (of.is_filled && !of.chosen_late)
                expected.push_back({Transfer::What::gather, r.memory, t, r.task, of.first_piece, of.num_pieces});
        }
        for (std::uint32_t t = 0; t < plan.temporaries.size(); ++t) {
            const Temporary& of = plan.temporaries[t];
            for (std::uint32_t i = 0; of.is_written && i < of.num_pieces; ++i) {
                const Piece& p = plan.pieces[of.first_piece + i];
                const FuzzArray& array = array_of(of.request);
                const std::size_t bytes = memory::rounded(element_bytes * array.chunks[p.chunk].count());
                memory::MemoryIndex to = p.memory;
                for (std::size_t m = 3; bytes > limits_[p.memory] && m-- > 0;)
                    if (const auto other = memories[m]; bytes <= limits_[other]) to = other;
                expected.push_back(
                    {Transfer::What::write_back, to, t, requests_[of.request].task, of.first_piece + i, 1});
            }
        }
        require(plan.transfers == expected, "the transfers of a submit");
    }

    void submit() {
        for (std::size_t i = 0; i < count(); ++i)
            if (!accesses_[i].writes) use(array_of(i), requests_[i].region, false);
        for (std::size_t i = 0; i < count(); ++i)
            if (accesses_[i].writes) use(array_of(i), requests_[i].region, true);
        if (in_.one_in(2)) past_.forget(task_ - std::min<graph::TaskNumber>(task_, in_.number(3)));
    }

    // ------------------------------------------------------------------------------------------ the first write

    void check_first_write() {
        const std::size_t rank = in_.number(4);
        const std::vector<std::int64_t> extents = kmm_fuzz::random_extents(in_, rank, 40);
        const Space space(rank, extents.data());
        std::vector<Box> regions =
            kmm_fuzz::random_cuts(in_, space.array(), rank, 1 + in_.number(in_.one_in(3) ? 40 : 6));
        if (in_.one_in(4)) {
            std::vector<std::int64_t> cell;
            for (const std::int64_t n : extents) cell.push_back(in_.between(1, n));
            regions = kmm_fuzz::grid_cells(space.array(), rank, cell.data());
        }
        for (std::size_t damage = in_.one_in(2) ? 1 + in_.number(2) : 0; damage > 0 && !regions.empty(); --damage) {
            const std::size_t i = in_.number(regions.size());
            if (in_.one_in(2))
                regions[i] = kmm_fuzz::random_part(in_, space.array(), rank);
            else
                regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(i));
        }
        std::vector<Request> requests;
        std::vector<std::uint32_t> positions;
        const auto add = [&](AccessKind kind, const Box& region) {
            requests.emplace_back();  // of another array
            Request& r = requests.emplace_back();
            r.region = region;
            r.kind = kind;
            r.empty = boxes::is_empty(region, rank);
            r.memory = memory_of(in_.number(3));
            positions.push_back(static_cast<std::uint32_t>(requests.size() - 1));
        };
        for (const Box& region : regions) {
            add(in_.one_in(2) ? AccessKind::write : AccessKind::overwrite, region);
            Box empty = region;
            if (rank > 0) empty.end[0] = empty.begin[0];
            if (rank > 0 && in_.one_in(8)) add(AccessKind::overwrite, empty);
            if (in_.one_in(64)) add(AccessKind::read, rank > 0 && in_.one_in(2) ? empty : region);
        }
        if (positions.empty()) return;

        std::vector<detail::ChunkGeometry> chunks;
        const bool is_made = plan_.first_write(space.array(), requests, positions, chunks);
        Elements covered;
        bool reads = false, conflicts = false;
        std::vector<std::uint32_t> writers;
        for (const std::uint32_t i : positions) {
            const Elements elements = space.in(requests[i].region);
            reads = reads || requests[i].kind == AccessKind::read;
            conflicts = conflicts || (covered & elements).any();
            covered |= elements;
            if (!requests[i].empty) writers.push_back(i);
        }
        require(is_made == (!reads && !conflicts && covered == space.all()), "a first write is refused, or is not");
        if (is_made) {
            require(chunks.size() == writers.size(), "not each region becomes a chunk");
            for (std::size_t c = 0; c < chunks.size(); ++c)
                require(boxes::equal(chunks[c].box, requests[writers[c]].region) &&
                            chunks[c].home == requests[writers[c]].memory.id(),
                        "a chunk is not the region that is written, at home where it is written");
            return;
        }
        const Refusal& r = plan_.refusal();
        require(std::count(positions.begin(), positions.end(), r.first) == 1, "a refusal names another array");
        const Elements named = space.in(r.region), first = space.in(requests[r.first].region);
        require(named.any() && boxes::contains(space.array(), r.region), "a refusal names no region of the array");
        if (r.reason == Reason::unwritten) {
            require(requests[r.first].kind == AccessKind::read, "what is written is refused as if it were read");
            require(named == (requests[r.first].empty ? space.all() : first), "not what is read");
        } else if (r.reason == Reason::conflict) {
            require(!reads && conflicts && r.first < r.second, "a conflict that is none");
            require(named == (first & space.in(requests[r.second].region)), "not what both write");
        } else {
            require(r.reason == Reason::gap && !reads && !conflicts, "refused for the wrong reason");
            require((named & covered).none(), "a gap that is written");
        }
    }

    static constexpr memory::MemoryIndex memories[3] = {memory::MemoryIndex::host(), memory::MemoryIndex::of_device(0),
                                                        memory::MemoryIndex::of_device(1)};
    Input& in_;
    Planner& plan_;
    plan::Limits limits_;
    std::deque<FuzzArray> arrays_;
    FuzzPast past_;
    graph::TaskNumber task_ = 0;
    std::vector<Request> requests_;
    std::vector<Access> accesses_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input in(data, size);
    Planner plan;  // keeps what it has for the next submit
    for (int worlds = 0; worlds < 16 && !in.is_over(); ++worlds) World(in, plan).run();
    return 0;
}
