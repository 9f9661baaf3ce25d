#include "kmm/supply/device_memory.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "driver/check.hpp"
#include "driver/format.hpp"
#include "kmm/base/log.hpp"
#include "rmm/ledger.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/status.hpp"

namespace kmm::supply {

namespace {

constexpr std::size_t alignment = 256;

/// The device is current, and calls of rmm mean the runtime's driver; those of a program's resource mean what they
/// always do.
struct Here {
    Here(driver::Driver& driver, int ordinal, DeviceMemoryKind kind) noexcept : guard(driver, ordinal) {
        if (kind != DeviceMemoryKind::Resource) driver_scope.emplace(driver);
    }
    driver::DeviceGuard guard;
    std::optional<rmm::detail::driver_scope> driver_scope;
};

/// A program's two functions as a resource.
class GivenResource final : public rmm::mr::device_memory_resource {
  public:
    explicit GivenResource(const DeviceMemorySource& source) : source_(source) {}

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return source_.allocate(source_.resource.get(), bytes, alignment, stream.value());
    }
    void do_deallocate(void* memory, std::size_t bytes, rmm::cuda_stream_view stream) override {
        source_.deallocate(source_.resource.get(), memory, bytes, alignment, stream.value());
    }
    const DeviceMemorySource& source_;
};

}  // namespace

/// A pool that takes from its source exactly what it is asked for: the steps of a runtime are large already.
class DeviceMemory::OwnPool final : public rmm::mr::device_memory_resource {
  public:
    explicit OwnPool(const rmm::mr::detail::virtual_memory& memory) : pool_(memory), is_virtual_(true) {}
    explicit OwnPool(rmm::device_async_resource_ref upstream) : pool_(upstream, options()), is_virtual_(false) {}
    std::size_t held_bytes() const noexcept { return pool_.held_bytes(); }
    void give_back(void* memory, std::size_t bytes) noexcept { pool_.deallocate_idle(memory, bytes); }
    void trim() { (void)pool_.trim(0); }
    std::uint64_t mappings() const {
        if (!is_virtual_) return 0;
        const rmm::mr::mapping_counts counts = pool_.mappings();
        return counts.pieces_mapped + counts.pieces_unmapped;
    }

  private:
    static rmm::mr::detail::pool_options options() {
        rmm::mr::detail::pool_options options;
        options.name = "device memory of a kmm runtime";
        options.growth_bytes = alignment;
        options.ordered_upstream = false;
        return options;
    }
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return pool_.allocate(bytes, stream);
    }
    void do_deallocate(void* memory, std::size_t bytes, rmm::cuda_stream_view stream) override {
        pool_.deallocate(memory, bytes, stream);
    }

    rmm::mr::detail::pool pool_;
    const bool is_virtual_;
};

std::size_t piece_bytes(driver::Driver& driver, int ordinal, DeviceMemoryKind kind) {
    if (kind != DeviceMemoryKind::Vmm) return alignment;
    std::size_t bytes = 0;
    driver::check(driver, driver.granularity(ordinal, {}, &bytes), "ask a device in which pieces its memory is mapped");
    return std::max(bytes, alignment);
}

DeviceMemory::DeviceMemory(driver::Driver& driver, const std::vector<int>& ordinals, std::size_t device,
                           DeviceMemoryKind kind, const DeviceMemorySource* source)
    : driver_(driver),
      ordinals_(ordinals),
      ordinal_(ordinals[device]),
      kind_(kind),
      piece_bytes_(supply::piece_bytes(driver, ordinal_, kind)),
      source_(source) {}

DeviceMemory::~DeviceMemory() {
    const Here here(driver_, ordinal_, kind_);
    own_.reset();
    upstream_.reset();
    if (stream_.native != nullptr) (void)driver_.destroy_stream(stream_);
}

// At the first need: a device that is never used costs nothing.
void DeviceMemory::make() {
    if (stream_.native == nullptr)
        rmm::detail::check(driver_.create_stream(ordinal_, true, 0, &stream_));  // waits for no stream of the program's
    if (resource_) return;
    switch (kind_) {
    case DeviceMemoryKind::Automatic:
    case DeviceMemoryKind::Vmm: {
        auto pool = std::make_unique<OwnPool>(
            rmm::mr::detail::virtual_memory{~std::size_t{0}, ordinals_.data(), ordinals_.size()});
        pool_ = pool.get();
        own_ = std::move(pool);
        break;
    }
    case DeviceMemoryKind::CachingPool: {
        upstream_ = std::make_unique<rmm::mr::cuda_memory_resource>();
        auto pool = std::make_unique<OwnPool>(rmm::device_async_resource_ref{*upstream_});
        pool_ = pool.get();
        own_ = std::move(pool);
        break;
    }
    case DeviceMemoryKind::DefaultPool: {
        driver::PoolHandle pool;
        rmm::detail::check(driver_.default_pool(ordinal_, &pool));
        own_ = std::make_unique<rmm::mr::cuda_async_view_memory_resource>(static_cast<cudaMemPool_t>(pool.native));
        break;
    }
    case DeviceMemoryKind::PrivatePool:
        own_ = std::make_unique<rmm::mr::cuda_async_memory_resource>(std::size_t{0});
        break;
    case DeviceMemoryKind::NoPool: own_ = std::make_unique<rmm::mr::cuda_memory_resource>(); break;
    case DeviceMemoryKind::Resource: own_ = std::make_unique<GivenResource>(*source_); break;
    }
    resource_.emplace(*own_);
}

/// Whether the device can use the memory. With a resource of another driver, or of pageable memory, the first copy
/// would fail with a misleading error.
bool DeviceMemory::is_ours(const void* memory) noexcept {
    driver::PointerInfo info;
    if (!driver_.pointer_info(memory, &info).ok()) return false;
    return info.kind == driver::MemoryKind::device ? info.device == ordinal_
                                                   : info.kind != driver::MemoryKind::pageable;
}

void* DeviceMemory::take(std::size_t bytes) noexcept {
    const rmm::detail::transit_scope transit(ordinal_);
    const Here here(driver_, ordinal_, kind_);
    try {
        make();
        const rmm::cuda_stream_view stream{static_cast<cudaStream_t>(stream_.native)};
        void* const memory = resource_->allocate_async(bytes, alignment, stream);
        if (memory == nullptr) return nullptr;
        // Growth is rare: waiting here is simpler than ordering every lane behind this stream.
        if (!driver_.synchronize_stream(stream_).ok()) {
            resource_->deallocate_async(memory, bytes, alignment, stream);
            return nullptr;
        }
        if (source_ != nullptr && !is_ours(memory)) {
            resource_->deallocate_async(memory, bytes, alignment, stream);
            if (!warned_)
                log::write(
                    log::error,
                    driver::format("RuntimeConfig::device_resource of device {} gives memory that this device cannot "
                                   "use: give each device a resource of its own, of the driver that the runtime uses",
                                   ordinal_));
            warned_ = true;
            return nullptr;
        }
        taken_bytes_ += bytes;
        return memory;
    } catch (const std::exception& e) {
        log::write(log::debug, "a device gave no memory: ", e.what());
    } catch (...) {  // a program's resource may throw anything
    }
    (void)driver_.take_last_error();
    return nullptr;
}

void DeviceMemory::give_back(void* memory, std::size_t bytes) noexcept {
    const Here here(driver_, ordinal_, kind_);
    try {
        // Freed without stream order: the memory is unused, and must not wait for other work on the stream.
        if (pool_ != nullptr)
            pool_->give_back(memory, bytes);
        else
            resource_->deallocate_async(memory, bytes, alignment,
                                        rmm::cuda_stream_view{static_cast<cudaStream_t>(stream_.native)});
    } catch (...) {
        log::write(log::error, "RuntimeConfig::device_resource threw in deallocate");
    }
    taken_bytes_ -= bytes;
}

void* DeviceMemory::take_plain(std::size_t bytes) noexcept {
    const Here here(driver_, ordinal_, kind_);
    try {
        void* const memory = rmm::mr::cuda_memory_resource().allocate(bytes);
        plain_bytes_ += bytes;
        return memory;
    } catch (const std::exception&) {
        return nullptr;
    }
}

void DeviceMemory::give_back_plain(void* memory, std::size_t bytes) noexcept {
    const Here here(driver_, ordinal_, kind_);
    rmm::mr::cuda_memory_resource().deallocate(memory, bytes);
    plain_bytes_ -= bytes;
}

void DeviceMemory::trim() noexcept {
    const Here here(driver_, ordinal_, kind_);
    try {
        if (pool_ != nullptr) pool_->trim();
        if (kind_ != DeviceMemoryKind::PrivatePool || !own_) return;
        // Memory freed on the stream can be trimmed once the stream has passed that point.
        auto& pool = static_cast<rmm::mr::cuda_async_memory_resource&>(*own_);
        rmm::detail::check(driver_.synchronize_stream(stream_));
        rmm::detail::check(driver_.trim_pool({pool.pool_handle()}, 0));
    } catch (const std::exception& e) {
        log::write(log::warn, "memory could not be given back to the driver: ", e.what());
    }
}

std::size_t DeviceMemory::held_bytes() const noexcept {
    return (pool_ != nullptr ? pool_->held_bytes() : taken_bytes_) + plain_bytes_;
}

std::uint64_t DeviceMemory::mappings() const noexcept {
    try {
        return pool_ != nullptr ? pool_->mappings() : 0;
    } catch (...) {
        return 0;  // asked by reports only
    }
}

}  // namespace kmm::supply
