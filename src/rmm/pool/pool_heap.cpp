// Implements pool_heap.hpp.
#include "rmm/pool/pool_heap.hpp"

#include <exception>

#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Pieces cleared per request; the rest is left to the next requests. Clearing a piece among a hundred thousand takes
// half a microsecond, under the lock.
constexpr std::size_t most_cleared_at_once = 64;

}  // namespace

pool_heap::pool_heap(const pool_facts& facts, timelines& streams)
    : facts_(facts),
      timelines_(streams),
      areas_{heap::heap(pool_facts::unit, heap::merging::same_timelines, facts.traits.placement),
             heap::heap(pool_facts::unit, heap::merging::same_timelines, facts.traits.placement)} {}

void pool_heap::give_or_lose(std::uint8_t area, std::uintptr_t address, std::size_t size,
                             heap::fence_set fences) noexcept {
    try {
        give(area, address, size, std::move(fences));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a block of a pool is lost until the pool is destroyed: ", e.what());
    }
}

void pool_heap::clear_passed() {
    if (!clearing_ || timelines_.has_device_moved()) {
        clearing_ = timelines_.moved();
        prunings_ = {};
    }
    const auto has_passed = [this](const heap::fence& f) { return timelines_.has_passed(f); };
    bool is_done = true;
    for (std::size_t i = 0; i < areas_.size(); ++i) {
        if (clearing_->of_device != 0)
            areas_[i].prune(has_passed);
        else
            is_done &= areas_[i].prune(clearing_->numbers, has_passed, &prunings_[i], most_cleared_at_once);
    }
    if (is_done) {
        timelines_.note_cleared(*clearing_);
        clearing_.reset();
    }
    // What has passed since this began comes next.
    more_to_clear_ = timelines_.has_moved();
    timelines_.forget_idle();
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
