// `kmm info`: what this machine has and what KMM will use of it. Must not know the runtime. One thread.
#pragma once

namespace kmm::tools {

/// Prints versions, drivers (with the reason why one cannot be used), devices, links, limits and the variables that are
/// set. Returns the exit status: 0, or 1 if the environment asks for a driver that cannot be used.
int info();

}  // namespace kmm::tools
