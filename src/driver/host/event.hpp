// An event: a name for the point in time at which it was recorded last.
//
// Owns: that record. Must not know: who waits (the streams know). Guarded by its own mutex.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace kmm::driver::host {

class Stream;
struct Node;

struct Event {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;

    std::mutex mutex;
    bool timing = false;
    bool recorded = false;
    Stream* stream = nullptr;
    std::uint64_t position = 0;
    std::uint64_t record = 0;        ///< counts the records
    std::uint64_t timed_record = 0;  ///< the record that `time` belongs to
    std::chrono::steady_clock::time_point time;

    std::uint64_t capture_id = 0;  ///< not 0: recorded into this capture, after `nodes`
    std::vector<Node*> nodes;
};

}  // namespace kmm::driver::host
