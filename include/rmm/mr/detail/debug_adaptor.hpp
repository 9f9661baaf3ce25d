// The compiled part of debug_resource_adaptor: what it looks for, and how it tells. The work is in src/rmm/debug/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/adaptor.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

enum class debug_error : std::uint8_t {
    write_before,      ///< in front of a block
    write_behind,      ///< past the end of a block
    write_after_free,  ///< into a block that was freed and was still in the quarantine
    double_free,
    wrong_size,       ///< freed with another size than it was allocated with
    unknown_pointer,  ///< freed, but never allocated here
    leak,             ///< not freed when the resource was destroyed
};

/// One thing that is wrong with a program.
struct debug_finding {
    debug_error error = debug_error::unknown_pointer;
    void const* block = nullptr;
    std::size_t block_bytes = 0;    ///< as allocated; 0 if unknown
    std::size_t given_bytes = 0;    ///< of frees: the size that was given
    std::ptrdiff_t offset = 0;      ///< of the first wrong byte from `block`; only of writes, as the next two
    unsigned char expected = 0;     ///< at this place
    unsigned char found = 0;        ///< instead
    std::size_t wrong_bytes = 0;    ///< how many are wrong in all
    cuda_stream_view allocated_on;  ///< only the handles: the streams may be gone
    cuda_stream_view freed_on;
    std::string text;  ///< all of this for people, several lines, with the stacks if they were taken
};

/// Must not throw, nor call the resource. Called on the thread that found it, without a lock.
using debug_report = void (*)(debug_finding const& finding, void* user);

struct debug_options {
    /// Guard bytes behind each block, and (rounded up to 256) in front of it. 0: none.
    std::size_t red_zone_bytes = 256;
    /// Fills new memory with 0xC5, freed memory with 0xD7: doubles of -1e28 and -1e115, invalid addresses.
    bool fill = true;
    /// Limits of the quarantine, which holds freed blocks back, filled with the pattern. Oldest blocks leave first;
    /// blocks with unfinished streams may reach twice the bytes. A block above the limit is not held back. 0: none.
    std::size_t quarantine_bytes = std::size_t{64} << 20;
    std::size_t quarantine_blocks = 4096;
    bool report_leaks = true;
    /// Remembers where each block was allocated and freed: about 3 microseconds a call.
    bool stacks = false;
    /// Checks each block inside its free: the host waits for the stream.
    bool synchronous = false;
    /// Null: one text on stderr for each finding.
    debug_report report = nullptr;
    void* report_user = nullptr;
};

/// How often each was found.
struct debug_counts {
    std::size_t write_before = 0;
    std::size_t write_behind = 0;
    std::size_t write_after_free = 0;
    std::size_t double_free = 0;
    std::size_t wrong_size = 0;
    std::size_t unknown_pointer = 0;
    std::size_t leaks = 0;
    [[nodiscard]] std::size_t total() const noexcept {
        return write_before + write_behind + write_after_free + double_free + wrong_size + unknown_pointer + leaks;
    }
};

namespace detail {

struct debug_parts;  // src/rmm/debug/debug_adaptor.cpp

/// Contract: debug_resource_adaptor.
class RMM_EXPORT debug_adaptor : public adaptor {
  public:
    /// Looks at every block, in use or held back, and returns how much it found. Waits for the device.
    std::size_t check();
    [[nodiscard]] debug_counts counts() const;
    [[nodiscard]] std::size_t quarantined_bytes() const;
    ~debug_adaptor() override;
    debug_adaptor(debug_adaptor const&) = delete;
    debug_adaptor& operator=(debug_adaptor const&) = delete;

  protected:
    explicit debug_adaptor(device_async_resource_ref upstream);  // as RMM_DEBUG says
    debug_adaptor(device_async_resource_ref upstream, debug_options const& options);

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    debug_parts* parts_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
