// The place of <rmm/mr/managed_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/managed_memory_resource.hpp>
