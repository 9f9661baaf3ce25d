// The place of <rmm/mr/system_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/system_memory_resource.hpp>
