// Devices: which there are, which is current, how much memory is free. Owns nothing; asks the process's driver.
// "Current" is per thread, as the driver has it. Any thread.
#pragma once

#include <cstddef>
#include <utility>

#include <rmm/aligned.hpp>  // users lean on it
#include <rmm/detail/cuda_types.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

struct cuda_device_id;
/// The device that is current on this thread; -1 if the driver cannot say. Does not throw.
cuda_device_id get_current_cuda_device();

/// The number of a device, as a type of its own.
struct cuda_device_id {
    using value_type = int;

    /// The current device.
    cuda_device_id() noexcept : cuda_device_id(get_current_cuda_device()) {}
    explicit constexpr cuda_device_id(value_type dev_id) noexcept : id_{dev_id} {}

    [[nodiscard]] constexpr value_type value() const noexcept { return id_; }

    friend constexpr bool operator==(cuda_device_id const& a, cuda_device_id const& b) noexcept {
        return a.id_ == b.id_;
    }
    friend constexpr bool operator!=(cuda_device_id const& a, cuda_device_id const& b) noexcept {
        return a.id_ != b.id_;
    }

  private:
    value_type id_;
};

/// How many devices the process's driver has; -1 if it cannot say. Does not throw.
int get_num_cuda_devices();

/// {free, total} bytes of the current device. Throws rmm::cuda_error.
std::pair<std::size_t, std::size_t> available_device_memory();

/// `percent` of the free bytes of the current device, rounded down to a multiple of 256. Throws rmm::cuda_error.
std::size_t percent_of_free_device_memory(int percent);

/// Makes a device current for a scope. A negative number, or the current device, changes nothing.
struct cuda_set_device_raii {
    explicit cuda_set_device_raii(cuda_device_id dev_id);
    ~cuda_set_device_raii() noexcept;
    cuda_set_device_raii(cuda_set_device_raii const&) = delete;
    cuda_set_device_raii& operator=(cuda_set_device_raii const&) = delete;
    cuda_set_device_raii(cuda_set_device_raii&&) = delete;
    cuda_set_device_raii& operator=(cuda_set_device_raii&&) = delete;

  private:
    cuda_device_id old_device_;
    bool needs_reset_;
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
