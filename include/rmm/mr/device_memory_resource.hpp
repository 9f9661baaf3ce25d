// The base class of resources of device memory. Owns the public spellings of allocate and deallocate; what they do is
// in the virtual functions of derived classes.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>  // users of any resource lean on its exceptions and macros
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/ranges.hpp>
#include <rmm/detail/resource_traits.hpp>
#include <rmm/detail/stream_meaning.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Throws rmm::logic_error unless `alignment` is a power of two that is not above 256.
[[noreturn]] void refuse_alignment(std::size_t alignment);
/// Throws for the older forms: rmm::logic_error if no power of two, rmm::bad_alloc if above 256.
[[noreturn]] void refuse_plain_alignment(std::size_t alignment);

/// In a catch block of what must not throw: `who` and what it threw, as one line on stderr. The block counts as freed.
void report_throw_in_deallocate(char const* who = "a resource") noexcept;

inline void expect_alignment(std::size_t alignment) {
    if (!is_pow2(alignment) || alignment > CUDA_ALLOCATION_ALIGNMENT) refuse_alignment(alignment);
}
/// 0 means the default, for callers that meant a null stream.
inline void expect_plain_alignment(std::size_t alignment) {
    if (alignment != 0 && (!is_pow2(alignment) || alignment > CUDA_ALLOCATION_ALIGNMENT))
        refuse_plain_alignment(alignment);
}

}  // namespace detail

/// A source of memory that the device which was current when the resource was made can use.
///
/// - `allocate` gives at least `bytes` usable bytes, aligned to 256; the exact count reaches `do_allocate` on every
///   path. The memory may be used at once on `stream`, elsewhere after ordering. Throws rmm::bad_alloc, or
///   rmm::out_of_memory where it is known that memory is exhausted; the resource is unchanged then.
/// - `deallocate` takes the same count and a stream on which the memory may be reused at once. It does not throw
///   (but is not declared so, that overrides of either kind compile). Null is a no-op. What a program's resource throws
///   all the same reaches the caller, and a line on stderr where the caller must not throw (`noexcept` forms,
///   containers, pools, what undoes an allocation); the block counts as freed.
/// - Forms without a stream use the default stream (handle 0). No form waits for the host, unless the resource says so.
/// - `do_allocate` and `do_deallocate` of a program's resource see the handle that the caller passed, 0 as 0. In a unit
///   that is built with CUDA_API_PER_THREAD_DEFAULT_STREAM handle 0 means the thread's own stream, and resources of
///   this library take it for that, also behind those of the program.
/// - Calls are thread-safe in every class of this library. The device must be current.
class RMM_EXPORT device_memory_resource {
  public:
    device_memory_resource() = default;
    virtual ~device_memory_resource();
    device_memory_resource(device_memory_resource const&) = default;
    device_memory_resource(device_memory_resource&&) noexcept = default;
    device_memory_resource& operator=(device_memory_resource const&) = default;
    device_memory_resource& operator=(device_memory_resource&&) noexcept = default;

    RMM_UNIT_INLINE void* allocate(std::size_t bytes, cuda_stream_view stream = cuda_stream_view{}) {
        RMM_FUNC_RANGE();
        rmm::detail::stream_meaning const meaning{stream, rmm::detail::explicit_stream(stream)};
        return do_allocate(bytes, stream);
    }
    RMM_UNIT_INLINE void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream = cuda_stream_view{}) {
        RMM_FUNC_RANGE();
        rmm::detail::stream_meaning const meaning{stream, rmm::detail::explicit_stream(stream)};
        do_deallocate(ptr, bytes, stream);
    }

    /// Alignment 0 means the default; one that is no power of two throws rmm::logic_error, one above 256
    /// rmm::bad_alloc.
    RMM_UNIT_INLINE void* allocate(std::size_t bytes, std::size_t alignment) {
        detail::expect_plain_alignment(alignment);
        return allocate(bytes, cuda_stream_view{});
    }
    RMM_UNIT_INLINE void deallocate(void* ptr, std::size_t bytes, std::size_t /*alignment*/) {
        deallocate(ptr, bytes, cuda_stream_view{});
    }

    RMM_UNIT_INLINE void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) {
        detail::expect_plain_alignment(alignment);
        return allocate(bytes, stream);
    }
    RMM_UNIT_INLINE void* allocate_async(std::size_t bytes, cuda_stream_view stream) { return allocate(bytes, stream); }
    RMM_UNIT_INLINE void deallocate_async(void* ptr, std::size_t bytes, std::size_t /*alignment*/,
                                          cuda_stream_view stream) {
        deallocate(ptr, bytes, stream);
    }
    RMM_UNIT_INLINE void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream) {
        deallocate(ptr, bytes, stream);
    }

    /// The forms of 25.12: an alignment that is no power of two or above 256 throws rmm::logic_error.
    RMM_UNIT_INLINE void* allocate_sync(std::size_t bytes, std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        detail::expect_alignment(alignment);
        return allocate(bytes, cuda_stream_view{});
    }
    RMM_UNIT_INLINE void deallocate_sync(void* ptr, std::size_t bytes,
                                         std::size_t /*alignment*/ = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        deallocate(cuda_stream_view{}, ptr, bytes);
    }
    RMM_UNIT_INLINE void* allocate(cuda_stream_view stream, std::size_t bytes,
                                   std::size_t alignment = CUDA_ALLOCATION_ALIGNMENT) {
        detail::expect_alignment(alignment);
        return allocate(bytes, stream);
    }
    RMM_UNIT_INLINE void deallocate(cuda_stream_view stream, void* ptr, std::size_t bytes,
                                    std::size_t /*alignment*/ = CUDA_ALLOCATION_ALIGNMENT) noexcept {
        try {
            deallocate(ptr, bytes, stream);
        } catch (...) {
            detail::report_throw_in_deallocate();
        }
    }

    /// Whether memory of one can be freed by the other.
    [[nodiscard]] bool is_equal(device_memory_resource const& other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator==(device_memory_resource const& other) const noexcept { return do_is_equal(other); }
    [[nodiscard]] bool operator!=(device_memory_resource const& other) const noexcept { return !do_is_equal(other); }

    /// What 23.12 asked of resources. {free, total} bytes, or {0, 0} where `supports_get_mem_info()` is false.
    [[nodiscard]] virtual bool supports_streams() const noexcept;
    [[nodiscard]] virtual bool supports_get_mem_info() const noexcept;
    [[nodiscard]] std::pair<std::size_t, std::size_t> get_mem_info(cuda_stream_view stream) const {
        return do_get_mem_info(stream);
    }

  private:
    virtual void* do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) = 0;
    /// Identity, unless overridden.
    [[nodiscard]] virtual bool do_is_equal(device_memory_resource const& other) const noexcept;
    [[nodiscard]] virtual std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view stream) const;
};

/// Memory of every device_memory_resource is device accessible.
template<class Property, std::enable_if_t<rmm::detail::is_device_accessible_tag<Property>::value, int> = 0>
constexpr void get_property(device_memory_resource const&, Property) noexcept {}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
