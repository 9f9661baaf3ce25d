// The place of <rmm/mr/logging_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/logging_resource_adaptor.hpp>
