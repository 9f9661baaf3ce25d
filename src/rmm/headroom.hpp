// Computes how much of a block of pageable memory belongs on the device while a headroom stays free there.
//
// Owns: the last answer about free memory. Must not know: the driver (it is asked through a function). Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "driver/locks.hpp"
#include "rmm/aligned.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct headroom {
    /// Asking costs a driver call of microseconds, more than a small allocation does.
    static constexpr std::size_t small_below_bytes = std::size_t{2} << 20;
    /// Small blocks that share one answer, which may thus be wrong by less than 128 MiB.
    static constexpr int small_blocks_per_answer = 64;

    explicit headroom(std::size_t bytes) : headroom_bytes(bytes) {}

    /// How many of the first bytes of a block belong on the device: a multiple of 256. `free_bytes()` asks the device;
    /// what it throws passes through.
    template<typename FreeBytes>
    std::size_t bytes_on_device(std::size_t bytes, FreeBytes free_bytes) {
        kmm::locks::Lock lock(mutex);
        if (bytes >= small_below_bytes || small_blocks_left == 0) {
            const std::uint64_t seen = num_answers;
            lock.unlock();
            const std::size_t free = free_bytes();
            lock.lock();
            const std::size_t room = free > headroom_bytes ? free - headroom_bytes : 0;
            // Another answer that came meanwhile is partly used up: the smaller of both is right for both.
            room_bytes = num_answers++ == seen ? room : std::min(room, room_bytes);
            small_blocks_left = small_blocks_per_answer;
        }
        if (bytes < small_below_bytes) --small_blocks_left;
        const std::size_t on_device = align_down(std::min(room_bytes, bytes), CUDA_ALLOCATION_ALIGNMENT);
        room_bytes -= on_device;
        return on_device;
    }

    const std::size_t headroom_bytes;
    kmm::locks::Mutex mutex;
    std::size_t room_bytes KMM_GUARDED_BY(mutex) = 0;
    std::uint64_t num_answers KMM_GUARDED_BY(mutex) = 0;
    int small_blocks_left KMM_GUARDED_BY(mutex) = 0;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
