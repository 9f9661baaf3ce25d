// Which of the tasks that are ready in one memory, and miss some of it, is issued next.
//
// Owns: the order among what it is told of tasks. Must not know: tasks, memories, lanes. Pure; any thread.
//
// Ours is greedy with a short look ahead: of the first few the one with the fewest bytes over links for each task that
// becomes possible. So what is in memory is used as far as it goes before it leaves: depth first along chains, and in a
// wave over a grid whose tasks read their neighbours. Of equals those come first that others wait for, then the order
// of submission, because victims are chosen by next use in that order (Belady 1966).
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace kmm::schedule {

/// The properties of a ready task that decide when it is issued.
struct ReadyTask {
    std::size_t missing_bytes = 0;  ///< to fetch or to find room for
    std::size_t moved_bytes = 0;    ///< over links, for its sake, until what it has written is saved
    bool needs_room = true;         ///< more than a small share of its memory
    bool makes = false;             ///< content that no task has made before
    bool enables = false;           ///< some task in the same memory waits for this one alone
    std::uint64_t ready_at = 0;     ///< how many had become ready before
    std::uint64_t place = 0;        ///< in the order of submission
    std::uint64_t number = 0;       ///< tells tasks of one place apart
};

/// The least comes first.
struct OrderKey {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    std::uint64_t place = 0;
    std::uint64_t number = 0;
    friend auto operator<=>(const OrderKey&, const OrderKey&) = default;
};

enum class OrderPolicy : std::uint8_t {
    fewest_bytes_a_task,  ///< ours
    fewest_bytes,         ///< fewest missing, then as submitted
    as_submitted,         ///< the first whose predecessors are issued, whatever it misses
};

/// Whether a task that misses nothing is issued at once, in the order in which such tasks became ready.
constexpr bool takes_what_is_there(OrderPolicy policy) noexcept { return policy != OrderPolicy::as_submitted; }

constexpr OrderKey key_of(OrderPolicy policy, const ReadyTask& task) noexcept {
    switch (policy) {
    case OrderPolicy::fewest_bytes_a_task:
        // Tasks that move nothing: first those that need little room, since they evict next to nothing; last those that
        // make new content, which then takes room until its last use.
        if (task.moved_bytes == 0 && task.makes) return {0, task.needs_room ? 2u : 0u, 0, task.place, task.number};
        if (task.moved_bytes == 0) return {0, task.needs_room ? 1u : 0u, task.ready_at, task.place, task.number};
        return {task.moved_bytes, task.enables ? 0u : 1u, 0, task.place, task.number};
    case OrderPolicy::fewest_bytes: return {task.missing_bytes, 0, 0, task.place, task.number};
    case OrderPolicy::as_submitted: break;
    }
    return {0, 0, 0, task.place, task.number};
}

/// Number of the first tasks in this order that are compared by how many tasks each enables.
inline constexpr std::size_t num_candidates = 16;

/// Whether a choice that moves `moved_bytes` is worth looking ahead, which takes a few microseconds. In a small memory,
/// as tests have, the threshold is a share of it.
constexpr bool looks_ahead(OrderPolicy policy, std::size_t moved_bytes, std::size_t limit_bytes) noexcept {
    constexpr std::size_t worth_bytes = 256 << 10;  // a copy takes 10 us or more
    return policy == OrderPolicy::fewest_bytes_a_task && moved_bytes >= std::min(worth_bytes, limit_bytes / 64);
}

/// Whether it is worth a plan, if memory is short, which takes ten to twenty microseconds for each task. Threshold
/// likewise.
constexpr bool plans(OrderPolicy policy, std::size_t moved_bytes, std::size_t limit_bytes) noexcept {
    constexpr std::size_t worth_bytes = 1 << 20;
    return policy == OrderPolicy::fewest_bytes_a_task && moved_bytes >= std::min(worth_bytes, limit_bytes / 16);
}

/// Whether to find room for this in a memory evicts more than next to nothing.
constexpr bool needs_room(std::size_t missing_bytes, std::size_t limit_bytes) noexcept {
    constexpr std::size_t small_share = 256;
    return missing_bytes > limit_bytes / small_share;
}

/// The best of the candidates so far: the one with the most tasks for each byte; of equals the one that was used last.
class BestWorth {
  public:
    /// Whether this one is better. `enabled`: tasks that become possible with it.
    constexpr bool takes(std::size_t enabled, std::size_t moved_bytes, std::uint64_t last_use = 0) noexcept {
        const double worth = static_cast<double>(1 + enabled) / static_cast<double>(moved_bytes);
        if (!is_more(worth, worth_) && (is_more(worth_, worth) || last_use <= last_use_)) return false;
        worth_ = worth;
        last_use_ = last_use;
        return true;
    }

  private:
    /// By more than what regions at the edge of an array differ in.
    static constexpr bool is_more(double worth, double than) noexcept { return worth > 1.001 * than; }

    double worth_ = 0;
    std::uint64_t last_use_ = 0;
};

}  // namespace kmm::schedule
