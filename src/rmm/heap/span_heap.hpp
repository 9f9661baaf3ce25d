// Constant-time allocation inside spans of addresses: the memory that one stream has for its small requests.
//
// All free memory in it may be used by its owner at once; a `position` is the point that the owner's stream must have
// passed before another stream may use a piece. Owns: descriptors of pieces, in host memory (device memory holds no
// headers), and the table of blocks in use. Must not know: streams, drivers, locks. Not thread-safe.
//
// The search is that of two-level segregated fit (Masmano, Ripoll, Crespo, Real: TLSF, ECRTS 2004): a power of two,
// then sixteen steps between two powers, each with a list; two bit scans find the first list in which every piece fits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "rmm/heap/block_table.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

class span_heap {
  public:
    /// What `try_allocate` gave: `address` 0 if nothing fits. `position`: the latest at which part of it was freed.
    struct taken {
        std::uintptr_t address = 0;
        std::size_t size_bytes = 0;
        std::uint64_t position = 0;
        explicit operator bool() const noexcept { return address != 0; }
    };
    struct span {
        std::uintptr_t address = 0;
        std::size_t size_bytes = 0;
        std::uint64_t position = 0;
        explicit operator bool() const noexcept { return address != 0; }
    };
    /// A block that is neither in use nor free for the owner yet.
    using detached = std::uint32_t;
    static constexpr detached whole = ~detached{0};

    /// Sizes and addresses are multiples of `unit_bytes`, a power of two.
    explicit span_heap(std::size_t unit_bytes = 256);

    /// Adds free memory, freed at `position`. `joins`: it becomes a part of the spans that it touches, so that blocks
    /// may cross from one into the other. O(log spans + pieces of the smaller one of two spans that become one). Throws
    /// std::bad_alloc, with nothing done.
    void add_span(std::uintptr_t address, std::size_t size_bytes, std::uint64_t position, bool joins = false);
    /// Takes a span out in which nothing is in use or detached; of address 0 if there is none. Looks at those from
    /// number `*from` on, and sets that to where to go on: calls with one number that begins as 0 take all of them out
    /// in O(spans log spans).
    span remove_empty_span(std::size_t* from) noexcept;
    /// Takes memory out in which nothing is in use, in whole granules, at multiples of the granule: spans become
    /// shorter, and fall into two. Looks at free pieces of a granule and more, and around the detached blocks `near`.
    /// Before a row of granules goes, prepare(address, size in bytes, position, detached block or `whole`) is called
    /// for each piece of it; what that throws, or std::bad_alloc, ends the call, with this row left where it is. Then
    /// take(address, size in bytes), which does not throw; the detached blocks are gone. A detached block never leaves
    /// in part. O(n log n for the n free pieces and blocks, + what is free or detached beside them, and for each row
    /// log spans + the pieces on its shorter side).
    template<typename Prepare, typename Take>
    void remove_granules(std::size_t granule_bytes, std::vector<detached> near, Prepare&& prepare, Take&& take) {
        add_large_free(granule_bytes, &near);
        // By address, so that what lies between two blocks in use is looked at once.
        std::vector<std::pair<std::uintptr_t, index>> starts;
        starts.reserve(near.size());
        for (const index at : near) starts.emplace_back(pieces_[at].address, at);
        std::sort(starts.begin(), starts.end());
        std::uintptr_t looked_at_to = 0;
        for (const auto& [address, at] : starts) {
            if (address < looked_at_to) continue;
            const row r = row_around(at, granule_bytes);
            looked_at_to = r.all_end;
            if (r.begin == r.end) continue;
            for (index i = r.first; i != none && pieces_[i].address < r.end; i = pieces_[i].behind) {
                const piece& p = pieces_[i];
                const std::uintptr_t begin = std::max(p.address, r.begin);
                prepare(begin, std::min(end_of(p), r.end) - begin, p.position, p.is == state::detached ? i : whole);
            }
            remove_row(r);
            take(r.begin, r.end - r.begin);
        }
    }

    /// `size_bytes` is a multiple of the unit, above 0. O(1). Throws std::bad_alloc, with nothing done. `tag` is
    /// whatever the owner wants to know of the block.
    taken try_allocate(std::size_t size_bytes, std::uint16_t tag = 0);
    /// Gives a block in use back. Returns its size; 0, and nothing done, if there is none at the address. O(1).
    std::size_t free(std::uintptr_t address, std::uint64_t position) noexcept;

    /// Takes a block in use out of the table, without making it free. `*out_bytes` 0: there is none at the address.
    detached detach(std::uintptr_t address, std::size_t* out_bytes) noexcept;
    /// Makes a detached block free.
    void free_detached(detached block, std::uint64_t position) noexcept;
    /// Puts a detached block to use again. Throws std::bad_alloc, with nothing done.
    taken take_detached(detached block, std::uint16_t tag = 0);
    /// Cuts a detached block to its first `size_bytes`; the rest is detached too. Throws std::bad_alloc, with
    /// nothing done.
    detached split_detached(detached block, std::size_t size_bytes);
    std::size_t size_of(detached block) const noexcept { return bytes(pieces_[block].units); }

    std::size_t num_spans() const noexcept { return num_spans_; }
    /// Spans in which nothing is in use; something may be detached.
    std::size_t num_unused_spans() const noexcept { return num_unused_spans_; }
    std::size_t num_live() const noexcept { return live_.size(); }
    /// Pieces that were looked at where a call takes more than O(1): what the tests of complexity compare.
    std::uint64_t num_steps() const noexcept { return num_steps_; }
    std::size_t span_bytes() const noexcept { return span_bytes_; }
    std::size_t free_bytes() const noexcept { return free_bytes_; }
    std::size_t live_bytes() const noexcept { return live_bytes_; }
    /// Of the pieces that are free for the owner. O(pieces of the largest class).
    std::size_t largest_free_bytes() const noexcept;
    /// f(address, size in bytes, tag) for every block in use.
    template<typename F>
    void for_each_live(F&& f) const {
        live_.for_each([&](index at) { f(pieces_[at].address, bytes(pieces_[at].units), pieces_[at].tag); });
    }

  private:
    using index = std::uint32_t;
    static constexpr index none = ~index{0};
    enum class state : std::uint8_t { unused, free, live, detached };

    struct piece {
        std::uintptr_t address = 0;
        std::uint64_t position = 0;
        std::uint32_t units = 0;
        index before = none;  // neighbours in the span
        index behind = none;
        index previous = none;  // in the list of the class; `next` also chains unused descriptors
        index next = none;
        std::uint32_t in_span = 0;
        std::uint16_t tag = 0;  // of a block in use
        state is = state::unused;
    };
    struct span_record {
        std::uintptr_t address = 0;
        std::uint32_t units = 0;  // 0: no span, but room for one
        index first = none;
        index last = none;
        std::uint32_t num_live = 0;
    };
    /// Whole granules [begin, end) of one span in which nothing is in use.
    struct row {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        index first = none;          // the piece in which they begin
        std::uintptr_t all_end = 0;  // of the last piece beside them that is not in use
    };

    // Sixteen steps between two powers of two waste at most a sixteenth in a search; below sixteen units each count has
    // a list of its own.
    static constexpr unsigned steps_log2 = 4;
    static constexpr unsigned steps = 1u << steps_log2;
    static constexpr unsigned num_rows = 32 - steps_log2 + 1;
    // Pieces of the request's own class, which may be too small, examined before a larger one is cut.
    static constexpr int max_probes = 4;

    struct list_class {
        unsigned row, step;
    };
    static list_class class_of(std::uint32_t units) noexcept;

    std::size_t bytes(std::uint32_t units) const noexcept { return std::size_t{units} << unit_log2_; }
    index find(std::uint32_t units) const noexcept;
    void link(index at) noexcept;
    void unlink(index at) noexcept;
    index take_live(std::uintptr_t address) noexcept {
        return live_.take(address >> unit_log2_, [&](index at) { return pieces_[at].address == address; });
    }
    void reserve_pieces(int count);
    index new_piece() noexcept;
    void drop_piece(index at) noexcept;
    index split(index at, std::uint32_t units) noexcept;
    void release(index at, std::uint64_t position) noexcept;
    span remove(std::uint32_t of) noexcept;
    std::uintptr_t end_of(const piece& p) const noexcept { return p.address + bytes(p.units); }
    void reserve_record();
    std::uint32_t new_record(const span_record& s) noexcept;
    void drop_record(std::uint32_t of) noexcept;
    void move_record(std::uint32_t of, std::uintptr_t address) noexcept;
    std::uint32_t span_that_ends_at(std::uintptr_t address) const noexcept;
    std::uint32_t span_that_begins_at(std::uintptr_t address) const noexcept;
    void join(std::uint32_t before, std::uint32_t behind) noexcept;
    /// Which of two rows of pieces that end beside each other is shorter, and how many blocks in use are in it.
    struct shorter_side {
        bool is_left = false;
        std::uint32_t num_live = 0;
    };
    shorter_side shorter_of(index left, index right) const noexcept;
    void renumber(index from, bool to_the_left, std::uint32_t of) noexcept;
    void add_large_free(std::size_t least_bytes, std::vector<index>* pieces) const;
    row row_around(index at, std::size_t granule_bytes) const noexcept;
    void remove_row(const row& r);

    unsigned unit_log2_;
    std::uint32_t rows_ = 0;  // bit r: row r has a non-empty list
    std::array<std::uint16_t, num_rows> steps_in_row_{};
    std::array<std::array<index, steps>, num_rows> heads_;
    std::vector<piece> pieces_;
    index unused_ = none;
    std::vector<span_record> spans_;
    // By address; each record has one node for its whole life, which says where it stands among the spans.
    std::map<std::uintptr_t, std::uint32_t> by_address_;
    using record_node = std::map<std::uintptr_t, std::uint32_t>::node_type;
    std::vector<record_node> unused_records_;  // with room for all
    std::size_t num_spans_ = 0;
    std::size_t num_unused_spans_ = 0;
    block_table live_;
    std::size_t span_bytes_ = 0;
    std::size_t free_bytes_ = 0;
    std::size_t live_bytes_ = 0;
    mutable std::uint64_t num_steps_ = 0;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
