// The place of <rmm/mr/statistics_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/statistics_resource_adaptor.hpp>
