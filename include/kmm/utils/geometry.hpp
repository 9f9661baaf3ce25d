// Everything that describes boxes of indices.
#pragma once

#include "kmm/utils/bounds.hpp"
#include "kmm/utils/dim.hpp"
#include "kmm/utils/point.hpp"
#include "kmm/utils/range.hpp"
