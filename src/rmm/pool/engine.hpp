// The engine of a pool: which bytes of a few upstream blocks are free, and what a stream must wait for before it uses them.
//
// Owns: the blocks from upstream, the heap over them, the streams' fences. Must not know: the public template, other pools.
// Any thread. One lock guards the state; it is never held over a call of the driver or of upstream. The device of the pool
// must be current, as for every resource.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rmm/heap/heap.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/pool/live_blocks.hpp"
#include "rmm/pool/short_lock.hpp"
#include "rmm/pool/timeline.hpp"
#include "rmm/resource_ref.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Why `try_allocate` gave nothing.
struct refusal {
    enum class cause : std::uint8_t { none, too_large, exhausted, driver } why = cause::none;
    std::string reason;     ///< for `exhausted`: what upstream said, or which limit was met
    driver::Status status;  ///< for `driver`: the failed call
};

class pool_engine {
  public:
    /// Takes `initial_bytes` from upstream (in one attempt). Arguments have been checked.
    pool_engine(device_async_resource_ref upstream, std::size_t initial_bytes, std::optional<std::size_t> maximum_bytes,
                bool ordered_upstream);
    ~pool_engine();
    pool_engine(const pool_engine&) = delete;
    pool_engine& operator=(const pool_engine&) = delete;

    /// `bytes` > 0 on `stream`, which is made to wait for whoever used the memory last. Grows where nothing fits. Null, with
    /// the cause in `*why`, where that fails; the pool is as before then. Throws only std::bad_alloc of the host.
    void* try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why);
    /// The same, and turns a refusal into an exception with the pool's figures.
    void* allocate(std::size_t bytes, cuda_stream_view stream);

    /// Takes a block back that may be used again once the work queued now on every one of `streams` is done (none: at once).
    void free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept;

    device_async_resource_ref upstream() const noexcept { return upstream_; }
    std::size_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }
    pool_statistics statistics();
    std::size_t trim(std::size_t keep_bytes);
    void set_name(std::string name);

  private:
    using lock = std::unique_lock<rmm::detail::short_lock>;

    struct region {
        std::size_t size_bytes = 0;
        std::uintptr_t heap_address = 0;  // where the heap sees it
    };
    /// A block on its way out. `kept_epoch`: the fence on its own stream, which needs no wait but counts if it is put back.
    struct piece {
        heap::block block;
        std::uint64_t kept_epoch = 0;
    };

    piece take_or_grow(lock& held, std::size_t size, const rmm::detail::stream_identity& who, cuda_stream_view stream,
                       refusal* why);
    piece take(std::size_t size, std::uint64_t own);
    void put_back(const piece& taken, std::uint64_t own);
    heap::block take_exactly(std::uintptr_t heap_address, std::size_t size);
    void* hand_out(const heap::block& block);

    driver::Status wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream, std::uint64_t own);
    driver::Status wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream);
    void wait_for_device() noexcept;

    heap::block grow(lock& held, std::size_t size, const rmm::detail::stream_identity& who, cuda_stream_view stream,
                     refusal* why);
    void* ask_upstream(std::size_t* attempt, std::size_t size, cuda_stream_view stream, std::string* reason);
    const region& add_upstream_block(void* base, std::size_t bytes);
    void enter(const region& r, const heap::fence_set& fences);
    std::optional<std::size_t> first_attempt(std::size_t size, refusal* why) const;

    std::optional<heap::fence> fence_now(lock& held, const rmm::detail::stream_identity& who, cuda_stream_view stream);
    void give(std::uintptr_t heap_address, std::size_t size, const heap::fence_set& fences);
    void flush_kept();
    void poll(lock& held);
    void* real_address(std::uintptr_t heap_address) const;
    [[noreturn]] void throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream);
    void report_free(void* ptr, std::size_t bytes, std::size_t true_size) const noexcept;

    driver::Driver& driver_;
    const int device_;
    device_async_resource_ref upstream_;
    const std::optional<std::size_t> maximum_bytes_;
    const bool ordered_upstream_;

    rmm::detail::short_lock mutex_;
    std::string name_;
    heap::heap heap_;
    timelines timelines_;
    std::map<std::uintptr_t, region> regions_;        // by real address
    std::map<std::uintptr_t, std::uintptr_t> moved_;  // heap address -> real address, where they differ
    std::uintptr_t next_moved_address_;
    live_blocks live_;  // by real address
    std::size_t in_use_bytes_ = 0;
    std::size_t num_kept_ = 0;    // blocks that timelines keep for themselves
    std::size_t poll_above_ = 0;  // recorded epochs that make the next allocation ask
    std::atomic<std::size_t> held_bytes_{0};

    // One thread grows at a time; others that miss wait for it and try again.
    std::condition_variable_any grown_;
    bool growing_ = false;
    std::thread::id grower_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
