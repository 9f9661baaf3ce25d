// The place of <rmm/mr/thrust_allocator_adaptor.hpp> up to 25.10.
#pragma once

#include <rmm/mr/thrust_allocator_adaptor.hpp>
