// Extra records (BusyReplica) of replicas with many fences or with waiting tasks.
//
// Owns: these records. Must not know: what a fence is of, chunks. Guarded by the scheduler's baton.
//
// A record is freed when tasks overwrite the replica, when it is evicted, and when its remaining fences fit into the
// replica itself. No event says that a fence has passed: each `make` therefore prunes the two records that were pruned
// longest ago, which bounds their number by the work in flight.
#pragma once

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/record_slabs.hpp"
#include "kmm/memory/replica.hpp"

namespace kmm::memory {

class BusyReplicas {
  public:
    /// Makes the record of a replica, which has none yet. `passed(fence)`: the fence can be dropped. Falls back on the
    /// host's reserve; throws std::bad_alloc if that is exhausted, with nothing done. O(fences of three records).
    template<typename P> BusyReplica& make(Replica& replica, P&& passed) {
        for (std::size_t i = 0; i < looked_at_each && first_ != nullptr; ++i) {
            BusyReplica& oldest = *first_;
            oldest.replica->prune_users(passed);
            if (drop_if_idle(*oldest.replica)) continue;
            unlink(oldest);
            link_last(oldest);
        }
        BusyReplica& part = parts_.take();
        part.replica = &replica;
        link_last(part);
        replica.become_busy(part);
        return part;
    }
    /// Frees the record if no task waits and its fences fit into the replica. Returns whether it did.
    bool drop_if_idle(Replica& replica) noexcept {
        BusyReplica& part = replica.busy();
        if (!part.waiting.empty() || part.num_fences() > ReplicaUsers::most_few) return false;
        drop(replica);
        return true;
    }
    /// Frees the record, whatever it holds.
    void drop(Replica& replica) noexcept {
        BusyReplica& part = replica.busy();
        replica.become_idle();
        unlink(part);
        parts_.give(part);
    }
    void trim() noexcept { parts_.trim(); }
    std::size_t size() const noexcept { return parts_.num_used(); }
    std::size_t size_bytes() const noexcept { return parts_.size_bytes(); }

  private:
    static constexpr std::size_t looked_at_each = 2;

    void link_last(BusyReplica& part) noexcept {
        part.next = nullptr;
        part.previous = last_;
        (last_ != nullptr ? last_->next : first_) = &part;
        last_ = &part;
    }
    void unlink(BusyReplica& part) noexcept {
        (part.previous != nullptr ? part.previous->next : first_) = part.next;
        (part.next != nullptr ? part.next->previous : last_) = part.previous;
    }

    RecordSlabs<BusyReplica, graph::HostReserve, 4096> parts_;
    BusyReplica* first_ = nullptr;
    BusyReplica* last_ = nullptr;
};

}  // namespace kmm::memory
