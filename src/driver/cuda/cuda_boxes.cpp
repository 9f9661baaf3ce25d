// Lists of boxes, which a kernel of ours or strided copies move.
//
// Owns: whether a device has the kernel. Must not know: rmm, kmm. Any thread; nothing here waits for the device, but
// for the first call on a device, which loads the kernel.
#include <algorithm>
#include <cstdint>

#include "driver/box_launch.hpp"
#include "driver/cuda/box_kernel.hpp"
#include "driver/cuda/calls.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/move_boxes.hpp"

namespace kmm::driver::vendor {

namespace {

using boxes::BoxList;
using boxes::Place;

/// Where memory is, seen from the current device. What was asked is remembered: a list is seldom about more than a few
/// pieces of memory.
class Places {
  public:
    explicit Places(int device) noexcept : device_(device) {}

    /// Of all the memory; it is of one kind, so that both ends tell.
    Place of(const void* first, std::size_t bytes) noexcept {
        const auto begin = reinterpret_cast<std::uintptr_t>(first);
        const Range range = range_of(begin);
        if (begin + bytes <= range.end) return range.place;
        return std::max(range.place, range_of(begin + bytes - 1).place);
    }

  private:
    struct Range {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        Place place = Place::out_of_reach;
    };

    Range range_of(std::uintptr_t address) noexcept {
        for (const Range& range : known_)
            if (address >= range.begin && address < range.end) return range;
        Reach reach;
        if (find_reach(&reach, reinterpret_cast<const void*>(address), device_) != 0) reach = {};
        Range range{reach.begin, reach.end, place_of(reach)};
        if (address < range.begin || address >= range.end) {
            range.begin = address;
            range.end = address + 1;
        }
        known_[next_++ % num_known] = range;
        return range;
    }

    Place place_of(const Reach& reach) const noexcept {
        switch (reach.kind) {
        case PointerKind::unknown: break;
        case PointerKind::pinned: return reach.is_reachable ? Place::host : Place::out_of_reach;
        case PointerKind::managed: return Place::own;  // its pages come where they are used
        case PointerKind::device:
            if (reach.device == device_) return reach.is_foreign ? Place::out_of_reach : Place::own;
            if (reach.is_reachable) return Place::peer;
        }
        return Place::out_of_reach;
    }

    static constexpr unsigned num_known = 8;
    Range known_[num_known];
    unsigned next_ = 0;
    int device_;
};

}  // namespace

Status VendorDriver::device_of(StreamHandle stream, int* out) noexcept {
    if (num_devices_ == 1) {
        *out = 0;
        return {};
    }
    bool is_current = stream == StreamHandle{} || stream == legacy_stream() || stream == per_thread_stream();
    if (!is_current) {
        // Asking for the device of a captured stream would invalidate the capture. Its device is current: a capturing
        // thread could not launch there otherwise.
        CaptureStatus capture = CaptureStatus::none;
        std::uint64_t id = 0;
        if (const Status status = capture_status(stream, &capture, &id); !status.ok()) return status;
        is_current = capture != CaptureStatus::none;
    }
    return is_current ? current_device(out) : stream_device(stream, out);
}

namespace {

/// To the current device.
Status load_box_kernel(std::size_t words) noexcept {
    const void* const kernel = box_kernel(words);
    if (kernel == nullptr) return {Code::invalid_handle, 400};
    return library_call([&] { return load_own_kernel(kernel); });
}

}  // namespace

int VendorDriver::multiprocessors_for_boxes(int device) noexcept {
    constexpr int none = -1;
    const int known = multiprocessors_for_boxes_[device].load(std::memory_order_acquire);
    if (known != 0) [[likely]]
        return std::max(0, known);
    Status status;
    int found = 0;
    {
        RelaxedInteraction relaxed;
        for (const std::size_t words : {BoxList::few_words, BoxList::max_words})
            if (status.ok()) status = load_box_kernel(words);
        if (status.ok()) status = runtime_status(multiprocessors(&found, device));
    }
    // Another time there may be memory for it, or no capture in the way.
    if (status.code == Code::out_of_memory || status.code == Code::capture_error) return 0;
    multiprocessors_for_boxes_[device].store(status.ok() && found > 0 ? found : none, std::memory_order_release);
    return status.ok() ? found : 0;
}

Status VendorDriver::prepare_boxes(int device) noexcept {
    if (!is_device(device)) return no_such_device;
    DeviceGuard guard(*this, device);
    if (current_context() == nullptr)
        if (const Status status = set_current_device(device); !status.ok()) return status;
    (void)multiprocessors_for_boxes(device);  // without the kernel everything moves by strided copies
    return {};
}

Status VendorDriver::launch_boxes(BoxList& list, int multiprocessors, StreamHandle stream) noexcept {
    const BoxList::Launch made = list.finish(multiprocessors);
    KernelLaunch launch;
    launch.function = box_kernel(made.num_words);
    launch.grid.x = made.num_blocks;
    launch.block.x = boxes::threads;
    launch.parameters = made.words;
    launch.parameter_bytes = made.num_words * sizeof(boxes::Word);
    const Status status = this->launch(launch, stream);
    list.clear();
    return status;
}

Status VendorDriver::put_box(BoxList& list, const BoxMove& box, boxes::Place to, boxes::Place from, int multiprocessors,
                             StreamHandle stream) noexcept {
    BoxMove first, second;
    if (boxes::cut_if_large(box, &first, &second)) {
        const Status status = put_box(list, first, to, from, multiprocessors, stream);
        return status.ok() ? put_box(list, second, to, from, multiprocessors, stream) : status;
    }
    if (list.add(box, to, from)) return {};
    const Status status = launch_boxes(list, multiprocessors, stream);
    (void)list.add(box, to, from);
    return status;
}

Status VendorDriver::move_boxes(const BoxMove* moves, std::size_t num_boxes, StreamHandle stream) noexcept {
    bool nothing = true;
    for (std::size_t i = 0; i < num_boxes; ++i) {
        if (!boxes::is_valid(moves[i])) return invalid_argument;
        nothing = nothing && boxes::is_empty(moves[i]);
    }
    if (nothing) return {};
    int device = 0;
    if (const Status status = device_of(stream, &device); !status.ok()) return status;
    if (!is_device(device)) return no_such_device;
    DeviceGuard guard(*this, device);
    if (current_context() == nullptr)
        if (const Status status = set_current_device(device); !status.ok()) return status;
    const int multiprocessors = multiprocessors_for_boxes(device);
    Places places(device);
    BoxList list;
    for (std::size_t i = 0; i < num_boxes; ++i) {
        if (boxes::is_empty(moves[i])) continue;
        const BoxMove box = boxes::joined(moves[i]);
        Place to = Place::out_of_reach, from = Place::out_of_reach;
        if (multiprocessors > 0 && box.run_bytes < boxes::engine_run_bytes) {
            to = places.of(box.destination, boxes::destination_reach(box));
            from = places.of(box.source, boxes::source_reach(box));
        }
        const Status status = boxes::way_of(box, to, from) == boxes::Way::kernel
                                  ? put_box(list, box, to, from, multiprocessors, stream)
                                  : copy_box_by_box(*this, box, stream);
        if (!status.ok()) return status;
    }
    return list.empty() ? Status{} : launch_boxes(list, multiprocessors, stream);
}

}  // namespace kmm::driver::vendor
