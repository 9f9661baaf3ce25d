#include "kmm/engine/debug_pattern.hpp"

#include <cstring>

namespace kmm::engine {

namespace {

using detail::max_rank;

/// Calls `fill(address, bytes, unit)` for every contiguous run; `unit` is 4, 2 or 1: what an element is a multiple of.
template<typename F> void for_each_run(const schedule::Fill& region, const F& fill) {
    const std::size_t element = region.element_bytes;
    const std::size_t unit = element % 4 == 0 ? 4 : element % 2 == 0 ? 2 : 1;
    auto* const first = reinterpret_cast<std::byte*>(region.address);
    // Axes of one element tell nothing; the innermost others make one run as long as they follow each other.
    std::int64_t run = 1;
    std::size_t outer = max_rank;
    while (outer > 0 && (region.extents[outer - 1] == 1 || region.strides[outer - 1] == run))
        run *= region.extents[--outer];
    if (run == 0) return;
    std::int64_t index[max_rank] = {};
    for (;;) {
        std::int64_t offset = 0;
        for (std::size_t k = 0; k < outer; ++k) offset += index[k] * region.strides[k];
        fill(first + static_cast<std::size_t>(offset) * element, static_cast<std::size_t>(run) * element, unit);
        std::size_t k = outer;
        while (k > 0 && ++index[k - 1] == region.extents[k - 1]) index[--k] = 0;
        if (k == 0) break;
    }
}

driver::Status fill_region(const schedule::Fill& region, driver::Driver& driver, driver::StreamHandle stream) {
    driver::Status status;
    for_each_run(region, [&](std::byte* address, std::size_t bytes, std::size_t unit) {
        const std::uint8_t single = 0xFC;
        const void* const value = unit == 1 ? static_cast<const void*>(&single) : &debug_pattern;
        if (status.ok()) status = driver.fill(address, value, unit, bytes / unit, stream);
    });
    return status;
}

}  // namespace

driver::Status fill_unset(std::span<const schedule::Fill> fills, driver::Driver& driver, driver::StreamHandle stream) {
    driver::Status status;
    for (const schedule::Fill& f : fills)
        if (status.ok()) status = fill_region(f, driver, stream);
    return status;
}

driver::Status fill_unset(const graph::Task& task, driver::Driver& driver, driver::StreamHandle stream) {
    driver::Status status;
    for (const graph::Unset& unset : task.unset())
        if (status.ok()) status = fill_region(schedule::fill_of(task, unset), driver, stream);
    return status;
}

void fill_unset_on_host(const graph::Task& task) {
    for (const graph::Unset& unset : task.unset())
        for_each_run(schedule::fill_of(task, unset), [](std::byte* address, std::size_t bytes, std::size_t unit) {
            if (unit == 1) {
                std::memset(address, 0xFC, bytes);
                return;
            }
            for (std::size_t i = 0; i < bytes; i += unit) std::memcpy(address + i, &debug_pattern, unit);
        });
}

}  // namespace kmm::engine
