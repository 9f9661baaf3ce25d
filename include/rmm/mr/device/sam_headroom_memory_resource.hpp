// The place of <rmm/mr/sam_headroom_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/sam_headroom_memory_resource.hpp>
