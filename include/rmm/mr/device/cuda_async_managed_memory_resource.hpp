// The place of <rmm/mr/cuda_async_managed_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/cuda_async_managed_memory_resource.hpp>
