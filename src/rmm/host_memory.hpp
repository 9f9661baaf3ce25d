// What the library knows of resources of host memory behind references.
#pragma once

#include "rmm/resource_ref.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// Whether memory may still be in use by its last owner, on a device, when `allocate` returns.
bool hands_out_in_stream_order(host_resource_ref const& mr) noexcept;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
