// The parts of one pool, in the order in which they need each other: free memory, streams and their fences, blocks in
// use.
//
// Owns: the parts. Must not know: requests, where memory comes from (growth.hpp), captures. Under the engine's lock,
// where nothing else is said.
#pragma once

#include <memory>
#include <span>

#include "rmm/debug/memory_registration.hpp"
#include "rmm/pool/arena_table.hpp"
#include "rmm/pool/growth_turn.hpp"
#include "rmm/pool/large_blocks.hpp"
#include "rmm/pool/span_pool.hpp"
#include "rmm/pool/stock_pool.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct pool_parts {
    pool_parts(const growth_traits& traits, const pool_options& options);
    /// A block that the stream may use without a wait.
    piece find_ready(std::size_t size, arena& a) KMM_REQUIRES(in_engine) {
        return facts.has_stocks ? stocks.find_ready(size, a) : spans.find_ready(size, a);
    }
    /// What other streams used last; `all_spans`: also collect granules from all spans.
    piece find_fenced(std::size_t size, arena& a, std::span<const std::uint64_t> avoided, bool all_spans)
        KMM_REQUIRES(in_engine) {
        return facts.has_stocks ? stocks.find_fenced(size, a, avoided) : spans.find_fenced(size, a, avoided, all_spans);
    }
    /// Gives the heap what arenas do not use; see span_pool and stock_pool.
    std::size_t collect(bool all) KMM_REQUIRES(in_engine) {
        return facts.has_stocks ? stocks.collect(all) : spans.collect(all);
    }
    void* hand_out(piece&& taken, cuda_stream_view stream) KMM_REQUIRES(in_engine);
    void put_back(piece taken) noexcept KMM_REQUIRES(in_engine);

    /// Unused bytes that could go back: in the heap and, of virtual memory, in arenas.
    std::size_t unused_bytes() noexcept KMM_REQUIRES(in_engine);
    /// Blocks of stocks that are in use. A block that is freed meanwhile counts or does not. O(arenas).
    std::size_t num_blocks_out() const noexcept KMM_REQUIRES(in_engine);

    // ---- what tools are told, without the lock
    void tell_added(std::uintptr_t address, std::size_t bytes, const cuda_stream_view* behind) const noexcept {
        if (registration != nullptr) registration->add_region(reinterpret_cast<void*>(address), bytes, behind);
    }
    void tell_removed(std::uintptr_t address, std::size_t bytes) const noexcept {
        if (registration != nullptr) registration->remove_region(reinterpret_cast<void*>(address), bytes);
    }

    // ---- errors of callers, any thread

    /// Reports a free of a block that has another size, or (`true_size` 0) is not in use.
    static void report_size(std::uintptr_t address, std::size_t bytes, std::size_t true_size) noexcept;

    pool_facts facts;
    const std::unique_ptr<memory_registration> registration;  // the tool that watches the memory; mostly null
    engine_mutex mutex;
    timelines streams;
    pool_heap heap;
    pool_fences fences;
    stock_signs signs;
    arena_table arenas;
    uncovered_frees uncovered;
    span_pool spans;
    stock_pool stocks;
    large_blocks large;
    growth_turn turn;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
