// Implements the compiled part of <rmm/mr/callback_memory_resource.hpp>. Any thread, as the callbacks allow it.
#include "rmm/mr/callback_memory_resource.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {

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
