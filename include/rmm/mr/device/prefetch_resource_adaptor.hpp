// The place of <rmm/mr/prefetch_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/prefetch_resource_adaptor.hpp>
