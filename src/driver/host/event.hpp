// An event: a name for the point in time at which it was recorded last.
//
// Owns: that record. Must not know: who waits (the streams know). Guarded by its own mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "driver/locks.hpp"

namespace kmm::driver::host {

class Stream;
struct Node;

struct Event {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;

    locks::Mutex mutex;
    bool timing KMM_GUARDED_BY(mutex) = false;
    bool recorded KMM_GUARDED_BY(mutex) = false;
    Stream* stream KMM_GUARDED_BY(mutex) = nullptr;
    std::uint64_t position KMM_GUARDED_BY(mutex) = 0;
    std::uint64_t record KMM_GUARDED_BY(mutex) = 0;        ///< counts the records
    std::uint64_t timed_record KMM_GUARDED_BY(mutex) = 0;  ///< the record that `time` belongs to
    std::chrono::steady_clock::time_point time KMM_GUARDED_BY(mutex);

    std::uint64_t capture_id KMM_GUARDED_BY(mutex) = 0;  ///< not 0: recorded into this capture, after `nodes`
    std::vector<Node*> nodes KMM_GUARDED_BY(mutex);
};

}  // namespace kmm::driver::host
