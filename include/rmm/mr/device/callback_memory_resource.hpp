// The place of <rmm/mr/callback_memory_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/callback_memory_resource.hpp>
