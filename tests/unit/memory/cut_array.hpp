// Arrays of chunks of one size, for tests of what is below the api.
#pragma once

#include <algorithm>
#include <memory>

#include "kmm/memory/chunk.hpp"

namespace kmm_test {

/// So many chunks of so many bytes each, in a line, all of them touched. `last_bytes`: of the last one, if it is
/// shorter.
inline void cut(kmm::memory::Array& array, std::size_t chunks, std::size_t bytes, std::size_t num_devices,
                std::size_t last_bytes = 0) {
    if (array.element_bytes == 0) array.element_bytes = 1;
    const auto elements = [&](std::size_t size) {
        return static_cast<std::int64_t>(std::max<std::size_t>(size / array.element_bytes, 1));
    };
    const std::int64_t size[] = {elements(bytes)};
    const std::int64_t last = last_bytes == 0 ? size[0] : elements(last_bytes);
    kmm::detail::Box box;
    box.end[0] = static_cast<std::int64_t>(chunks - 1) * size[0] + last;
    array.rank = 1;
    array.set_layout(std::make_shared<kmm::plan::Layout>(1, box, size, kmm::plan::ChunkHomes()), num_devices);
    array.is_stack = false;
    for (std::size_t i = 0; i < chunks; i++)
        array.touch(i).size_bytes = i + 1 == chunks && last_bytes != 0 ? last_bytes : bytes;
}

/// As an array is whose tasks read several chunks as one region.
inline void make_stack(kmm::memory::Array& array) {
    array.is_stack = true;
    array.neighbours.resize_for_devices(array.written_by.num_devices());
}

}  // namespace kmm_test
