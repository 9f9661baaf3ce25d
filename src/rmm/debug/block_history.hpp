// The history of one block, and the texts of findings.
//
// Owns: the texts of findings. Must not know: how they are found. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/detail/stack_trace.hpp"
#include "rmm/mr/detail/debug_adaptor.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct block_history {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    cuda_stream_view allocated_on;
    cuda_stream_view freed_on;
    std::shared_ptr<const rmm::detail::stack_trace> allocated_at;  // null: not asked for
    std::shared_ptr<const rmm::detail::stack_trace> freed_at;
};

/// Whose blocks these are, for texts.
struct checked_resource {
    std::string name;           ///< "a pool_memory_resource"
    const char* to_get_stacks;  ///< how its user asks for them: "run with ..", "set .."
};
/// Of a resource whose options come from RMM_DEBUG.
inline constexpr const char* stacks_by_environment = "run with RMM_DEBUG=1,stacks in the environment";

/// Bytes that are not what they should be, in one stretch of memory.
struct wrong_bytes {
    std::size_t count = 0;
    std::size_t first = 0;  ///< its place in the stretch
    unsigned char found = 0;
    std::size_t last = 0;
    unsigned char last_found = 0;
};
wrong_bytes compare_with_pattern(const unsigned char* bytes, std::size_t size, unsigned char pattern) noexcept;

/// A write that left the bytes `wrong`; their places count from `offset` of the block.
debug_finding describe_write(debug_error error, const block_history& block, std::ptrdiff_t offset,
                             const wrong_bytes& wrong, unsigned char expected, const checked_resource& of);
/// A free with `given_bytes` on `stream`; `block` is the history of its address, as far as it is recorded.
debug_finding describe_wrong_free(debug_error error, const block_history& block, std::size_t given_bytes,
                                  cuda_stream_view stream, const checked_resource& of);
debug_finding describe_leak(const block_history& block, const checked_resource& of);

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
