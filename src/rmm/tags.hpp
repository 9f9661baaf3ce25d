// The numbers behind <rmm/memory_tag.hpp>.
//
// Owns: the table of names, which only grows; each thread's current number. Must not know: who counts by tag. Any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

using tag_number = std::uint16_t;
constexpr tag_number untagged = 0;
/// Of blocks that a pool took from its upstream: what is in them is counted there.
constexpr tag_number of_a_pool = 1;

/// Whether the program has ever made a tag.
extern std::atomic<bool> tags_in_use;
extern constinit thread_local tag_number tag_of_thread;

/// What a block that is handed out now is put down to.
inline tag_number current_tag() noexcept {
    if (!tags_in_use.load(std::memory_order_relaxed)) [[likely]]
        return untagged;
    return tag_of_thread;
}

/// The same name has the same number. Throws std::bad_alloc.
tag_number number_of_tag(const char* name);
/// `untagged` for a name that was never used.
tag_number find_tag(const char* name) noexcept;
/// Lives as long as the process.
const char* name_of_tag(tag_number tag) noexcept;

/// What is in use, by tag.
struct tag_sum {
    std::size_t bytes = 0;
    std::size_t num_blocks = 0;
};
using tag_sums = std::vector<tag_sum>;

inline void add_to(tag_sums* sums, tag_number tag, std::size_t bytes) {
    if (sums->size() <= tag) sums->resize(std::size_t{tag} + 1);
    (*sums)[tag].bytes += bytes;
    ++(*sums)[tag].num_blocks;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
