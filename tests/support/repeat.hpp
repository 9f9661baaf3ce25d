// How often a test repeats itself where KMM_TEST_SHORT=1 asks for less. Nothing of the library may be included here.
#pragma once

#include <cstdlib>
#include <string_view>

/// Read when the program starts: tests of the configuration take the variables of the process away.
inline const bool asked_for_short_run = [] {
    const char* const value = std::getenv("KMM_TEST_SHORT");
    return value != nullptr && std::string_view(value) == "1";
}();
inline bool short_run() { return asked_for_short_run; }

/// `full`, or `reduced` where the run is to be short: sanitizers make everything ten times slower.
inline int repeat(int full, int reduced) { return short_run() ? reduced : full; }
