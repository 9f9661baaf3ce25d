// The name under which 23.12 had available_device_memory.
#pragma once

#include <rmm/cuda_device.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

using rmm::kmm_v0::available_device_memory;

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
