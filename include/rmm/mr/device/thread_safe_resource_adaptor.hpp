// The place of <rmm/mr/thread_safe_resource_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/thread_safe_resource_adaptor.hpp>
