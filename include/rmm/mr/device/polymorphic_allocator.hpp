// The place of <rmm/mr/polymorphic_allocator.hpp> up to 25.10.
#pragma once

#include <rmm/mr/polymorphic_allocator.hpp>
