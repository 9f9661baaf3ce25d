// The place of <rmm/mr/binning_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/binning_memory_resource.hpp>
