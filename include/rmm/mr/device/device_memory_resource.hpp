// The place of <rmm/mr/device_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/device_memory_resource.hpp>
