// What a space (space.hpp) asks of the layers that reach a driver.
//
// Must not know: how requests are served. Called under the scheduler's baton.
#pragma once

#include <cstddef>

#include "kmm/base/memory_index.hpp"
#include "kmm/graph/position.hpp"

namespace kmm::memory {

class SpaceRequests {
  public:
    /// Asks for at least `bytes` more memory; answered later by `Space::grown`.
    virtual void grow(MemoryIndex memory, std::size_t bytes) = 0;
    /// Asks for at least `bytes` in one piece, in exchange for memory that is wholly free (`take_back`): enough is
    /// free, but in pieces that cannot be used as one. Answered by `Space::grown`. False: not supported.
    virtual bool exchange(MemoryIndex, std::size_t) { return false; }
    /// Whether the retry interval since the driver's refusal has passed.
    virtual bool may_ask_again(MemoryIndex) noexcept { return false; }
    virtual bool passed(graph::Fence fence) const noexcept = 0;

  protected:
    ~SpaceRequests() = default;
};

}  // namespace kmm::memory
