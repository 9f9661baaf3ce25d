// Whoever can free memory when somebody else has none left says so here.
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
    /// how many bytes it freed (0: nothing, so that others are asked).
    ///
    /// - Free in stream order: deallocate with `stream`, the stream of the allocation, if what is freed is ready for
    ///   it, or with the stream that used it last. Need not, and should not, wait for the device.
    /// - Called on the allocating thread, with that device current, possibly by several threads at a time, with no lock
    ///   of this library held. Must not wait for another thread that allocates.
    /// - May allocate; that allocation asks nobody.
    virtual std::size_t reclaim(std::size_t bytes, cuda_stream_view stream) noexcept = 0;
};

/// For its lifetime, the reclaimer is asked whenever an allocation on the device is short of memory, by a resource of
/// this library: one for which the driver has no more, a pool at its maximum or that upstream refuses, a limiting
/// adaptor at its limit. Idle memory of other pools is given back first (where the driver has no more); then reclaimers
/// are asked, the lowest `priority` first, and in the order of registration where that is equal. The allocation is
/// tried again after each that freed something, and fails when nobody has freed anything since everybody was asked
/// last, or after ten seconds. Nobody is asked for more than a device that is full has in all. An allocation of a pool
/// on a stream that is being captured asks nobody. Runtimes of kmm are reclaimers of their devices with priority 100.
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
