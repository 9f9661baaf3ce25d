// How many small chunks a task of the library's own copies or fills where an array has very many.
#pragma once

#include <cstddef>

namespace kmm::detail {

// Arrays of at least this many chunks have several small ones in one task, up to both limits below. Smaller tasks cost
// more than their copy; larger ones balance badly over threads and start late.
inline constexpr std::size_t fewest_chunks_for_groups = 512;
inline constexpr std::size_t most_parts = 64;
inline constexpr std::size_t most_group_bytes = std::size_t{256} << 10;
// All chunks of a task that writes them are in its memory at once. The share is small, so that they nearly always fit
// where one chunk at a time would.
inline constexpr std::size_t group_share_of_limit = 256;

}  // namespace kmm::detail
