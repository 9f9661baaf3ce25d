// The heap: which addresses of some regions are free, and what must have happened before each may be used again.
//
// Owns: a map of address ranges and their fences. Must not know: drivers, streams, threads, kmm. Pure and not
// thread-safe: the owner (a pool, the runtime's memory) brings the lock and interprets the fences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
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

/// At most one fence for each timeline (the latest); kept sorted by timeline. One fence, the common case, allocates nothing.
class fence_set {
  public:
    fence_set() = default;
    explicit fence_set(fence f) : first_(f), size_(1) {}
    fence_set(const fence_set&) = default;
    fence_set& operator=(const fence_set&) = default;
    fence_set(fence_set&& other) noexcept { *this = std::move(other); }
    fence_set& operator=(fence_set&& other) noexcept {
        first_ = other.first_;
        size_ = std::exchange(other.size_, 0);
        several_ = std::move(other.several_);
        other.several_.clear();
        return *this;
    }
    ~fence_set() = default;
    void add(fence f);  ///< keeps the later position; O(size)
    void add(const fence_set& other);
    /// Whether both name the same timelines, at whatever positions.
    bool same_timelines(const fence_set& other) const noexcept;
    /// Whether any fence is of one of these timelines. O(size x timelines).
    bool has_any_of(std::span<const std::uint64_t> timelines) const noexcept {
        return std::any_of(begin(), end(), [&](const fence& f) {
            return std::find(timelines.begin(), timelines.end(), f.timeline) != timelines.end();
        });
    }
    /// Drops every fence for which `passed(fence)` is true.
    template<typename P>
    void prune(P&& passed) {
        fence* const all = size_ > 1 ? several_.data() : &first_;
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i)
            if (!passed(all[i])) all[kept++] = all[i];
        if (size_ > 1 && kept == 1) first_ = all[0];
        size_ = kept;
        if (kept <= 1)
            several_.clear();
        else
            several_.resize(kept);
    }
    bool empty() const noexcept { return size_ == 0; }
    std::size_t size() const noexcept { return size_; }
    const fence* begin() const noexcept { return size_ > 1 ? several_.data() : &first_; }
    const fence* end() const noexcept { return begin() + size_; }
    void clear() noexcept {
        size_ = 0;
        several_.clear();
    }
    friend bool operator==(const fence_set& a, const fence_set& b) noexcept {
        return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
    }

  private:
    fence first_;  // of one
    std::size_t size_ = 0;
    std::vector<fence> several_;  // of more than one: all of them
};

/// A piece of memory in somebody's hand, or free. `fences` is what the next user must wait for.
struct block {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    fence_set fences;
    explicit operator bool() const noexcept { return size_bytes != 0; }
};

/// Which free neighbours merge at once; all others merge lazily, when nothing else fits.
enum class merging : std::uint8_t {
    equal_fences,    ///< one slow fence does not taint memory that is ready
    same_timelines,  ///< the later positions win: larger pieces, for an owner whose users mostly ask on the same timeline
};

/// Whether memory of one region may be handed out together with its neighbour's.
enum class border : std::uint8_t {
    open,    ///< a region that begins where another ends extends it
    sealed,  ///< no block ever crosses it (two allocations of a driver that happen to touch)
};

/// Best fit over address ranges. Sizes are rounded up to `alignment`, addresses are multiples of it. Complexity: O(log free
/// pieces), times the number of timelines where only memory of others is left; a request that only fits after lazy merging
/// O(free pieces).
class heap {
  public:
    explicit heap(std::size_t alignment = 256, merging how = merging::equal_fences);

    /// Adds free memory, which carries `fences`.
    void add_region(std::uintptr_t address, std::size_t size_bytes, border borders = border::open,
                    const fence_set& fences = {});
    /// Takes back memory that is wholly free: a region, touching regions, or any part of one; false and no change
    /// otherwise. Fences that the memory still carries are added to `*left`; without `left` fenced memory is refused.
    bool remove_region(std::uintptr_t address, std::size_t size_bytes, fence_set* left = nullptr);

    /// Who asks needs no fence for memory of none.
    static constexpr std::uint64_t no_timeline = ~std::uint64_t{0};

    /// An empty block if nothing fits (or `size_bytes` is 0). Among fitting pieces: those without fences, or with fences of
    /// timeline `own` only, first; then the smallest, then the lowest. The block's size is rounded up.
    /// Nothing with fences of the timelines `avoided`, then O(free pieces).
    block try_allocate(std::size_t size_bytes, std::uint64_t own = no_timeline,
                       std::span<const std::uint64_t> avoided = {});
    /// As `try_allocate`, but only of memory without fences or with fences of `own`; merges nothing.
    block try_allocate_ready(std::size_t size_bytes, std::uint64_t own);
    /// Takes exactly this range, if all of it is free.
    block take(std::uintptr_t address, std::size_t size_bytes);
    /// Gives back [address, address + size) with the fences that its last users left. The size must be what was asked for.
    /// Throws std::logic_error, and changes nothing, for memory that is free already or not of this heap.
    void free(std::uintptr_t address, std::size_t size_bytes, const fence_set& fences);
    /// Drops the fences for which passed(fence) is true, and merges the pieces that had such with their neighbours. Looks only at
    /// pieces with fences of timelines for which moved(timeline) is true, or of several timelines, and changes at most `most`,
    /// of each timeline the largest first; false if that was not all. O(pieces looked at + log free pieces for each that changes).
    /// Throws std::bad_alloc, with nothing done.
    template<typename M, typename P>
    bool prune(M&& moved, P&& passed, std::size_t most = ~std::size_t{0}) {
        std::vector<std::uintptr_t> changed;
        for (auto key = by_size_.end(); key != by_size_.begin() && changed.size() < most;) {
            --key;
            const owner of = key->of;
            if (of == nobody) break;  // these come first
            if (of != several && !moved(of - 1)) {
                key = by_size_.lower_bound({of, 0, 0});
                continue;
            }
            const fence_set& fences = free_.find(key->address)->second.fences;
            if (std::any_of(fences.begin(), fences.end(), passed)) changed.push_back(key->address);
        }
        for (const std::uintptr_t address : changed) {
            const auto at = free_.find(address);
            if (at == free_.end()) continue;  // merged with one that changed before
            const owner before = owner_of(at->second.fences);
            at->second.fences.prune(passed);
            if (owner_of(at->second.fences) != before) index_anew(at, before);
            join_at(address + at->second.size_bytes);
            join_at(address);
        }
        return changed.size() < most;
    }
    /// The same for all timelines.
    template<typename P>
    void prune(P&& passed) {
        prune([](std::uint64_t) { return true; }, passed);
    }

    /// Merges all free neighbours, whatever their fences: what is allocated next lies side by side. O(free pieces); for an
    /// owner that has just emptied the heap because the pieces lay in each other's way.
    void merge_all();

    std::size_t round_up(std::size_t size_bytes) const noexcept {
        return (size_bytes + alignment_ - 1) / alignment_ * alignment_;
    }
    /// f(address, size in bytes, fences) for every free piece, in the order of addresses.
    template<typename F>
    void for_each_free(F&& f) const {
        for (const auto& [address, piece] : free_) f(address, piece.size_bytes, piece.fences);
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
    /// Whose fences a piece carries: nobody's, one timeline's, or those of several.
    using owner = std::uint64_t;
    static constexpr owner nobody = 0;
    static constexpr owner several = ~owner{0};
    static owner owner_of(const fence_set& fences) noexcept {
        return fences.empty() ? nobody : fences.size() > 1 ? several : fences.begin()->timeline + 1;
    }
    struct size_key {
        owner of;
        std::size_t size_bytes;
        std::uintptr_t address;
        friend auto operator<=>(const size_key&, const size_key&) = default;
    };

    piece_map::iterator insert(std::uintptr_t address, std::size_t size_bytes, fence_set fences);
    void erase(piece_map::iterator);
    void resize(piece_map::iterator, std::uintptr_t address, std::size_t size_bytes) noexcept;
    void give(std::uintptr_t address, std::size_t size_bytes, const fence_set& fences);
    void join_at(std::uintptr_t address);
    void remove_free_range(std::uintptr_t begin, std::uintptr_t end);
    void index_anew(piece_map::iterator at, owner before) noexcept;
    using key_set = std::set<size_key>;
    key_set::iterator find_ready(std::size_t size, owner own) const;
    key_set::iterator find_fenced(std::size_t size) const;
    key_set::iterator find_fenced(std::size_t size, std::span<const std::uint64_t> avoided) const;
    block cut(key_set::iterator key, std::size_t size);
    block coalesce_for(std::size_t size_bytes, std::span<const std::uint64_t> avoided);
    bool joins(const fence_set& a, const fence_set& b) const noexcept {
        return merging_ == merging::equal_fences ? a == b : a.same_timelines(b);
    }
    /// Whether what lies before and behind `address` may be one piece.
    bool crosses(std::uintptr_t address) const { return regions_.count(address) == 0; }

    std::size_t alignment_;
    merging merging_;
    std::size_t capacity_bytes_ = 0;
    std::size_t free_bytes_ = 0;
    piece_map free_;
    key_set by_size_;
    std::map<std::uintptr_t, std::size_t> regions_;  // touching ones are two where the border is sealed
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
