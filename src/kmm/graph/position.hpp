// Positions on lanes: how every layer says "after that".
//
// Owns: the plain types. A lane is an in-order queue of work (a stream and the numbers of what was put on it). Work
// number p on lane l is done when the lane's completed position is at least p. Must not know: drivers, threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kmm/graph/host_reserve.hpp"

namespace kmm::graph {

/// Number of a lane within its runtime.
enum class LaneId : std::uint16_t { none = 0xffff };
using Position = std::uint64_t;

constexpr std::size_t index_of(LaneId lane) noexcept { return static_cast<std::size_t>(lane); }

enum class LaneRole : std::uint8_t { compute, up, down, peer, launcher };

struct LaneInfo {
    std::uint32_t device = 0;
    LaneRole role = LaneRole::compute;
    std::uint32_t index = 0;  ///< among those of the device with the same role
};

/// "Not before lane `lane` has completed position `position`."
struct Fence {
    LaneId lane = LaneId::none;
    Position position = 0;
};

/// Fences of several lanes, at most one (the latest) for each. The first few live inside, so that small sets cost no
/// allocation; a cleared set keeps its memory.
class FenceSet {
  public:
    void add(Fence f) {
        for (Fence& own : *this) {
            if (own.lane == f.lane) {
                if (own.position < f.position) own.position = f.position;
                return;
            }
        }
        if (size_ < inline_capacity) {
            inline_[size_++] = f;
            return;
        }
        if (size_ == inline_capacity) spilled_.assign(inline_, inline_ + inline_capacity);
        spilled_.push_back(f);
        size_ = static_cast<std::uint32_t>(spilled_.size());
    }
    void add(const FenceSet& other) {
        for (const Fence& f : other) add(f);
    }
    void clear() noexcept { size_ = 0; }
    bool empty() const noexcept { return size_ == 0; }
    std::span<const Fence> view() const noexcept { return {begin(), size_}; }
    std::size_t size() const noexcept { return size_; }
    Fence* begin() noexcept { return size_ <= inline_capacity ? inline_ : spilled_.data(); }
    Fence* end() noexcept { return begin() + size_; }
    const Fence* begin() const noexcept { return size_ <= inline_capacity ? inline_ : spilled_.data(); }
    const Fence* end() const noexcept { return begin() + size_; }
    /// Drops the fences for which `passed(fence)` holds.
    template<typename P> void prune(P&& passed) {
        const Fence* from = begin();
        const std::uint32_t count = size_;
        Fence kept[inline_capacity];
        std::uint32_t n = 0;
        Vector<Fence> more;
        for (std::uint32_t i = 0; i < count; ++i) {
            if (passed(from[i])) continue;
            if (n < inline_capacity)
                kept[n] = from[i];
            else
                more.push_back(from[i]);
            ++n;
        }
        if (n == count) return;
        if (n <= inline_capacity) {
            for (std::uint32_t i = 0; i < n; ++i) inline_[i] = kept[i];
        } else {
            spilled_.assign(kept, kept + inline_capacity);
            spilled_.insert(spilled_.end(), more.begin(), more.end());
        }
        size_ = n;
    }

  private:
    static constexpr std::uint32_t inline_capacity = 4;
    std::uint32_t size_ = 0;
    Fence inline_[inline_capacity];
    Vector<Fence> spilled_;
};

}  // namespace kmm::graph
