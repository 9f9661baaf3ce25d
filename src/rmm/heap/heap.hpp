// The heap: which addresses of some regions are free, and what must have happened before each may be used again.
//
// Owns: a map of address ranges and their fences. Must not know: drivers, streams, threads, kmm. Pure and not
// thread-safe: the owner (a pool, the runtime's memory) brings the lock and interprets the fences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// "Not before `timeline` has reached `position`." A timeline is whatever runs in order: a stream, a lane, a host task.
struct fence {
    std::uint64_t timeline = 0;
    std::uint64_t position = 0;
    friend bool operator==(const fence&, const fence&) = default;
};

/// At most one fence for each timeline (the latest); kept sorted by timeline.
class fence_set {
  public:
    fence_set() = default;
    explicit fence_set(fence f) : fences_{f} {}
    void add(fence f);  ///< keeps the later position; O(size)
    void add(const fence_set& other);
    /// Drops every fence for which `passed(fence)` is true.
    template<typename P> void prune(P&& passed) {
        std::size_t kept = 0;
        for (const fence& f : fences_)
            if (!passed(f)) fences_[kept++] = f;
        fences_.resize(kept);
    }
    bool empty() const noexcept { return fences_.empty(); }
    std::size_t size() const noexcept { return fences_.size(); }
    const fence* begin() const noexcept { return fences_.data(); }
    const fence* end() const noexcept { return fences_.data() + fences_.size(); }
    void clear() noexcept { fences_.clear(); }
    friend bool operator==(const fence_set&, const fence_set&) = default;

  private:
    std::vector<fence> fences_;
};

/// A piece of memory in somebody's hand, or free. `fences` is what the next user must wait for.
struct block {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    fence_set fences;
    explicit operator bool() const noexcept { return size_bytes != 0; }
};

/// Best fit over address ranges. Free neighbours merge at once when both carry equal fences, and lazily (when nothing
/// else fits) when they do not, so that one slow fence does not taint memory that is ready. Sizes are rounded up to
/// `alignment`, addresses are multiples of it. Complexity: O(log free pieces); a request that only fits after lazy
/// merging O(free pieces).
class heap {
  public:
    explicit heap(std::size_t alignment = 256);

    /// Adds free memory. A region that begins where another ends extends it: blocks may cross the seam.
    void add_region(std::uintptr_t address, std::size_t size_bytes);
    /// Takes back memory that is wholly free: a region, touching regions, or any part of one; false and no change
    /// otherwise. Fences that the memory still carries are added to `*left`; without `left` fenced memory is refused.
    bool remove_region(std::uintptr_t address, std::size_t size_bytes, fence_set* left = nullptr);

    /// An empty block if nothing fits (or `size_bytes` is 0). Among fitting pieces: those without fences first, then the
    /// smallest, then the lowest. The block's size is rounded up.
    block try_allocate(std::size_t size_bytes);
    /// Gives back [address, address + size) with the fences that its last users left. The size must be what was asked for.
    /// Throws std::logic_error, and changes nothing, for memory that is free already or not of this heap.
    void free(std::uintptr_t address, std::size_t size_bytes, const fence_set& fences);
    /// Drops passed fences of all free pieces and merges what became equal. O(free pieces).
    template<typename P> void prune(P&& passed) {
        for (auto& [address, piece] : free_) piece.fences.prune(passed);
        merge_equal();
    }

    /// Merges all free neighbours, whatever their fences: what is allocated next lies side by side. O(free pieces); for an
    /// owner that has just emptied the heap because the pieces lay in each other's way.
    void merge_all();

    std::size_t round_up(std::size_t size_bytes) const noexcept {
        return (size_bytes + alignment_ - 1) / alignment_ * alignment_;
    }
    std::size_t capacity_bytes() const noexcept { return capacity_bytes_; }
    std::size_t free_bytes() const noexcept { return free_bytes_; }
    /// Largest request that would succeed now, lazy merging included. O(free pieces).
    std::size_t largest_free_bytes() const;
    /// Free space that [address, address + size) would become part of if it were freed now: the whole contiguous extent.
    std::size_t extent_if_freed(std::uintptr_t address, std::size_t size_bytes) const;

  private:
    struct piece {
        std::size_t size_bytes = 0;
        fence_set fences;
    };
    using piece_map = std::map<std::uintptr_t, piece>;
    struct size_key {
        bool fenced;
        std::size_t size_bytes;
        std::uintptr_t address;
        friend auto operator<=>(const size_key&, const size_key&) = default;
    };

    piece_map::iterator insert(std::uintptr_t address, std::size_t size_bytes, fence_set fences);
    void erase(piece_map::iterator);
    void resize(piece_map::iterator, std::uintptr_t address, std::size_t size_bytes) noexcept;
    piece_map::iterator give(std::uintptr_t address, std::size_t size_bytes, const fence_set& fences);
    void remove_free_range(std::uintptr_t begin, std::uintptr_t end);
    void merge_equal();
    block coalesce_for(std::size_t size_bytes);

    std::size_t alignment_;
    std::size_t capacity_bytes_ = 0;
    std::size_t free_bytes_ = 0;
    piece_map free_;
    std::set<size_key> by_size_;
    std::map<std::uintptr_t, std::size_t> regions_;
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
