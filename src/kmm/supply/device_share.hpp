// How the rest of the process sees a runtime's memory of one device: a holder in the ledger, and a reclaimer.
//
// Owns: its registrations with the ledger and as a reclaimer, for as long as it lives. Must not know: chunks, heaps,
// who asks. Any thread that does not hold the scheduler's baton.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "driver/driver.hpp"
#include "rmm/ledger.hpp"
#include "rmm/mr/reclaimer.hpp"

namespace kmm::supply {

struct ShareFigures {
    std::size_t held_bytes = 0;
    std::size_t in_use_bytes = 0;
    std::size_t evictable_bytes = 0;  ///< of these
    std::size_t largest_free_bytes = 0;
    std::size_t peak_bytes = 0;
    std::size_t limit_bytes = 0;
    std::size_t num_chunks = 0;
};

/// The runtime, as it is asked from outside.
class ShareSource {
  public:
    virtual ShareFigures share_of(std::uint32_t device) = 0;
    /// See MemoryService::reclaim.
    virtual std::size_t reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                           std::chrono::steady_clock::time_point deadline) noexcept = 0;
    /// See MemoryService::sample.
    virtual const void* some_memory_of(std::uint32_t device) const noexcept = 0;

  protected:
    ~ShareSource() = default;
};

class DeviceShare final : private rmm::mr::reclaimer, private rmm::detail::memory_holder {
  public:
    /// Reclaimers of the program that have a lower number are asked before runtimes.
    static constexpr int priority = 100;

    /// `device` counts within the runtime, `ordinal` is the driver's number. `only_for_device`: freed memory goes to
    /// the driver, so that it helps only requests that the driver refused. Throws std::bad_alloc.
    DeviceShare(ShareSource& source, driver::Driver& driver, std::uint32_t device, int ordinal, std::string name,
                bool only_for_device);
    /// Waits for calls in progress from other threads.
    ~DeviceShare() override;
    DeviceShare(const DeviceShare&) = delete;
    DeviceShare& operator=(const DeviceShare&) = delete;

  private:
    std::size_t reclaim(std::size_t bytes, rmm::cuda_stream_view stream) noexcept override;
    rmm::detail::holder_figures figures() override;
    std::string line_for_shortage() override;

    ShareSource& source_;
    driver::Driver& driver_;
    const std::uint32_t device_;
    const std::string name_;
    const bool only_for_device_;
    std::optional<rmm::mr::reclaimer_registration> registration_;
};

}  // namespace kmm::supply
