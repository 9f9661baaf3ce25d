// Kept for programs that include it for BufferId. Buffers themselves are internal.
#pragma once

#include "kmm/core/identifiers.hpp"
