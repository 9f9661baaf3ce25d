// The parts of replicas that are much in use.
//
// Owns: the parts. Must not know: what a fence is of, chunks. Belongs to whoever holds the scheduler's baton.
//
// A part goes back when tasks write the replica anew, when it leaves, and when what is left of its fences has room in
// the record. Nobody tells when a fence has passed; so whoever makes a part looks at the two that were looked at
// longest ago: there are no more of them than what is under way needs.
#pragma once

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/record_slabs.hpp"
#include "kmm/memory/replica.hpp"

namespace kmm::memory {

class BusyReplicas {
  public:
    /// Of the replica, which has none yet. `passed(fence)` says which ones nobody needs any more. Takes memory of the
    /// host's reserve where the system has none; throws std::bad_alloc where that is used up too, with nothing done.
    /// O(fences of three).
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
    /// Whether the part has gone: nobody waits, and the record has room for what it has.
    bool drop_if_idle(Replica& replica) noexcept {
        BusyReplica& part = replica.busy();
        if (!part.waiting.empty() || part.num_fences() > ReplicaUsers::most_few) return false;
        drop(replica);
        return true;
    }
    /// Whatever is in it.
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
