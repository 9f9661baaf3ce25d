// Which memory each chunk of a grid is at home in, by a rule where there is one.
//
// Owns: the rule. Pure, immutable after construction, any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kmm/core/identifiers.hpp"

namespace kmm::plan {

class ChunkHomes {
  public:
    ChunkHomes() = default;
    /// Dealt round: chunk i is at home in memory (i / run) mod n of the n that are given, of which there is one at
    /// least.
    static ChunkHomes dealt(std::vector<MemoryId> memories, std::size_t run = 1) {
        ChunkHomes homes;
        homes.memories_ = std::move(memories);
        homes.run_ = run;
        return homes;
    }
    /// One for each chunk. Where they are dealt round, or few runs of one memory follow each other, the rule is kept
    /// instead of the list. O(list).
    static ChunkHomes of_list(std::vector<MemoryId> list);

    /// O(1); where runs of different lengths are kept, O(log(runs)).
    MemoryId of(std::size_t chunk) const noexcept {
        if (memories_.size() == 1) return memories_.front();
        if (ends_.empty()) return memories_[chunk / run_ % memories_.size()];
        const auto run = std::upper_bound(ends_.begin(), ends_.end(), chunk) - ends_.begin();
        return memories_[static_cast<std::size_t>(run)];
    }
    /// Every home is among these.
    const std::vector<MemoryId>& memories() const noexcept { return memories_; }

  private:
    static bool find_runs(const std::vector<MemoryId>& list, std::size_t most, ChunkHomes& homes);
    static bool find_deal(const std::vector<MemoryId>& list, ChunkHomes& homes);

    std::vector<MemoryId> memories_{MemoryId::host()};
    std::size_t run_ = 1;
    std::vector<std::size_t> ends_;  ///< of the run of each memory; empty: they are dealt round
};

}  // namespace kmm::plan
