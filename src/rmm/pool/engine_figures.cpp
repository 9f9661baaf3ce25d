// Implements the part of engine.hpp that trims a pool and counts what it has.
#include <algorithm>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/pool/captures.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/growth_mark.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t no_maximum = ~std::size_t{0};

}  // namespace

device_async_resource_ref pool_engine::upstream() const noexcept { return upstream_growth_->upstream(); }

/// For a thread that grows the pool ahead of its users.
bool pool_engine::grow_ahead(std::size_t bytes, std::size_t target_bytes) {
    return upstream_growth_->grow_ahead(bytes, target_bytes);
}

void pool_engine::wait_for_growth(lock& held) {
    wait(grown_, held, [this]() KMM_REQUIRES(in_engine) { return !growing_ || grower_ == std::this_thread::get_id(); });
}

std::size_t pool_engine::trim(std::size_t keep_bytes) {
    lock held(mutex_);
    wait_for_growth(held);
    return trim(held, keep_bytes);
}

/// The caller excludes other threads that grow or shrink the pool.
std::size_t pool_engine::trim(lock& held, std::size_t keep_bytes) {
    const growth_mark shrinking(*this);
    // Memory goes back upstream in the order of the legacy stream, which must not be touched while a stream that waits
    // for it is captured.
    bool spoils = false;
    {
        const unlocked without(held);
        spoils = timelines_.is_part_of_capture(driver::legacy_stream());
    }
    if (spoils) return 0;
    captures_->release_ended();
    collect_spans(true);
    return growth_->trim(held, keep_bytes);
}

virtual_source_counts pool_engine::mappings() {
    lock held(mutex_);
    wait_for_growth(held);
    return growth_->mappings();
}

pool_statistics pool_engine::statistics() {
    const lock held(mutex_);
    captures_->release_ended();
    collect_spans(true);
    pool_statistics s;
    s.held_bytes = held_bytes();
    s.in_use_bytes = large_bytes_;
    s.num_blocks = large_.size();
    s.largest_free_bytes = std::max(heaps_[0].largest_free_bytes(), heaps_[1].largest_free_bytes());
    for (arena* a = holders_.front(); a != nullptr; a = holders_.behind(*a)) {
        const kmm::locks::Guard in(a->mutex);
        s.in_use_bytes += a->heap.live_bytes();
        s.num_blocks += a->heap.num_live();
        s.largest_free_bytes = std::max(s.largest_free_bytes, a->heap.largest_free_bytes());
    }
    if (has_stocks_) {
        const std::size_t num_out = num_blocks_out();
        s.in_use_bytes += num_out * options_.block_bytes;
        s.num_blocks += num_out;
    }
    // Blocks in use of captures count as in use; the free rest of their memory is reserved for them.
    const captures::sums of_captures = captures_->figures();
    s.captured_bytes = of_captures.held_bytes;
    s.free_bytes = s.held_bytes - s.in_use_bytes - of_captures.free_bytes;
    s.maximum_bytes = options_.maximum_bytes == no_maximum ? 0 : options_.maximum_bytes;
    s.num_upstream_blocks = growth_->num_blocks();
    // Spare physical memory can be mapped contiguously on demand.
    s.largest_free_bytes = std::max(s.largest_free_bytes, growth_->spare_bytes());
    return s;
}

std::uint64_t pool_engine::num_steps() {
    const lock held(mutex_);
    std::uint64_t without_lock = 0;
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        without_lock += a->num_steps;
    }
    return without_lock + num_steps_ + timelines_.num_steps() + heaps_[0].num_steps() + heaps_[1].num_steps();
}

std::size_t pool_engine::num_remembered() {
    const lock held(mutex_);
    return arenas_.size() + timelines_.size();
}

bool pool_engine::is_locked() noexcept {
    lock held(mutex_, std::defer_lock);
    if (!held.try_lock()) return true;
    return std::any_of(arenas_.begin(), arenas_.end(), [](const auto& a) {
        kmm::locks::Lock in(a->mutex, std::defer_lock);
        return !in.try_lock();
    });
}

void pool_engine::set_name(std::string name) {
    const lock held(mutex_);
    name_ = std::move(name);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
