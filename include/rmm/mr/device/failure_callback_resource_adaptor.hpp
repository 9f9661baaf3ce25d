// The place of <rmm/mr/failure_callback_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/failure_callback_resource_adaptor.hpp>
