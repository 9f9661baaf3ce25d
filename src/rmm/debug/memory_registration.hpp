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

/// One pool's memory in the eyes of a tool. Its end takes back what it has told.
class memory_registration {
  public:
    virtual ~memory_registration() = default;
    memory_registration(const memory_registration&) = delete;
    memory_registration& operator=(const memory_registration&) = delete;

    /// Memory from upstream: nobody may touch it but for the blocks that are given out.
    /// `*behind`, if it is not null: the stream on which upstream may still work on it.
    virtual void add_region(void* base, std::size_t bytes, const cuda_stream_view* behind) noexcept = 0;
    /// Goes back upstream: it is as if the pool had never had it. For virtual memory any part of what was added.
    virtual void remove_region(void* base, std::size_t bytes) noexcept = 0;
    /// From now on the block may be used. Called before any work on it is queued.
    virtual void give(void* block, std::size_t bytes) noexcept = 0;
    /// No longer, once what is queued on `stream` is done. Ignores what is not in use.
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

/// Work on it is recorded, not done: nothing may be asked of it.
bool is_being_captured(driver::Driver& driver, cuda_stream_view stream) noexcept;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
