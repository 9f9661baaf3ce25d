// Implements staged_copy.hpp.
#include "rmm/staged_copy.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/parallel_copy.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

// So that the processor's copies of a mebibyte and the link's overlap, and a piece still costs few calls of the driver.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;
constexpr std::size_t num_pieces = 4;
// Fewer bytes the driver takes into its command buffer.
constexpr std::size_t least_bytes = std::size_t{64} << 10;

/// Page-locked memory for the pieces of one copy, and an event for each.
struct stage {
    int device = -1;
    std::byte* memory = nullptr;
    std::array<driver::EventHandle, num_pieces> events;

    stage() = default;
    stage(const stage&) = delete;
    stage& operator=(const stage&) = delete;
    ~stage() {
        driver::Driver& d = the_driver();
        for (driver::EventHandle e : events)
            if (e.native != nullptr) (void)d.destroy_event(e);
        if (memory != nullptr) (void)d.free_pinned(memory);
    }
    std::byte* piece(std::size_t i) const { return memory + i % num_pieces * piece_bytes; }
    driver::EventHandle event(std::size_t i) const { return events[i % num_pieces]; }
};

struct stages {
    kmm::locks::Mutex mutex;
    std::vector<std::unique_ptr<stage>> unused KMM_GUARDED_BY(mutex);
};
stages& all_stages() { return ::kmm::driver::never_destroyed<stages>(); }

/// Null where the driver has no more page-locked memory, or no events.
std::unique_ptr<stage> make_stage(int device) {
    driver::Driver& d = the_driver();
    auto made = std::make_unique<stage>();
    made->device = device;
    void* memory = nullptr;
    if (!d.allocate_pinned(num_pieces * piece_bytes, &memory).ok()) {
        (void)d.take_last_error();
        return nullptr;
    }
    made->memory = static_cast<std::byte*>(memory);
    for (driver::EventHandle& e : made->events)
        if (!d.create_event(device, false, false, &e).ok()) {
            (void)d.take_last_error();
            return nullptr;
        }
    return made;
}

/// A stage for the time of one copy, at whose end nothing uses it any more.
class taken_stage {
  public:
    explicit taken_stage(int device) {
        {
            stages& known = all_stages();
            const kmm::locks::Guard in(known.mutex);
            const auto at = std::find_if(known.unused.begin(), known.unused.end(),
                                         [=](const auto& s) { return s->device == device; });
            if (at != known.unused.end()) {
                stage_ = std::move(*at);
                known.unused.erase(at);
            }
        }
        if (!stage_) stage_ = make_stage(device);
    }
    ~taken_stage() {
        if (!stage_) return;
        if (!is_settled_) (void)the_driver().synchronize_stream({});
        stages& known = all_stages();
        try {
            const kmm::locks::Guard in(known.mutex);
            known.unused.push_back(std::move(stage_));
        } catch (const std::bad_alloc&) {
            // Then the next copy makes another.
        }
    }
    taken_stage(const taken_stage&) = delete;
    taken_stage& operator=(const taken_stage&) = delete;

    explicit operator bool() const noexcept { return stage_ != nullptr; }
    const stage* operator->() const noexcept { return stage_.get(); }
    void settle() {
        check(the_driver().synchronize_stream({}));
        is_settled_ = true;
    }
    void note_settled() noexcept { is_settled_ = true; }

  private:
    std::unique_ptr<stage> stage_;
    bool is_settled_ = false;
};

bool is_worth_it(driver::Driver& d, const void* of_host, std::size_t bytes) {
    if (bytes < least_bytes) return false;
    driver::PointerInfo info;
    if (!d.pointer_info(of_host, &info).ok()) {
        (void)d.take_last_error();
        return false;
    }
    return info.kind == driver::MemoryKind::pageable;
}

std::size_t size_of_piece(std::size_t i, std::size_t bytes) { return std::min(piece_bytes, bytes - i * piece_bytes); }
std::size_t pieces_of(std::size_t bytes) { return (bytes + piece_bytes - 1) / piece_bytes; }

}  // namespace

bool copy_staged_to_device(void* to, const void* from_host, std::size_t bytes) {
    driver::Driver& d = the_driver();
    if (!is_worth_it(d, from_host, bytes)) return false;
    int device = 0;
    check(d.current_device(&device));
    taken_stage stage(device);
    if (!stage) return false;
    const std::size_t pieces = pieces_of(bytes);
    for (std::size_t i = 0; i < pieces; ++i) {
        if (i >= num_pieces) check(d.synchronize_event(stage->event(i)));  // the piece has crossed
        const std::size_t offset = i * piece_bytes, size = size_of_piece(i, bytes);
        copy_in_parallel(stage->piece(i), static_cast<const std::byte*>(from_host) + offset, size);
        check(d.copy(static_cast<std::byte*>(to) + offset, stage->piece(i), size, {}));
        if (i + num_pieces < pieces) check(d.record_event(stage->event(i), {}));
    }
    stage.settle();
    return true;
}

bool copy_staged_to_host(void* to_host, const void* from, std::size_t bytes) {
    driver::Driver& d = the_driver();
    if (!is_worth_it(d, to_host, bytes)) return false;
    int device = 0;
    check(d.current_device(&device));
    taken_stage stage(device);
    if (!stage) return false;
    const auto begin = [&](std::size_t i) {
        check(d.copy(stage->piece(i), static_cast<const std::byte*>(from) + i * piece_bytes, size_of_piece(i, bytes),
                     {}));
        check(d.record_event(stage->event(i), {}));
    };
    const std::size_t pieces = pieces_of(bytes);
    for (std::size_t i = 0; i < std::min(pieces, num_pieces); ++i) begin(i);
    for (std::size_t i = 0; i < pieces; ++i) {
        check(d.synchronize_event(stage->event(i)));
        copy_in_parallel(static_cast<std::byte*>(to_host) + i * piece_bytes, stage->piece(i), size_of_piece(i, bytes));
        if (i + num_pieces < pieces) begin(i + num_pieces);
    }
    stage.note_settled();
    return true;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
