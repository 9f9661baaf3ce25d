// What RMM_DEBUG says. Owns: its syntax. Must not know: pools. Any thread.
#pragma once

#include <string_view>

#include "rmm/mr/detail/debug_adaptor.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct debug_environment {
    bool enabled = false;  ///< pools check their blocks
    bool nvtx = false;     ///< and tell tools of them
    debug_options options;
};

/// `0` or nothing: off. `1`: red zones, patterns, quarantine, leaks. Else a list, separated by commas, of what to do:
/// `redzones[=SIZE]`, `fill`, `quarantine[=SIZE]`, `leaks`, `stacks`, `sync`, `nvtx`, and `1` for the four of them.
/// Throws rmm::logic_error, with this list, for any other word.
debug_environment parse_debug_environment(std::string_view text);

/// RMM_DEBUG, now.
debug_environment read_debug_environment();

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
