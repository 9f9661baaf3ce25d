// Lets `thrust::` resolve inside `rmm` where Thrust is wrapped into another namespace. Knows nothing else.
#pragma once

#ifdef THRUST_WRAPPED_NAMESPACE
namespace THRUST_WRAPPED_NAMESPACE {}
namespace rmm {
using namespace THRUST_WRAPPED_NAMESPACE;
}  // namespace rmm
#endif
