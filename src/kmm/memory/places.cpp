#include "kmm/memory/places.hpp"

#include <algorithm>
#include <cstring>

namespace kmm::memory {

namespace {

/// Which chunk the view lies in: of a region that is read where the chunks are, which have equal strides, the first.
const Chunk& chunk_behind(const graph::Task& task, const graph::View& view) noexcept {
    const graph::Use& use = task.uses[view.use];
    if (use.place == graph::Use::Place::none)
        for (const graph::Across& a : task.across())
            if (a.use == view.use && a.form == graph::Across::Form::in_place) return *task.part(a, 0).chunk;
    return *use.chunk;
}

}  // namespace

void set_strides(const graph::Task& task, const graph::View& view, std::int64_t* strides) noexcept {
    if (view.is_empty()) {
        std::fill_n(strides, detail::max_rank, 0);
        return;
    }
    const Chunk& chunk = chunk_behind(task, view);
    chunk.owner->set_strides(chunk.index, strides);
}

void write_fields(graph::Task& task) noexcept {
    std::int64_t strides[detail::max_rank];
    std::uint32_t strides_of = ~std::uint32_t{0};
    for (const graph::ParameterField f : task.fields) {
        std::byte* const at = task.kernel.parameters + f.offset;
        const graph::View& view = task.views[f.access];
        if (f.is_stride == 0) {
            const void* const address = address_of(task, view);
            std::memcpy(at, &address, sizeof(address));
            continue;
        }
        if (strides_of != f.access) set_strides(task, view, strides), strides_of = f.access;
        const std::int64_t stride = strides[f.axis];
        if (f.has_4_bytes == 0) {
            std::memcpy(at, &stride, sizeof(stride));
            continue;
        }
        const auto small = static_cast<std::int32_t>(stride);
        std::memcpy(at, &small, sizeof(small));
    }
}

}  // namespace kmm::memory
