// The place of <rmm/mr/arena_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/arena_memory_resource.hpp>
