// The place of <rmm/mr/reclaimer.hpp>, for code that finds all resources here.
#pragma once

#include <rmm/mr/reclaimer.hpp>
