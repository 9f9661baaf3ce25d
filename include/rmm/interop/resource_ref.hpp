// References of libcu++ (CCCL 3.0) into ours and back. Interop only; included by <rmm/resource_ref.hpp>.
//
// A reference of libcu++ does not fit into one of ours, nor ours into one of theirs. What does not fit is copied once
// into a process-wide table that lives as long as the process: one entry for each distinct reference, so it stays
// small.
#pragma once

#include <cstring>
#include <list>
#include <mutex>
#include <type_traits>

#include <rmm/detail/cuda_memory_resource.hpp>
#include <rmm/detail/resource_operations.hpp>
#include <rmm/detail/stream_meaning.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// The table's copy of a reference; the same address for equal bytes. Takes a lock.
template<class Ref>
Ref* lasting_copy(Ref const& ref) {
    struct table {
        std::mutex mutex;
        std::list<Ref> entries;
    };
    static table& all = *new table;
    std::lock_guard<std::mutex> const lock{all.mutex};
    for (Ref& entry : all.entries)
        if (std::memcmp(static_cast<void const*>(&entry), static_cast<void const*>(&ref), sizeof(Ref)) == 0)
            return &entry;
    all.entries.push_back(ref);
    return &all.entries.back();
}

#if !RMM_DETAIL_CCCL_STREAM_FIRST

/// A reference of ours as an object with an address, for references of libcu++ to refer to. `PerThread`: what handle 0
/// means in the unit that made it, for they say nothing of theirs.
template<unsigned Properties, bool StreamOrdered, bool PerThread>
class lasting_resource {
  public:
    explicit lasting_resource(raw_ref raw) noexcept : raw_{raw} {}
    void* allocate(std::size_t bytes, std::size_t alignment) {
        stream_meaning const meaning{cuda_stream_view{}, meant(cuda_stream_view{})};
        return raw_.operations->allocate_sync(raw_.resource, bytes, alignment);
    }
    void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) {
        stream_meaning const meaning{cuda_stream_view{}, meant(cuda_stream_view{})};
        raw_.operations->deallocate_sync(raw_.resource, ptr, bytes, alignment);
    }
    void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
        cuda_stream_view const given{stream};
        return detail::allocate_on(raw_, bytes, alignment, given, meant(given));
    }
    void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
        cuda_stream_view const given{stream};
        detail::deallocate_on(raw_, ptr, bytes, alignment, given, meant(given));
    }
    friend bool operator==(lasting_resource const& a, lasting_resource const& b) noexcept {
        return equal_refs(a.raw_, b.raw_);
    }
    friend bool operator!=(lasting_resource const& a, lasting_resource const& b) noexcept { return !(a == b); }
    template<class Property,
             std::enable_if_t<((Properties & on_device) != 0 && is_device_accessible_tag<Property>::value) ||
                                  ((Properties & on_host) != 0 && is_host_accessible_tag<Property>::value),
                              int> = 0>
    friend constexpr void get_property(lasting_resource const&, Property) noexcept {}

  private:
    static cuda_stream_view meant(cuda_stream_view given) noexcept {
        return PerThread && given.value() == nullptr ? cuda_stream_view{per_thread_stream_handle()} : given;
    }

    raw_ref raw_;
};

template<unsigned Properties, bool StreamOrdered>
struct cccl_ref_type;
template<>
struct cccl_ref_type<on_device, false> {
    using type = cuda::mr::resource_ref<cuda::mr::device_accessible>;
};
template<>
struct cccl_ref_type<on_device, true> {
    using type = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
};
template<>
struct cccl_ref_type<on_host, false> {
    using type = cuda::mr::resource_ref<cuda::mr::host_accessible>;
};
template<>
struct cccl_ref_type<on_host, true> {
    using type = cuda::mr::async_resource_ref<cuda::mr::host_accessible>;
};
template<>
struct cccl_ref_type<on_device | on_host, false> {
    using type = cuda::mr::resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible>;
};
template<>
struct cccl_ref_type<on_device | on_host, true> {
    using type = cuda::mr::async_resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible>;
};

/// Makes our references convert to those of libcu++: the same type first, and every weaker one.
template<unsigned Properties, bool StreamOrdered>
struct ref_interop {
    using base = typename cccl_ref_type<Properties, StreamOrdered>::type;

    RMM_UNIT_INLINE operator base() const { return as<base, RMM_DETAIL_PER_THREAD_DEFAULT_STREAM != 0>(); }

    template<class Other,
             std::enable_if_t<!std::is_same<Other, base>::value && foreign_ref<Other>::known &&
                                  (foreign_ref<Other>::properties & Properties) == foreign_ref<Other>::properties &&
                                  (StreamOrdered || !foreign_ref<Other>::stream_ordered),
                              int> = 0>
    RMM_UNIT_INLINE operator Other() const {
        return as<Other, RMM_DETAIL_PER_THREAD_DEFAULT_STREAM != 0>();
    }

  private:
    template<class Ref, bool PerThread>
    Ref as() const {
        auto const& raw = static_cast<basic_resource_ref<Properties, StreamOrdered> const*>(this)->raw();
        // Every object behind these operations has the properties of its dynamic type; only the static type is known
        // here.
        return Ref{*lasting_copy(lasting_resource<Properties, StreamOrdered, PerThread>{raw})};
    }
};

template<class... Properties>
inline constexpr unsigned property_bits =
    ((std::is_same<Properties, cuda::mr::device_accessible>::value ? on_device : 0U) | ... | (0U)) |
    ((std::is_same<Properties, cuda::mr::host_accessible>::value ? on_host : 0U) | ... | (0U));

template<class Ref, bool StreamOrdered, class... Properties>
struct foreign_cccl_ref {
    static constexpr bool known = true;
    static constexpr bool stream_ordered = StreamOrdered;
    static constexpr unsigned properties = property_bits<Properties...>;
    static raw_ref convert(Ref const& ref) { return {lasting_copy(ref), &operations_of<Ref>::value}; }
};
template<class... Properties>
struct foreign_ref<cuda::mr::resource_ref<Properties...>>
    : foreign_cccl_ref<cuda::mr::resource_ref<Properties...>, false, Properties...> {};
template<class... Properties>
struct foreign_ref<cuda::mr::async_resource_ref<Properties...>>
    : foreign_cccl_ref<cuda::mr::async_resource_ref<Properties...>, true, Properties...> {};

#else

template<unsigned Properties, bool StreamOrdered>
struct ref_interop {};

#endif

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
