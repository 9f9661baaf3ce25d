// Finds blocks for chunks: free memory, growth, or eviction of other chunks.
//
// If tasks read only small parts of a chunk before it is replaced, only these parts are saved, in the memory below.
//
// Owns: what a search may evict, while a task is placed. Must not know: forms of regions, but that some chunks lie
// beside others. Under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kmm/memory/forms.hpp"
#include "kmm/memory/residents.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

class Blocks {
  public:
    enum class Saves : std::uint8_t { what_is_read, all };

    Blocks(Requests& requests, Residents& residents, Forms& forms) noexcept
        : requests_(requests), residents_(residents), forms_(forms) {}

    /// Until `end_search` a task is placed in `m`; `room` limits what may be evicted for it.
    void begin_search(Room room, MemoryIndex m) noexcept {
        room_ = room;
        placed_in_ = m;
    }
    void end_search() noexcept { room_ = Room::as_usual; }
    Room room() const noexcept { return room_; }
    /// Bytes of all blocks of the task, after its own chunks were evicted. 0: no exchange on a device.
    void set_exchange(std::size_t bytes) noexcept { exchange_bytes_ = bytes; }

    Found allocate(Chunk& chunk, MemoryIndex m);
    /// `all`: saves the whole chunk even if only parts of it will be read.
    Found evict(Chunk& chunk, MemoryIndex m, Saves saves);
    /// Takes whole regions out of the heap, for other users of the device's memory, until they hold `wanted_bytes` or
    /// no other region can be freed now. First free regions; then those whose chunks have no device work pending,
    /// cheapest victims first; then, unless `at_once`, the others. Chunks are evicted.
    /// O(replicas + regions * free pieces).
    Reclaimed reclaim(MemoryIndex memory, const std::vector<AddressRange>& regions, std::size_t wanted_bytes,
                      bool at_once);
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    bool exchange(Space& space, std::size_t bytes) {
        if (!space.exchange(bytes, exchange_bytes_, residents_.ticks() + 1)) return false;
        residents_.next_tick();
        return true;
    }
    Found make_room(MemoryIndex m);
    Found find_place_to_save(Chunk& chunk, MemoryIndex m, MemoryIndex* to);
    Found allocate_spare(Chunk& chunk, MemoryIndex m);
    std::size_t largest_spare_room_beside(MemoryIndex m) const noexcept;
    Fence save(Chunk& chunk, MemoryIndex m, MemoryIndex to, bool in_parts);

    Requests& requests_;
    Residents& residents_;
    Forms& forms_;
    Room room_ = Room::as_usual;
    MemoryIndex placed_in_;
    std::size_t exchange_bytes_ = 0;
    bool passed_over_held_ = false;  ///< the latest search in the memory below left out chunks of the task being placed
    // Of the transfer that is requested; they keep their memory.
    graph::Vector<const graph::Task*> part_readers_;
    Boxes boxes_;
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::memory
