// Implements <rmm/mr/host/new_delete_resource.hpp> and the compiled part of <rmm/mr/host/host_memory_resource.hpp>. Any
// thread.
#include "rmm/mr/host/new_delete_resource.hpp"

#include <new>

#include "rmm/aligned.hpp"
#include "rmm/mr/host/host_memory_resource.hpp"

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

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
