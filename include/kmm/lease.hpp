// Memory of the program inside arrays, and arrays' memory inside the program: `AdoptOptions`, `Lease`.
//
// Owns: the names. This version cannot adopt or lease yet: the calls on RuntimeHandle that would make these objects
// throw NotAvailable. C++17.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>

#include "kmm/core/backends.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/panic.hpp"

namespace kmm {

class RuntimeHandle;

/// How `RuntimeHandle::adopt` treats the program's memory.
struct AdoptOptions {
    std::function<void(void*)> deleter;  ///< called exactly once, from a library thread, when the array has died
    bool pin_host = false;               ///< page-lock host memory for faster transfers
    bool write_back = true;              ///< leave the newest content in the memory when the array dies
    GPUstream_t ready_after = nullptr;   ///< work now on this stream precedes the first use
    std::string name;                    ///< for messages
};

namespace detail {
[[noreturn]] inline void throw_no_leases() {
    throw_not_available("leases are not offered by this version of kmm; use copy_to and copy_from, or a task");
}
}  // namespace detail

/// A region of an array, pinned for the program until released. Move-only; used by one thread at a time.
template<typename T, std::size_t N>
class Lease {
  public:
    using host_view_type = std::conditional_t<std::is_const_v<T>, Subview<std::remove_const_t<T>, N>,
                                              SubviewMut<std::remove_const_t<T>, N>>;
    using device_view_type = std::conditional_t<std::is_const_v<T>, GPUSubview<std::remove_const_t<T>, N>,
                                                GPUSubviewMut<std::remove_const_t<T>, N>>;

    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) noexcept = default;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    /// Address of the first element; it stays while the lease lives.
    T* data() const { detail::throw_no_leases(); }
    Bounds<N> bounds() const { detail::throw_no_leases(); }
    MemoryId memory_id() const { detail::throw_no_leases(); }
    /// In elements.
    default_index_type stride(std::size_t) const { detail::throw_no_leases(); }
    /// Views with global indices. IA if the lease is in the other kind of memory.
    host_view_type host_view() const { detail::throw_no_leases(); }
    device_view_type device_view() const { detail::throw_no_leases(); }
    /// The stream on which the content is ready and on which work may be enqueued. IA on the host.
    GPUstream_t stream() const { detail::throw_no_leases(); }
    /// Ends the lease after the work now on `stream()`, or on `after`. IA the second time.
    EventId release() { detail::throw_no_leases(); }
    EventId release(GPUstream_t) { detail::throw_no_leases(); }

  private:
    friend class RuntimeHandle;
    Lease() = default;
};

}  // namespace kmm
