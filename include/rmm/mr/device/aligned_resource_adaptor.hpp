// The place of <rmm/mr/aligned_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/aligned_resource_adaptor.hpp>
