// Implements <rmm/mr/device_memory_resource.hpp> and the compiled part of <rmm/resource_ref.hpp>. Any thread.
#include "rmm/mr/device_memory_resource.hpp"

#include <atomic>
#include <exception>
#include <string>

#include "driver/format.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/resource_ref.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

void refuse_alignment(std::size_t alignment) {
    RMM_FAIL(
        kmm::driver::format("Alignment must be less than or equal to 256 and a power of two; it is {}", alignment));
}

void refuse_plain_alignment(std::size_t alignment) {
    RMM_EXPECTS(is_pow2(alignment), kmm::driver::format("alignment {} is not a power of two", alignment));
    throw rmm::bad_alloc(kmm::driver::format(
        "alignment {} is above 256, the alignment of device memory: ask for that many bytes more and align the address",
        alignment));
}

void report_throw_in_deallocate(char const* who) noexcept {
    try {
        throw;
    } catch (const std::exception& e) {
        const char* const text = e.what();
        rmm::detail::report_misuse(who, " threw in deallocate: ", text == nullptr ? "(no text)" : text);
    } catch (...) {
        rmm::detail::report_misuse(who, " threw in deallocate what is no std::exception");
    }
}

}  // namespace detail

device_memory_resource::~device_memory_resource() = default;

bool device_memory_resource::supports_streams() const noexcept { return false; }

bool device_memory_resource::supports_get_mem_info() const noexcept { return false; }

bool device_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept { return this == &other; }

std::pair<std::size_t, std::size_t> device_memory_resource::do_get_mem_info(cuda_stream_view) const { return {0, 0}; }

}  // namespace mr

namespace detail {
namespace {

mr::device_memory_resource& object(void* resource) noexcept {
    return *static_cast<mr::device_memory_resource*>(resource);
}

void* allocate(void* resource, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
    return object(resource).allocate_async(bytes, alignment, stream);
}
void deallocate(void* resource, void* ptr, std::size_t bytes, std::size_t, cuda_stream_view stream) {
    object(resource).deallocate(ptr, bytes, stream);
}
void* allocate_sync(void* resource, std::size_t bytes, std::size_t alignment) {
    return object(resource).allocate(bytes, alignment);
}
void deallocate_sync(void* resource, void* ptr, std::size_t bytes, std::size_t) {
    object(resource).deallocate(ptr, bytes);
}
bool equal(void const* a, void const* b) {
    return static_cast<mr::device_memory_resource const*>(a)->is_equal(
        *static_cast<mr::device_memory_resource const*>(b));
}

}  // namespace

const resource_operations device_memory_resource_operations = {&allocate, &deallocate, &allocate_sync, &deallocate_sync,
                                                               &equal};

bool equal_refs(raw_ref const& a, raw_ref const& b) noexcept {
    // `equal` is one function for each type, also where several libraries hold the type's table.
    if (a.operations->equal != b.operations->equal) return false;
    if (a.resource == b.resource) return true;
    return a.resource != nullptr && b.resource != nullptr && a.operations->equal(a.resource, b.resource);
}

constinit thread_local default_stream default_stream_now = default_stream::legacy;

constinit std::atomic<bool> any_default_stream_marked{false};

default_stream& default_stream_of_calls() noexcept {
    if (!any_default_stream_marked.load(std::memory_order_relaxed))
        any_default_stream_marked.store(true, std::memory_order_relaxed);
    return default_stream_now;
}

void* allocate_marked(raw_ref const& ref, std::size_t bytes, std::size_t alignment, cuda_stream_view given,
                      cuda_stream_view meant) {
    const stream_meaning meaning{given, meant};
    return ref.operations->allocate(ref.resource, bytes, alignment, given);
}

void deallocate_marked(raw_ref const& ref, void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view given,
                       cuda_stream_view meant) {
    const stream_meaning meaning{given, meant};
    ref.operations->deallocate(ref.resource, ptr, bytes, alignment, given);
}

void refuse_null_resource() { RMM_FAIL("Unexpected null resource pointer."); }

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
