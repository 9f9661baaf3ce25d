// One memory: its heap, how it grows, and what its driver refused.
//
// Owns: the addresses of one memory, used and free. Asks for more through `SpaceRequests`. Must not know: chunks,
// victims, tasks. Under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/advanced_lanes.hpp"
#include "kmm/memory/placement.hpp"
#include "kmm/memory/space_requests.hpp"
#include "kmm/trace/events.hpp"
#include "rmm/heap/heap.hpp"

namespace kmm::memory {

class Space {
  public:
    /// Before all else; `requests` and `trace` outlive it.
    void open(SpaceRequests& requests, const trace::Emitter& trace, MemoryIndex memory, std::size_t limit_bytes);

    // ---- memory from the driver
    /// The answer to SpaceRequests::grow and `exchange`. 0 bytes: the driver refused; the current capacity must do
    /// until something is freed. `sealed`: no chunk may cross from this memory into an adjacent region.
    void grown(std::uintptr_t address, std::size_t bytes, bool sealed = false);
    /// Memory that a task waited for (Placement::lacks), or from `take_back`, which could not be exchanged.
    void given_again(std::uintptr_t address, std::size_t bytes, bool sealed);
    /// Takes memory that `grown` gave out of the heap again, if all of it is free. Adds fences of device work that
    /// still uses it to `*users`; without `users` refuses such memory. O(free pieces).
    bool take_back(std::uintptr_t address, std::size_t bytes, graph::FenceSet* users = nullptr);
    /// Others got what was taken back: the driver is not asked for more until a task cannot go on, something was freed,
    /// or `may_ask_again`.
    void leave_to_others() noexcept;
    /// The lane's completed position has advanced: memory that waited for it may be ready.
    void advanced(graph::LaneId lane) { advanced_.add(lane); }

    // ---- blocks
    /// What is ready before what must be waited for. Throws std::bad_alloc, and nothing has changed.
    rmm::heap::block take_free(std::size_t size);
    /// Frees a block behind its users. What the heap cannot note for want of host memory it is told again.
    void give(std::uintptr_t address, std::size_t bytes, graph::FenceSet&& users);
    /// Before an allocation. Throws std::bad_alloc of the host's reserve.
    void tell_again();
    /// Whether the heap knows all that was freed.
    bool knows_all() const noexcept { return unfreed_.empty(); }

    // ---- growth
    bool may_grow(std::size_t bytes) const noexcept;
    void grow(std::size_t bytes);
    /// An allocation found `block`, which must be waited for. Where a copy out of it is on its way, what comes in could
    /// come at the same time: the next ones find other memory, until some blocks of that size are free.
    void grow_ahead(const rmm::heap::block& block);
    /// The driver refused before (others hold the memory), and nothing can leave. False: it is no use.
    bool ask_once_more(std::size_t bytes);
    /// Asks for `bytes` in one piece, in exchange for free pieces; `all_bytes`: what the task needs in all, 0 while its
    /// own chunks are there. `tick`: of now. False: it is no use.
    bool exchange(std::size_t bytes, std::size_t all_bytes, std::uint64_t tick);
    /// Whether `tick` is not before the latest exchange.
    bool came_since_exchange(std::uint64_t tick) const noexcept { return tick >= exchanged_at_; }
    /// An array was freed: the driver may be asked again.
    void array_was_freed() noexcept {
        refusals_ = 0;
        may_exchange_again();
    }

    // ---- searches that failed
    /// Chunks that could not be saved here may fit now.
    void may_save_again() noexcept { refuses_bytes_ = ~std::size_t{0}; }
    /// The heap gets more memory: sizes that did not fit may fit now.
    void may_fit_again() noexcept {
        unfit_bytes = ~std::size_t{0};
        may_save_again();
    }
    /// A replica has become evictable or was freed.
    void may_exchange_again() noexcept;
    /// Cached bound: saving a chunk of at least this size here fails until this memory changes.
    std::size_t refuses_from() noexcept;
    void refuse_from(std::size_t bytes) noexcept { refuses_bytes_ = bytes < refuses_bytes_ ? bytes : refuses_bytes_; }
    /// After a search for `bytes` that failed, and has evicted all it could: the size from which on later ones would
    /// fail as well. `is_pinned`: something may leave later.
    std::size_t lacks_from(std::size_t bytes, bool is_pinned) const noexcept;

    // ---- questions
    bool is_growing() const noexcept { return growing_; }
    /// Whether the driver refused memory below the limit when it was asked last.
    bool is_refused() const noexcept { return refusals_ != 0; }
    std::uint32_t num_refusals() const noexcept { return refusals_; }  ///< in a row
    std::size_t free_bytes() const noexcept;
    /// What can be had: the limit, or what the driver gave where it refused more.
    std::size_t usable_bytes() const noexcept;
    /// Between the capacity and the limit.
    std::size_t left_bytes() const noexcept { return counters.limit_bytes - counters.capacity_bytes; }
    /// Whether one driver call may copy across this address, the border of two blocks: false if they lie in two
    /// allocations that happen to touch. O(log regions).
    bool may_copy_across(std::uintptr_t address) const noexcept { return !has_sealed_ || !heap.begins_region(address); }
    /// Chunks in it that touch may lie in several allocations of the driver.
    bool has_sealed() const noexcept { return has_sealed_; }
    /// Emits the current use to the trace.
    void tell() const noexcept;

    rmm::heap::heap heap;
    MemoryCounters counters;
    std::size_t unfit_bytes = ~std::size_t{0};  ///< from this size on nothing fits, until something is freed

  private:
    struct Unfreed {
        std::uintptr_t address;
        std::size_t bytes;
        graph::FenceSet users;
    };
    struct Unadded {
        std::uintptr_t address;
        std::size_t bytes;
        bool sealed;
    };
    void add(std::uintptr_t address, std::size_t bytes, bool sealed);
    void forget_passed(std::size_t most);
    bool passed(const rmm::heap::fence& f) const noexcept {
        return requests_->passed({static_cast<graph::LaneId>(f.timeline), f.position});
    }

    SpaceRequests* requests_ = nullptr;
    const trace::Emitter* trace_ = nullptr;
    MemoryIndex memory_;
    bool growing_ = false;
    std::uint32_t refusals_ = 0;   ///< by the driver, in a row; after the first one chunks are evicted instead
    std::size_t asked_bytes_ = 0;  ///< what the driver was asked for last
    /// Capacity when the driver refused more, or others took from it; until it is larger.
    std::size_t given_at_most_bytes_ = ~std::size_t{0};
    /// Smallest size that the driver refused since its last success; smaller requests may be tried. 0: do not ask.
    std::size_t refused_bytes_ = 0;
    bool exchanging_ = false;       ///< the pending answer is that to an exchange
    bool freed_meanwhile_ = false;  ///< something was freed since the driver was asked: it may be asked again
    bool no_exchange_ = false;      ///< the last one was refused, and nothing has changed since
    bool has_sealed_ = false;
    std::size_t exchanged_of_bytes_ = 0;  ///< capacity when the last exchange was asked for
    std::uint64_t exchanged_at_ = 0;      ///< the tick then
    std::size_t refuses_bytes_ = ~std::size_t{0};
    AdvancedLanes advanced_;               ///< since the heap last looked at what they have passed
    graph::Vector<std::uint64_t> pruned_;  ///< lanes of which the heap is told that they have passed something
    rmm::heap::heap::pruning pruning_;     ///< how far it has come with these
    bool is_pruning_ = false;
    // What the heap could not note for want of host memory: it is told again before the next allocation.
    graph::Vector<Unfreed> unfreed_;
    graph::Vector<Unadded> unadded_;
};

}  // namespace kmm::memory
