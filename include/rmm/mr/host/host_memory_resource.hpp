// The base class of resources of host memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_traits.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// A source of host memory, aligned as asked (a power of two; anything else falls back to alignof(max_align_t)).
/// Throws std::bad_alloc or a class derived from it. Null is not freed. Thread-safe in every class of this library.
class RMM_EXPORT host_memory_resource {
  public:
    host_memory_resource() = default;
    virtual ~host_memory_resource();
    host_memory_resource(host_memory_resource const&) = default;
    host_memory_resource(host_memory_resource&&) noexcept = default;
    host_memory_resource& operator=(host_memory_resource const&) = default;
    host_memory_resource& operator=(host_memory_resource&&) noexcept = default;

    void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        return do_allocate(bytes, alignment);
    }
    void deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        do_deallocate(ptr, bytes, alignment);
    }
    void* allocate_sync(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        return do_allocate(bytes, alignment);
    }
    void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
        do_deallocate(ptr, bytes, alignment);
    }

    /// Whether memory of one can be freed by the other.
    [[nodiscard]] bool is_equal(host_memory_resource const& other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator==(host_memory_resource const& other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator!=(host_memory_resource const& other) const noexcept { return !do_is_equal(other); }

  private:
    virtual void* do_allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;
    virtual void do_deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) = 0;
    /// Identity, unless overridden.
    [[nodiscard]] virtual bool do_is_equal(host_memory_resource const& other) const noexcept;
};

template<class Property, std::enable_if_t<rmm::detail::is_host_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(host_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
