// Who holds a memory: the arrays with most bytes there, for reports and errors.
//
// Owns: nothing. Reads residency, so runs under the baton. O(replicas of the memory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kmm/memory/residency.hpp"

namespace kmm::detail {

struct Holder {
    std::string name;
    std::size_t size_bytes = 0;  ///< that its chunks take of the memory
    std::size_t chunks = 0;
    std::size_t stale_chunks = 0;       ///< whose newest content is somewhere else
    std::uint64_t refetched_bytes = 0;  ///< of the array, fetched again into any memory after an eviction
};

struct Holders {
    std::vector<Holder> largest;  ///< five at most, the largest first
    std::size_t others = 0;       ///< arrays that are not among them
    std::size_t others_bytes = 0;
};

Holders holders_of(const memory::Residency& residency, memory::MemoryIndex m);

/// "a 2.00 GiB in 4 chunks, 1 stale | b ... | 3 more 12.00 MiB", or "none".
std::string text_of(const Holders& holders);

}  // namespace kmm::detail
