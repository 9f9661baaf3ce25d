// NVTX ranges: profilers show what a thread does by name.
//
// Owns: nothing; forwards. Must not know: what the names mean. Any thread; a range is the calling thread's. Header-only
// NVTX: where no tool listens, a call is a test of a pointer.
#pragma once

namespace kmm::driver::nvtx {

/// Whether this build has it (cuda builds whose toolkit has nvtx3/nvToolsExt.h). Else nothing below may be called.
bool has_ranges() noexcept;

/// Begins a range inside those that the thread has begun. The name is copied.
void push_range(const char* name) noexcept;
/// Ends the range that the thread began last.
void pop_range() noexcept;

}  // namespace kmm::driver::nvtx
