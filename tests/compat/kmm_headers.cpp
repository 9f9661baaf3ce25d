// checked_cast and checked_convert come with the header of the comparisons, as in KMM 0.3. Compiled alone.
#include "kmm/utils/checked_compare.hpp"

static_assert(kmm::checked_cast<int>(5L) == 5 && kmm::checked_convert<int>(5L) == 5);
