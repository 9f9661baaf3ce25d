// Fill: tasks of the library's own, one for each chunk, or for several small ones where there are very many.
//
// Chunks at home on a device are filled there, the others on the host pool; nothing waits.
#include <algorithm>
#include <new>
#include <span>
#include <vector>

#include "kmm/api/array_record.hpp"
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

/// The tasks of a fill: each fills chunks at home in one memory, as many as a task of a copy copies.
class Fill {
  public:
    Fill(const ArrayRef& array, const Binding& binding, const void* value, Submission& submission) noexcept
        : array_(array), binding_(binding), value_(static_cast<const std::byte*>(value)), submission_(submission) {}

    void make_tasks() {
        const std::size_t num_chunks = binding_.layout->num_chunks();
        auto groups = memory::PerMemory<Group>::of_devices(binding_.runtime->platform().num_devices());
        for (std::size_t i = 0; i < num_chunks; ++i) {
            const auto home = memory::MemoryIndex::of(binding_.layout->home(i));
            Group& g = groups[home];
            const std::size_t bytes = binding_.block_bytes(i);
            if (!g.chunks.empty() && g.bytes + bytes > most_bytes_in(home)) make_task(g, home);
            g.chunks.push_back(i);
            g.bytes += bytes;
            if (num_chunks < fewest_chunks_for_groups || g.chunks.size() == most_parts) make_task(g, home);
        }
        for (const memory::MemoryIndex m : groups.memories())
            if (!groups[m].chunks.empty()) make_task(groups[m], m);
    }

  private:
    struct Group {
        std::vector<std::size_t> chunks;
        std::size_t bytes = 0;
    };
    std::size_t most_bytes_in(memory::MemoryIndex m) const {
        return std::min(most_group_bytes, binding_.runtime->platform().limit_bytes(m) / group_share_of_limit);
    }
    void make_task(Group& g, memory::MemoryIndex home) {
        const std::size_t element_bytes = array_->element_bytes();
        const std::size_t payload_bytes = FillGroup::size_bytes(g.chunks.size(), element_bytes);
        const auto kind = home.is_host() ? LauncherInfo::Kind::host : LauncherInfo::Kind::device_function;
        submission_.begin_task(SystemInfo::affinity_processor(home.id()), {}, kind, {g.chunks.size(), payload_bytes});
        void* const payload = submission_.allocate_payload(payload_bytes, alignof(FillGroup));
        auto* const f = new (payload) FillGroup{element_bytes, g.chunks.size()};
        std::copy_n(value_, element_bytes, f->element());
        for (std::size_t i = 0; i < g.chunks.size(); ++i) {
            f->counts()[i] = binding_.layout->num_elements(g.chunks[i]);
            submission_.add_access(array_, AccessKind::overwrite, binding_.layout->box(g.chunks[i]), 0);
        }
        submission_.set_body(f, {run_fill, nullptr}, false);
        g.chunks.clear();
        g.bytes = 0;
    }

    const ArrayRef& array_;
    const Binding& binding_;
    const std::byte* value_;
    Submission& submission_;
};

}  // namespace

EventId array_fill(const ArrayRef& array, const void* value) {
    Binding* b = array->binding();
    if (b == nullptr)
        throw InvalidArgument(array->name() + " is not bound to a runtime: make it with rt.array before filling it");
    RuntimeCore& core = *b->runtime;
    LauncherInfo launcher;
    static constexpr char name[] = "fill";
    launcher.name = name;
    launcher.name_length = sizeof name - 1;
    // One submit, so that it is refused as a whole: chunks at home on devices are filled there, the others on the host.
    Submission submission(core, launcher);
    Fill(array, *b, value, submission).make_tasks();
    return submission.commit();
}

}  // namespace kmm::detail
