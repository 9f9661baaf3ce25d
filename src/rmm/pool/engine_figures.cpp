// Implements the part of engine.hpp that trims a pool, counts what it has, and tells the ledger.
#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/pool/captures.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/growth_turn.hpp"

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

std::size_t pool_engine::trim(std::size_t keep_bytes) {
    lock held(mutex_);
    turn_.wait_for_others(held);
    return trim(held, keep_bytes);
}

/// The caller excludes other threads that grow or shrink the pool.
std::size_t pool_engine::trim(lock& held, std::size_t keep_bytes) {
    const growth_mark shrinking(turn_);
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
    turn_.wait_for_others(held);
    return growth_->mappings();
}

pool_statistics pool_engine::statistics() {
    const lock held(mutex_);
    captures_->release_ended();
    collect_spans(true);
    pool_statistics s;
    s.held_bytes = facts_.held_bytes();
    s.in_use_bytes = large_.bytes();
    s.num_blocks = large_.size();
    s.largest_free_bytes = heap_.largest_free_bytes();
    for (arena* a = holders_.front(); a != nullptr; a = holders_.behind(*a)) {
        const kmm::locks::Guard in(a->mutex);
        s.in_use_bytes += a->heap.live_bytes();
        s.num_blocks += a->heap.num_live();
        s.largest_free_bytes = std::max(s.largest_free_bytes, a->heap.largest_free_bytes());
    }
    if (facts_.has_stocks) {
        const std::size_t num_out = num_blocks_out();
        s.in_use_bytes += num_out * facts_.options.block_bytes;
        s.num_blocks += num_out;
    }
    // Blocks in use of captures count as in use; the free rest of their memory is reserved for them.
    const captures::sums of_captures = captures_->figures();
    s.captured_bytes = of_captures.held_bytes;
    s.free_bytes = s.held_bytes - s.in_use_bytes - of_captures.free_bytes;
    s.maximum_bytes = facts_.options.maximum_bytes == no_maximum ? 0 : facts_.options.maximum_bytes;
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
    return without_lock + num_steps_ + arenas_.num_steps() + timelines_.num_steps() + heap_.num_steps();
}

std::size_t pool_engine::num_remembered() {
    const lock held(mutex_);
    return facts_.num_arenas() + timelines_.size();
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

std::string pool_engine::name_in_texts() const {
    return name_.empty() ? rmm::detail::with_class_names(facts_.options.name) : name_;
}

// ---- as a holder of memory

/// Changes nothing in the pool, unlike `statistics`: frequent calls must not cost streams the spans of their arenas.
rmm::detail::holder_figures pool_engine::figures() {
    rmm::detail::holder_figures f;
    const lock held(mutex_);
    f.name = name_in_texts();
    f.kind = rmm::detail::with_class_names(facts_.options.name);
    f.held_bytes = facts_.held_bytes();
    f.peak_bytes = std::max(facts_.peak_bytes, f.held_bytes);
    f.maximum_bytes = facts_.options.maximum_bytes == no_maximum ? 0 : facts_.options.maximum_bytes;
    f.takes_from_driver = facts_.traits.is_virtual;
    f.in_use_bytes = large_.bytes();
    f.num_blocks = large_.size();
    f.largest_free_bytes = heap_.largest_free_bytes();
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        f.in_use_bytes += a->heap.live_bytes();
        f.num_blocks += a->heap.num_live();
        f.largest_free_bytes = std::max(f.largest_free_bytes, a->heap.largest_free_bytes());
        if (!a->stock.empty()) f.largest_free_bytes = std::max(f.largest_free_bytes, facts_.options.block_bytes);
    }
    if (facts_.has_stocks) {
        const std::size_t num_out = num_blocks_out();
        f.in_use_bytes += num_out * facts_.options.block_bytes;
        f.num_blocks += num_out;
    }
    return f;
}

void pool_engine::add_by_tag(rmm::detail::tag_sums* sums) {
    const lock held(mutex_);
    large_.for_each([&](std::uintptr_t, const large_block& b) { add_to(sums, b.tag, b.size_bytes); });
    blocks_.for_each_in_use([&](const stocked_block& b) { add_to(sums, b.tag, facts_.options.block_bytes); });
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        a->heap.for_each_live(
            [&](std::uintptr_t, std::size_t bytes, rmm::detail::tag_number tag) { add_to(sums, tag, bytes); });
    }
}

void pool_engine::add_blocks(std::vector<rmm::detail::held_block>* blocks) {
    const lock held(mutex_);
    large_.for_each(
        [&](std::uintptr_t address, const large_block& b) { blocks->push_back({address, b.size_bytes, b.tag}); });
    blocks_.for_each_in_use(
        [&](const stocked_block& b) { blocks->push_back({b.address, facts_.options.block_bytes, b.tag}); });
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        a->heap.for_each_live([&](std::uintptr_t address, std::size_t bytes, rmm::detail::tag_number tag) {
            blocks->push_back({address, bytes, tag});
        });
    }
}

std::size_t pool_engine::give_back(std::size_t bytes) noexcept {
    // A pool that does not grow could never take the memory again.
    if (!facts_.options.on_device || !facts_.options.grows) return 0;
    try {
        lock held(mutex_);
        // The thread that grows the pool may be waiting for memory that the caller holds.
        if (turn_.is_taken()) return 0;
        return trim(held, facts_.held_bytes() - std::min(bytes, facts_.held_bytes()));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a pool could not give memory back: ", e.what());
    }
    return 0;
}

bool pool_engine::gave(const void* memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const lock held(mutex_);
    if (blocks_.is_in_use(address)) return true;
    return large_.find(address) != nullptr || directory_.find(address) != nullptr;
}

std::size_t pool_engine::in_use_bytes(const char* tag) {
    const rmm::detail::tag_number number = rmm::detail::find_tag(tag);
    const bool named = tag != nullptr && *tag != 0;
    if (named && number == rmm::detail::untagged) return 0;
    rmm::detail::tag_sums sums;
    add_by_tag(&sums);
    return number < sums.size() ? sums[number].bytes : 0;
}

std::vector<std::pair<cudaStream_t, std::size_t>> pool_engine::in_use_by_stream() {
    std::unordered_map<cudaStream_t, std::size_t> sums;
    {
        const lock held(mutex_);
        large_.for_each([&](std::uintptr_t, const large_block& b) { sums[b.stream] += b.size_bytes; });
        blocks_.for_each_in_use([&](const stocked_block& b) { sums[b.stream] += facts_.options.block_bytes; });
        for (const auto& a : arenas_) {
            const kmm::locks::Guard in(a->mutex);
            const cudaStream_t who = a.get() == common_ ? arena::shared_streams() : a->handle.load();
            if (a->heap.live_bytes() != 0) sums[who] += a->heap.live_bytes();
        }
    }
    return {sums.begin(), sums.end()};
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
