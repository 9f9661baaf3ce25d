// Implements the resources over the driver's stream-ordered pools. Any thread.
#include "rmm/mr/cuda_async_memory_resource.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "driver/format.hpp"
#include "rmm/class_names.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/runtime_capabilities.hpp"
#include "rmm/driver_pool.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_view_memory_resource.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

namespace driver = rmm::detail::driver;

void expect_pools() {
    RMM_EXPECTS(rmm::detail::runtime_async_alloc::is_supported(),
                rmm::detail::with_class_names(
                    "the current device has no stream-ordered memory pools; use a pool_memory_resource"));
}

void* allocate_from(cudaMemPool_t pool, rmm::detail::driver_pool& record, std::size_t bytes, cuda_stream_view stream,
                    const char* what) {
    rmm::detail::refuse_after_fork();
    if (bytes == 0) return nullptr;
    void* const ptr = rmm::detail::allocate_or_reclaim(record.device(), bytes, stream, &record, what, [&](void** out) {
        return rmm::detail::the_driver().allocate_async({pool}, bytes,
                                                        rmm::detail::handle_of(rmm::detail::meant(stream)), out);
    });
    record.note(bytes);
    return ptr;
}

void give_back(rmm::detail::driver_pool& record, void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (ptr == nullptr || rmm::detail::lost_in_fork()) return;
    record.forget(bytes);
    rmm::detail::report_failure(
        rmm::detail::the_driver().free_async(ptr, rmm::detail::handle_of(rmm::detail::meant(stream))),
        "free memory of a driver pool");
}

}  // namespace

cuda_async_view_memory_resource::cuda_async_view_memory_resource(cudaMemPool_t pool_handle) : pool_{pool_handle} {
    RMM_EXPECTS(pool_handle != nullptr, "Unexpected null pool handle.");
    expect_pools();
}

cuda_async_view_memory_resource::~cuda_async_view_memory_resource() = default;

void* cuda_async_view_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    RMM_EXPECTS(pool_ != nullptr, "Unexpected null pool handle: the view was default-constructed; give it a pool");
    rmm::detail::refuse_after_fork();
    return allocate_from(pool_, rmm::detail::record_of_pool(pool_), bytes, stream, "cuda_async_view_memory_resource");
}

void cuda_async_view_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    give_back(rmm::detail::record_of_pool(pool_), ptr, bytes, stream);
}

bool cuda_async_view_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    const auto* view = dynamic_cast<cuda_async_view_memory_resource const*>(&other);
    return view != nullptr && view->pool_ == pool_;
}

cuda_async_memory_resource::cuda_async_memory_resource(std::optional<std::size_t> initial_pool_size,
                                                       std::optional<std::size_t> release_threshold,
                                                       std::optional<allocation_handle_type> export_handle_type,
                                                       std::optional<std::size_t> maximum_pool_size) {
    expect_pools();
    const auto handle_type = static_cast<int>(export_handle_type.value_or(allocation_handle_type::none));
    RMM_EXPECTS(rmm::detail::export_handle_type::is_supported(handle_type),
                driver::format("handle type {}: Requested IPC memory handle type not supported", handle_type));
    driver::Driver& d = rmm::detail::the_driver();
    int device = -1;
    rmm::detail::check(d.current_device(&device));
    const auto [free_bytes, total_bytes] = available_device_memory();

    driver::PoolHandle handle;
    driver::PoolOptions options{.maximum_bytes = maximum_pool_size.value_or(0),
                                .export_handle_types = static_cast<std::uint32_t>(handle_type),
                                .decompression = rmm::detail::hwdecompress::is_supported()};
    driver::Status created = d.create_pool(device, options, &handle);
    if (!created.ok() && options.decompression) {
        // The driver knows such pools, the device may not.
        (void)d.take_last_error();
        options.decompression = false;
        created = d.create_pool(device, options, &handle);
    }
    rmm::detail::check(created);
    struct destroy_pool {
        driver::Driver& d;
        void operator()(cudaMemPool_t pool) const noexcept {
            rmm::detail::report_failure(d.destroy_pool({pool}), "destroy a driver pool");
        }
    };
    std::unique_ptr<CUmemPoolHandle_st, destroy_pool> pool(static_cast<cudaMemPool_t>(handle.native), destroy_pool{d});

    rmm::detail::check(d.set_pool_release_threshold(handle, release_threshold.value_or(total_bytes)));
    std::size_t initial = initial_pool_size.value_or(free_bytes / 2);
    if (!initial_pool_size && maximum_pool_size) initial = std::min(initial, *maximum_pool_size);
    auto record =
        std::make_unique<rmm::detail::driver_pool>("cuda_async_memory_resource", pool.get(), device,
                                                   maximum_pool_size.value_or(0), rmm::detail::driver_pool::ours);
    void* const primed = allocate_from(pool.get(), *record, initial, cuda_stream_view{},
                                       "the initial size of a cuda_async_memory_resource");
    give_back(*record, primed, initial, cuda_stream_view{});
    pool_ = pool.release();
    record_ = record.release();
}

cuda_async_memory_resource::~cuda_async_memory_resource() {
    if (rmm::detail::lost_in_fork()) return;
    const rmm::detail::transit_scope until_it_is_the_drivers(record_->device());
    delete record_;
    rmm::detail::report_failure(rmm::detail::the_driver().destroy_pool({pool_}), "destroy a driver pool");
}

void* cuda_async_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    return allocate_from(pool_, *record_, bytes, stream, "cuda_async_memory_resource");
}

void cuda_async_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    give_back(*record_, ptr, bytes, stream);
}

bool cuda_async_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    const auto* async = dynamic_cast<cuda_async_memory_resource const*>(&other);
    return async != nullptr && async->pool_ == pool_;
}

cuda_async_managed_memory_resource::cuda_async_managed_memory_resource() {
    RMM_EXPECTS(
        rmm::detail::runtime_async_managed_alloc::is_supported(),
        rmm::detail::with_class_names("the current device has no stream-ordered pools of managed memory, which need "
                                      "CUDA 13; use a pool_memory_resource over a managed_memory_resource"));
    driver::Driver& d = rmm::detail::the_driver();
    int device = -1;
    rmm::detail::check(d.current_device(&device));
    driver::PoolHandle handle;
    rmm::detail::check(d.default_managed_pool(device, &handle));
    pool_ = static_cast<cudaMemPool_t>(handle.native);
}

cuda_async_managed_memory_resource::~cuda_async_managed_memory_resource() = default;

void* cuda_async_managed_memory_resource::do_allocate(std::size_t bytes, cuda_stream_view stream) {
    rmm::detail::refuse_after_fork();
    return allocate_from(pool_, rmm::detail::record_of_pool(pool_, rmm::detail::driver_pool::managed), bytes, stream,
                         "cuda_async_managed_memory_resource");
}

void cuda_async_managed_memory_resource::do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
    if (rmm::detail::lost_in_fork()) return;
    give_back(rmm::detail::record_of_pool(pool_, rmm::detail::driver_pool::managed), ptr, bytes, stream);
}

bool cuda_async_managed_memory_resource::do_is_equal(device_memory_resource const& other) const noexcept {
    const auto* managed = dynamic_cast<cuda_async_managed_memory_resource const*>(&other);
    return managed != nullptr && managed->pool_ == pool_;
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
