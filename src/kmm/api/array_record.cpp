#include "kmm/api/array_record.hpp"

#include <algorithm>
#include <cstring>

#include "driver/format.hpp"
#include "kmm/detail/array_checks.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm::detail {

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

Binding::Binding(std::shared_ptr<RuntimeCore> core, const ArrayRecord& array, LayoutRef chunks)
    : runtime(std::move(core)),
      layout(std::move(chunks)),
      histories(layout->num_chunks()),
      data(make_data(*runtime, array, layout)),
      planned{layout.get(), this, data->element_bytes, data->alignment, data->is_stack} {}

std::unique_ptr<memory::Array> Binding::make_data(RuntimeCore& core, const ArrayRecord& array, LayoutRef chunks) {
    auto data = std::make_unique<memory::Array>();
    data->set_name(array.name());
    data->number = core.books().next_array_number();
    data->rank = array.rank();
    data->element_bytes = static_cast<std::uint32_t>(array.element_bytes());
    data->alignment = std::max(array.element_alignment(), memory::heap_alignment);
    data->set_layout(std::move(chunks), core.platform().num_devices());
    return data;
}

memory::Chunk& Binding::make_records(std::size_t chunk) {
    histories.touch(chunk, [&] { return graph::CompactHistory(layout->rank()); });
    return data->touch(chunk);
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
    const auto text = [&](const Box& box) { return boxes::to_text(box, layout.rank()); };
    std::size_t first = 0, second = 0;
    if (layout.find_overlap(&first, &second))
        throw InvalidArgument(
            driver::format("chunks {} and {} overlap", text(layout.box(first)), text(layout.box(second))));
    Box gap;
    if (layout.find_gap(&gap))
        throw InvalidArgument(driver::format("no chunk covers region {} of the array", text(gap)));
}

void check_makeable(RuntimeCore& core, const DataType& type, std::size_t element_alignment) {
    core.books().check_open();
    if (element_alignment > max_element_alignment)
        throw InvalidArgument(driver::format("elements of type {} are aligned to {} bytes: at most {} are offered",
                                             type.name(), element_alignment, max_element_alignment));
}

bool has_home(RuntimeCore& core, MemoryId home) {
    return home.is_host() || home.as_device().get() < core.platform().num_devices();
}

[[noreturn]] void throw_no_home(RuntimeCore& core, std::size_t rank, const Box& chunk, MemoryId home) {
    throw InvalidArgument(driver::format(
        "chunk {} has its home on {}, but the runtime has {} (numbered from 0)", boxes::to_text(chunk, rank),
        core.platform().place_text(ResourceId(home.as_device())), core.platform().num_devices()));
}

ArrayRef bind_new(RuntimeCore& core, std::shared_ptr<ArrayRecord> array, LayoutRef layout) {
    auto binding = std::make_unique<Binding>(core.shared_from_this(), *array, std::move(layout));
    core.listeners().tell_bound(*binding->data, array->box(), false);
    (void)array->bind(binding);  // cannot fail: no other thread has the array yet
    return array;
}

}  // namespace

ArrayRef make_bound_array(RuntimeCore& core, std::size_t rank, const std::int64_t* shape, DataType type,
                          std::size_t element_bytes, std::size_t element_alignment, LayoutRef layout) {
    check_makeable(core, type, element_alignment);
    const std::size_t stray = layout->find_home([&](MemoryId home) { return !has_home(core, home); });
    if (stray != plan::Layout::none) throw_no_home(core, rank, layout->box(stray), layout->home(stray));
    return bind_new(core, std::make_shared<ArrayRecord>(rank, shape, type, element_bytes, element_alignment),
                    std::move(layout));
}

ArrayRef make_bound_array(RuntimeCore& core, std::size_t rank, const std::int64_t* shape, DataType type,
                          std::size_t element_bytes, std::size_t element_alignment,
                          const std::vector<ChunkGeometry>& chunks) {
    check_makeable(core, type, element_alignment);
    auto array = std::make_shared<ArrayRecord>(rank, shape, type, element_bytes, element_alignment);
    std::vector<ChunkGeometry> kept;
    kept.reserve(chunks.size());
    for (const ChunkGeometry& c : chunks) {
        if (boxes::is_empty(c.box)) continue;
        if (!boxes::contains(array->box(), c.box))
            throw InvalidArgument(driver::format("chunk {} lies outside the array {}", boxes::to_text(c.box, rank),
                                                 boxes::to_text(array->box(), rank)));
        if (!has_home(core, c.home)) throw_no_home(core, rank, c.box, c.home);
        kept.push_back(c);
    }
    auto layout = std::make_shared<plan::Layout>(rank, array->box(), std::move(kept));
    if (!layout->is_grid()) check_cover(*layout);
    return bind_new(core, std::move(array), std::move(layout));
}

void array_bind_without_elements(const ArrayRef& array, Runtime& runtime) {
    if (array->binding() != nullptr) return;
    RuntimeCore& core = runtime_core(runtime);
    auto layout = std::make_shared<plan::Layout>(array->rank(), array->box(), std::vector<ChunkGeometry>());
    auto binding = std::make_unique<Binding>(core.shared_from_this(), *array, std::move(layout));
    const locks::Guard guard(core.books().order());
    core.books().check_open();
    const memory::Array& data = *binding->data;
    if (array->bind(binding)) core.listeners().tell_bound(data, array->box(), array->is_named());
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

LayoutRef array_layout(const ArrayRecord& a) { return bound(a, "distribution").layout; }

std::vector<ChunkGeometry> array_chunks(const ArrayRecord& a) { return array_layout(a)->list(); }

std::shared_ptr<RuntimeCore> array_runtime(const ArrayRecord& a) { return bound(a, "runtime").runtime; }

}  // namespace kmm::detail
