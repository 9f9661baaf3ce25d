// Names for memory: who a block was allocated for, so that reports and out-of-memory errors can say it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// For its scope, blocks that this thread allocates from pools and from the driver are put down to `name`, until they
/// are freed, by whichever thread. Tags nest: the innermost holds. Other threads are not affected.
///
/// The name is copied and kept for good: use a few hundred names, not one for each request. (After 65000 names, all new
/// ones count as "(other tags)".) Null and "" mean untagged. Constructing takes some nanoseconds, more for the first
/// use of a name. Until a program makes its first tag, tags cost an allocation one branch; afterwards a few
/// nanoseconds.
///
/// Destroy on the thread that constructed, in reverse order. Throws std::bad_alloc for a new name without host memory.
class RMM_EXPORT memory_tag {
  public:
    explicit memory_tag(char const* name);
    ~memory_tag();
    memory_tag(memory_tag const&) = delete;
    memory_tag& operator=(memory_tag const&) = delete;

    /// The name that holds on this thread; "" if there is none. Valid for as long as the process lives.
    [[nodiscard]] static char const* current() noexcept;

  private:
    std::uint16_t before_;
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
