// How many blocks this program has given back to the host.
#pragma once

#include <atomic>

namespace kmm_test {

extern std::atomic<int> blocks_freed;

}  // namespace kmm_test
