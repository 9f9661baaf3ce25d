// The memory that a pool gives to a stream capture: it stays with the capture's graph, whose launches use it again
// and again.
//
// A block that is freed in the capture is reused in it, on the stream that freed it; nothing waits for an outside
// event, and no event of the capture is recorded. Free memory goes back to the pool when the graph and everything made
// of it are destroyed; blocks in use then go back when they are freed. Owns: the free memory of the capture. Must not
// know: the driver. Not thread-safe: the engine brings the lock; only the end in `capture_state` is set by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rmm/detail/cuda_types.hpp"
#include "rmm/heap/heap.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct capture_state {
    std::atomic<bool> ended{false};
};

struct capture_heap {
    struct chunk {
        std::uintptr_t address = 0;
        std::size_t size_bytes = 0;
        std::uint8_t area = 0;
    };

    explicit capture_heap(std::uint64_t capture_id) : id(capture_id), state(std::make_shared<capture_state>()) {}

    std::uint64_t id;
    std::shared_ptr<capture_state> state;
    bool released = false;
    std::size_t num_live = 0;                    // blocks in use; they may outlive the graph
    std::size_t held_bytes = 0;                  // taken from the pool, until released
    std::map<std::uintptr_t, chunk> chunks;      // what was taken from the pool
    std::map<cudaStream_t, heap::heap> free_on;  // usable on that stream, in the capture
    std::vector<heap::block> freed_elsewhere;    // not reusable before the end
    // Parts of the chunks that the pool's heaps, one for each area, expect back one by one.
    std::array<std::size_t, 2> expected{};

    /// Into how many parts the chunks are cut.
    std::size_t num_parts() const noexcept {
        std::size_t parts = num_live + freed_elsewhere.size();
        for (const auto& [stream, free] : free_on) parts += free.num_free_pieces();
        return parts;
    }

    /// Of the chunk that an address lies in.
    std::uint8_t area_at(std::uintptr_t address) const { return std::prev(chunks.upper_bound(address))->second.area; }
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
