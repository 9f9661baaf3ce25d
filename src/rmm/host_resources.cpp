// Implements host_memory_resource and new_delete_resource, and what callback_memory_resource compiles. Any thread.
#include "rmm/mr/host/host_memory_resource.hpp"

#include <new>

#include "rmm/aligned.hpp"
#include "rmm/mr/callback_memory_resource.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

std::align_val_t usable_alignment(std::size_t alignment) noexcept {
    return std::align_val_t{is_supported_alignment(alignment) ? alignment : RMM_DEFAULT_HOST_ALIGNMENT};
}

}  // namespace

host_memory_resource::~host_memory_resource() = default;

bool host_memory_resource::do_is_equal(host_memory_resource const& other) const noexcept { return this == &other; }

new_delete_resource::~new_delete_resource() = default;

void* new_delete_resource::do_allocate(std::size_t bytes, std::size_t alignment) {
    return ::operator new(bytes, usable_alignment(alignment));
}

void new_delete_resource::do_deallocate(void* ptr, std::size_t, std::size_t alignment) {
    ::operator delete(ptr, usable_alignment(alignment));
}

callback_memory_resource::~callback_memory_resource() = default;

void* callback_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    return allocate_callback_(bytes, stream, allocate_callback_arg_);
}

void callback_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    deallocate_callback_(ptr, bytes, stream, deallocate_callback_arg_);
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
