// The name of 25.06 for <rmm/detail/runtime_capabilities.hpp>.
#pragma once

#include <rmm/detail/runtime_capabilities.hpp>
