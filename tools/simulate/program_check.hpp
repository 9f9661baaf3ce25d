// Whether what a record says can be played.
//
// Owns: that question. Must not know: how it is played. One thread.
#pragma once

#include <string>

#include "simulate/program.hpp"

namespace kmm::simulate {

/// Throws InvalidArgument, which names the record and what in it is wrong, where `play` could not be trusted with the
/// program: lanes, arrays, tasks or regions that no runtime would have written. `name` is the record's.
/// O(lines x log lines).
void check(const Program& program, const std::string& name);

}  // namespace kmm::simulate
