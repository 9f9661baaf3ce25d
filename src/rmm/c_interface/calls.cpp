// Implements of <rmm/rmm.h> all that is done with resources and devices. Any thread.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/c_interface/errors.hpp"
#include "rmm/c_interface/resource.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/device_table.hpp"
#include "rmm/memory_report.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

constinit thread_local cudaStream_t hook_stream = nullptr;

/// -1: the current one.
int device_number(int device) {
    rmm::detail::refuse_after_fork();
    rmm::detail::driver::Driver& d = rmm::detail::the_driver();
    if (device == -1) {
        rmm::detail::check(d.current_device(&device));
    } else if (device < 0 || device >= d.device_count()) {
        throw invalid_argument(
            kmm::driver::format("there is no device {}: the {} driver has {} (numbered from 0; -1 is the current one)",
                                device, d.name(), d.device_count()));
    }
    return device;
}

void* allocate(rmm_resource& resource, std::size_t bytes, std::size_t alignment, cudaStream_t stream) {
    if (alignment != 0 && (!is_pow2(alignment) || alignment > CUDA_ALLOCATION_ALIGNMENT))
        throw invalid_argument(kmm::driver::format(
            "the alignment {} is no power of two up to 256: for more open a resource of kind 'aligned'", alignment));
    // The free of a null pointer is ignored, so that a resource which counts blocks must not see this one.
    if (bytes == 0) return nullptr;
    const cuda_set_device_raii on_its_device(cuda_device_id{resource.device()});
    return resource.object().allocate(bytes, cuda_stream_view{stream});
}

void deallocate(rmm_resource& resource, void* pointer, std::size_t bytes, cudaStream_t stream) {
    if (pointer == nullptr || rmm::detail::lost_in_fork()) return;
    const rmm::detail::driver::DeviceGuard on_its_device(rmm::detail::the_driver(), resource.device());
    resource.object().deallocate(pointer, bytes, cuda_stream_view{stream});
}

mr::detail::statistics_adaptor& counters_of(rmm_resource* resource) {
    expect_not_null(resource, "resource");
    if (resource->counters() == nullptr)
        throw invalid_argument(kmm::driver::format(
            "a resource of kind '{}' has no counters: open one of kind 'statistics' over it", resource->kind()));
    return *resource->counters();
}

void fill(rmm_statistics* out, const mr::detail::statistics_counter& bytes,
          const mr::detail::statistics_counter& blocks) {
    out->known |= RMM_KNOWS_COUNTERS;
    out->bytes_now = bytes.value;
    out->bytes_peak = bytes.peak;
    out->bytes_total = bytes.total;
    out->blocks_now = blocks.value;
    out->blocks_peak = blocks.peak;
    out->blocks_total = blocks.total;
}

void write_counters(rmm_statistics* out,
                    const std::pair<mr::detail::statistics_counter, mr::detail::statistics_counter>& of) {
    if (out == nullptr) return;
    rmm_statistics found = {};
    fill(&found, of.first, of.second);
    write_struct(out, found, "out");
}

void expect_room(rmm_statistics* out) {
    if (out != nullptr) (void)checked_struct_size(out, "out");
}

void copy_text(const std::string& text, char* out, std::size_t* size) {
    const std::size_t room = *size;
    *size = text.size() + 1;
    if (room == 0) return;
    expect_not_null(out, "text");
    const std::size_t copied = std::min(room - 1, text.size());
    std::memcpy(out, text.data(), copied);
    out[copied] = 0;
}

/// By which C finds its own resources again among the owners in the table.
struct release_reference {
    void operator()(rmm_resource* resource) const noexcept { rmm_release(resource); }
};

/// The device's resource as C knows it: the one that it set, or else one that stands for it. The caller's reference.
rmm_resource* resource_for_c(int device) {
    std::uint64_t num_changes = 0;
    rmm::detail::owned_resource now = rmm::detail::resource_with_face(cuda_device_id{device}, &num_changes);
    if (std::get_deleter<release_reference>(now.owner) != nullptr)
        return rmm_retain(static_cast<rmm_resource*>(now.owner.get()));
    return new external(device, std::move(now));
}

}  // namespace
}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm

using namespace rmm::c_interface;

rmm_resource* rmm_retain(rmm_resource* resource) {
    if (resource != nullptr) resource->retain();
    return resource;
}

void rmm_release(rmm_resource* resource) {
    if (resource == nullptr || !resource->release()) return;
    if (rmm::detail::lost_in_fork()) return;  // another thread may have been at work on it
    (void)guarded([&] {
        const rmm::detail::driver::DeviceGuard on_its_device(rmm::detail::the_driver(), resource->device());
        delete resource;
    });
}

const char* rmm_kind(const rmm_resource* resource) { return resource == nullptr ? "" : resource->kind().c_str(); }

int rmm_device(const rmm_resource* resource) { return resource == nullptr ? -1 : resource->device(); }

rmm_resource* rmm_upstream(rmm_resource* resource) {
    return resource == nullptr ? nullptr : rmm_retain(resource->upstream());
}

int rmm_allocate(rmm_resource* resource, size_t bytes, size_t alignment, cudaStream_t stream, void** out) {
    if (out != nullptr) *out = nullptr;
    return guarded([&] {
        expect_not_null(out, "out");
        expect_not_null(resource, "resource");
        *out = allocate(*resource, bytes, alignment, stream);
    });
}

int rmm_deallocate(rmm_resource* resource, void* pointer, size_t bytes, cudaStream_t stream) {
    return guarded([&] {
        expect_not_null(resource, "resource");
        deallocate(*resource, pointer, bytes, stream);
    });
}

int rmm_trim(rmm_resource* resource, size_t keep_bytes, size_t* given_back) {
    if (given_back != nullptr) *given_back = 0;
    return guarded([&] {
        rmm::detail::refuse_after_fork();
        expect_not_null(resource, "resource");
        const rmm::cuda_set_device_raii on_its_device(rmm::cuda_device_id{resource->device()});
        std::optional<std::size_t> trimmed;
        for (rmm_resource* r = resource; r != nullptr && !trimmed; r = r->upstream()) trimmed = r->trim(keep_bytes);
        if (given_back != nullptr) *given_back = trimmed.value_or(0);
    });
}

int rmm_set_name(rmm_resource* resource, const char* name) {
    return guarded([&] {
        expect_not_null(resource, "resource");
        expect_not_null(name, "name");
        if (!resource->set_name(name))
            throw invalid_argument(
                kmm::driver::format("a resource of kind '{}' has no name of its own", resource->kind()));
    });
}

int rmm_get_statistics(rmm_resource* resource, rmm_statistics* out) {
    return guarded([&] {
        rmm::detail::refuse_after_fork();
        expect_not_null(resource, "resource");
        rmm_statistics found = {};
        resource->read(&found);
        if (const auto* counters = resource->counters(); counters != nullptr)
            fill(&found, counters->get_bytes_counter(), counters->get_allocations_counter());
        write_struct(out, found, "out");
    });
}

int rmm_push_counters(rmm_resource* resource, rmm_statistics* out) {
    return guarded([&] {
        auto& counters = counters_of(resource);
        expect_room(out);
        write_counters(out, counters.push_counters());
    });
}

int rmm_pop_counters(rmm_resource* resource, rmm_statistics* out) {
    return guarded([&] {
        auto& counters = counters_of(resource);
        expect_room(out);
        write_counters(out, counters.pop_counters());
    });
}

int rmm_get_device_resource(int device, rmm_resource** out) {
    if (out != nullptr) *out = nullptr;
    return guarded([&] {
        expect_not_null(out, "out");
        const int number = device_number(device);
        *out = resource_for_c(number);
    });
}

int rmm_set_device_resource(int device, rmm_resource* resource) {
    return guarded([&] {
        const int number = device_number(device);
        if (resource != nullptr && resource->device() != number)
            throw invalid_argument(
                kmm::driver::format("the resource belongs to device {}, not to device {}", resource->device(), number));
        rmm::detail::owned_resource set;
        if (resource != nullptr)
            set = {&resource->object(),
                   {rmm_retain(resource), release_reference{}},
                   resource->face(),
                   resource->is_set_by_python()};
        // What was there before is let go of here.
        (void)rmm::detail::set_owned_resource(rmm::cuda_device_id{number}, std::move(set));
    });
}

int rmm_memory_info(int device, size_t* free_bytes, size_t* total_bytes) {
    return guarded([&] {
        std::size_t of_them[2] = {0, 0};
        rmm::detail::check(rmm::detail::the_driver().memory_info(device_number(device), &of_them[0], &of_them[1]));
        if (free_bytes != nullptr) *free_bytes = of_them[0];
        if (total_bytes != nullptr) *total_bytes = of_them[1];
    });
}

int rmm_memory_report(int device, char* text, size_t* size) {
    return guarded([&] {
        expect_not_null(size, "size");
        copy_text(rmm::memory_report(rmm::cuda_device_id{device_number(device)}), text, size);
    });
}

int rmm_memory_snapshot(int with_blocks, char* text, size_t* size) {
    return guarded([&] {
        expect_not_null(size, "size");
        copy_text(rmm::memory_snapshot(with_blocks != 0 ? rmm::snapshot_blocks::yes : rmm::snapshot_blocks::no), text,
                  size);
    });
}

// ---- hooks

void* rmm_cupy_allocate(void* resource, size_t bytes, int device) {
    void* pointer = nullptr;
    if (bytes == 0) return nullptr;
    const int code = guarded([&] {
        expect_not_null(resource, "resource");
        auto& r = *static_cast<rmm_resource*>(resource);
        if (device != r.device())
            throw invalid_argument(
                kmm::driver::format("memory of device {} is asked of a resource of device {}", device, r.device()));
        pointer = allocate(r, bytes, 0, hook_stream);
        if (pointer == nullptr) return;  // callbacks may give nothing
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        const kmm::locks::Guard in(r.sized.mutex);
        (void)r.sized.blocks.take(address);  // was freed by rmm_deallocate
        r.sized.blocks.insert(address, {bytes, hook_stream});
    });
    if (code == RMM_OK || pointer == nullptr) return code == RMM_OK ? pointer : nullptr;
    // There was no room on the host to remember it.
    (void)rmm_deallocate(static_cast<rmm_resource*>(resource), pointer, bytes, hook_stream);
    return nullptr;
}

void rmm_cupy_deallocate(void* resource, void* pointer, int) {
    if (pointer == nullptr || rmm::detail::lost_in_fork()) return;
    (void)guarded([&] {
        expect_not_null(resource, "resource");
        auto& r = *static_cast<rmm_resource*>(resource);
        std::optional<rmm_resource::sized_block> block;
        {
            const kmm::locks::Guard in(r.sized.mutex);
            block = r.sized.blocks.take(reinterpret_cast<std::uintptr_t>(pointer));
        }
        if (!block) {
            // CuPy does not query the last error: report it too.
            const char* const what = "memory is freed that rmm_cupy_allocate has not given, or twice";
            rmm::detail::report_misuse(what);
            throw invalid_argument(what);
        }
        deallocate(r, pointer, block->size_bytes, block->stream);
    });
}

cudaStream_t rmm_set_hook_stream(cudaStream_t stream) { return std::exchange(hook_stream, stream); }
