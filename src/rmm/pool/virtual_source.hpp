// A pool's memory, made of virtual memory: physical pieces that can be mapped elsewhere when free memory is in pieces.
//
// Owns: one reservation of addresses, the physical pieces, which of them is mapped where. Must not know: which bytes
// are free or in use, streams, fences (the caller has waited), other sources. One thread at a time; no lock
// inside. No call throws anything but std::bad_alloc of the host, and then nothing has changed; failures of the
// driver are statuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "driver/driver.hpp"
#include "rmm/heap/address_holes.hpp"
#include "rmm/heap/move_plan.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace driver = ::kmm::driver;

struct virtual_source_options {
    /// Physical memory at most.
    std::size_t maximum_bytes = std::numeric_limits<std::size_t>::max();
    /// Rounded down to the granularity. 0: `heap::best_largest_piece`.
    std::size_t largest_piece_bytes = 0;
    /// Addresses, as a multiple of the memory that can ever be held.
    std::size_t address_factor = 32;
    /// Besides the device, who may read and write the memory, of those that can. None: all that can.
    std::vector<int> readers = {};
    driver::PhysicalOptions physical = {};
};

/// Successful calls of the driver since the source was made. `map_calls` of a steady program stand still.
struct virtual_source_counts {
    std::uint64_t create_calls = 0;
    std::uint64_t release_calls = 0;
    std::uint64_t map_calls = 0;
    std::uint64_t unmap_calls = 0;
    std::uint64_t access_calls = 0;
    std::uint64_t remaps = 0;       ///< successful calls of `remap` that moved something
    std::uint64_t moved_bytes = 0;  ///< by these
    std::uint64_t created_bytes = 0;
    std::uint64_t released_bytes = 0;
    std::uint64_t mapped_bytes = 0;  ///< by all calls of map
};

class virtual_source {
  public:
    /// Reserves addresses: as many as the options say, halved while the driver refuses. If that fails (see `status`),
    /// every call returns that status.
    virtual_source(driver::Driver& driver, int device, const virtual_source_options& options = {});
    /// Unmaps and releases everything. Nothing on the device may use it any more.
    ~virtual_source();
    virtual_source(const virtual_source&) = delete;
    virtual_source& operator=(const virtual_source&) = delete;

    driver::Status status() const noexcept { return status_; }
    std::size_t granularity() const noexcept { return granularity_; }
    std::size_t largest_piece_bytes() const noexcept { return largest_piece_bytes_; }
    std::size_t reserved_bytes() const noexcept { return reservation_.size_bytes; }
    std::size_t maximum_bytes() const noexcept { return maximum_bytes_; }
    /// Physical memory that is held, mapped or spare.
    std::size_t held_bytes() const noexcept { return mapped_bytes_ + spare_bytes_; }
    std::size_t mapped_bytes() const noexcept { return mapped_bytes_; }
    std::size_t spare_bytes() const noexcept { return spare_bytes_; }
    const virtual_source_counts& counts() const noexcept { return counts_; }
    /// Whether the address is in the reservation (mapped or not).
    bool contains(std::uintptr_t address) const noexcept {
        return address - reservation_.address < reservation_.size_bytes;
    }

    /// `made`: new memory that the device and its peers can use, `bytes` rounded up to the granularity; empty
    /// on failure.
    struct growth {
        driver::Status status;
        heap::range made;
    };
    /// Maps spare pieces and fresh memory, right behind the last growth of that area (a small number), or at
    /// `*end_of_growth` (which goes on behind it) if these addresses are free. out_of_memory where that would exceed
    /// the maximum, or where the driver has no more; nothing has changed then.
    growth grow(std::size_t bytes, std::uint32_t area = 0, std::uintptr_t* end_of_growth = nullptr);
    /// The begin of part `number` of all addresses, divided into `parts` equal ones.
    std::uintptr_t window(std::size_t number, std::size_t parts) const noexcept {
        return reservation_.address + reservation_.size_bytes / parts / granularity_ * granularity_ * number;
    }

    /// The part of a free range that consists of whole pieces, and so could be moved or given back; empty if none.
    heap::range removable(heap::range free) const noexcept;

    struct growth_limits {
        /// May be taken from the driver before anything is moved (`heap::eager_growth`).
        std::size_t eager_fresh_bytes = 0;
        std::size_t fresh_bytes = std::numeric_limits<std::size_t>::max();  ///< may be taken at all; within the maximum
        std::size_t step_bytes = 0;  ///< minimum to take where only fresh memory is needed
    };
    /// How a request of `bytes` is best made to fit. `free` sorted by address (ranges may touch); what comes out of the
    /// plan is for the given area, other areas only give pieces. Changes nothing; not `possible` where nothing helps.
    /// The plan is for the next call of `remap` and for the source as it is now. O(free ranges + n log n for the n
    /// pieces in them).
    heap::move_plan plan(std::size_t bytes, std::span<const heap::free_range> free, std::uint32_t area,
                         const growth_limits& limits) const;

    struct remapping {
        driver::Status status;
        /// What is mapped now in place of `plan.moved`: after success one range, of `plan.new_bytes` or up to a piece
        /// more, which lies where the plan said; after a failure what was moved, where it was. (Missing is what could
        /// not be mapped again even there: it is spare, and the next growth uses it; and pieces that were being melted:
        /// they are spare, or given back to the driver.)
        std::vector<heap::range> ranges;
    };
    /// Carries out `plan`: unmaps `plan.moved`, and maps that memory, spare and fresh memory at contiguous addresses.
    /// `plan.moved` must not be in use any more, and the caller forgets these ranges before it adds the returned ones.
    /// After out_of_memory (the driver had less fresh memory than planned) plan again with less of it.
    remapping remap(const heap::move_plan& plan) { return remap(plan, &frontier(plan.area)); }

    /// `heap::fitting_piece`, when `used_bytes` are in use.
    std::size_t fitting_piece(std::size_t used_bytes) const noexcept;
    /// The piece that has `at` inside it, neither as its beginning nor as its end; empty if there is none.
    /// O(log pieces).
    heap::range piece_across(std::uintptr_t at) const noexcept;

    struct cutting {
        driver::Status status;
        /// The piece's addresses, where memory is mapped now: after success, and after a failure that changed nothing.
        /// Else nothing is, and the memory is spare, or was given back to the driver.
        heap::range mapped;
    };
    /// Cuts the piece across `at` (a multiple of the granularity) into two pieces at the same addresses. The piece must
    /// not be in use.
    cutting cut(std::uintptr_t at);

    struct trimming {
        driver::Status status;  ///< of the first call that failed
        std::size_t released_bytes = 0;
        heap::range left;  ///< the part of the given range that is still mapped: after a failure, its beginning
    };
    /// Gives whole pieces (see `removable`) back to the driver. They must not be in use any more.
    trimming trim(heap::range pieces);
    /// Gives spare pieces back.
    trimming release_spare();

  private:
    remapping remap(const heap::move_plan& plan, std::uintptr_t* end_of_growth);

    enum class state : std::uint8_t {
        mapped,   ///< at its key (or was, and is on its way elsewhere)
        spare,    ///< mapped nowhere
        stuck,    ///< spare, and still mapped at its key: the driver would not unmap it
        planned,  ///< not created yet
        fresh     ///< created by the call that is under way
    };
    struct piece {
        std::size_t size_bytes = 0;
        driver::PhysicalHandle handle;
        state now = state::planned;
    };
    using piece_map = std::map<std::uintptr_t, piece>;
    // A piece is a node for its whole life, so that moving it allocates nothing and cannot fail half-way.
    using node = piece_map::node_type;
    using row = std::vector<node>;  // pieces on their way to one row of addresses

    std::size_t round_up(std::size_t bytes) const noexcept {
        return (bytes + granularity_ - 1) / granularity_ * granularity_;
    }
    std::size_t headroom() const noexcept;
    std::size_t count_whole(heap::range r) const noexcept;
    /// Pieces that `remap` gives back to the driver, to take of it again only what is needed, in few pieces. That costs
    /// no more than mapping small pieces one by one.
    struct melting {
        std::size_t below_bytes = 0;     // all pieces smaller than this,
        std::uintptr_t last = 0;         // and the one at this address
        std::size_t bytes = 0;           // what is needed of them
        row parts;                       // nodes for that
        std::vector<heap::range> homes;  // where they were; without room where nothing is melted
    };
    melting prepare_melting(const heap::move_plan& plan, std::size_t moved_bytes) const;
    driver::Status melt(row& r, melting& how) noexcept;
    driver::Status complete(row& r, std::size_t has_bytes, const heap::move_plan& plan, std::size_t num_expected);
    driver::Status unmap_all(const std::vector<heap::range>& moved, row& r);
    heap::range target_of(const heap::move_plan& plan, const row& r, bool grows, std::uintptr_t end_of_growth) const;
    void note_ceiling(driver::Status created) noexcept;
    std::size_t take_spare(row& r, std::size_t bytes) noexcept;
    void drop_spare(std::size_t index) noexcept;
    driver::Status create(row& r) noexcept;
    driver::Status create(piece& p) noexcept;
    driver::Status map_row(row& r, heap::range target) noexcept;
    void settle(row& r, heap::range target) noexcept;
    void put_back(row& r) noexcept;
    void map_again(node& n) noexcept;

    driver::Status map(std::uintptr_t address, const piece& p) noexcept;
    driver::Status unmap(std::uintptr_t address, const piece& p) noexcept;
    driver::Status allow_access(heap::range r) noexcept;
    driver::Status release(const piece& p) noexcept;
    bool unstick(node& n) noexcept;
    void keep_spare(node& n, state now) noexcept;
    void enter(node& n) noexcept;
    node leave(piece_map::iterator at) noexcept;
    void abandon(heap::range r) noexcept;
    std::uintptr_t& frontier(std::uint32_t area);

    driver::Driver& driver_;
    const int device_;
    const driver::PhysicalOptions physical_;
    driver::Status status_;
    std::size_t granularity_ = 0;
    std::size_t largest_piece_bytes_ = 0;
    std::size_t maximum_bytes_ = 0;
    heap::range reservation_;
    std::vector<int> readers_;  // the device and the peers that reach its memory

    piece_map pieces_;         // mapped, by address
    std::vector<node> spare_;  // with room for every piece, so that one can always be put here
    heap::address_holes holes_;
    std::size_t mapped_bytes_ = 0;
    std::size_t spare_bytes_ = 0;
    std::size_t device_bytes_ = 0;           // of the whole device
    std::size_t ceiling_bytes_ = 0;          // what was held when the driver had no more
    std::vector<std::uintptr_t> frontiers_;  // by area: where its growth goes on
    virtual_source_counts counts_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
