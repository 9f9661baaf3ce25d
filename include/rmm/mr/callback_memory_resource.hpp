// A resource made of two functions of the user.
#pragma once

#include <functional>
#include <utility>

#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

using allocate_callback_t = std::function<void*(std::size_t, cuda_stream_view, void*)>;
using deallocate_callback_t = std::function<void(void*, std::size_t, cuda_stream_view, void*)>;

/// Forwards every request, with its argument, to the callbacks, which own thread-safety and alignment. What they throw
/// passes through. Equal only to itself. Move-only.
class RMM_EXPORT callback_memory_resource final : public device_memory_resource {
  public:
    callback_memory_resource(allocate_callback_t allocate_callback, deallocate_callback_t deallocate_callback,
                             void* allocate_callback_arg = nullptr, void* deallocate_callback_arg = nullptr) noexcept
        : allocate_callback_{std::move(allocate_callback)},
          deallocate_callback_{std::move(deallocate_callback)},
          allocate_callback_arg_{allocate_callback_arg},
          deallocate_callback_arg_{deallocate_callback_arg} {}
    ~callback_memory_resource() override;
    callback_memory_resource(callback_memory_resource const&) = delete;
    callback_memory_resource& operator=(callback_memory_resource const&) = delete;
    callback_memory_resource(callback_memory_resource&&) noexcept = default;
    callback_memory_resource& operator=(callback_memory_resource&&) noexcept = default;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    allocate_callback_t allocate_callback_;
    deallocate_callback_t deallocate_callback_;
    void* allocate_callback_arg_;
    void* deallocate_callback_arg_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
