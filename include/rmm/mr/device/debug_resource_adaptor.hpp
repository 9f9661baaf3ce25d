// Where adaptors stand in RMM up to 25.10; the class is ours: <rmm/mr/debug_resource_adaptor.hpp>.
#pragma once

#include <rmm/mr/debug_resource_adaptor.hpp>
