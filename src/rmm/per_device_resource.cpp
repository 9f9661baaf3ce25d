// Implements <rmm/mr/per_device_resource.hpp>, over device_table.hpp.
#include "rmm/mr/per_device_resource.hpp"

#include "rmm/device_table.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

using rmm::detail::raw_ref;

device_async_resource_ref made_of(const raw_ref& ref) {
    if (ref.resource == nullptr) [[unlikely]]
        return device_async_resource_ref{detail::initial_resource()};
    return device_async_resource_ref::from_raw(ref);
}

raw_ref get(cuda_device_id device) {
    return rmm::detail::published(device).read([](const auto& s) {
        return raw_ref{s.object.load(std::memory_order_acquire), s.operations.load(std::memory_order_acquire)};
    });
}

}  // namespace

namespace detail {

device_memory_resource* initial_resource() {
    static auto& instance = *new cuda_memory_resource;
    return &instance;
}

current_resource get_current_resource() {
    const cuda_device_id device = get_current_cuda_device();
    return {made_of(get(device)), device};
}

}  // namespace detail

device_memory_resource* get_per_device_resource(cuda_device_id device_id) {
    device_memory_resource* const set =
        rmm::detail::published(device_id).read([](const auto& s) { return s.pointer.load(std::memory_order_acquire); });
    return set != nullptr ? set : detail::initial_resource();
}

device_memory_resource* set_per_device_resource(cuda_device_id device_id, device_memory_resource* new_mr) {
    return rmm::detail::set_plain_resource(device_id, device_async_resource_ref{new_mr}.raw()).pointer;
}

device_async_resource_ref get_per_device_resource_ref(cuda_device_id device_id) { return made_of(get(device_id)); }

device_async_resource_ref set_per_device_resource_ref(cuda_device_id device_id,
                                                      device_async_resource_ref new_resource_ref) {
    return made_of(rmm::detail::set_plain_resource(device_id, new_resource_ref.raw()).ref);
}

device_async_resource_ref reset_per_device_resource_ref(cuda_device_id device_id) {
    return set_per_device_resource_ref(device_id, device_async_resource_ref{detail::initial_resource()});
}

device_memory_resource* get_current_device_resource() { return get_per_device_resource(get_current_cuda_device()); }

device_memory_resource* set_current_device_resource(device_memory_resource* new_mr) {
    return set_per_device_resource(get_current_cuda_device(), new_mr);
}

device_async_resource_ref get_current_device_resource_ref() {
    return get_per_device_resource_ref(get_current_cuda_device());
}

device_async_resource_ref set_current_device_resource_ref(device_async_resource_ref new_resource_ref) {
    return set_per_device_resource_ref(get_current_cuda_device(), new_resource_ref);
}

device_async_resource_ref reset_current_device_resource_ref() {
    return reset_per_device_resource_ref(get_current_cuda_device());
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
