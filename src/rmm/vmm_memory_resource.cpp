// Implements the compiled part of <rmm/mr/vmm_memory_resource.hpp>. Any thread.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"
#include "rmm/debug/pool_debugging.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace {

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

mapping_counts pool::mappings() const {
    rmm::detail::refuse_after_fork();
    const virtual_source_counts c = engine_->mappings();
    return {c.create_calls, c.release_calls, c.map_calls, c.unmap_calls, c.remaps, c.moved_bytes};
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
