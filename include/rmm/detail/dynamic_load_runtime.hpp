// The name of 23.12 for the questions of <rmm/detail/runtime_capabilities.hpp>.
#pragma once

#include <rmm/detail/runtime_capabilities.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

struct async_alloc {
    static bool is_supported() { return runtime_async_alloc::is_supported(); }
    static bool is_export_handle_type_supported(int handle_type) {
        return export_handle_type::is_supported(handle_type);
    }
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
