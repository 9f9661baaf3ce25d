// Forward declarations of the public classes of rmm, for headers that only name them: `namespace rmm { class
// device_buffer; }` in a program declares another class than ours, which stands in an inline namespace. Includes
// nothing that costs.
#pragma once

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

struct cuda_device_id;
struct cuda_set_device_raii;
class cuda_stream;
class cuda_stream_pool;
class cuda_stream_view;

class device_buffer;
template<typename T>
class device_scalar;
template<typename T>
class device_uvector;
class host_buffer;

struct librmm_domain;

class exec_policy;
class exec_policy_nosync;

struct logic_error;
struct cuda_error;
class bad_alloc;
class out_of_memory;
class out_of_range;
enum class memory_limit : unsigned char;
struct memory_shortage;
class memory_tag;
enum class snapshot_blocks : bool;

namespace detail {

/// What memory of a resource must be good for; a set of bits.
inline constexpr unsigned on_device = 1;
inline constexpr unsigned on_host = 2;

template<unsigned Properties, bool StreamOrdered>
class basic_resource_ref;

}  // namespace detail

using device_resource_ref = detail::basic_resource_ref<detail::on_device, false>;
using device_async_resource_ref = detail::basic_resource_ref<detail::on_device, true>;
using host_resource_ref = detail::basic_resource_ref<detail::on_host, false>;
using host_async_resource_ref = detail::basic_resource_ref<detail::on_host, true>;
using host_device_resource_ref = detail::basic_resource_ref<detail::on_device | detail::on_host, false>;
using host_device_async_resource_ref = detail::basic_resource_ref<detail::on_device | detail::on_host, true>;

namespace mr {

class device_memory_resource;
class callback_memory_resource;
class cuda_async_managed_memory_resource;
class cuda_async_memory_resource;
class cuda_async_view_memory_resource;
class cuda_memory_resource;
class managed_memory_resource;
class pinned_host_memory_resource;
class pinned_pool_memory_resource;
class sam_headroom_memory_resource;
class system_memory_resource;
class vmm_memory_resource;

class host_memory_resource;
class new_delete_resource;
class pinned_memory_resource;

template<typename Upstream>
class arena_memory_resource;
template<typename Upstream>
class binning_memory_resource;
template<typename Upstream>
class fixed_size_memory_resource;
template<typename Upstream>
class pool_memory_resource;

template<typename Upstream>
class aligned_resource_adaptor;
template<typename Upstream>
class debug_resource_adaptor;
template<typename Upstream, typename ExceptionType = rmm::out_of_memory>
class failure_callback_resource_adaptor;
template<typename Upstream>
class limiting_resource_adaptor;
template<typename Upstream>
class logging_resource_adaptor;
template<typename Upstream>
class prefetch_resource_adaptor;
template<typename Upstream>
class statistics_resource_adaptor;
template<typename Upstream>
class thread_safe_resource_adaptor;
template<typename Upstream>
class tracking_resource_adaptor;
template<typename Resource, typename... Upstreams>
class owning_wrapper;

template<typename T>
class host_allocator;
template<typename T>
class polymorphic_allocator;
template<typename Allocator>
class stream_allocator_adaptor;
template<typename T>
class thrust_allocator;

struct pool_statistics;
struct mapping_counts;
enum class debug_error : unsigned char;
struct debug_finding;
struct debug_options;
struct debug_counts;

class reclaimer;
class reclaimer_registration;
class no_reclaim_scope;

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
