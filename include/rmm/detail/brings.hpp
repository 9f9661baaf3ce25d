// What the resource headers of RMM 25.10 bring beside their own classes, because programs lean on it. Each public
// resource header of that interface includes this one, as its last line, but for those on which the headers named here
// are built: they would come in a circle. Nothing in rmm/mr/detail/ may, nor what is included there
// (scripts/check_includes.py).
#pragma once

#include <algorithm>
#include <limits>

#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/detail/runtime_capabilities.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/prefetch.hpp>
#include <rmm/resource_ref.hpp>

// Dear to compile: left out of light units.
#ifdef RMM_WITH_CCCL
#include <functional>
#include <mutex>
#include <ostream>
#include <sstream>

#include <rmm/logger.hpp>
#endif
