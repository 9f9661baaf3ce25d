// Positions on lanes: how every layer says "after that".
//
// Owns: the plain types. A lane is an in-order queue of work (a stream and the numbers of what was put on it). Work
// number p on lane l is done when the lane's completed position is at least p. Must not know: drivers, threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

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

/// "Not before lane `lane` has completed position `position`." Records keep many: a position has 48 bits, at a
/// million a second those of nine years.
struct Fence {
    Fence() = default;
    Fence(LaneId on, Position at) noexcept : lane(on), position(at & most) {}
    LaneId lane : 16 = LaneId::none;
    Position position : 48 = 0;

  private:
    static constexpr Position most = (Position{1} << 48) - 1;
};
static_assert(sizeof(Fence) == sizeof(std::uint64_t));

/// Fences of several lanes, at most one (the latest) for each. The first few live inside, so that small sets cost no
/// allocation; a cleared set keeps its memory.
class FenceSet {
  public:
    FenceSet() = default;
    FenceSet(const FenceSet& other) { add(other); }
    FenceSet(FenceSet&& other) noexcept : FenceSet() { swap(other); }
    FenceSet& operator=(FenceSet&& other) noexcept {
        swap(other);
        return *this;
    }
    FenceSet& operator=(const FenceSet& other) {
        if (this == &other) return *this;
        clear();
        add(other);
        return *this;
    }
    ~FenceSet() = default;
    void add(Fence f) {
        for (Fence& own : *this) {
            if (own.lane == f.lane) {
                if (own.position < f.position) own.position = f.position;
                return;
            }
        }
        if (size_ < inline_capacity)
            inline_[size_++] = f;
        else
            add_spilled(f);
    }
    void add(const FenceSet& other) {
        for (const Fence& f : other) add(f);
    }
    void clear() noexcept { size_ = 0; }
    bool empty() const noexcept { return size_ == 0; }
    std::span<const Fence> view() const noexcept { return {begin(), size_}; }
    std::size_t size() const noexcept { return size_; }
    Fence* begin() noexcept { return size_ <= inline_capacity ? inline_ : spilled_->data(); }
    Fence* end() noexcept { return begin() + size_; }
    const Fence* begin() const noexcept { return size_ <= inline_capacity ? inline_ : spilled_->data(); }
    const Fence* end() const noexcept { return begin() + size_; }
    /// Drops the fences for which `passed(fence)` holds.
    template<typename P> void prune(P&& passed) {
        Fence* const from = begin();
        std::uint32_t n = 0;
        for (std::uint32_t i = 0; i < size_; ++i)
            if (!passed(from[i])) from[n++] = from[i];
        if (n <= inline_capacity && from != inline_) std::copy_n(from, n, inline_);
        if (n > inline_capacity) spilled_->resize(n);
        size_ = n;
    }

  private:
    void swap(FenceSet& other) noexcept {
        std::swap(size_, other.size_);
        std::swap(inline_, other.inline_);
        std::swap(spilled_, other.spilled_);
    }

    using Spilled = Vector<Fence>;
    struct Drop {
        void operator()(Spilled* list) const noexcept {
            list->~Spilled();
            HostReserve::release(list, sizeof(Spilled));
        }
    };
    void add_spilled(Fence f) {
        if (spilled_ == nullptr) spilled_.reset(new (HostReserve::allocate(sizeof(Spilled))) Spilled);
        if (size_ == inline_capacity) spilled_->assign(inline_, inline_ + inline_capacity);
        spilled_->push_back(f);
        size_ = static_cast<std::uint32_t>(spilled_->size());
    }

    static constexpr std::uint32_t inline_capacity = 3;
    std::uint32_t size_ = 0;
    Fence inline_[inline_capacity];
    std::unique_ptr<Spilled, Drop> spilled_;
};

}  // namespace kmm::graph
