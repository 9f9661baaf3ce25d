#include "kmm/engine/debug_pattern.hpp"

#include <cstring>

#include "kmm/memory/chunk.hpp"

namespace kmm::engine {

namespace {

using detail::max_rank;

/// Calls `fill(address, bytes, unit)` for every contiguous run; `unit` is 4, 2 or 1: what an element is a multiple of.
template<typename Fill>
void for_each_run(const graph::Task& task, const Fill& fill) {
    for (const graph::Unset& unset : task.unset) {
        const graph::Access& access = task.accesses[unset.access];
        const std::size_t element = access.chunk->array->element_bytes;
        const std::size_t unit = element % 4 == 0 ? 4 : element % 2 == 0 ? 2 : 1;
        auto* const first = static_cast<std::byte*>(task.addresses[unset.access]);
        if (unset.whole_chunk) {
            if (access.chunk->size_bytes != 0) fill(first - access.offset_bytes, access.chunk->size_bytes, unit);
            continue;
        }
        const std::int64_t* const strides = task.layouts[unset.access].strides;
        // Axes of one element tell nothing; the innermost others make one run as long as they follow each other.
        std::int64_t run = 1;
        std::size_t outer = max_rank;
        while (outer > 0 && (unset.extents[outer - 1] == 1 || strides[outer - 1] == run)) run *= unset.extents[--outer];
        std::int64_t index[max_rank] = {};
        for (;;) {
            std::int64_t offset = 0;
            for (std::size_t k = 0; k < outer; ++k) offset += index[k] * strides[k];
            fill(first + static_cast<std::size_t>(offset) * element, static_cast<std::size_t>(run) * element, unit);
            std::size_t k = outer;
            while (k > 0 && ++index[k - 1] == unset.extents[k - 1]) index[--k] = 0;
            if (k == 0) break;
        }
    }
}

}  // namespace

driver::Status fill_unset(const graph::Task& task, driver::Driver& driver, driver::StreamHandle stream) {
    driver::Status status;
    for_each_run(task, [&](std::byte* address, std::size_t bytes, std::size_t unit) {
        const std::uint8_t single = 0xFC;
        const void* const value = unit == 1 ? static_cast<const void*>(&single) : &debug_pattern;
        if (status.ok()) status = driver.fill(address, value, unit, bytes / unit, stream);
    });
    return status;
}

void fill_unset_on_host(const graph::Task& task) {
    for_each_run(task, [](std::byte* address, std::size_t bytes, std::size_t unit) {
        if (unit == 1) {
            std::memset(address, 0xFC, bytes);
            return;
        }
        for (std::size_t i = 0; i < bytes; i += unit) std::memcpy(address + i, &debug_pattern, unit);
    });
}

}  // namespace kmm::engine
