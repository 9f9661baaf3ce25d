// The heap: which addresses of some regions are free, and what must have happened before each may be used again.
//
// Owns: the free address ranges and their fences. Must not know: drivers, streams, threads, kmm. Pure and not
// thread-safe: the owner (a pool, the runtime's memory) brings the lock and interprets the fences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rmm/heap/fence_set.hpp"
#include "rmm/heap/size_classes.hpp"
#include "rmm/heap/tree.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// A piece of memory, in use or free. `fences`: what the next user must wait for.
struct block {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    fence_set fences;
    explicit operator bool() const noexcept { return size_bytes != 0; }
};

/// Which free neighbours merge at once; all others merge lazily, when nothing else fits.
enum class merging : std::uint8_t {
    equal_fences,    ///< one slow fence does not taint memory that is ready
    same_timelines,  ///< the later positions win: larger pieces, where users mostly ask on the same timeline
};

/// Whether memory of one region may be handed out together with its neighbour's.
enum class border : std::uint8_t {
    open,    ///< a region that begins where another ends extends it
    sealed,  ///< no block ever crosses it (two allocations of a driver that happen to touch)
};

/// Where a request is placed among the pieces that it may use at once.
enum class placement : std::uint8_t {
    best_fit,
    /// Requests that are small beside the others lately go to the lowest address where they fit. They leave the large
    /// pieces above whole, which best fit would cut where a large piece happens to be the tightest.
    small_from_below,
};

/// Best fit over address ranges, as far as `placement` says nothing else. Sizes are rounded up to `alignment`,
/// addresses are multiples of it. Complexity: O(log free pieces), however many timelines there are, where nothing else
/// is said.
///
/// Each allocation reserves the host memory for one free, so that the free allocates none, up to the limit of
/// `expect_frees_at_most`.
class heap {
    /// Size and, among equals, address: one number, so that comparing them does not branch.
    __extension__ using place = unsigned __int128;
    static constexpr place place_of(std::size_t size_bytes, std::uintptr_t address) noexcept {
        return place{size_bytes} << 64 | address;
    }
    static constexpr place behind_all = ~place{0};

  public:
    explicit heap(std::size_t alignment = 256, merging how = merging::equal_fences,
                  placement where = placement::best_fit);
    heap(heap&&) noexcept = default;
    heap& operator=(heap&&) noexcept = default;

    /// Adds free memory, which carries `fences`.
    void add_region(std::uintptr_t address, std::size_t size_bytes, border borders = border::open,
                    const fence_set& fences = {});
    /// Takes back memory that is wholly free: a region, touching regions, or any part of one; false and no change
    /// otherwise. Fences that the memory still carries are added to `*left`; without `left` fenced memory is refused.
    bool remove_region(std::uintptr_t address, std::size_t size_bytes, fence_set* left = nullptr);

    /// Pieces that `prune` may examine for each that it may change.
    static constexpr std::size_t looks_for_change = 16;

    /// Of a caller without a timeline of its own.
    static constexpr std::uint64_t no_timeline = ~std::uint64_t{0};

    /// An empty block if nothing fits (or `size_bytes` is 0). Prefers pieces without fences, or with fences of timeline
    /// `own` only; among these the smallest that fits, then the lowest address; for a small request from below the
    /// lowest that fits without fences, or the smallest with those of `own` if that lies lower. Where no piece fits,
    /// the beginning of the lowest row of touching pieces that does. The block's size is rounded up. Pieces with fences
    /// of the timelines `avoided` are left out, which costs O(their pieces) more, and O(free pieces) where only a row
    /// of pieces fits. Where no piece fits, and there are 128 at most, each of them is looked at.
    block try_allocate(std::size_t size_bytes, std::uint64_t own = no_timeline,
                       std::span<const std::uint64_t> avoided = {});
    /// As `try_allocate`, but only of memory without fences or with fences of `own`; merges nothing.
    block try_allocate_ready(std::size_t size_bytes, std::uint64_t own);
    /// Whether all of the range is free. O(pieces in it + log free pieces).
    bool is_free(std::uintptr_t address, std::size_t size_bytes) const noexcept {
        return size_bytes != 0 && first_of_free(address, address + size_bytes) != nullptr;
    }
    /// Whether a region begins there: what lies before it is another one, or none of this heap. O(log regions).
    bool begins_region(std::uintptr_t address) const noexcept;
    /// Takes exactly this range, if all of it is free.
    block take(std::uintptr_t address, std::size_t size_bytes);
    /// Removes a block that was given out by one call, and not freed, for good. Allocates no host memory.
    void remove_taken(std::uintptr_t address, std::size_t size_bytes) noexcept;
    /// Gives back [address, address + size) with the fences that its last users left. The size must be what was asked
    /// for. Throws std::logic_error, and changes nothing, for memory that is free already or not of this heap.
    void free(std::uintptr_t address, std::size_t size_bytes, fence_set fences);
    /// Reserves host memory for `more` additional frees, of blocks that go back in parts. Throws std::bad_alloc.
    void expect_frees(std::size_t more);
    /// Limits the reserve to `most` frees, for an owner that has very many blocks and can defer a free. Frees beyond it
    /// may throw std::bad_alloc, with nothing done. Not with `remove_taken`.
    void expect_frees_at_most(std::size_t most) noexcept { most_expected_ = most; }
    /// Takes `fewer` expected frees out of the reserve.
    void expect_fewer_frees(std::size_t fewer) noexcept { num_expected_ -= std::min(fewer, num_expected_); }
    /// Progress of a `prune` of some timelines over several calls.
    class pruning {
        friend class heap;
        bool several_ = false;        // in the second phase: pieces with fences of several timelines
        std::size_t num_left_ = 0;    // of the timelines
        place below_ = behind_all;    // of the last of these: only pieces before this place remain
        std::size_t num_merges_ = 0;  // of the heap at the begin; 0: not begun
        void begin(bool several, std::size_t num_timelines, std::size_t num_merges) noexcept {
            several_ = several;
            num_left_ = num_timelines;
            below_ = behind_all;
            num_merges_ = num_merges;
        }
    };
    /// Drops the fences for which passed(fence) is true, and merges pieces that lost some with their neighbours.
    /// `moved`: the timelines (below 2^63 - 1) that have passed something since they were named last, in ascending
    /// order; no fence that is given to the heap may have passed before that. Examines only pieces that are owned by
    /// these timelines (the heap chooses one owner for a piece with several), each once, the largest of each timeline
    /// first. O(log free pieces) for each piece that changes, O(1) for others. With `so_far`, a new one at first, a
    /// call changes at most `most` pieces and examines at most `looks_for_change` times `most`. False: pieces remain,
    /// and another call with the same timelines continues. Fences that pass meanwhile may stay.
    template<typename P>
    bool prune(std::span<const std::uint64_t> moved, P&& passed, pruning* so_far = nullptr,
               std::size_t most = ~std::size_t{0}) noexcept {
        pruning whole;
        pruning& at = so_far != nullptr ? *so_far : whole;
        // After `merge_all` passed fences may be in any piece: begin again.
        if (at.num_merges_ != num_merges_) at.begin(false, moved.size(), num_merges_);
        allowance left{most, most < ~std::size_t{0} / looks_for_change ? most * looks_for_change : most};
        for (;;) {
            while (at.num_left_ > 0) {
                const owner of = owner_of(moved[at.num_left_ - 1], at.several_);
                const piece* const next = last_of(of, at.below_);
                if (next == nullptr || next->of < owner_of(moved[0], at.several_)) break;
                if (next->of == of) {
                    if (!prune_owned_by(of, passed, &at.below_, &left)) return false;
                    --at.num_left_;
                } else {
                    // Skips the timelines that own no piece.
                    at.num_left_ = static_cast<std::size_t>(
                        std::partition_point(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(at.num_left_),
                                             [&](std::uint64_t t) { return owner_of(t, at.several_) <= next->of; }) -
                        moved.begin());
                }
                at.below_ = behind_all;
            }
            if (at.several_) return true;
            at.begin(true, moved.size(), num_merges_);
        }
    }
    /// Drops passed fences of all timelines. O(free pieces).
    template<typename P>
    void prune(P&& passed) noexcept {
        for (piece* at = by_owner_.last(); at != nullptr;) {
            const owner of = at->of;
            place all = behind_all;
            allowance unlimited;
            prune_owned_by(of, passed, &all, &unlimited);
            at = by_owner_.last_before([=](const piece& p) { return p.of < of; }, &num_steps_);
        }
    }

    /// Merges all free neighbours regardless of their fences, so that the next allocations are contiguous. O(free
    /// pieces); for an owner that has just emptied the heap because of fragmentation.
    void merge_all();

    std::size_t round_up(std::size_t size_bytes) const noexcept {
        return (size_bytes + alignment_ - 1) / alignment_ * alignment_;
    }
    /// f(address, size in bytes, fences) for every free piece, in the order of addresses.
    template<typename F>
    void for_each_free(F&& f) const {
        for (const piece* at = by_address_.first(); at != nullptr; at = address_tree::next(at))
            f(at->address, at->size_bytes, at->fences);
    }

    std::size_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::size_t free_bytes() const noexcept { return free_bytes_; }
    std::size_t num_free_pieces() const noexcept { return num_pieces_; }
    /// Largest request that would succeed now, lazy merging included. O(1), but of up to 128 pieces O(pieces).
    std::size_t largest_free_bytes() const noexcept {
        if (!by_address_.order().sums_rows) return longest_row_bytes();
        return by_address_.empty() ? 0 : by_address_.root()->below.longest_bytes;
    }
    /// Free space that [address, address + size) would become part of if it were freed now: the whole contiguous
    /// extent. O(log free pieces + pieces in it).
    std::size_t extent_if_freed(std::uintptr_t address, std::size_t size_bytes) const;
    /// Requests below this are placed from below; 0 for best fit. An eighth of the largest request lately: each later
    /// one makes that smaller by 1/1024.
    std::size_t small_below_bytes() const noexcept { return largest_lately_ / parts_in_largest; }
    /// Tree elements visited so far, for the tests of its complexity.
    std::size_t num_steps() const noexcept { return num_steps_; }

  private:
    /// Owner of a piece: 0 without fences, else the number of its timeline plus one. Of several timelines one is
    /// chosen and marked `of_several`: the piece cannot be ready before that one has moved.
    using owner = std::uint64_t;
    static constexpr owner nobody = 0;
    static constexpr owner of_several = owner{1} << 63;
    static constexpr owner owner_of(std::uint64_t timeline, bool several) noexcept {
        return (timeline + 1) | (several ? of_several : 0);
    }
    static owner owner_of(const fence_set& fences) noexcept {
        return fences.empty() ? nobody : owner_of(fences.begin()->timeline, fences.size() > 1);
    }

    /// Of a part of the pieces that follow each other: rows are pieces that touch and may be used as one.
    struct row_sums {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        std::size_t first_row_bytes = 0;
        std::size_t last_row_bytes = 0;
        std::size_t longest_bytes = 0;
        bool begins_region = false;
        friend bool operator==(const row_sums& a, const row_sums& b) noexcept {
            return ((a.begin ^ b.begin) | (a.end ^ b.end) | (a.first_row_bytes ^ b.first_row_bytes) |
                    (a.last_row_bytes ^ b.last_row_bytes) | (a.longest_bytes ^ b.longest_bytes) |
                    static_cast<std::size_t>(a.begins_region ^ b.begins_region)) == 0;
        }
    };
    /// A free piece; or a region, which is in no tree but that of the regions.
    struct alignas(64) piece {
        std::uintptr_t address = 0;
        std::size_t size_bytes = 0;
        owner of = nobody;
        tree_links<piece> in_sizes;  // in `by_owner_`, or in `ready_` without fences
        std::uint32_t priority = 0;
        bool begins_region = false;  // nothing before it may be used together with it
        bool is_sealed = false;      // of a region: nothing that touches it extends it
        // Of the piece and those below it in the tree of addresses.
        std::size_t largest_ready_bytes = 0;  // of single pieces without fences
        tree_links<piece> in_fenced;
        tree_links<piece> in_address;
        fence_set fences;
        row_sums below;

        std::uintptr_t end() const noexcept { return address + size_bytes; }
        heap::place place() const noexcept { return place_of(size_bytes, address); }
    };
    /// Whether it comes before (owner, place).
    static bool is_before(const piece& p, owner of, place where) noexcept {
        return (p.of < of) | ((p.of == of) & (p.place() < where));
    }
    struct owner_order {
        static bool less(const piece& a, const piece& b) noexcept { return is_before(a, b.of, b.place()); }
    };
    struct size_order {
        static bool less(const piece& a, const piece& b) noexcept { return a.place() < b.place(); }
    };
    struct region_order {
        static bool less(const piece& a, const piece& b) noexcept { return a.address < b.address; }
    };
    struct address_order : region_order {
        bool sums_rows = false;  // else rows are searched on demand
        bool update(piece& p) const noexcept;
    };
    using owner_tree = tree<piece, &piece::in_sizes, owner_order>;
    using ready_classes = size_classes<piece, &piece::in_sizes, size_order>;
    using fenced_tree = tree<piece, &piece::in_fenced, size_order>;
    using address_tree = tree<piece, &piece::in_address, address_order>;
    using region_tree = tree<piece, &piece::in_address, region_order>;

    /// Whether the second may be used together with the first.
    static bool touch(const piece& before, const piece& behind) noexcept {
        return before.end() == behind.address && !behind.begins_region;
    }
    bool joins(const fence_set& a, const fence_set& b) const noexcept {
        return merging_ == merging::equal_fences ? a == b : a.same_timelines(b);
    }

    // ---- nodes
    struct node_list {
        piece* first = nullptr;
        std::size_t size = 0;
        piece* take() noexcept;
        void put(piece* node) noexcept;
    };
    void reserve_nodes(std::size_t count);

    // ---- one piece
    void insert(piece* before, std::uintptr_t address, std::size_t size_bytes, bool begins_region, fence_set fences,
                owner of, piece* behind) noexcept;
    void erase(piece* at) noexcept;
    void resize(piece* at, std::uintptr_t address, std::size_t size_bytes, bool begins_region) noexcept;
    void enter_sizes(piece* at) noexcept;
    void leave_sizes(piece* at) noexcept;
    void join_with_next(piece* before) noexcept;
    void note_border(std::uintptr_t address, bool is_border) noexcept;

    // ---- searches
    /// The first at or behind the address.
    template<typename Tree>
    piece* at_or_behind(const Tree& in, std::uintptr_t address) const noexcept {
        return in.lower_bound([=](const piece& p) { return p.address < address; }, &num_steps_);
    }
    /// The last that begins at or before the address.
    template<typename Tree>
    piece* at_or_before(const Tree& in, std::uintptr_t address) const noexcept {
        return in.last_before([=](const piece& p) { return p.address <= address; }, &num_steps_);
    }
    /// The largest piece of the owner that comes before the place, or else of an owner before.
    piece* last_of(owner of, place below) const noexcept {
        return by_owner_.last_before([=](const piece& p) { return is_before(p, of, below); }, &num_steps_);
    }
    piece* first_of_free(std::uintptr_t begin, std::uintptr_t end) const noexcept;
    piece* first_of(owner of, std::size_t size) const noexcept;
    piece* find_ready(std::size_t size, std::uint64_t own) const noexcept;
    piece* find_lowest_ready(std::size_t size) const noexcept;
    piece* find_fenced(std::size_t size, std::span<const std::uint64_t> avoided) noexcept;
    void keep_fenced() noexcept;
    std::size_t longest_row_bytes() const noexcept;
    piece* find_row(std::size_t size) const noexcept;
    piece* find_row(std::size_t size, std::span<const std::uint64_t> avoided) const noexcept;
    void note_request(std::size_t size) noexcept;
    block cut(piece* at, std::size_t size);
    block take_range(piece* first, std::uintptr_t address, std::size_t size);
    /// Takes [begin, end), which is free from the piece `at` on, out of the pieces. A node, and `copy` of the piece's
    /// fences, are needed where that leaves two parts of one piece.
    void remove_free_range(piece* at, std::uintptr_t begin, std::uintptr_t end, fence_set copy) noexcept;
    void remove_from_regions(std::uintptr_t begin, std::uintptr_t end) noexcept;

    struct allowance {
        std::size_t changes = ~std::size_t{0};
        std::size_t looks = ~std::size_t{0};
    };
    /// Of the pieces before `*below`, from the largest to the smallest; false, with what comes next before `*below`,
    /// where no more is allowed.
    template<typename P>
    bool prune_owned_by(owner of, P&& passed, place* below, allowance* left) noexcept {
        // A changed piece may merge with any other, so the next one is searched again.
        for (piece* at = last_of(of, *below); at != nullptr && at->of == of;) {
            const bool changes = std::any_of(at->fences.begin(), at->fences.end(), passed);
            const place where = at->place();
            if (left->looks == 0 || (changes && left->changes == 0)) {
                *below = where + 1;
                return false;
            }
            --left->looks;
            if (!changes) {
                at = owner_tree::previous(at);
                ++num_steps_;
                continue;
            }
            --left->changes;
            leave_sizes(at);
            at->fences.prune(passed);
            at->of = owner_of(at->fences);
            enter_joined(at);
            at = last_of(of, where);
        }
        return true;
    }
    void enter_joined(piece* at) noexcept;

    // A request that is small beside the largest leaves a hole that the largest cannot use. With sizes that are evenly
    // spread on a logarithmic scale, between 1/8 and 1/24 the choice matters little.
    static constexpr std::size_t parts_in_largest = 8;
    static constexpr std::size_t requests_remembered = 1024;

    std::size_t alignment_;
    merging merging_;
    placement placement_;
    std::size_t largest_lately_ = 0;
    std::size_t capacity_bytes_ = 0;
    std::size_t free_bytes_ = 0;
    std::size_t num_pieces_ = 0;
    std::size_t num_merges_ = 1;   // of everything
    std::size_t num_changes_ = 0;  // since the last search in `fenced_`
    bool fenced_is_kept_ = false;
    address_tree by_address_;
    ready_classes ready_;  // those without fences
    owner_tree by_owner_;  // those with
    fenced_tree fenced_;   // the same, while it is kept
    region_tree regions_;  // touching ones are two where the border is sealed
    std::vector<std::unique_ptr<piece[]>> nodes_;
    node_list unused_;
    std::size_t num_expected_ = 0;  // frees to come, each of which may need a node
    std::size_t most_expected_ = ~std::size_t{0};
    std::uint32_t seed_ = 0x9e3779b9;
    mutable std::size_t num_steps_ = 0;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
