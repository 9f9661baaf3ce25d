// From the driver's status codes to rmm's exceptions and messages.
//
// Owns: the texts. Must not know: resources. Any thread.
#pragma once

#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>

#include "driver/byte_size.hpp"
#include "driver/driver.hpp"
#include "driver/fork.hpp"
#include "driver/registry.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/error.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

namespace driver = ::kmm::driver;

/// The driver of the process, or of the innermost `driver_scope` of this thread. Throws rmm::logic_error where
/// KMM_DRIVER names one that cannot be used, and in the child of a fork whose parent had used a driver.
driver::Driver& the_driver();

/// In the child of a fork that left it without the driver (driver/fork.hpp): whatever allocates or queues work refuses,
/// before it takes a lock; whatever frees or ends does nothing, before it takes a lock.
inline bool lost_in_fork() noexcept { return driver::lost_in_fork(); }
[[noreturn]] void throw_lost_in_fork();
/// Throws rmm::logic_error there, which names fork and spawn.
inline void refuse_after_fork() {
    if (lost_in_fork()) [[unlikely]]
        throw_lost_in_fork();
}

/// While it lives, this thread's calls of rmm go to another driver than the process's: for a runtime that has one of
/// its own. What is made in such a scope is used and destroyed in scopes of the same driver only.
class driver_scope {
  public:
    explicit driver_scope(driver::Driver& driver) noexcept;
    ~driver_scope();
    driver_scope(const driver_scope&) = delete;
    driver_scope& operator=(const driver_scope&) = delete;

  private:
    driver::Driver* outer_;
};

inline driver::StreamHandle handle_of(cuda_stream_view stream) noexcept { return driver::StreamHandle{stream.value()}; }

/// Throws rmm::cuda_error, "<DRIVER> error at: FILE:LINE: NAME DESCRIPTION", unless ok; clears the driver's last error.
void check(driver::Status status, std::source_location where = std::source_location::current());

/// Whose memory ran out.
enum class memory_place { device, host };

/// Throws for an allocation that the driver refused: rmm::out_of_memory or rmm::bad_alloc, with the sizes.
[[noreturn]] void throw_allocation_failure(driver::Status status, std::size_t bytes, const char* what,
                                           memory_place memory = memory_place::device,
                                           std::source_location where = std::source_location::current());

/// Throws rmm::out_of_memory: the host's allocator refused `bytes` of pageable memory.
[[noreturn]] void throw_host_out_of_memory(std::size_t bytes, const char* what);

/// For destructors and deallocate, which do not throw: one line on stderr. Silent once the driver has shut down. The
/// parts of the line are written one by one, so that no memory of the host is needed.
void report_failure(driver::Status status, const char* attempted) noexcept;
void report_misuse(std::string_view text, std::string_view second = {}, std::string_view third = {},
                   std::string_view fourth = {}) noexcept;

/// The current device, or -1.
int current_device() noexcept;

/// "GPU 1 (NAME)", or "virtual device 1" on the host driver.
std::string device_name(int device);

/// "4.00 GiB (4294967296 bytes)"; `byte_size_text` gives the first half.
std::string format_size(std::size_t bytes);

/// "0x55d0c8"; "0" for null: what an ostream prints of a pointer. Messages do without the streams of the C++ library,
/// whose texts follow the locale of the program.
std::string address_text(const void* address);

/// "GPU 1" or "virtual device 1".
std::string short_device_name(int device);

/// "stream 0x55d0c8"; "the default stream" for each of its two handles, 0 and 1.
std::string stream_name(cuda_stream_view stream);

/// "0x55d0c8" or "default".
std::string short_stream_name(cuda_stream_view stream);

/// Fills the device's part of `*shortage`; false if the driver cannot say.
bool describe_device_memory(int device, memory_shortage* shortage);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
