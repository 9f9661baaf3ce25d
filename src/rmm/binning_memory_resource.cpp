// Implements <rmm/mr/detail/binning.hpp>. Any thread but for `add_bin`.
//
// A bin that is added when blocks are out already must not get the frees of those: what it hands out is noted, and a
// free of its size that is not noted goes to where such sizes went before.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/mr/detail/binning.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// 2^62 is the largest size that a size_t can hold twice.
constexpr int max_exponent = 62;

using fixed_size = fixed_size_memory_resource<device_memory_resource>;

struct noted_blocks {
    kmm::locks::ShortLock mutex;
    heap::address_map<bool> blocks KMM_GUARDED_BY(mutex);
};

struct bin {
    std::size_t size_bytes = 0;
    device_async_resource_ref resource;
    std::unique_ptr<fixed_size> owned;
    std::unique_ptr<noted_blocks> noted;  // only of a late bin
};

void give_back(device_async_resource_ref to, void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    try {
        to.deallocate_async(ptr, bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
    } catch (...) {
        report_throw_in_deallocate();
    }
}

}  // namespace

struct bins {
    device_async_resource_ref upstream;
    std::vector<bin> by_size;
    std::atomic<bool> used{false};  // something was allocated

    explicit bins(device_async_resource_ref up) : upstream{up} {}

    auto smallest_for(std::size_t bytes) {
        return std::lower_bound(by_size.begin(), by_size.end(), bytes,
                                [](const bin& b, std::size_t n) { return b.size_bytes < n; });
    }
};

binning::binning(device_async_resource_ref upstream) : bins_{nullptr} {
    if (upstream.raw().resource == nullptr) rmm::detail::refuse_null_resource();
    bins_ = new bins{upstream};
}

binning::binning(device_async_resource_ref upstream, int min_size_exponent, int max_size_exponent) : binning(upstream) {
    RMM_EXPECTS(min_size_exponent >= 0 && max_size_exponent <= max_exponent && min_size_exponent <= max_size_exponent,
                kmm::driver::format("bins of 2^{} to 2^{} bytes: exponents must be in order and lie between 0 and {}",
                                    min_size_exponent, max_size_exponent, max_exponent));
    for (int e = min_size_exponent; e <= max_size_exponent; ++e) add_bin(std::size_t{1} << e, nullptr);
}

binning::~binning() {
    // In the child of a fork another thread may have been at work on the notes.
    if (!rmm::detail::lost_in_fork()) delete bins_;
}

device_async_resource_ref binning::upstream() const noexcept { return bins_->upstream; }

void binning::add_bin(std::size_t allocation_size, device_async_resource_ref const* bin_resource) {
    RMM_EXPECTS(allocation_size <= std::numeric_limits<std::size_t>::max() / 2,
                kmm::driver::format("a bin of {} bytes is larger than an address space", allocation_size));
    const std::size_t size = align_up(std::max<std::size_t>(allocation_size, 1), CUDA_ALLOCATION_ALIGNMENT);
    const auto at = bins_->smallest_for(size);
    if (at != bins_->by_size.end() && at->size_bytes == size) return;
    if (bin_resource != nullptr && bin_resource->raw().resource == nullptr) rmm::detail::refuse_null_resource();
    std::unique_ptr<fixed_size> owned;
    if (bin_resource == nullptr) {
        owned = std::make_unique<fixed_size>(bins_->upstream, size);
        owned->set_name(kmm::driver::format("bin of {} bytes", size).c_str());
    }
    const device_async_resource_ref resource =
        bin_resource != nullptr ? *bin_resource : device_async_resource_ref{*owned};
    std::unique_ptr<noted_blocks> noted;
    if (bins_->used.load(std::memory_order_relaxed)) noted = std::make_unique<noted_blocks>();
    bins_->by_size.insert(at, bin{size, resource, std::move(owned), std::move(noted)});
}

void* binning::allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    if (!bins_->used.load(std::memory_order_relaxed)) bins_->used.store(true, std::memory_order_relaxed);
    const auto at = bins_->smallest_for(bytes);
    if (at == bins_->by_size.end()) return bins_->upstream.allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
    void* const ptr = at->resource.allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
    if (at->noted == nullptr) return ptr;
    try {
        const kmm::locks::Guard in(at->noted->mutex);
        at->noted->blocks.insert(reinterpret_cast<std::uintptr_t>(ptr), true);
    } catch (...) {
        give_back(at->resource, ptr, bytes, stream);
        throw;
    }
    return ptr;
}

void binning::deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    auto at = bins_->smallest_for(bytes);
    for (; at != bins_->by_size.end() && at->noted != nullptr; ++at) {
        const kmm::locks::Guard in(at->noted->mutex);
        if (at->noted->blocks.take(reinterpret_cast<std::uintptr_t>(ptr))) break;
    }
    give_back(at == bins_->by_size.end() ? bins_->upstream : at->resource, ptr, bytes, stream);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
