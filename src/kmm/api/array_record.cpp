#include "kmm/api/array_record.hpp"

#include <algorithm>
#include <cstring>

#include "driver/format.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm::detail {

void row_major_strides(const Box& box, std::int64_t* strides, std::size_t rank) noexcept {
    std::int64_t step = 1;
    for (std::size_t k = rank; k-- > 0;) {
        strides[k] = step;
        // Only where there are no elements that it could lead to.
        if (mul_overflows(step, box.end[k] - box.begin[k], step)) step = 0;
    }
}

std::size_t offset_in(const Box& box, const Box& region, std::size_t rank) noexcept {
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < rank; ++k)
        offset = offset * (box.end[k] - box.begin[k]) + (region.begin[k] - box.begin[k]);
    return static_cast<std::size_t>(offset);
}

void copy_box_on_host(void* destination, const std::int64_t* destination_strides, const void* source,
                      const std::int64_t* source_strides, const std::int64_t* sizes,
                      std::size_t element_bytes) noexcept {
    std::int64_t size[max_rank], to[max_rank], from[max_rank];
    std::size_t n = 0;
    // Innermost first, axes of one element left out, neighbours joined where both sides are contiguous.
    for (std::size_t k = max_rank; k-- > 0;) {
        if (sizes[k] == 0) return;
        if (sizes[k] == 1) continue;
        if (n > 0 && destination_strides[k] == to[n - 1] * size[n - 1] &&
            source_strides[k] == from[n - 1] * size[n - 1]) {
            size[n - 1] *= sizes[k];
            continue;
        }
        size[n] = sizes[k];
        to[n] = destination_strides[k];
        from[n] = source_strides[k];
        ++n;
    }
    auto* d = static_cast<std::byte*>(destination);
    const auto* s = static_cast<const std::byte*>(source);
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    std::size_t run = element_bytes;
    std::size_t first = 0;
    if (n > 0 && to[0] == 1 && from[0] == 1) {
        run *= static_cast<std::size_t>(size[0]);
        first = 1;
    }
    std::int64_t index[max_rank] = {};
    for (;;) {
        std::memcpy(d, s, run);
        std::size_t k = first;
        for (; k < n; ++k) {
            d += to[k] * bytes;
            s += from[k] * bytes;
            if (++index[k] < size[k]) break;
            d -= to[k] * bytes * size[k];
            s -= from[k] * bytes * size[k];
            index[k] = 0;
        }
        if (k == n) return;
    }
}

Binding::Binding(std::shared_ptr<RuntimeCore> core, const ArrayRecord& array, std::vector<ChunkGeometry> chunks)
    : Binding(std::move(core), array, plan::Layout(array.rank(), array.box(), std::move(chunks))) {}

Binding::Binding(std::shared_ptr<RuntimeCore> core, const ArrayRecord& array, plan::Layout chunks)
    : runtime(std::move(core)),
      layout(std::move(chunks)),
      histories(layout.chunks().size(), graph::ChunkHistory(array.rank())),
      data(std::make_unique<memory::Array>()) {
    data->set_name(array.name());
    data->number = runtime->books().next_array_number();
    data->rank = array.rank();
    data->element_bytes = static_cast<std::uint32_t>(array.element_bytes());
    data->written_by.resize_for_devices(runtime->platform().num_devices());
    data->chunks = std::vector<memory::Chunk>(layout.chunks().size());
    data->boxes.reserve(data->chunks.size());
    block_bytes.reserve(data->chunks.size());
    for (std::size_t i = 0; i < data->chunks.size(); ++i) {
        const Box& box = layout.chunks()[i].box;
        memory::Chunk& c = data->chunks[i];
        c.array = data.get();
        c.index = static_cast<std::uint32_t>(i);
        c.size_bytes = static_cast<std::size_t>(graph::volume(box)) * array.element_bytes();
        c.alignment = std::max(array.element_alignment(), memory::heap_alignment);
        block_bytes.push_back(c.block_bytes());
        data->boxes.push_back(box);
    }
    data->is_stack = layout.is_stack() && memory::may_touch(data->chunks);
    if (data->is_stack) data->neighbours.resize_for_devices(runtime->platform().num_devices());
}

ArrayRecord::ArrayRecord(std::size_t rank, const std::int64_t* shape, DataType type, std::size_t element_bytes,
                         std::size_t element_alignment)
    : rank_(rank), type_(type), element_bytes_(element_bytes), element_alignment_(element_alignment) {
    std::copy(shape, shape + rank, box_.end);
}

ArrayRecord::~ArrayRecord() {
    Binding* bound = binding_.load(std::memory_order_acquire);
    if (bound == nullptr) return;
    // The runtime frees the data when the tasks that use it are done; until then it must not end.
    const std::shared_ptr<RuntimeCore> runtime = bound->runtime;
    runtime->release_array(bound->data.release());
    delete bound;
}

std::string ArrayRecord::name() const {
    static std::atomic<std::uint64_t> next{1};
    const locks::Guard guard(name_mutex_);
    if (name_.empty()) name_ = driver::format("array {}", next.fetch_add(1));
    return name_;
}

void ArrayRecord::set_name(std::string name) {
    const locks::Guard guard(name_mutex_);
    if (Binding* bound = binding()) {
        bound->data->set_name(name);
        bound->runtime->listeners().tell_named(*bound->data, name);
    }
    name_ = std::move(name);
    is_named_ = true;
}

bool ArrayRecord::bind(std::unique_ptr<Binding>& binding) noexcept {
    Binding* none = nullptr;
    if (!binding_.compare_exchange_strong(none, binding.get(), std::memory_order_acq_rel)) return false;
    (void)binding.release();
    return true;
}

// --------------------------------------------------------------------------------------------------- for the templates

ArrayRef make_array(std::size_t rank, const std::int64_t* shape, DataType type, std::size_t element_bytes,
                    std::size_t element_alignment) {
    return std::make_shared<ArrayRecord>(rank, shape, type, element_bytes, element_alignment);
}

namespace {

void check_cover(const plan::Layout& layout) {
    const auto text = [&](const Box& box) { return graph::to_text(box, layout.rank()); };
    std::size_t first = 0, second = 0;
    if (layout.find_overlap(&first, &second))
        throw InvalidArgument(driver::format("chunks {} and {} overlap", text(layout.chunks()[first].box),
                                             text(layout.chunks()[second].box)));
    Box gap;
    if (plan::Layout::find_gap(layout.array(), layout.chunks(), &gap))
        throw InvalidArgument(driver::format("no chunk covers region {} of the array", text(gap)));
}

}  // namespace

ArrayRef make_bound_array(RuntimeCore& core, std::size_t rank, const std::int64_t* shape, DataType type,
                          std::size_t element_bytes, std::size_t element_alignment,
                          const std::vector<ChunkGeometry>& chunks) {
    core.books().check_open();
    if (element_alignment > max_element_alignment)
        throw InvalidArgument(driver::format("elements of type {} are aligned to {} bytes: at most {} are offered",
                                             type.name(), element_alignment, max_element_alignment));
    auto array = std::make_shared<ArrayRecord>(rank, shape, type, element_bytes, element_alignment);
    std::vector<ChunkGeometry> kept;
    kept.reserve(chunks.size());
    for (const ChunkGeometry& c : chunks) {
        if (graph::is_empty(c.box)) continue;
        if (!graph::contains(array->box(), c.box))
            throw InvalidArgument(driver::format("chunk {} lies outside the array {}", graph::to_text(c.box, rank),
                                                 graph::to_text(array->box(), rank)));
        if (c.home.is_device() && c.home.as_device().get() >= core.platform().num_devices())
            throw InvalidArgument(driver::format(
                "chunk {} has its home on {}, but the runtime has {} (numbered from 0)", graph::to_text(c.box, rank),
                core.platform().place_text(ResourceId(c.home.as_device())), core.platform().num_devices()));
        kept.push_back(c);
    }
    plan::Layout layout(rank, array->box(), std::move(kept));
    if (!layout.is_grid()) check_cover(layout);
    auto binding = std::make_unique<Binding>(core.shared_from_this(), *array, std::move(layout));
    core.listeners().tell_bound(*binding->data, array->box(), false);
    (void)array->bind(binding);  // nobody else knows the array yet
    return array;
}

bool array_is_bound(const ArrayRecord& a) noexcept { return a.binding() != nullptr; }

const std::int64_t* array_shape(const ArrayRecord& a) noexcept { return a.shape(); }

void array_set_name(ArrayRecord& a, std::string name) { a.set_name(std::move(name)); }

std::string array_name(const ArrayRecord& a) { return a.name(); }

namespace {

Binding& bound(const ArrayRecord& a, const char* what) {
    Binding* b = a.binding();
    if (b == nullptr)
        throw InvalidArgument(driver::format("{} is not bound to a runtime yet, so that it has no {}: write it first, "
                                             "or make it with rt.array or rt.allocate",
                                             a.name(), what));
    return *b;
}

}  // namespace

std::vector<ChunkGeometry> array_chunks(const ArrayRecord& a) { return bound(a, "distribution").layout.chunks(); }

std::shared_ptr<RuntimeCore> array_runtime(const ArrayRecord& a) { return bound(a, "runtime").runtime; }

}  // namespace kmm::detail
