// What residency requests: transfers, memory, and notifications of tasks.
//
// Must not know: how requests are served. Called under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/memory/chunk.hpp"
#include "kmm/memory/space_requests.hpp"
#include "kmm/memory/transfer.hpp"

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
    /// Carries it out after `waits`, on a lane of the callee's choice; returns its fence. Chunk::copied_at of the chunk
    /// that it fills was set for it: by that tick a failure names it. Keeps nothing that the transfer points to.
    virtual Fence transfer(const Transfer& transfer, const FenceSet& waits) = 0;
    /// A task that is not settled, by its number; null: there is none.
    virtual const graph::Task* find(graph::TaskNumber number) noexcept = 0;
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
