// Named ranges for profilers. Owns RMM_FUNC_RANGE. Costs nothing, and includes nothing, unless RMM_NVTX is defined;
// then <nvtx3/nvtx3.hpp> must be on the include path.
#pragma once

#ifdef RMM_NVTX

#include <nvtx3/nvtx3.hpp>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// The NVTX domain of the library.
struct librmm_domain {
    static constexpr char const* name{"librmm"};
};

/// A range in that domain that ends with its scope.
using scoped_range = ::nvtx3::scoped_range_in<librmm_domain>;

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

/// A range named after the enclosing function.
#define RMM_FUNC_RANGE() NVTX3_FUNC_RANGE_IN(::rmm::librmm_domain)

#else
#define RMM_FUNC_RANGE()
#endif
