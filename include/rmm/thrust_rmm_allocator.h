// The name of 0.16 for <rmm/exec_policy.hpp> and <rmm/device_vector.hpp>. Interop only.
#pragma once

#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
