// What this library knows about a stream-ordered pool of the driver, for the ledger.
//
// The driver does not say how much a pool holds; it keeps what was in use at the most, up to its release threshold.
// Owns: the counts. Must not know: the resources over the pool. Any thread; no lock where a resource owns the pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rmm/detail/cuda_types.hpp"
#include "rmm/ledger.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

class driver_pool final : public memory_holder {
  public:
    enum whose : std::uint8_t {
        ours,     ///< exists for as long as this
        foreign,  ///< may be destroyed at any time: never touched from here
        managed,  ///< foreign, and its memory need not be on the device
    };
    /// `maximum_bytes` 0: none. Enters the ledger. Throws std::bad_alloc.
    driver_pool(const char* kind, cudaMemPool_t pool, int device, std::size_t maximum_bytes, whose owner);
    ~driver_pool();
    driver_pool(const driver_pool&) = delete;
    driver_pool& operator=(const driver_pool&) = delete;

    int device() const noexcept { return device_; }
    void note(std::size_t bytes) noexcept {
        const std::size_t now = in_use_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        num_blocks_.fetch_add(1, std::memory_order_relaxed);
        if (now > held_bytes_.load(std::memory_order_relaxed)) [[unlikely]]
            raise(now);
    }
    void forget(std::size_t bytes) noexcept {
        in_use_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
        num_blocks_.fetch_sub(1, std::memory_order_relaxed);
    }

    holder_figures figures() override;
    std::size_t give_back(std::size_t bytes) noexcept override;

  private:
    friend driver_pool& record_of_pool(cudaMemPool_t, whose);
    void raise(std::size_t to) noexcept;

    const char* const kind_;
    const cudaMemPool_t pool_;
    const int device_;
    const std::size_t maximum_bytes_;
    const whose owner_;
    std::atomic<std::size_t> in_use_bytes_{0};
    std::atomic<std::size_t> num_blocks_{0};
    std::atomic<std::size_t> held_bytes_{0};
    std::atomic<std::size_t> peak_bytes_{0};
};

/// Of a pool that is named by its handle: the record of the resource that owns it; else one that stays. Throws
/// std::bad_alloc for a new one.
driver_pool& record_of_pool(cudaMemPool_t pool, driver_pool::whose owner = driver_pool::foreign);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
