// Boxes of one and two axes for tests of graph and plan. Owns: nothing.
#pragma once

#include <cstdint>

#include "kmm/graph/box.hpp"

namespace kmm_test {

inline kmm::graph::Box line(std::int64_t begin, std::int64_t end) {
    kmm::graph::Box b;
    b.begin[0] = begin;
    b.end[0] = end;
    return b;
}
inline kmm::graph::Box box(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    kmm::graph::Box b = line(r0, r1);
    b.begin[1] = c0;
    b.end[1] = c1;
    return b;
}

}  // namespace kmm_test
