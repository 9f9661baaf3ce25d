// Host memory from the global operator new.
#pragma once

#include <rmm/mr/host/host_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Memory of the global operator new and delete, never null, for 0 bytes either. Equal only to itself.
class RMM_EXPORT new_delete_resource final : public host_memory_resource {
  public:
    new_delete_resource() = default;
    ~new_delete_resource() override;
    new_delete_resource(new_delete_resource const&) = default;
    new_delete_resource(new_delete_resource&&) = default;
    new_delete_resource& operator=(new_delete_resource const&) = default;
    new_delete_resource& operator=(new_delete_resource&&) = default;

  private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment) override;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
