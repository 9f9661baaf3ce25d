// Kept for programs that include it for BufferId. Buffers themselves are internal.
//
// Owns: nothing, it includes. Must not know: where bytes are. Any thread.
#pragma once

#include "kmm/core/identifiers.hpp"
