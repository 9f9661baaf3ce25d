// The exceptions that rmm throws. They cross shared-library borders, so they have default visibility. Copying one does
// not throw.
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// A precondition does not hold.
struct RMM_EXPORT logic_error : public std::logic_error {
    using std::logic_error::logic_error;
};

/// The driver reported a failure that is not an allocation's.
struct RMM_EXPORT cuda_error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// An allocation failed. `what()` is "std::bad_alloc: " and the message.
class RMM_EXPORT bad_alloc : public std::bad_alloc {
  public:
    bad_alloc(const char* message) : bad_alloc(std::string(message)) {}
    bad_alloc(std::string const& message);
    [[nodiscard]] const char* what() const noexcept override { return text_.what(); }

  private:
    std::runtime_error text_;  // its string is shared by copies, which therefore cannot throw
};

/// What stood in the way of an allocation.
enum class memory_limit : unsigned char {
    unknown,
    device,   ///< the driver has no more memory of the device
    host,     ///< the host has no more
    maximum,  ///< a limit that was set: of a pool, of a limiting adaptor
};

/// The figures behind an out_of_memory; bytes, or 0 (device: -1) where unknown.
struct memory_shortage {
    int device = -1;
    std::size_t requested_bytes = 0;
    std::size_t device_free_bytes = 0;
    std::size_t device_total_bytes = 0;
    std::size_t pool_bytes = 0;  ///< what the pool holds from its upstream
    std::size_t pool_in_use_bytes = 0;
    std::size_t pool_free_bytes = 0;
    std::size_t pool_largest_free_bytes = 0;  ///< the largest request that the pool could still serve
    std::size_t pool_maximum_bytes = 0;       ///< 0: none
    std::size_t pool_num_blocks = 0;          ///< in use
    std::size_t other_pools_bytes = 0;        ///< of the device, held by other resources of this process
    /// Of the device, in use and not known to this library: other processes, the driver, the program's own allocations.
    std::size_t elsewhere_bytes = 0;
    memory_limit limit = memory_limit::unknown;
    /// Which rmm::memory_tag has most of the pool; null without tags. Lives as long as the process.
    char const* largest_tag = nullptr;
    std::size_t largest_tag_bytes = 0;
};

/// Memory, or a configured limit, is known to be exhausted. `what()` is "std::bad_alloc: out_of_memory: " and the
/// message. The resource that threw it is unchanged and usable.
class RMM_EXPORT out_of_memory : public bad_alloc {
  public:
    out_of_memory(const char* message) : out_of_memory(std::string(message)) {}
    out_of_memory(std::string const& message);
    out_of_memory(std::string const& message, memory_shortage const& shortage);
    [[nodiscard]] memory_shortage const& shortage() const noexcept { return shortage_; }

  private:
    memory_shortage shortage_;
};

/// An index or position outside its range.
class RMM_EXPORT out_of_range : public std::out_of_range {
  public:
    using std::out_of_range::out_of_range;
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
