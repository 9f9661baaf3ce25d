// What an allocation does that is short of memory: asks others to free some.
//
// Owns: the registered reclaimers, each of a device of `the_driver()`; for each thread, whom it may ask. Must not know:
// who asks. Any thread. Nobody is asked with a lock held, so whoever asks must hold none either, nor any mark for which
// others wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>

#include "rmm/cuda_stream_view.hpp"
#include "rmm/ledger.hpp"
#include "rmm/mr/reclaimer.hpp"
#include "rmm/status.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// While a pool asks its upstream: whoever is short of memory there asks nobody (the pool itself does, when it knows
/// how little would do and holds nothing up), and what it hands out is the pool's.
class upstream_call {
  public:
    upstream_call() noexcept : before_(tag_of_thread) { tag_of_thread = of_a_pool; }
    ~upstream_call() { tag_of_thread = before_; }
    upstream_call(const upstream_call&) = delete;
    upstream_call& operator=(const upstream_call&) = delete;

  private:
    const tag_number before_;
    const mr::no_reclaim_scope alone_;
};

/// What this thread asks for during this scope it can do without: no user's callback makes room for it.
class optional_request {
  public:
    optional_request() noexcept;
    ~optional_request();
    optional_request(const optional_request&) = delete;
    optional_request& operator=(const optional_request&) = delete;
};

/// Allocations of this thread ask no reclaimer during this scope, but pools for what they do not use. Nests.
class no_reclaimers_scope {
  public:
    no_reclaimers_scope() noexcept;
    ~no_reclaimers_scope();
    no_reclaimers_scope(const no_reclaimers_scope&) = delete;
    no_reclaimers_scope& operator=(const no_reclaimers_scope&) = delete;
};

/// What a reclaimer of this library may want to know of the search that calls it.
struct reclaim_search {
    /// The driver has no more. Else only some resource has reached a limit of its own, and what the driver gets back is
    /// no help.
    bool device_is_full = false;
    memory_holder* asker = nullptr;  ///< the resource that is short; null: one that is no holder
    int round = 0;                   ///< everybody has been asked so often before
    std::chrono::steady_clock::time_point deadline;
};
/// Of the innermost call of `reclaim` on this thread; null outside of any.
const reclaim_search* current_search() noexcept;

/// The search of one allocation for memory. Everybody is asked once a round; rounds go on as long as somebody frees
/// something, but not for ever, nor for longer than `patience`. Where the device is full, nobody is asked for more than
/// it has in all.
class reclaim_rounds {
  public:
    /// `asker`, if it has a holder, is not asked to give anything back.
    reclaim_rounds(int device, std::size_t bytes, cuda_stream_view stream, memory_holder* asker) noexcept
        : device_(device), bytes_(bytes), stream_(stream), asker_(asker) {}

    /// Asks until somebody has freed something: true, then the allocation is worth another try. `device_is_full`: the
    /// driver has no more, so that it helps if other pools give back what they do not use.
    bool ask(bool device_is_full) noexcept;
    static constexpr std::chrono::seconds patience{10};

  private:
    bool begin(bool device_is_full) noexcept;
    std::size_t ask_holders() noexcept;

    const int device_;
    const std::size_t bytes_;
    const cuda_stream_view stream_;
    memory_holder* const asker_;
    bool asked_holders_ = false;
    // Who was asked last in this round, in the order of asking.
    int priority_ = 0;
    std::uint64_t number_ = 0;
    bool asked_reclaimers_ = false;
    bool freed_ = false;  // in this round
    int round_ = 0;
    std::optional<std::chrono::steady_clock::time_point> deadline_;
};

/// What `call(void** out)`, a call of the driver, allocates; asks others where the driver has no more, and throws (with
/// `what` in the text) if that does not help.
template<typename F>
void* allocate_or_reclaim(int device, std::size_t bytes, cuda_stream_view stream, memory_holder* asker,
                          const char* what, F&& call, std::source_location where = std::source_location::current()) {
    void* ptr = nullptr;
    driver::Status status = call(&ptr);
    if (status.ok()) [[likely]]
        return ptr;
    reclaim_rounds others(device, bytes, stream, asker);
    while (status.code == driver::Code::out_of_memory && others.ask(true)) {
        (void)the_driver().take_last_error();
        status = call(&ptr);
        if (status.ok()) return ptr;
    }
    throw_allocation_failure(status, bytes, what, memory_place::device, where);
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
