// Implements pool_holder.hpp.
#include "rmm/pool/pool_holder.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <unordered_map>

#include "driver/locks.hpp"
#include "rmm/class_names.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t no_maximum = ~std::size_t{0};

}  // namespace

std::size_t pool_holder::trim(std::size_t keep_bytes) {
    lock held(parts_.mutex);
    parts_.turn.wait_for_others(held);
    return trim(held, keep_bytes);
}

/// The caller excludes other threads that grow or shrink the pool.
std::size_t pool_holder::trim(lock& held, std::size_t keep_bytes) {
    const growth_mark shrinking(parts_.turn);
    // Memory goes back upstream in the order of the legacy stream, which must not be touched while a stream that waits
    // for it is captured.
    bool spoils = false;
    {
        const unlocked without(held);
        spoils = parts_.streams.is_part_of_capture(driver::legacy_stream());
    }
    if (spoils) return 0;
    captures_.release_ended();
    parts_.collect(true);
    return growth_->trim(held, keep_bytes);
}

virtual_source_counts pool_holder::mappings() {
    lock held(parts_.mutex);
    parts_.turn.wait_for_others(held);
    return growth_->mappings();
}

pool_statistics pool_holder::statistics() {
    const lock held(parts_.mutex);
    captures_.release_ended();
    parts_.collect(true);
    const rmm::detail::holder_figures f = count();
    pool_statistics s;
    s.held_bytes = f.held_bytes;
    s.in_use_bytes = f.in_use_bytes;
    s.num_blocks = f.num_blocks;
    s.maximum_bytes = f.maximum_bytes;
    // Blocks in use of captures count as in use; the free rest of their memory is reserved for them.
    const captures::sums of_captures = captures_.figures();
    s.captured_bytes = of_captures.held_bytes;
    s.free_bytes = s.held_bytes - s.in_use_bytes - of_captures.free_bytes;
    s.num_upstream_blocks = growth_->num_blocks();
    // Spare physical memory can be mapped contiguously on demand.
    s.largest_free_bytes = std::max(f.largest_free_bytes, growth_->spare_bytes());
    return s;
}

std::uint64_t pool_holder::num_steps() {
    const lock held(parts_.mutex);
    std::uint64_t without_lock = 0;
    for (const auto& a : parts_.arenas) {
        const kmm::locks::Guard in(a->mutex);
        without_lock += a->num_steps;
    }
    return without_lock + parts_.streams.num_steps() + parts_.heap.num_steps();
}

std::size_t pool_holder::num_remembered() {
    const lock held(parts_.mutex);
    return parts_.facts.num_arenas() + parts_.streams.size();
}

bool pool_holder::is_locked() noexcept {
    lock held(parts_.mutex, std::defer_lock);
    if (!held.try_lock()) return true;
    return std::any_of(parts_.arenas.begin(), parts_.arenas.end(), [](const auto& a) {
        kmm::locks::Lock in(a->mutex, std::defer_lock);
        return !in.try_lock();
    });
}

void pool_holder::set_name(std::string name) {
    const lock held(parts_.mutex);
    name_ = std::move(name);
}

std::string pool_holder::name_in_texts() const {
    return name_.empty() ? rmm::detail::with_class_names(parts_.facts.options.name) : name_;
}

// ---- in the ledger

/// All but the names. O(arenas).
rmm::detail::holder_figures pool_holder::count() {
    const std::size_t block_bytes = parts_.facts.options.block_bytes;
    rmm::detail::holder_figures f;
    f.held_bytes = parts_.facts.held_bytes();
    f.peak_bytes = std::max(parts_.facts.peak_bytes, f.held_bytes);
    f.maximum_bytes = parts_.facts.options.maximum_bytes == no_maximum ? 0 : parts_.facts.options.maximum_bytes;
    f.takes_from_driver = parts_.facts.traits.is_virtual;
    f.in_use_bytes = parts_.large.bytes();
    f.num_blocks = parts_.large.size();
    f.largest_free_bytes = parts_.heap.largest_free_bytes();
    for (const auto& a : parts_.arenas) {
        const kmm::locks::Guard in(a->mutex);
        f.in_use_bytes += a->heap.live_bytes();
        f.num_blocks += a->heap.num_live();
        f.largest_free_bytes = std::max(f.largest_free_bytes, a->heap.largest_free_bytes());
        if (!a->stock.empty()) f.largest_free_bytes = std::max(f.largest_free_bytes, block_bytes);
    }
    const std::size_t num_out = parts_.facts.has_stocks ? parts_.num_blocks_out() : 0;
    f.in_use_bytes += num_out * block_bytes;
    f.num_blocks += num_out;
    return f;
}

rmm::detail::holder_figures pool_holder::figures() {
    const lock held(parts_.mutex);
    rmm::detail::holder_figures f = count();
    f.name = name_in_texts();
    f.kind = rmm::detail::with_class_names(parts_.facts.options.name);
    return f;
}

/// f(block, stream), of each that is in use; the stream is that of the allocation, or of the arena.
template<typename F>
void pool_holder::for_each_block(F&& f) {
    const lock held(parts_.mutex);
    parts_.large.for_each([&](std::uintptr_t address, const large_block& b) {
        f(rmm::detail::held_block{address, b.size_bytes, b.tag}, b.stream);
    });
    parts_.stocks.blocks().for_each_in_use([&](const stocked_block& b) {
        f(rmm::detail::held_block{b.address, parts_.facts.options.block_bytes, b.tag}, b.stream.load());
    });
    for (const auto& a : parts_.arenas) {
        const kmm::locks::Guard in(a->mutex);
        const cudaStream_t who = a.get() == &parts_.arenas.common() ? arena::shared_streams() : a->handle.load();
        a->heap.for_each_live([&](std::uintptr_t address, std::size_t bytes, rmm::detail::tag_number tag) {
            f(rmm::detail::held_block{address, bytes, tag}, who);
        });
    }
}

void pool_holder::add_by_tag(rmm::detail::tag_sums* sums) {
    for_each_block([&](const rmm::detail::held_block& b, cudaStream_t) { add_to(sums, b.tag, b.size_bytes); });
}

void pool_holder::add_blocks(std::vector<rmm::detail::held_block>* blocks) {
    for_each_block([&](const rmm::detail::held_block& b, cudaStream_t) { blocks->push_back(b); });
}

std::size_t pool_holder::give_back(std::size_t bytes) noexcept {
    // A pool that does not grow could never take the memory again.
    if (!parts_.facts.options.on_device || !parts_.facts.options.grows) return 0;
    try {
        lock held(parts_.mutex);
        // The thread that grows the pool may be waiting for memory that the caller holds.
        if (parts_.turn.is_taken()) return 0;
        return trim(held, parts_.facts.held_bytes() - std::min(bytes, parts_.facts.held_bytes()));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a pool could not give memory back: ", e.what());
    }
    return 0;
}

bool pool_holder::gave(const void* memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const lock held(parts_.mutex);
    if (parts_.stocks.blocks().is_in_use(address)) return true;
    return parts_.large.find(address) != nullptr || parts_.spans.owner_of(address) != nullptr;
}

std::size_t pool_holder::in_use_bytes(const char* tag) {
    const rmm::detail::tag_number number = rmm::detail::find_tag(tag);
    const bool named = tag != nullptr && *tag != 0;
    if (named && number == rmm::detail::untagged) return 0;
    rmm::detail::tag_sums sums;
    add_by_tag(&sums);
    return number < sums.size() ? sums[number].bytes : 0;
}

/// `why`: of the request that the pool cannot serve.
pool_account pool_holder::account(const refusal& why) {
    pool_account all;
    all.self = this;
    if (why.why != refusal::cause::driver && why.why != refusal::cause::too_large) {
        all.now = statistics();
        if (shortage::names_holders()) {
            std::unordered_map<cudaStream_t, std::size_t> by_stream;
            for_each_block([&](const rmm::detail::held_block& b, cudaStream_t who) {
                add_to(&all.by_tag, b.tag, b.size_bytes);
                by_stream[who] += b.size_bytes;
            });
            all.by_stream.assign(by_stream.begin(), by_stream.end());
        }
    }
    const lock held(parts_.mutex);
    all.name = name_in_texts();
    return all;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
