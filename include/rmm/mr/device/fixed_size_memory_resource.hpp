// The place of <rmm/mr/fixed_size_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/fixed_size_memory_resource.hpp>
