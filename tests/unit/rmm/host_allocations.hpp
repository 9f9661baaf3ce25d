// Lets one allocation of the host fail, in programs that are linked with host_allocations.cpp.
#pragma once

namespace rmm_test {

/// The allocation of this thread after so many more fails, once; negative: none does.
extern thread_local int allocations_left;
/// Set by the allocation that fails.
extern thread_local bool has_failed;

}  // namespace rmm_test
