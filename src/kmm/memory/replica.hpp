// The bytes of a chunk in one memory: their address, and the fences of their users.
//
// Owns: plain records, of which there may be as many as chunks; what few of them have at a time is in other records
// (busy_replicas.hpp, victim_order.hpp). Guarded by the scheduler's baton.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kmm/base/memory_index.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/placement.hpp"

namespace kmm::memory {

using graph::Fence;
using graph::FenceSet;

struct Chunk;
struct Ghosts;
struct Replica;
struct Victim;

/// What the work behind a fence does with a replica.
enum class UserKind : std::uint8_t {
    arrival,     ///< copies into it, and earlier users of its block
    task_write,  ///< tasks that write it
    task_read,   ///< tasks that read it
    copy_read,   ///< copies out of it
};
inline constexpr std::size_t num_user_kinds = 4;

/// Extra record of a replica with more fences than fit into it, or with waiting tasks.
struct BusyReplica {
    std::array<FenceSet, num_user_kinds> users;
    graph::TaskList waiting;  ///< tasks that wait for the end of its pins, or of its writers' pins
    Replica* replica = nullptr;
    // In the order in which they were made.
    BusyReplica* previous = nullptr;
    BusyReplica* next = nullptr;  ///< or the next free record
    std::uint16_t place_in_slab = 0;

    static BusyReplica*& free_link(BusyReplica& part) noexcept { return part.next; }
    void recycle() noexcept {
        for (FenceSet& set : users) set.clear();
        waiting.clear();
        replica = nullptr;
        previous = next = nullptr;
    }
    std::size_t num_fences() const noexcept {
        std::size_t count = 0;
        for (const FenceSet& set : users) count += set.size();
        return count;
    }
};

/// Fences of a replica's users: a few, sorted by kind, in the record itself; else any number in a BusyReplica.
class ReplicaUsers {
  public:
    static constexpr std::uint8_t most_few = 3;

    bool is_busy() const noexcept { return num_few_ == busy_mark; }
    /// Only if `is_busy`.
    BusyReplica& busy() const noexcept { return *reinterpret_cast<BusyReplica*>(words_[0]); }
    /// Keeps the latest fence of each kind and lane. False: no room, and nothing was done. A BusyReplica may allocate,
    /// from the host's reserve if need be.
    bool add(UserKind kind, Fence fence) {
        if (is_busy()) {
            busy().users[static_cast<std::size_t>(kind)].add(fence);
            return true;
        }
        for (std::uint8_t i = 0; i < num_few_; ++i) {
            const Fence own = few(i);
            if (own.lane != fence.lane || kind_of(i) != kind) continue;
            if (own.position < fence.position) words_[i] = std::bit_cast<std::uint64_t>(fence);
            return true;
        }
        if (num_few_ == most_few) return false;
        std::uint8_t at = num_few_++;
        for (; at > 0 && kind_of(at - 1) > kind; --at) set_few(at, kind_of(at - 1), few(at - 1));
        set_few(at, kind, fence);
        return true;
    }
    /// Calls `f(kind, fence)` for each, by kind.
    template<typename F> void for_each_user(F&& f) const {
        if (is_busy()) {
            for (std::size_t kind = 0; kind < num_user_kinds; ++kind)
                for (const Fence& fence : busy().users[kind]) f(static_cast<UserKind>(kind), fence);
            return;
        }
        for (std::uint8_t i = 0; i < num_few_; ++i) f(kind_of(i), few(i));
    }
    /// Fences that a new reader or writer waits for. Task-to-task order is in the graph.
    void add_what_a_task_awaits_to(FenceSet& out, bool writes) const {
        for_each_user([&](UserKind kind, const Fence& fence) {
            if (kind == UserKind::arrival || (kind == UserKind::copy_read && writes)) out.add(fence);
        });
    }
    /// Fences after which the content is complete.
    void add_writers_to(FenceSet& out) const {
        for_each_user([&](UserKind kind, const Fence& fence) {
            if (kind <= UserKind::task_write) out.add(fence);
        });
    }
    void add_all_users_to(FenceSet& out) const {
        for_each_user([&](UserKind, const Fence& fence) { out.add(fence); });
    }
    /// Drops the fences for which `passed(fence)` holds.
    template<typename P> void prune_users(P&& passed) {
        if (is_busy()) {
            for (FenceSet& set : busy().users) set.prune(passed);
            return;
        }
        std::uint8_t kept = 0;
        for (std::uint8_t i = 0; i < num_few_; ++i)
            if (!passed(few(i))) set_few(kept++, kind_of(i), few(i));
        num_few_ = kept;
    }
    /// Drops all fences; a busy replica stays busy.
    void clear_users() noexcept {
        if (!is_busy())
            num_few_ = 0;
        else
            for (FenceSet& set : busy().users) set.clear();
    }
    /// Moves the fences into `part`, which is empty and has room for them.
    void become_busy(BusyReplica& part) {
        for (std::uint8_t i = 0; i < num_few_; ++i) part.users[static_cast<std::size_t>(kind_of(i))].add(few(i));
        words_[0] = reinterpret_cast<std::uintptr_t>(&part);
        num_few_ = busy_mark;
    }
    /// Moves the fences back as far as they fit; the caller checks that, and frees the part.
    void become_idle() noexcept {
        const BusyReplica& part = busy();
        num_few_ = 0;
        for (std::size_t kind = 0; kind < num_user_kinds; ++kind)
            for (const Fence& fence : part.users[kind]) {
                if (num_few_ == most_few) return;
                set_few(num_few_++, static_cast<UserKind>(kind), fence);
            }
    }

  private:
    static constexpr std::uint8_t busy_mark = 0xff;

    Fence few(std::uint8_t i) const noexcept { return std::bit_cast<Fence>(words_[i]); }
    UserKind kind_of(std::uint8_t i) const noexcept { return static_cast<UserKind>(kinds_ >> 2 * i & 3); }
    void set_few(std::uint8_t i, UserKind kind, Fence fence) noexcept {
        words_[i] = std::bit_cast<std::uint64_t>(fence);
        kinds_ = static_cast<std::uint8_t>((kinds_ & ~(3 << 2 * i)) | static_cast<int>(kind) << 2 * i);
    }

    std::uint64_t words_[most_few] = {};  ///< fences; if busy, the first is the address of the BusyReplica
    std::uint8_t num_few_ = 0;
    std::uint8_t kinds_ = 0;  ///< two bits for each fence
};

/// How much a replica holds of the content of its version.
enum class Holds : std::uint8_t {
    all,
    ghosts,      ///< parts of which there are copies elsewhere: which ones the chunk knows (ghosts.hpp)
    last_parts,  ///< what tasks will still read before the next write replaces the chunk, and no replica holds all
};

/// Of a chunk that has a block in that memory. Valid when `version` is the chunk's, and it holds all of it.
struct Replica : ReplicaUsers {
    std::uint8_t block_distance = 0;  ///< from the block's start to the address, in units of the heap's alignment
    Holds holds = Holds::all;
    std::uint16_t place_in_slab = 0;
    std::uint16_t order = 0;     ///< of the memory, as Replicas has them
    Replica* next = nullptr;     ///< of the chunk; or the next free record
    std::uintptr_t address = 0;  ///< 0: the record is free
    std::uint64_t version = 0;
    std::uint64_t tick = 0;        ///< when it was used last
    std::uint64_t content_at = 0;  ///< when the latest copy into it was requested; not changed by writes
    // Users without a known position: device functions being launched, host tasks. A replica with pins may not be
    // overwritten by a copy or evicted; one with writer pins may not be copied from.
    std::uint32_t reader_pins = 0;
    std::uint32_t writer_pins = 0;
    Chunk* chunk = nullptr;
    Victim* victim = nullptr;  ///< its place in the order of victims, while its memory keeps one

    bool holds_all_of(std::uint64_t wanted) const noexcept { return version == wanted && holds == Holds::all; }
    bool holds_parts_of(std::uint64_t wanted) const noexcept { return version == wanted && holds == Holds::last_parts; }
    bool has_ghosts() const noexcept { return holds == Holds::ghosts; }
    bool pinned() const noexcept { return (reader_pins | writer_pins) != 0; }
    static std::uint16_t order_of(MemoryIndex m) noexcept { return static_cast<std::uint16_t>(m.index() - 1u); }
    MemoryIndex memory() const noexcept {
        return order == order_of(MemoryIndex::host()) ? MemoryIndex::host() : MemoryIndex::of_device(order);
    }
    /// The start of its block; below `address` if elements need a stricter alignment than the heap's.
    std::uintptr_t block() const noexcept { return address - block_distance * heap_alignment; }
    void set_block(std::uintptr_t block, std::uintptr_t first_aligned) noexcept {
        address = first_aligned;
        block_distance = static_cast<std::uint8_t>((first_aligned - block) / heap_alignment);
    }

    static Replica*& free_link(Replica& r) noexcept { return r.next; }
    void recycle() noexcept {
        const std::uint16_t place = place_in_slab;
        *this = {};
        place_in_slab = place;
    }
};
static_assert(sizeof(Replica) <= 96, "there may be one for each chunk and memory");
static_assert(detail::max_element_alignment / heap_alignment <= 0xff, "Replica::block_distance");

/// The replicas of one chunk, one for each memory where it has a block: devices first, in their order, because they are
/// looked up most, then the host. Residency owns the records.
class Replicas {
  public:
    template<typename R> class Iterator {
      public:
        explicit Iterator(R* at) noexcept : at_(at) {}
        R& operator*() const noexcept { return *at_; }
        Iterator& operator++() noexcept {
            at_ = at_->next;
            return *this;
        }
        friend bool operator==(const Iterator&, const Iterator&) = default;

      private:
        R* at_;
    };

    Replicas() = default;
    Replicas(const Replicas&) = delete;
    Replicas& operator=(const Replicas&) = delete;
    /// Null: there is none. O(replicas), as every lookup.
    Replica* find(MemoryIndex m) noexcept { return const_cast<Replica*>(std::as_const(*this).find(m)); }
    const Replica* find(MemoryIndex m) const noexcept {
        const std::uint16_t order = Replica::order_of(m);
        const Replica* r = first_;
        while (r != nullptr && r->order < order) r = r->next;
        return r != nullptr && r->order == order ? r : nullptr;
    }
    /// There must be one.
    Replica& at(MemoryIndex m) noexcept {
        const std::uint16_t order = Replica::order_of(m);
        Replica* r = first_;
        while (r->order != order) r = r->next;
        return *r;
    }
    /// For reading; if there is none, a replica without address and version.
    const Replica& operator[](MemoryIndex m) const noexcept {
        static constexpr Replica none;
        const Replica* const r = find(m);
        return r != nullptr ? *r : none;
    }
    bool empty() const noexcept { return first_ == nullptr; }
    void insert(Replica& added) noexcept {
        Replica** at = &first_;
        while (*at != nullptr && (*at)->order < added.order) at = &(*at)->next;
        added.next = *at;
        *at = &added;
    }
    void erase(Replica& gone) noexcept {
        Replica** at = &first_;
        while (*at != &gone) at = &(*at)->next;
        *at = gone.next;
    }
    Iterator<Replica> begin() noexcept { return Iterator<Replica>(first_); }
    Iterator<Replica> end() noexcept { return Iterator<Replica>(nullptr); }
    Iterator<const Replica> begin() const noexcept { return Iterator<const Replica>(first_); }
    Iterator<const Replica> end() const noexcept { return Iterator<const Replica>(nullptr); }

  private:
    Replica* first_ = nullptr;
};

}  // namespace kmm::memory
