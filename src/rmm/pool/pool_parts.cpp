// Implements pool_parts.hpp.
#include "rmm/pool/pool_parts.hpp"

#include <algorithm>
#include <new>
#include <string>

#include "driver/format.hpp"
#include "rmm/debug/debug_environment.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/pool/stream_state.hpp"
#include "rmm/status.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

pool_parts::pool_parts(const growth_traits& traits, const pool_options& options)
    : facts(rmm::detail::the_driver(), rmm::detail::current_device(), traits, options),
      registration(make_memory_registration(facts.driver, read_debug_environment().nvtx, traits.is_virtual)),
      streams(facts.driver, facts.device, mutex.gone()),
      heap(facts, streams),
      fences(facts, mutex, streams, heap),
      arenas(facts, mutex, streams, heap, fences, signs),
      uncovered(arenas.common().mutex),
      spans(facts, streams, heap, arenas.common(), uncovered),
      stocks(facts, streams, heap, arenas.common(), signs),
      turn(facts.device) {}

void* pool_parts::hand_out(piece&& taken, cuda_stream_view stream) {
    if (taken.block == nullptr && facts.has_stocks) taken.block = stocks.blocks().find(taken.address);
    if (taken.block != nullptr) return stocks.hand_out(std::move(taken), stream);
    if (taken.from == nullptr) {
        try {
            large.insert(taken.address,
                         {taken.size_bytes, taken.area, rmm::detail::tag_of_thread, nullptr, normalized(stream)});
        } catch (...) {
            put_back(std::move(taken));
            throw;
        }
    }
    return reinterpret_cast<void*>(taken.address);
}

void pool_parts::put_back(piece taken) noexcept {
    if (taken.block != nullptr) return stocks.put_back(std::move(taken));
    if (taken.from != nullptr) return spans.put_back(std::move(taken));
    heap.give_or_lose(taken.area, taken.address, taken.size_bytes, std::move(taken.fences));
}

std::size_t pool_parts::unused_bytes() noexcept {
    std::size_t bytes = heap.free_bytes();
    if (facts.traits.is_virtual)
        spans.for_each_holder([&](arena& a) {
            a.expect_held();
            bytes += a.heap.free_bytes();
        });
    return bytes;
}

std::size_t pool_parts::num_blocks_out() const noexcept {
    std::ptrdiff_t sum = 0;
    for (const auto& a : arenas) sum += a->num_out.load(std::memory_order_relaxed);
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(sum, 0));
}

void pool_parts::report_size(std::uintptr_t address, std::size_t bytes, std::size_t true_size) noexcept {
    try {
        const std::string where = rmm::detail::address_text(reinterpret_cast<void*>(address));
        if (true_size == 0)
            rmm::detail::report_misuse(driver::format("a pool was given {} with {} bytes to free, which is not a "
                                                      "block in use: freed twice, or by the wrong resource?",
                                                      where, bytes));
        else
            rmm::detail::report_misuse(driver::format(
                "a pool was given {} with {} bytes to free; the block has {}. Free with the size that was allocated",
                where, bytes, true_size));
    } catch (const std::bad_alloc&) {
        rmm::detail::report_failure({driver::Code::out_of_memory, 0}, "describe a wrong free");
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
