// nvtx_ranges.hpp in builds without NVTX: nothing. Elsewhere cuda/nvtx_ranges.cpp implements it. Any thread.
#include "driver/nvtx_ranges.hpp"

#ifndef KMM_HAVE_NVTX_RANGES
namespace kmm::driver::nvtx {

bool has_ranges() noexcept { return false; }
void push_range(const char*) noexcept {}
void pop_range() noexcept {}

}  // namespace kmm::driver::nvtx
#endif
