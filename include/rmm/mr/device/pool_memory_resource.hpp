// The place of <rmm/mr/pool_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/pool_memory_resource.hpp>
