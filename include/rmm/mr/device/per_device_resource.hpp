// The place of <rmm/mr/per_device_resource.hpp> up to 25.10.
#pragma once

#include <rmm/mr/per_device_resource.hpp>
