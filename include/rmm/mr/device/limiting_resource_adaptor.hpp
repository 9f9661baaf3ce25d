// The place of <rmm/mr/limiting_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/limiting_resource_adaptor.hpp>
