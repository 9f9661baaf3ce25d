// Boxes of one and two axes for tests of graph and plan. Owns: nothing.
#pragma once

#include <cstdint>

#include "kmm/boxes/box.hpp"

namespace kmm_test {

inline kmm::boxes::Box line(std::int64_t begin, std::int64_t end) {
    kmm::boxes::Box b;
    b.begin[0] = begin;
    b.end[0] = end;
    return b;
}
inline kmm::boxes::Box box(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) {
    kmm::boxes::Box b = line(r0, r1);
    b.begin[1] = c0;
    b.end[1] = c1;
    return b;
}

}  // namespace kmm_test
