#include "kmm/schedule/instruction.hpp"

#include "kmm/memory/chunk.hpp"

namespace kmm::schedule {

Fill fill_of(const graph::Task& task, const graph::Unset& unset) noexcept {
    const graph::Access& access = task.accesses[unset.access];
    Fill fill;
    fill.address = reinterpret_cast<std::uintptr_t>(task.addresses[unset.access]);
    fill.element_bytes = access.chunk->array->element_bytes;
    if (unset.whole_chunk) {
        fill.address -= access.offset_bytes;
        fill.extents[detail::max_rank - 1] = static_cast<std::int64_t>(access.chunk->size_bytes / fill.element_bytes);
        fill.strides[detail::max_rank - 1] = 1;
        return fill;
    }
    std::copy_n(unset.extents, detail::max_rank, fill.extents);
    std::copy_n(task.layouts[unset.access].strides, detail::max_rank, fill.strides);
    return fill;
}

}  // namespace kmm::schedule
