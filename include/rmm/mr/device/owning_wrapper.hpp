// The place of <rmm/mr/owning_wrapper.hpp> up to 25.10.
#pragma once

#include <rmm/mr/owning_wrapper.hpp>
