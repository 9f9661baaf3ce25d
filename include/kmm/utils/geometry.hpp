// Everything that describes boxes of indices: positions, sizes, ranges, bounds.
//
// Owns: nothing, it includes. Must not know: arrays, views, domains, which are made of these. Any thread, host and
// device.
#pragma once

#include "kmm/utils/bounds.hpp"
#include "kmm/utils/dim.hpp"
#include "kmm/utils/point.hpp"
#include "kmm/utils/range.hpp"
