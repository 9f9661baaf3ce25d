#include "kmm/memory/space.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kmm/memory/heap_fences.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

namespace {

// Frees for which a heap keeps records ready. For all frees of a million small blocks these would take twice the memory
// of the replicas. A free for which the heap has no memory is repeated later (give).
constexpr std::size_t frees_kept_ready = 128;
// `prune()` examines 16 free pieces per unit of work.
constexpr std::size_t pruned_at_once = 1;
// Up to this number of free pieces an allocation prunes all of them.
constexpr std::size_t few_pieces = 32;
// From this number of free pieces on each free prunes too, and merges two pieces for the one that it adds: allocations
// from fresh memory do not prune.
constexpr std::size_t many_pieces = 256;
constexpr std::size_t pruned_by_free = 2;
// Two copies come in while two go out.
constexpr std::size_t blocks_ahead = 4;

}  // namespace

void Space::open(SpaceRequests& requests, const trace::Emitter& trace, MemoryIndex memory, std::size_t limit_bytes) {
    requests_ = &requests;
    trace_ = &trace;
    memory_ = memory;
    counters.limit_bytes = limit_bytes;
    heap.expect_frees_at_most(frees_kept_ready);
}

// --------------------------------------------------------------------------------------------- memory from the driver

void Space::grown(std::uintptr_t address, std::size_t bytes, bool sealed) {
    growing_ = false;
    may_save_again();
    const bool exchanged = std::exchange(exchanging_, false);
    const bool freed_meanwhile = std::exchange(freed_meanwhile_, false);
    if (bytes == 0) {
        if (exchanged)
            no_exchange_ = !freed_meanwhile;
        else if (refusals_++ == 0 || asked_bytes_ < refused_bytes_)
            refused_bytes_ = asked_bytes_;
        if (!exchanged) given_at_most_bytes_ = counters.capacity_bytes;
        return;
    }
    refusals_ = 0;
    if (exchanged) no_exchange_ = false;
    given_again(address, bytes, sealed);
}

void Space::given_again(std::uintptr_t address, std::size_t bytes, bool sealed) {
    counters.capacity_bytes += bytes;
    if (counters.capacity_bytes > given_at_most_bytes_) given_at_most_bytes_ = ~std::size_t{0};
    // A refused exchange may have lost memory, which is asked for again. The next exchange needs a larger capacity than
    // the refused one had, so that their number is bounded by the limit until something is freed.
    if (counters.capacity_bytes > exchanged_of_bytes_) no_exchange_ = false;
    tell();
    may_fit_again();
    add(address, bytes, sealed);
}

void Space::add(std::uintptr_t address, std::size_t bytes, bool sealed) {
    has_sealed_ = has_sealed_ || sealed;
    try {
        heap.add_region(address, bytes, sealed ? rmm::heap::border::sealed : rmm::heap::border::open);
    } catch (const std::bad_alloc&) {
        unadded_.push_back({address, bytes, sealed});
    }
}

bool Space::take_back(std::uintptr_t address, std::size_t bytes, graph::FenceSet* users) {
    tell_again();
    rmm::heap::fence_set left;
    try {
        heap.prune([this](const rmm::heap::fence& f) { return passed(f); });
        if (!heap.remove_region(address, bytes, users != nullptr ? &left : nullptr)) return false;
    } catch (const std::bad_alloc&) {
        return false;  // and nothing has changed
    }
    if (users != nullptr) add_heap_fences(*users, left);
    counters.capacity_bytes -= bytes;
    tell();
    may_save_again();
    // While an exchange is under way its answer decides whether the driver may be asked again.
    if (!growing_) {
        refusals_ = 0;
        no_exchange_ = false;
    }
    return true;
}

void Space::leave_to_others() noexcept {
    given_at_most_bytes_ = counters.capacity_bytes;
    if (refusals_ != 0) return;
    refusals_ = 1;
    refused_bytes_ = 0;
}

void Space::tell() const noexcept {
    if (trace::Sink* const s = trace_->sink()) [[unlikely]]
        s->note({.what = trace::What::memory,
                 .from = memory_,
                 .bytes = counters.current_bytes,
                 .other = counters.capacity_bytes});
}

// ------------------------------------------------------------------------------------------------------------- blocks

rmm::heap::block Space::take_free(std::size_t size) {
    rmm::heap::block block = heap.try_allocate_ready(size, rmm::heap::heap::no_timeline);
    if (block) return block;
    forget_passed(heap.num_free_pieces() <= few_pieces ? few_pieces : pruned_at_once);
    return heap.try_allocate(size);
}

void Space::give(std::uintptr_t address, std::size_t bytes, graph::FenceSet&& users) {
    try {
        if (heap.num_free_pieces() > many_pieces) forget_passed(pruned_by_free);
        heap.free(address, bytes, heap_fences(users));
    } catch (const std::bad_alloc&) {
        unfreed_.push_back({address, bytes, std::move(users)});
    }
}

void Space::tell_again() {
    if (unfreed_.empty() && unadded_.empty()) return;
    may_fit_again();
    for (auto late = std::exchange(unadded_, {}); const Unadded& u : late) add(u.address, u.bytes, u.sealed);
    for (auto late = std::exchange(unfreed_, {}); Unfreed & u : late) give(u.address, u.bytes, std::move(u.users));
}

/// Memory whose users have passed is taken before memory that must still be waited for. With many pieces an allocation
/// examines only a few of them: at most `most` change.
void Space::forget_passed(std::size_t most) {
    if (heap.num_free_pieces() <= few_pieces || !is_pruning_) {
        if (advanced_.empty()) return;
        advanced_.take(pruned_);
        pruning_ = {};
    }
    is_pruning_ = !heap.prune(pruned_, [this](const rmm::heap::fence& f) { return passed(f); }, &pruning_, most);
}

// ------------------------------------------------------------------------------------------------------------- growth

bool Space::may_grow(std::size_t bytes) const noexcept {
    if (counters.capacity_bytes >= counters.limit_bytes) return false;
    return refusals_ == 0 || (!growing_ && (bytes < refused_bytes_ || requests_->may_ask_again(memory_)));
}

void Space::grow(std::size_t bytes) {
    asked_bytes_ = std::min(bytes, left_bytes());
    growing_ = true;
    requests_->grow(memory_, asked_bytes_);
}

void Space::grow_ahead(const rmm::heap::block& block) {
    if (growing_ || refusals_ != 0 || heap.free_bytes() >= blocks_ahead * block.size_bytes) return;
    if (left_bytes() < block.size_bytes) return;
    if (std::any_of(block.fences.begin(), block.fences.end(), [this](const auto& f) { return !passed(f); }))
        grow(block.size_bytes);
}

bool Space::ask_once_more(std::size_t bytes) {
    if (refusals_ != 1 || counters.capacity_bytes >= counters.limit_bytes) return false;
    grow(bytes);
    return true;
}

// In the last memory what is dirty stays: nothing else is left to try there. In others a task's own chunks are evicted
// first, because they may lie in each other's way in memory that could be used as one.
bool Space::exchange(std::size_t bytes, std::size_t all_bytes, std::uint64_t tick) {
    const bool is_last = Tiers::is_last(memory_);
    if (growing_ || no_exchange_ || (!is_last && all_bytes == 0)) return false;
    if (heap.free_bytes() + left_bytes() < bytes) return false;
    if (!requests_->exchange(memory_, is_last ? bytes : std::max(bytes, all_bytes))) return false;
    growing_ = true;
    exchanging_ = true;
    exchanged_of_bytes_ = counters.capacity_bytes;
    exchanged_at_ = tick;
    return true;
}

// ------------------------------------------------------------------------------------------------------------- limits

void Space::may_exchange_again() noexcept {
    may_save_again();
    // The answer to one that is under way is about what was free when it was asked for.
    if (exchanging_)
        freed_meanwhile_ = true;
    else
        no_exchange_ = false;
}

std::size_t Space::refuses_from() noexcept {
    if (growing_ || may_grow(refuses_bytes_)) may_save_again();
    return refuses_bytes_;
}

std::size_t Space::lacks_from(std::size_t bytes, bool is_pinned) const noexcept {
    const std::size_t limit = counters.limit_bytes;
    if (heap.round_up(bytes) > limit) return limit / heap_alignment * heap_alignment + 1;
    const std::size_t left = left_bytes();
    if (left != 0 && refusals_ == 0) return bytes;
    // Smaller sizes may fit, may not have been refused yet, or may come from an exchange of free pieces.
    std::size_t fits = heap.largest_free_bytes();
    if (left != 0) fits = std::max(fits, refused_bytes_);
    if (!is_pinned && !no_exchange_) fits = std::max(fits, heap.free_bytes() + left);
    return std::min(bytes, fits + 1);
}

std::size_t Space::free_bytes() const noexcept {
    const std::size_t usable = usable_bytes();
    return usable - std::min(usable, counters.current_bytes);
}

std::size_t Space::usable_bytes() const noexcept { return std::min(counters.limit_bytes, given_at_most_bytes_); }

}  // namespace kmm::memory
