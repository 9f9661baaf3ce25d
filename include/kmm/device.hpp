// What a kernel needs of the library: views, ranges, points, boxes, checked arithmetic and assertions, and in plain C++
// files CUDA's kernel language. No part of it is for the host alone.
//
// For files that have kernels and nothing else, and for texts that are compiled while the program runs: NVRTC takes it
// with the include path of the library and no other option, since it needs no standard header there. C++17.
#pragma once

#include "kmm/core/view.hpp"
#include "kmm/emulation.hpp"
#include "kmm/utils/checked_compare.hpp"
#include "kmm/utils/checked_math.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/integer_fun.hpp"
#include "kmm/utils/key_value.hpp"
#include "kmm/utils/macros.hpp"
#include "kmm/utils/panic.hpp"
