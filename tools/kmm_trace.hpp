// `kmm trace check` and `kmm trace view`. Must not know the runtime: it reads what one has written. One thread.
#pragma once

namespace kmm::tools {

/// Runs `kmm trace ...`; `arguments` are the words after "trace". Returns the exit status: 0, or 1 if the file is no
/// trace or cannot be read or written, or 2 if the words make no sense. Errors go to standard error.
int trace(int num_arguments, char** arguments);

}  // namespace kmm::tools
