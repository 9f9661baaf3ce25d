// What streams see of each other's stocks of free blocks without a lock: since when the oldest block of each is free,
// and whether an event that was recorded since has passed.
//
// A stream whose stock is empty looks for another with blocks that have passed. To lock and look into one costs both
// streams some cache misses; signs lie side by side, and change only when the oldest block of a stock does. Positions
// of all streams come from one counter: the lowest was freed longest ago.
//
// Owns: the signs, for as long as the pool lives. Must not know: the engine. Signs are read by any thread, and set
// under the lock of the arena, or of the engine (`home`); they are hints, which may be wrong by the time they are read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rmm/pool/block_stock.hpp"
#include "rmm/pool/timeline.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct arena;

/// A line of the cache.
struct alignas(64) stock_sign {
    static constexpr std::uint64_t nothing = ~std::uint64_t{0};
    std::atomic<std::uint64_t> oldest{nothing};  ///< position of the block that was freed longest ago
    shown_timeline home;                         ///< of the stream
    std::atomic<arena*> of{nullptr};             ///< whose stock it is; null: not yet anybody's
};

/// The free blocks of a stream, shown by a sign if it has one. Under the lock of the arena. Knows how many at the back
/// no event of the stream covers: others cannot have these where the device may record none.
class shown_stock {
  public:
    stock_sign* sign() const noexcept { return sign_; }
    void set_sign(stock_sign& sign) noexcept { sign_ = &sign; }
    std::size_t size() const noexcept { return blocks_.size(); }
    bool empty() const noexcept { return blocks_.empty(); }
    stocked_block* front() const noexcept { return blocks_.front(); }
    /// With its position, which says whether the stream has just freed it.
    void push_back(stocked_block& block) noexcept {
        blocks_.push_back(block);
        if (blocks_.size() == 1) show();
        // What lies behind an uncovered one counts as uncovered.
        const std::size_t before = num_uncovered();
        if (before > 0 || block.position != 0) num_uncovered_.store(before + 1, std::memory_order_relaxed);
    }
    stocked_block* take_back() noexcept {
        stocked_block* const block = blocks_.take_back();
        if (block != nullptr && blocks_.empty()) show();
        if (const std::size_t before = num_uncovered(); before > 0)
            num_uncovered_.store(before - 1, std::memory_order_relaxed);
        return block;
    }
    stocked_block* take_front() noexcept {
        stocked_block* const block = blocks_.take_front();
        show();
        if (num_uncovered() > blocks_.size()) num_uncovered_.store(blocks_.size(), std::memory_order_relaxed);
        return block;
    }
    /// An event covers all that is there.
    void cover() noexcept { num_uncovered_.store(0, std::memory_order_relaxed); }
    /// Any thread, without the lock. Events of the device are left out, so that it may be too many.
    std::size_t num_uncovered() const noexcept { return num_uncovered_.load(std::memory_order_relaxed); }

  private:
    void show() noexcept {
        if (sign_ == nullptr) return;
        const std::uint64_t oldest = blocks_.empty() ? stock_sign::nothing : blocks_.front()->position;
        if (sign_->oldest.load(std::memory_order_relaxed) != oldest)
            sign_->oldest.store(oldest, std::memory_order_relaxed);
    }

    block_stock blocks_;
    stock_sign* sign_ = nullptr;
    std::atomic<std::size_t> num_uncovered_{0};
};

class stock_signs {
    static constexpr std::size_t signs_in_row = 64;
    struct row {
        std::array<stock_sign, signs_in_row> signs;
        std::atomic<row*> behind{nullptr};
    };

  public:
    stock_signs() = default;
    stock_signs(const stock_signs&) = delete;
    stock_signs& operator=(const stock_signs&) = delete;

    /// One thread at a time. Throws std::bad_alloc, with nothing done.
    stock_sign& add(arena& of) {
        if (num_signs_ % signs_in_row == 0) {
            rows_.push_back(std::make_unique<row>());
            (rows_.size() == 1 ? first_ : rows_[rows_.size() - 2]->behind)
                .store(rows_.back().get(), std::memory_order_release);
        }
        stock_sign& added = rows_.back()->signs[num_signs_ % signs_in_row];
        added.of.store(&of, std::memory_order_release);
        num_signs_.fetch_add(1, std::memory_order_release);
        return added;
    }
    std::size_t size() const noexcept { return num_signs_.load(std::memory_order_acquire); }

    /// A place among the signs.
    struct place {
        row* in = nullptr;
        std::size_t index = 0;
    };
    /// The sign behind the place, and behind the last the first; null where there is none. Moves the place on. Any
    /// thread.
    const stock_sign* next(place* at) const noexcept {
        row* in = at->in;
        std::size_t index = at->index;
        if (in != nullptr && ++index == signs_in_row) {
            in = in->behind.load(std::memory_order_acquire);
            index = 0;
        }
        if (in == nullptr || in->signs[index].of.load(std::memory_order_acquire) == nullptr) {
            in = first_.load(std::memory_order_acquire);
            index = 0;
        }
        *at = {in, index};
        return in == nullptr ? nullptr : &in->signs[index];
    }

  private:
    std::vector<std::unique_ptr<row>> rows_;
    std::atomic<std::size_t> num_signs_{0};
    std::atomic<row*> first_{nullptr};
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
