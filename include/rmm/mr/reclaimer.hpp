// Reclaimers: callbacks that free memory when an allocation is short of it.
#pragma once

#include <cstddef>

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Owner of memory that others may need more urgently: a cache, a spiller.
class RMM_EXPORT reclaimer {
  public:
    virtual ~reclaimer();
    /// An allocation on the device of the registration is short of `bytes`. Frees about as much, if it can, and returns
    /// the number of freed bytes (0: nothing; the next reclaimer is called).
    ///
    /// - Free in stream order: deallocate with `stream`, the stream of the allocation, if the freed memory is ready for
    ///   it, or with the stream that used it last. Need not, and should not, wait for the device.
    /// - Called on the allocating thread, with that device current, possibly by several threads at a time, with no lock
    ///   of this library held. Must not wait for another thread that allocates.
    /// - May allocate; such an allocation calls no reclaimer and no other pool.
    virtual std::size_t reclaim(std::size_t bytes, cuda_stream_view stream) noexcept = 0;
};

/// For its lifetime, the reclaimer is called whenever a resource of this library is short of memory on the device: the
/// driver has no more, a pool is at its maximum or refused by upstream, a limiting adaptor is at its limit. If the
/// driver has no more, idle memory of other pools is given back first. Then reclaimers are called, the lowest
/// `priority` first, equal ones in the order of registration. The allocation is retried after each step that freed
/// something. It fails after a round that freed nothing, after 64 rounds, or after ten seconds. Two allocations reclaim
/// nothing: one larger than the total memory of a full device, and one of a pool on a stream that is being captured.
/// Runtimes of kmm are reclaimers of their devices with priority 100.
class RMM_EXPORT reclaimer_registration {
  public:
    /// The reclaimer must outlive the registration. Throws std::bad_alloc.
    reclaimer_registration(cuda_device_id device, int priority, reclaimer& who);
    /// Afterwards `reclaim` is not called any more. Waits until no call of it runs on another thread: hold no lock that
    /// `reclaim` takes.
    ~reclaimer_registration();
    reclaimer_registration(reclaimer_registration const&) = delete;
    reclaimer_registration& operator=(reclaimer_registration const&) = delete;

    struct entry;

  private:
    entry* entry_;
};

/// Allocations of this thread ask no reclaimer and no other pool during this scope: they fail at once. For threads that
/// reclaim for others, or handle the shortage themselves. Nests.
class RMM_EXPORT no_reclaim_scope {
  public:
    no_reclaim_scope() noexcept;
    ~no_reclaim_scope();
    no_reclaim_scope(no_reclaim_scope const&) = delete;
    no_reclaim_scope& operator=(no_reclaim_scope const&) = delete;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
