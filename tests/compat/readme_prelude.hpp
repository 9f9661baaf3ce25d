// Included before readme_calls.cu by the compiler's command line: only what that program leaves out.
#pragma once

#include <cstdint>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

// A macro: it needs the `rt` of the place where it is used.
#define initialize_inputs(first, second)                                                                         \
    rt.parallel_submit(n, chunk_size,                                                                            \
                       kmm::Host([](kmm::Range<int64_t> r, kmm::SubviewMut<float> a, kmm::SubviewMut<float> b) { \
                           for (int64_t i = r.begin; i < r.end; i++) a[i] = float(i % 512), b[i] = float(i % 7); \
                       }),                                                                                       \
                       _x, write(first[_x]), write(second[_x]))
