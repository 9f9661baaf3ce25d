// The error of a request that a pool cannot serve: its figures, who holds the memory, and what would help.
//
// Owns: the text. Must not know: the engine, where free memory is. Any thread, without a lock: `raise` asks the other
// holders of the device for their figures.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/error.hpp"
#include "rmm/ledger.hpp"
#include "rmm/pool/pool_facts.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// What the pool has and who holds it.
struct pool_account {
    std::string name;
    const rmm::detail::memory_holder* self = nullptr;  // the pool in the ledger
    pool_statistics now;                               // not where the refusal is `driver` or `too_large`
    // Only where `shortage::names_holders`.
    rmm::detail::tag_sums by_tag;
    std::vector<std::pair<cudaStream_t, std::size_t>> by_stream;
};

class shortage {
  public:
    /// Of a request for `bytes` on `stream`. `pool` and `account` must outlive the object.
    shortage(const pool_facts& pool, const pool_account& account, std::size_t bytes, cuda_stream_view stream) noexcept;

    /// Throws the exception for the cause, with the figures.
    [[noreturn]] void raise(const refusal& why);
    /// False for a request of another pool: that has figures of its own, and may only be trying how much it can get.
    static bool names_holders() noexcept { return rmm::detail::tag_of_thread != rmm::detail::of_a_pool; }

  private:
    struct neighbours;
    [[noreturn]] void raise_too_large();
    [[noreturn]] void raise_exhausted(const refusal& why);
    std::string device_line(const neighbours& others);
    std::string holders_line();
    std::string advice(const neighbours& others, bool at_maximum) const;

    const pool_facts& pool_;
    const pool_account& account_;
    const std::size_t bytes_;
    const cuda_stream_view stream_;
    memory_shortage figures_;  // of the exception
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
