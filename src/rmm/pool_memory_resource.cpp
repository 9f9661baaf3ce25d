// Implements the compiled parts of <rmm/mr/pool_memory_resource.hpp> and <rmm/mr/vmm_memory_resource.hpp>: argument
// checks, then the engine. Any thread.
#include "rmm/mr/detail/pool.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/debug/pool_debugging.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;

std::size_t default_initial_size() {
    const auto [free_bytes, total_bytes] = available_device_memory();
    return align_down(std::min(free_bytes, total_bytes / 2), unit);
}

void expect_multiple(const char* name, std::size_t bytes) {
    RMM_EXPECTS(bytes % unit == 0,
                driver::format("the {} size of a pool must be a multiple of 256 bytes; it is {}", name, bytes));
}

/// Memory of these is ready for every stream when `allocate` returns.
bool is_known_unordered(device_async_resource_ref ref) {
    if (ref.raw().operations != &rmm::detail::device_memory_resource_operations) return false;
    const auto* resource = static_cast<device_memory_resource*>(ref.raw().resource);
    return dynamic_cast<const cuda_memory_resource*>(resource) != nullptr ||
           dynamic_cast<const managed_memory_resource*>(resource) != nullptr ||
           dynamic_cast<const pinned_host_memory_resource*>(resource) != nullptr;
}

/// Of other resources it is not known, and they are asked in vain.
bool is_host_memory(device_async_resource_ref ref) {
    if (ref.raw().operations != &rmm::detail::device_memory_resource_operations) return false;
    const auto* resource = static_cast<device_memory_resource*>(ref.raw().resource);
    return dynamic_cast<const pinned_host_memory_resource*>(resource) != nullptr;
}

/// Throws rmm::logic_error unless the device has what the options ask for.
void expect_support(driver::Driver& d, int device, const driver::PhysicalOptions& wanted) {
    driver::PhysicalOptions all;
    rmm::detail::check(d.physical_support(device, &all));
    using handle = vmm_memory_resource::handle_type;
    const std::uint32_t handles = wanted.export_handle_types & ~all.export_handle_types;
    const char* missing = nullptr;
    if ((handles & static_cast<std::uint32_t>(handle::posix_file_descriptor)) != 0)
        missing = "memory that other processes open by a file descriptor";
    else if ((handles & static_cast<std::uint32_t>(handle::fabric)) != 0)
        missing = "memory that other processes open by a fabric handle";
    else if (handles != 0)
        missing = "handles of this type";
    else if (wanted.rdma && !all.rdma)
        missing = "virtual memory that network cards and disks reach (GPUDirect RDMA)";
    else if (wanted.multicast && !all.multicast)
        missing = "multicast objects";
    RMM_EXPECTS(missing == nullptr,
                driver::format("device {} of the {} driver has no {}: {}", device, d.name(), missing,
                               rmm::detail::with_class_names("make the vmm_memory_resource without it")));
}

/// The first piece may be refused for reasons that only the driver knows: better now than at the first allocation.
void expect_a_piece(driver::Driver& d, int device, const driver::PhysicalOptions& wanted, std::size_t granularity) {
    driver::PhysicalHandle piece;
    const driver::Status made = d.create_physical(device, granularity, wanted, &piece);
    if (made.code == driver::Code::out_of_memory) return (void)d.take_last_error();
    rmm::detail::check(made);
    rmm::detail::check(d.release_physical(piece));
}

}  // namespace

pool::pool(device_async_resource_ref upstream, std::optional<std::size_t> initial_pool_size,
           std::optional<std::size_t> maximum_pool_size, bool ordered_upstream)
    : engine_{nullptr} {
    if (upstream.raw().resource == nullptr) rmm::detail::refuse_null_resource();
    // 0.16 wrote "default" as all ones.
    constexpr std::size_t unset = ~std::size_t{0};
    const std::size_t asked = initial_pool_size.value_or(unset);
    const std::size_t limit = maximum_pool_size.value_or(unset);
    if (asked != unset) expect_multiple("initial", asked);
    if (limit != unset) expect_multiple("maximum", limit);
    const std::size_t initial = asked != unset ? asked : std::min(default_initial_size(), limit);
    RMM_EXPECTS(
        initial <= limit,
        driver::format("Initial pool size exceeds the maximum pool size: {} bytes, and at most {}", initial, limit));
    pool_options options;
    options.initial_bytes = initial;
    options.maximum_bytes = limit;
    options.ordered_upstream = ordered_upstream && !is_known_unordered(upstream);
    // Only pinned_memory_resource, which is no device_memory_resource, comes as unordered.
    options.on_device = ordered_upstream && !is_host_memory(upstream);
    const debug_environment environment = read_debug_environment();
    auto engine = std::make_unique<pool_engine>(upstream, options);
    debugging_ = pool_debugging::make(*engine, environment).release();
    engine_ = engine.release();
}

pool::pool(device_async_resource_ref upstream, pool_options const& options) : engine_{nullptr} {
    if (upstream.raw().resource == nullptr) rmm::detail::refuse_null_resource();
    const debug_environment environment = read_debug_environment();
    pool_options known = pool_debugging::with_room(options, environment);
    known.ordered_upstream = options.ordered_upstream && !is_known_unordered(upstream);
    known.on_device = !is_host_memory(upstream);
    auto engine = std::make_unique<pool_engine>(upstream, known);
    debugging_ = pool_debugging::make(*engine, environment).release();
    engine_ = engine.release();
}

pool::pool(virtual_memory const& memory) : engine_{nullptr} {
    driver::Driver& d = rmm::detail::the_driver();
    RMM_EXPECTS(d.capabilities().virtual_memory,
                driver::format("the {} driver has no virtual memory: {}", d.name(),
                               rmm::detail::with_class_names(
                                   "a vmm_memory_resource cannot be made here; use a pool_memory_resource")));
    RMM_EXPECTS(memory.maximum_bytes > 0,
                rmm::detail::with_class_names("the maximum size of a vmm_memory_resource is 0"));
    const int device = rmm::detail::current_device();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    rmm::detail::check(d.memory_info(device, &free_bytes, &total_bytes));
    virtual_source_options options;
    options.maximum_bytes = std::min(memory.maximum_bytes, total_bytes);
    options.readers.assign(memory.readers, memory.readers + memory.num_readers);
    options.physical = {memory.export_handle_types, memory.rdma, memory.multicast};
    const bool shared = options.physical != driver::PhysicalOptions{};
    if (shared) expect_support(d, device, options.physical);
    auto source = std::make_unique<virtual_source>(d, device, options);
    rmm::detail::check(source->status());
    if (shared) expect_a_piece(d, device, options.physical, source->granularity());
    pool_options as_pool;
    as_pool.name = "vmm_memory_resource";
    as_pool.maximum_bytes = memory.maximum_bytes;
    as_pool.ordered_upstream = false;
    const debug_environment environment = read_debug_environment();
    auto engine = std::make_unique<pool_engine>(std::move(source), as_pool);
    debugging_ = pool_debugging::make(*engine, environment).release();
    engine_ = engine.release();
}

pool::~pool() {
    if (rmm::detail::lost_in_fork()) return;  // what is below cannot be reached, nor its locks be had
    delete debugging_;
    delete engine_;
}

void* pool::allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    if (rmm::detail::means_another(stream)) [[unlikely]]
        return allocate(bytes, rmm::detail::meant_stream(stream));
    if (debugging_ != nullptr) [[unlikely]]
        return debugging_->allocate_block(bytes, stream);
    return bytes == 0 ? nullptr : engine_->allocate(bytes, stream);
}

void* pool::allocate_at_hand(std::size_t bytes, cuda_stream_view stream) noexcept {
    if (rmm::detail::lost_in_fork() || rmm::detail::means_another(stream) || debugging_ != nullptr) return nullptr;
    return engine_->allocate_at_hand(bytes, stream);
}

bool pool::deallocate_at_hand(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (rmm::detail::lost_in_fork() || rmm::detail::means_another(stream) || debugging_ != nullptr) return false;
    return engine_->free_at_hand(ptr, bytes, stream);
}

void pool::deallocate_idle(void* ptr, std::size_t bytes) noexcept {
    if (rmm::detail::lost_in_fork()) return;
    if (debugging_ != nullptr) return debugging_->deallocate_block(ptr, bytes, cuda_stream_view{});
    if (ptr != nullptr) engine_->free(ptr, bytes, {});
}

void pool::deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (rmm::detail::lost_in_fork()) [[unlikely]]
        return;
    if (rmm::detail::means_another(stream)) [[unlikely]]
        return deallocate(ptr, bytes, rmm::detail::meant_stream(stream));
    if (debugging_ != nullptr) [[unlikely]]
        return debugging_->deallocate_block(ptr, bytes, stream);
    if (ptr != nullptr) engine_->free(ptr, bytes, {&stream, 1});
}

device_async_resource_ref pool::upstream() const noexcept { return engine_->upstream(); }

std::size_t pool::held_bytes() const noexcept { return engine_->held_bytes(); }

pool_statistics pool::statistics() const {
    rmm::detail::refuse_after_fork();
    return engine_->statistics();
}

std::size_t pool::trim(std::size_t keep_bytes) {
    rmm::detail::refuse_after_fork();
    return engine_->trim(keep_bytes);
}

void pool::set_release_threshold(std::size_t bytes) noexcept { engine_->set_release_threshold(bytes); }

void pool::set_name(char const* name) {
    rmm::detail::refuse_after_fork();
    engine_->set_name(name);
}

std::size_t pool::in_use_bytes(char const* tag) const {
    rmm::detail::refuse_after_fork();
    return engine_->in_use_bytes(tag);
}

mapping_counts pool::mappings() const {
    rmm::detail::refuse_after_fork();
    const virtual_source_counts c = engine_->mappings();
    return {c.create_calls, c.release_calls, c.map_calls, c.unmap_calls, c.remaps, c.moved_bytes};
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
