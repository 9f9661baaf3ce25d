// Fill: tasks of the library's own, one for each chunk, or for several small ones where there are very many.
//
// Chunks at home on a device are filled there, the others on the host pool; nothing waits.
#include <algorithm>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "kmm/api/chunk_batch.hpp"
#include "kmm/api/chunk_groups.hpp"
#include "kmm/api/fill_pieces.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/engine/device_resource.hpp"

namespace kmm::detail {

namespace {

/// Payload of a task. The element follows behind, and before it the number of elements of each chunk.
struct FillGroup {
    std::size_t element_bytes;
    std::size_t num_chunks;

    static std::size_t size_bytes(std::size_t num_chunks, std::size_t element_bytes) noexcept {
        return sizeof(FillGroup) + num_chunks * sizeof(std::size_t) + element_bytes;
    }
    std::size_t* counts() noexcept { return reinterpret_cast<std::size_t*>(this + 1); }
    std::byte* element() noexcept { return reinterpret_cast<std::byte*>(counts() + num_chunks); }
};

void run_fill(void* payload, TaskContext& context) {
    FillGroup& f = *static_cast<FillGroup*>(payload);
    FillPiece pieces[most_parts];
    for (std::size_t i = 0; i < f.num_chunks; ++i)
        pieces[i] = {static_cast<std::byte*>(context.addresses[i]), f.counts()[i]};
    const std::span all = std::span(pieces).first(f.num_chunks);
    if (const auto* const device = context.resource->cast_if<DeviceResource>(); device != nullptr) {
        driver::Driver& driver = DeviceResourceAccess::driver(*device);
        const driver::StreamHandle stream{device->native_stream()};
        check_device(driver, device->device_ordinal(),
                     put_fill_on_stream(all, f.element(), f.element_bytes, driver, stream), "a fill");
    } else {
        for (const FillPiece& p : all) fill_on_host(p, f.element(), f.element_bytes);
    }
}

class Fill final : ChunkBatch {
  public:
    Fill(ArrayRecord& array, Binding& binding, const void* value)
        : ChunkBatch(array, binding), value_(static_cast<const std::byte*>(value)) {}

    EventId run() {
        core_.books().check_open();
        begin_ns_ = core_.listeners().any() ? trace::clock_ns() : 0;
        std::vector<std::size_t> chunks(binding_.layout->num_chunks());
        if (chunks.empty()) return EventId();
        std::iota(chunks.begin(), chunks.end(), std::size_t{0});
        is_at_home_ = true;
        writes_ = "\"fill\" of";
        core_.admit();
        make_tasks(chunks, "fill", true);
        core_.commit(*this);
        return books().event_of(last());
    }

  private:
    // ---- ChunkBatch
    void describe_task(Task& task, std::size_t first, std::size_t count) override {
        void* const payload = task.allocate_storage(payload_bytes(count), alignof(FillGroup));
        auto* const f = new (payload) FillGroup{array_.element_bytes(), count};
        std::copy_n(value_, f->element_bytes, f->element());
        task.function = {{run_fill, nullptr}, f};
        for (std::size_t i = 0; i < count; ++i) {
            f->counts()[i] = binding_.layout->num_elements(chunks_[first + i]);
            graph::View& view = task.views.emplace_back();
            view.kind = AccessKind::overwrite;
            view.use = static_cast<std::uint32_t>(i);
            graph::Use& use = task.uses.emplace_back();
            use.writes = use.replaces = true;
        }
    }
    std::size_t payload_bytes(std::size_t count) const noexcept override {
        return FillGroup::size_bytes(count, array_.element_bytes());
    }
    void enter(std::size_t chunk, const Task& task, graph::Predecessors& before) override {
        graph::CompactHistory& history = binding_.histories[chunk];
        if (!history.any_content()) binding_.count_made(binding_.layout->num_elements(chunk));
        const auto box = binding_.box_of(chunk);
        history.write(box(), true, box, task.number, false, before, *this);
    }
    // ---- Batch
    void check() override { touch_chunks(); }
    void connect() override { connect_tasks(0); }
    std::int64_t begin_ns() const noexcept override { return begin_ns_; }

    const std::byte* const value_;
    std::int64_t begin_ns_ = 0;
};

}  // namespace

EventId array_fill(const ArrayRef& array, const void* value) {
    Binding* const binding = array->binding();
    if (binding == nullptr)
        throw InvalidArgument(array->name() + " is not bound to a runtime: make it with rt.array before filling it");
    return Fill(*array, *binding, value).run();
}

}  // namespace kmm::detail
