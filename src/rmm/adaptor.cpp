// Implements <rmm/mr/detail/adaptor.hpp>: what adaptors have in common, limiting, aligned. Any thread; no lock is held
// over a call of upstream.
#include "rmm/mr/detail/adaptor.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t most_bytes = ~std::size_t{0};

/// The resource behind a reference, where it is one of those that can be asked what 23.12 asked; else null.
device_memory_resource const* resource_behind(device_async_resource_ref const& ref) noexcept {
    if (ref.raw().operations != &rmm::detail::device_memory_resource_operations) return nullptr;
    return static_cast<device_memory_resource const*>(ref.raw().resource);
}

void expect_power_of_two(std::size_t alignment) {
    RMM_EXPECTS(is_pow2(alignment),
                kmm::driver::format("the alignment of an adaptor must be a power of two; it is {}", alignment));
}

/// Whether `bytes` can be rounded up.
bool can_round_up(std::size_t bytes, std::size_t alignment) noexcept { return bytes <= most_bytes - (alignment - 1); }

}  // namespace

adaptor::adaptor(device_async_resource_ref upstream) : upstream_{upstream} {
    if (upstream.raw().resource == nullptr) rmm::detail::refuse_null_resource();
}

adaptor::~adaptor() = default;

bool adaptor::lost_in_fork() noexcept { return rmm::detail::lost_in_fork(); }

bool adaptor::supports_streams() const noexcept {
    const device_memory_resource* upstream = resource_behind(upstream_);
    return upstream != nullptr && upstream->supports_streams();
}

bool adaptor::supports_get_mem_info() const noexcept {
    const device_memory_resource* upstream = resource_behind(upstream_);
    return upstream != nullptr && upstream->supports_get_mem_info();
}

std::pair<std::size_t, std::size_t> adaptor::do_get_mem_info(cuda_stream_view stream) const {
    const device_memory_resource* upstream = resource_behind(upstream_);
    if (upstream == nullptr) return {0, 0};
    return upstream->get_mem_info(stream);
}

void* adaptor::allocate_alone(void* (*allocate)(void*, std::size_t, cuda_stream_view), void* self, std::size_t bytes,
                              cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    rmm::detail::reclaim_rounds others(rmm::detail::current_device(), bytes, stream, nullptr);
    for (;;) {
        try {
            const mr::no_reclaim_scope alone;
            return allocate(self, bytes, stream);
        } catch (const rmm::out_of_memory& e) {
            if (!others.ask(e.shortage().limit == memory_limit::device)) throw;
        }
    }
}

void adaptor::undo_upstream_allocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    try {
        upstream_deallocate(ptr, bytes, stream);
    } catch (...) {
        report_throw_in_deallocate("the upstream of an adaptor");
    }
}

// ---- limiting

limiting_adaptor::limiting_adaptor(device_async_resource_ref upstream, std::size_t allocation_limit,
                                   std::size_t alignment)
    : adaptor(upstream), limit_bytes_{allocation_limit}, alignment_{alignment} {
    expect_power_of_two(alignment);
}

limiting_adaptor::~limiting_adaptor() = default;

void* limiting_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    std::size_t allocated = allocated_bytes_.load(std::memory_order_relaxed);
    if (!can_round_up(bytes, alignment_)) refuse(bytes, allocated);
    const std::size_t counted = align_up(bytes, alignment_);
    // Bytes are added only when they fit, so that no other thread sees bytes that are about to be refused.
    do {
        if (allocated > limit_bytes_ || counted > limit_bytes_ - allocated)
            allocated = find_room(bytes, counted, stream);
    } while (!allocated_bytes_.compare_exchange_weak(allocated, allocated + counted, std::memory_order_relaxed));
    try {
        return upstream_allocate(bytes, stream);
    } catch (...) {
        give_back(counted);
        throw;
    }
}

/// Reclaims until `counted` bytes fit under the limit; returns the bytes counted then. Throws if that fails.
std::size_t limiting_adaptor::find_room(std::size_t bytes, std::size_t counted, cuda_stream_view stream) const {
    rmm::detail::reclaim_rounds others(rmm::detail::current_device(), counted, stream, nullptr);
    while (counted <= limit_bytes_ && others.ask(false)) {
        const std::size_t allocated = allocated_bytes_.load(std::memory_order_relaxed);
        if (allocated <= limit_bytes_ && counted <= limit_bytes_ - allocated) return allocated;
    }
    refuse(bytes, allocated_bytes_.load(std::memory_order_relaxed));
}

void limiting_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    // After upstream has the block, or has thrown: what is counted is never less than what is held.
    struct subtraction {
        limiting_adaptor& from;
        const std::size_t bytes;
        ~subtraction() { from.give_back(bytes); }
    } const at_the_end{*this, ptr != nullptr && can_round_up(bytes, alignment_) ? align_up(bytes, alignment_) : 0};
    upstream_deallocate(ptr, bytes, stream);
}

void limiting_adaptor::give_back(std::size_t bytes) noexcept {
    std::size_t allocated = allocated_bytes_.load(std::memory_order_relaxed);
    while (!allocated_bytes_.compare_exchange_weak(allocated, allocated - std::min(bytes, allocated),
                                                   std::memory_order_relaxed)) {}
}

void limiting_adaptor::refuse(std::size_t bytes, std::size_t allocated) const {
    using rmm::detail::format_size;
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    shortage.pool_in_use_bytes = allocated;
    shortage.pool_maximum_bytes = limit_bytes_;
    shortage.limit = memory_limit::maximum;
    throw rmm::out_of_memory(
        kmm::driver::format(
            "Exceeded memory limit (failed to allocate {}): the limit is {}, in use are {}, asked for were {}\n"
            "  try: freeing blocks, or a higher limit",
            rmm::detail::format_bytes(bytes), format_size(limit_bytes_), format_size(allocated), format_size(bytes)),
        shortage);
}

// ---- aligned

/// Blocks that were moved up to an aligned address, and where upstream put them.
struct moved_blocks {
    void enter(void* aligned, void* original) {
        const kmm::locks::Guard lock(mutex);
        originals.emplace(aligned, original);
    }
    /// The address that upstream knows; the block is forgotten.
    void* take(void* aligned) noexcept {
        const kmm::locks::Guard lock(mutex);
        const auto at = originals.find(aligned);
        if (at == originals.end()) return aligned;
        void* const original = at->second;
        originals.erase(at);
        return original;
    }

    kmm::locks::Mutex mutex;
    std::unordered_map<void*, void*> originals KMM_GUARDED_BY(mutex);
};

aligned_adaptor::aligned_adaptor(device_async_resource_ref upstream, std::size_t alignment,
                                 std::size_t alignment_threshold)
    : adaptor(upstream),
      alignment_{std::max(alignment, CUDA_ALLOCATION_ALIGNMENT)},
      threshold_bytes_{alignment_threshold} {
    expect_power_of_two(alignment);
    moved_ = new moved_blocks;
}

aligned_adaptor::~aligned_adaptor() {
    // In the child of a fork another thread may have been at work on it.
    if (!lost_in_fork()) delete moved_;
}

bool aligned_adaptor::passes(std::size_t bytes) const noexcept {
    // 0 bytes have no aligned address of their own: the next one may be that of another block.
    return alignment_ == CUDA_ALLOCATION_ALIGNMENT || bytes < threshold_bytes_ || bytes == 0;
}

std::size_t aligned_adaptor::upstream_bytes(std::size_t bytes) const noexcept {
    // Fits: what is rounded up leaves at least `alignment_` addresses above it.
    return align_up(bytes, alignment_) + (alignment_ - CUDA_ALLOCATION_ALIGNMENT);
}

void* aligned_adaptor::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (passes(bytes)) return upstream_allocate(bytes, stream);
    if (!can_round_up(bytes, alignment_))
        throw rmm::out_of_memory(kmm::driver::format(
            "an aligned_resource_adaptor cannot align {} bytes to {}: that is more than there are addresses", bytes,
            alignment_));
    const std::size_t asked = upstream_bytes(bytes);
    void* const original = upstream_allocate(asked, stream);
    void* const aligned = reinterpret_cast<void*>(align_up(reinterpret_cast<std::uintptr_t>(original), alignment_));
    if (aligned == original) return original;
    try {
        moved_->enter(aligned, original);
    } catch (...) {
        undo_upstream_allocate(original, asked, stream);
        throw rmm::bad_alloc("an aligned_resource_adaptor has no host memory to remember a block");
    }
    return aligned;
}

void aligned_adaptor::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    if (ptr == nullptr || passes(bytes)) {
        upstream_deallocate(ptr, bytes, stream);
        return;
    }
    // Forgotten first: upstream may give the address to another thread at once.
    void* const original = moved_->take(ptr);
    upstream_deallocate(original, upstream_bytes(bytes), stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
