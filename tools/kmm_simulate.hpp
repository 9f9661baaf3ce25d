// `kmm simulate`: what a program would move, and how long it would take, under several policies. Needs no device. One
// thread.
#pragma once

namespace kmm::tools {

/// Runs `kmm simulate ...`; `arguments` are the words after "simulate". Returns the exit status: 0, or 1 if the program
/// could not be read or did not end, or 2 if the words make no sense. Errors go to standard error.
int simulate(int num_arguments, char** arguments);

}  // namespace kmm::tools
