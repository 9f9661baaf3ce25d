// One program, played under several policies: what each moves, and how long it takes.
//
// Owns: what is known of a play. Must not know: how figures are printed. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulate/player.hpp"
#include "simulate/timed_devices.hpp"

namespace kmm::simulate {

struct Outcome {
    bool ended = false;  ///< else the schedule stood still
    std::uint64_t failed_tasks = 0;
    std::uint64_t bytes_up = 0, bytes_down = 0, bytes_peer = 0;
    std::uint64_t evictions = 0;
    double seconds = 0;
    double busy_seconds = 0;                 ///< of the busiest device: a kernel ran
    std::vector<trace::Number> issue_order;  ///< of kernels, functions and transfers
    std::uint64_t bytes_moved() const noexcept { return bytes_up + bytes_down + bytes_peer; }
};

struct Policies {
    std::string order;     ///< for people
    std::string eviction;  ///< likewise
    schedule::OrderPolicy order_policy = schedule::OrderPolicy::fewest_bytes_a_task;
    memory::EvictionPolicy eviction_policy = memory::EvictionPolicy::farthest_next_use;
    /// The program's tasks are brought into this order first, and issued in it.
    enum class Before : std::uint8_t { as_it_is, by_depth, as_issued } before = Before::as_it_is;
};

/// Ours first; the last is ours again with an order that is known before: what better knowledge of the next use saves.
std::vector<Policies> all_policies();

/// With a virtual clock. `kernel_ns` as in TimedDevices, by the numbers of this program.
Outcome play(const Program& program, const Policies& policies, const Rates& rates,
             const TimedDevices::KernelNs& kernel_ns, std::int64_t submit_ns);

/// The same tasks in another order of submission, which must be one in which they can run: tasks that are not in
/// `order` (joins) stand behind what they come after. `numbers[new number - 1]` is the old one.
Program reordered(const Program& program, const std::vector<trace::Number>& order, std::vector<trace::Number>* numbers);
/// By the length of the longest chain of tasks before it, then as submitted.
std::vector<trace::Number> order_by_depth(const Program& program);

}  // namespace kmm::simulate
