// Where the memory of an engine comes from, and goes back to: an upstream resource, or virtual memory.
//
// Each form owns what it was given and decides by how much the pool grows, what streams get of it ahead of requests,
// and what goes back first. It is handed the engine's lock, lets it go for calls of upstream and of the driver, and
// works on the parts of the pool. Must not know: the engine, how free memory is searched. One thread at a time grows or
// trims (growth_turn.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rmm/heap/move_plan.hpp"
#include "rmm/pool/pool_parts.hpp"
#include "rmm/pool/virtual_source.hpp"
#include "rmm/resource_ref.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class growth : public span_policy {
  public:
    using lock = engine_lock;

    explicit growth(pool_parts& pool) noexcept : pool_(pool) {}
    virtual ~growth() = default;
    growth(const growth&) = delete;
    growth& operator=(const growth&) = delete;

    /// Called with a miss. An empty piece, with the cause, if there is no more.
    virtual piece grow(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why)
        KMM_REQUIRES(in_engine) = 0;
    /// As `grow`, for a stream that is captured and so may not wait: the host waits for the piece's fences, if any.
    virtual piece grow_idle(lock& held, std::size_t size, refusal* why) KMM_REQUIRES(in_engine) = 0;
    /// Gives unused memory back until `keep_bytes` are held. Returns the bytes given back.
    virtual std::size_t trim(lock& held, std::size_t keep_bytes) KMM_REQUIRES(in_engine) = 0;
    /// Gives everything back: all users have passed. Without the lock; the engine is being destroyed.
    virtual void release() noexcept = 0;

    /// A span ahead of the first request of a stream, where that is better than what the heap has. False: it is, and
    /// there is no memory for one.
    virtual bool give_own_span(lock&, std::size_t, arena&) KMM_REQUIRES(in_engine) { return true; }
    /// Whether fresh memory is better than what other streams used last. Asked by requests that would have to wait for
    /// them, which it may count.
    virtual bool is_better_than_waiting(std::size_t, const arena&) noexcept { return false; }
    /// After that: as `grow`, by as much as is better.
    virtual piece grow_rather_than_wait(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why)
        KMM_REQUIRES(in_engine) {
        return grow(held, size, a, stream, why);
    }
    /// Whether a request of that size should have what arenas can give before the pool grows.
    virtual bool comes_after_arenas(std::size_t) const noexcept { return true; }
    /// See virtual_growth. False: the piece was lost to the driver.
    virtual bool cut_behind(lock&, piece*) KMM_REQUIRES(in_engine) { return true; }

    virtual std::size_t num_blocks() const noexcept KMM_REQUIRES(in_engine) { return 0; }  ///< of upstream
    virtual std::size_t spare_bytes() const noexcept KMM_REQUIRES(in_engine) {
        return 0;
    }  ///< held, and can be mapped anywhere
    virtual virtual_source_counts mappings() const { return {}; }

  protected:
    pool_parts& pool_;
};

/// By blocks of an upstream resource.
class upstream_growth final : public growth {
  public:
    upstream_growth(pool_parts& pool, device_async_resource_ref upstream) noexcept
        : growth(pool), upstream_(upstream) {}

    piece grow(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why) override
        KMM_REQUIRES(in_engine);
    piece grow_idle(lock& held, std::size_t size, refusal* why) override KMM_REQUIRES(in_engine);
    std::size_t trim(lock& held, std::size_t keep_bytes) override KMM_REQUIRES(in_engine);
    void release() noexcept override KMM_REQUIRES(in_engine);
    std::size_t span_for(std::size_t size, const arena& a) const noexcept override KMM_REQUIRES(in_engine);
    std::size_t small_limit() const noexcept override KMM_REQUIRES(in_engine);
    std::size_t most_span_holders() const noexcept override;
    bool is_better_than_waiting(std::size_t size, const arena& a) noexcept override KMM_REQUIRES(in_engine);
    piece grow_rather_than_wait(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why) override
        KMM_REQUIRES(in_engine);
    std::size_t num_blocks() const noexcept override KMM_REQUIRES(in_engine) { return regions_.size(); }

    device_async_resource_ref upstream() const noexcept { return upstream_; }
    /// What the pool begins with, in one block. False, with the cause, where upstream has it not.
    bool take_initial_block(refusal* why);
    /// See pool_engine.
    bool grow_ahead(std::size_t bytes, std::size_t target_bytes);

  private:
    std::optional<std::size_t> first_attempt(std::size_t size, refusal* why) const;
    piece take_from_upstream(lock& held, std::size_t attempt, std::size_t least, std::size_t size, const arena& a,
                             cuda_stream_view stream, refusal* why) KMM_REQUIRES(in_engine);
    std::size_t more_rather_than_wait() const noexcept KMM_REQUIRES(in_engine);
    std::vector<heap::range> unused_blocks(std::size_t bytes) KMM_REQUIRES(in_engine);
    piece exchange(lock& held, std::size_t size, const arena& a, cuda_stream_view stream, refusal* why)
        KMM_REQUIRES(in_engine);
    bool give_back_block(lock& held, const heap::range& block, cuda_stream_view stream, std::uint64_t own)
        KMM_REQUIRES(in_engine);
    void take_again(lock& held, const std::vector<heap::range>& given_back, const arena& a, cuda_stream_view stream)
        KMM_REQUIRES(in_engine);
    void* ask_upstream(std::size_t* attempt, std::size_t size, cuda_stream_view stream, refusal* why);
    void return_upstream(void* base, std::size_t size, cuda_stream_view stream) noexcept;
    void add_block(void* base, std::size_t bytes, const heap::fence_set& fences) KMM_REQUIRES(in_engine);

    const device_async_resource_ref upstream_;
    std::map<std::uintptr_t, std::size_t> regions_ KMM_GUARDED_BY(in_engine);  // its blocks
    // Of a pool of blocks of one size: requests that would have had to wait since its blocks were last counted; bytes
    // taken to avoid such waits; consecutive refusals of upstream to give them.
    std::size_t num_short_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t rather_than_wait_bytes_ KMM_GUARDED_BY(in_engine) = 0;
    unsigned num_refused_ KMM_GUARDED_BY(in_engine) = 0;
};

/// By mapping: free memory is mapped elsewhere rather than failing because it is in pieces.
class virtual_growth final : public growth {
  public:
    virtual_growth(pool_parts& pool, std::unique_ptr<virtual_source> source) noexcept
        : growth(pool), source_(std::move(source)) {}

    static growth_traits traits_of(const virtual_source& source) noexcept;

    piece grow(lock& held, std::size_t size, arena& a, cuda_stream_view stream, refusal* why) override
        KMM_REQUIRES(in_engine);
    piece grow_idle(lock& held, std::size_t size, refusal* why) override KMM_REQUIRES(in_engine);
    std::size_t trim(lock& held, std::size_t keep_bytes) override KMM_REQUIRES(in_engine);
    void release() noexcept override { source_.reset(); }
    std::size_t span_for(std::size_t size, const arena& a) const noexcept override KMM_REQUIRES(in_engine);
    std::size_t small_limit() const noexcept override KMM_REQUIRES(in_engine);
    std::size_t most_span_holders() const noexcept override;
    bool give_own_span(lock& held, std::size_t size, arena& a) override KMM_REQUIRES(in_engine);
    bool is_better_than_waiting(std::size_t size, const arena& a) noexcept override KMM_REQUIRES(in_engine);
    bool comes_after_arenas(std::size_t size) const noexcept override { return pool_.facts.area_of(size) != 0; }
    bool cut_behind(lock& held, piece* taken) override KMM_REQUIRES(in_engine);
    void note_collected(std::size_t bytes) noexcept override KMM_REQUIRES(in_engine);
    std::size_t spare_bytes() const noexcept override KMM_REQUIRES(in_engine) { return spare_bytes_; }
    virtual_source_counts mappings() const override { return source_->counts(); }

  private:
    static constexpr std::size_t granule = span_directory::granule;
    // Each arena grows in a window of addresses of its own, so that its granules touch: what one block leaves of its
    // granule is used by the next. All windows together are a quarter of the addresses, so that large requests find
    // room.
    static constexpr std::size_t num_windows = 4 * span_pool::most_holders;

    bool needs_own_span(std::size_t size, const arena& a) const noexcept KMM_REQUIRES(in_engine);
    bool grow_by_span(lock& held, std::size_t size, arena& a) KMM_REQUIRES(in_engine);
    piece grow_or_move(lock& held, std::size_t size, std::uint64_t own, refusal* why,
                       std::size_t fresh_bytes = ~std::size_t{0}) KMM_REQUIRES(in_engine);
    std::size_t free_of_device(lock& held) KMM_REQUIRES(in_engine);
    struct taken_ranges;
    std::vector<heap::free_range> free_ranges() KMM_REQUIRES(in_engine);
    driver::Status remap(lock& held, const heap::move_plan& plan, std::uint8_t area, taken_ranges& taken)
        KMM_REQUIRES(in_engine);
    bool add_mapped(lock& held, std::uint8_t area, const heap::range& made) KMM_REQUIRES(in_engine);
    void return_region(std::uint8_t area, const heap::range& region, const heap::fence_set& fences) noexcept
        KMM_REQUIRES(in_engine);
    virtual_source::trimming trim_source(const heap::range& pieces);
    std::size_t in_use_bytes() const noexcept KMM_REQUIRES(in_engine);
    std::size_t kept_by_stream() const noexcept;
    std::size_t eager_bytes(std::size_t slack = 0) const noexcept KMM_REQUIRES(in_engine);
    /// Copies the source's figures, under the lock. The thread that grows or trims has the source to itself, without
    /// the lock; other threads read the copies.
    void note_source() noexcept KMM_REQUIRES(in_engine);

    std::unique_ptr<virtual_source> source_;
    std::size_t spare_bytes_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t peak_bytes_ KMM_GUARDED_BY(in_engine) = 0;   // the most that was in use
    std::size_t eager_until_ KMM_GUARDED_BY(in_engine) = 0;  // the pool may grow up to this before it moves memory
    std::size_t num_windows_ KMM_GUARDED_BY(in_engine) = 0;  // of addresses, that arenas were given
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
