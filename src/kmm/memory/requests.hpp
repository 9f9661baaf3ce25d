// What residency requests: copies, memory, and notifications of tasks.
//
// Must not know: how requests are served. Called under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/memory/chunk.hpp"
#include "kmm/memory/space_requests.hpp"

namespace kmm::memory {

/// Device memory that the driver must still give before a task fits.
struct Lacking {
    std::size_t bytes = 0;  ///< as one region, into which the largest of its chunks fits
    /// Lower bound: with this much more, all free memory can be exchanged for one region that is large enough.
    std::size_t least_bytes = 0;
};

/// What residency needs from the layers that issue work.
class Requests : public SpaceRequests {
  public:
    /// Copies a whole chunk after `waits`, on a lane of the callee's choice; returns the copy's fence. `task`: the task
    /// that the copy is for, null for an eviction.
    virtual Fence copy(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                       std::uintptr_t destination, const FenceSet& waits, graph::Task* task) = 0;
    /// Copies the parts of a region into a temporary in the task's memory after `waits`: MovedBoxes(task, across), each
    /// between the replicas that `address_of` finds of its two uses (places.hpp).
    virtual Fence gather(graph::Task& task, const graph::Across& across, const FenceSet& waits) = 0;
    /// Copies the parts of the chunk that these tasks read across chunks, each to its place in the destination, after
    /// `waits`. Adds what it copies to `*bytes`.
    virtual Fence copy_parts(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                             std::uintptr_t destination, const FenceSet& waits,
                             const graph::Vector<graph::TaskNumber>& readers, std::size_t* bytes) = 0;
    /// Copies one part of the chunk to its place in the destination, after `waits`, for the task that has the box.
    virtual Fence copy_part(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                            std::uintptr_t destination, const FenceSet& waits, graph::Task& task,
                            const graph::BoxTransfer& part) = 0;
    /// Moves content in the host's memory, before this returns; both places may overlap. Without real memory behind the
    /// addresses there is nothing to do.
    virtual void move_on_host(std::uintptr_t, std::uintptr_t, std::size_t) {}
    /// Whether `to` can read `from` without going through the host.
    virtual bool linked(MemoryIndex from, MemoryIndex to) const noexcept = 0;
    /// The missing bytes of this ready task may have changed.
    virtual void residency_changed(graph::Task& task) = 0;
    /// A task that waited for this chunk may try again.
    virtual void unblocked(graph::Task& task) = 0;

  protected:
    ~Requests() = default;
};

}  // namespace kmm::memory
