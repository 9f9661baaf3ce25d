// kmm plan: what one of several ranks plans of a program's submits.
#pragma once

namespace kmm::tools {

/// Prints to stdout, errors to stderr; returns the exit status. `words` are those behind "plan".
int plan(int count, char** words);

}  // namespace kmm::tools
