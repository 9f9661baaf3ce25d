// Telling tools that watch memory which parts of a pool are in use.
//
// Owns: the interface, and which tool is there. Must not know: pools, patterns. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "driver/driver.hpp"
#include "rmm/cuda_stream_view.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

namespace driver = ::kmm::driver;

/// Tells a tool about the memory of one pool. Its destructor withdraws everything.
class memory_registration {
  public:
    virtual ~memory_registration() = default;
    memory_registration(const memory_registration&) = delete;
    memory_registration& operator=(const memory_registration&) = delete;

    /// Memory from upstream: only the blocks given out in it may be accessed.
    /// `*behind`, if it is not null: the stream on which upstream may still work on it.
    virtual void add_region(void* base, std::size_t bytes, const cuda_stream_view* behind) noexcept = 0;
    /// The memory goes back upstream: the tool forgets it. For virtual memory any part of an added region.
    virtual void remove_region(void* base, std::size_t bytes) noexcept = 0;
    /// From now on the block may be used. Called before any work on it is queued.
    virtual void give(void* block, std::size_t bytes) noexcept = 0;
    /// The block is freed behind the work queued on `stream`. Ignores a block that is not in use.
    virtual void take(void* block, std::size_t bytes, cuda_stream_view stream) noexcept = 0;

  protected:
    memory_registration() = default;
};

/// What watches pools: AddressSanitizer, if the library was built with it, on the host driver; NVTX on the cuda driver,
/// if it is in this build and `nvtx` asks for it; else null. NVTX knows no memory that is mapped (`is_virtual`).
std::unique_ptr<memory_registration> make_memory_registration(driver::Driver& driver, bool nvtx, bool is_virtual);

/// What make_memory_registration chooses from; null where this build has not the tool.
std::unique_ptr<memory_registration> make_asan_registration(driver::Driver& driver);
std::unique_ptr<memory_registration> make_nvtx_registration(driver::Driver& driver);

/// Whether work on the stream is recorded into a graph instead of executed: it must not be queried.
bool is_being_captured(driver::Driver& driver, cuda_stream_view stream) noexcept;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
