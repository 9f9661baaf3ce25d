// Implements captured_frees.hpp.
#include "rmm/captured_frees.hpp"

#include <atomic>
#include <new>

#include "rmm/stream_registry.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

struct deferred_block {
    driver::Driver* of = nullptr;
    void* ptr = nullptr;
    deferred_free free = nullptr;
    deferred_block* next = nullptr;
};

std::atomic<deferred_block*> without_graph{nullptr};  // may be freed

void list_block(void* user) {
    auto* const b = static_cast<deferred_block*>(user);
    b->next = without_graph.load(std::memory_order_relaxed);
    while (!without_graph.compare_exchange_weak(b->next, b, std::memory_order_release, std::memory_order_relaxed)) {}
}

/// A capture that is spoiled makes no graph.
bool is_being_captured(driver::Driver& d, driver::StreamHandle stream) noexcept {
    driver::CaptureStatus status = driver::CaptureStatus::none;
    if (d.capture_status(stream, &status, nullptr).ok()) return status == driver::CaptureStatus::active;
    (void)d.take_last_error();
    return false;
}

}  // namespace

void note_allocation(cuda_stream_view stream) noexcept {
    if (!stream.is_default() && !lost_in_fork()) note_living_stream(stream.value());
}

driver::Status wait_for_users(driver::Driver& d, cuda_stream_view stream) noexcept {
    if (!is_handle_of_ended_stream(stream.value())) return d.synchronize_stream(handle_of(stream));
    int device = -1;
    const driver::Status status = d.current_device(&device);
    return status.ok() ? d.synchronize_device(device) : status;
}

bool defer_free(driver::Driver& d, void* ptr, cuda_stream_view stream, deferred_free free) noexcept {
    // The driver ends the process where it is asked about a destroyed stream.
    if (stream.is_default() || is_handle_of_ended_stream(stream.value())) return false;
    if (!is_being_captured(d, handle_of(stream))) return false;
    driver::Status status{driver::Code::out_of_memory, 0};
    auto* const b = new (std::nothrow) deferred_block{&d, ptr, free, nullptr};
    if (b != nullptr) status = d.keep_with_capture(handle_of(stream), &list_block, b);
    if (status.ok()) return true;
    delete b;
    report_failure(status, "defer the free of memory that a graph uses (it is never freed)");
    return true;
}

void free_deferred(driver::Driver& d) noexcept {
    if (without_graph.load(std::memory_order_relaxed) == nullptr) return;
    deferred_block* b = without_graph.exchange(nullptr, std::memory_order_acquire);
    while (b != nullptr) {
        deferred_block* const next = b->next;
        if (b->of == &d) {
            b->free(d, b->ptr);
            delete b;
        } else {
            list_block(b);
        }
        b = next;
    }
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
