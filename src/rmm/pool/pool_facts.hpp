// Constants of a pool, bytes held, number of arenas.
//
// Owns: these numbers. Must not know: the parts. Any thread, where nothing else is said.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"
#include "rmm/aligned.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/pool/engine_values.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct pool_facts {
    /// What every size and address is a multiple of.
    static constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;
    /// Virtual memory has an area of addresses for small requests and spans: each of these makes a whole physical piece
    /// immovable. All other pools have one area.
    static constexpr std::size_t num_areas = 2;
    /// Each block in a stock has a record of 64 bytes of the host's memory: too much for smaller ones.
    static constexpr std::size_t smallest_stocked_bytes = 4096;

    pool_facts(driver::Driver& of_driver, int on_device, const growth_traits& of_growth, const pool_options& as_asked)
        : driver(of_driver),
          device(on_device),
          traits(of_growth),
          options(as_asked),
          has_stocks(as_asked.block_bytes >= smallest_stocked_bytes) {}
    /// Of the block for a request.
    std::size_t size_of(std::size_t bytes) const noexcept {
        if (bytes >= traits.whole_granules_from) return align_up(bytes, traits.granularity);
        return options.block_bytes != 0 ? options.block_bytes : align_up(bytes, unit);
    }
    std::uint8_t area_of(std::size_t size) const noexcept { return size <= traits.small_area_limit; }
    std::uint8_t span_area() const noexcept { return traits.is_virtual; }

    std::size_t held_bytes() const noexcept { return held.load(std::memory_order_relaxed); }
    void note_held(std::size_t bytes) noexcept KMM_REQUIRES(in_engine) {
        held.store(bytes, std::memory_order_relaxed);
        peak_bytes = std::max(peak_bytes, bytes);
    }
    std::size_t num_arenas() const noexcept { return arenas.load(std::memory_order_relaxed); }

    driver::Driver& driver;
    const int device;
    const growth_traits traits;
    const pool_options options;
    const bool has_stocks;  // blocks of one size are kept in stocks (block_stock.hpp), instead of in spans
    std::atomic<std::size_t> held{0};
    std::atomic<std::size_t> arenas{0};
    std::size_t peak_bytes KMM_GUARDED_BY(in_engine) = 0;  // the most that was held
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
