// Reclaims memory for an allocation that is short of it: calls other holders and reclaimers.
//
// Owns: the registered reclaimers, each of a device of `the_driver()`; the scopes of each thread that forbid calls.
// Must not know: the allocating resources. Any thread. Holders and reclaimers are called without a lock; so the caller
// must hold no lock either, nor any mark for which others wait.
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

/// While a pool calls its upstream: a shortage there reclaims nothing (the pool does so itself, once it knows the least
/// that it needs and holds nothing up), and blocks of upstream have the tag `of_a_pool`.
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

/// Requests of this thread during this scope are optional: no callback of the program makes room for them.
class optional_request {
  public:
    optional_request() noexcept;
    ~optional_request();
    optional_request(const optional_request&) = delete;
    optional_request& operator=(const optional_request&) = delete;
};

/// Allocations of this thread call no reclaimer during this scope, but reclaim unused memory of pools. Nests.
class no_reclaimers_scope {
  public:
    no_reclaimers_scope() noexcept;
    ~no_reclaimers_scope();
    no_reclaimers_scope(const no_reclaimers_scope&) = delete;
    no_reclaimers_scope& operator=(const no_reclaimers_scope&) = delete;
};

/// The search that calls a reclaimer, for reclaimers of this library.
struct reclaim_search {
    /// The driver has no more memory. Else a resource has reached a limit of its own, and memory given back to the
    /// driver does not help.
    bool device_is_full = false;
    memory_holder* asker = nullptr;  ///< the resource that is short; null: one that is no holder
    int round = 0;                   ///< number of complete rounds before this one
    std::chrono::steady_clock::time_point deadline;
};
/// Of the innermost call of `reclaim` on this thread; null outside of any.
const reclaim_search* current_search() noexcept;

/// The search of one allocation for memory. Each round calls every holder and reclaimer once. Rounds are repeated while
/// they free something, up to a limit and to the timeout `patience`. A request larger than the total memory of a full
/// device reclaims nothing.
class reclaim_rounds {
  public:
    /// `asker`: the holder that is short, which is not called; null: none.
    reclaim_rounds(int device, std::size_t bytes, cuda_stream_view stream, memory_holder* asker) noexcept
        : device_(device), bytes_(bytes), stream_(stream), asker_(asker) {}

    /// Continues the search until something was freed. True: retry the allocation. False: the search has failed.
    /// `device_is_full`: the driver has no more, so that unused memory of other pools helps.
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
    // The reclaimer called last in this round: its place in the order of calls.
    int priority_ = 0;
    std::uint64_t number_ = 0;
    bool asked_reclaimers_ = false;
    bool freed_ = false;  // in this round
    int round_ = 0;
    std::optional<std::chrono::steady_clock::time_point> deadline_;
};

/// Allocates by `call(void** out)`, a call of the driver; reclaims if the driver is out of memory, and throws (with
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
