// The place of <rmm/mr/tracking_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/tracking_resource_adaptor.hpp>
