// How many tasks become possible with one: those that miss nothing more, once it has been issued.
//
// The rule is the same for the schedule's tasks and for the copy of them that plans play on. A graph of either kind
// says:
//   Node                                a task
//   each_successor(node, f)             calls f(successor), in order, until it returns false
//   is_counted(node, first)             runs in the memory of `first`, as a kernel or device function
//   num_open(node)                      predecessors that are not issued
//   num_edges_from(nodes, node)         of these, those among `nodes`
//   gets_all_it_reads(node, nodes)      what it reads is in the memory, or comes with `nodes`
//   may_step(), add_steps(n)            entries of lists looked at; false: that was the last
// Must not know: lanes, how much room there is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kmm::schedule::enabling {

inline constexpr std::size_t most_counted = 8;
inline constexpr std::uint64_t most_steps = 256;
inline constexpr std::size_t few_successors = 16;

/// Whether a task in the same memory waits for this one alone. O(1): of very many successors the first few are looked
/// at.
template<class Graph> bool is_last_of_any(const Graph& graph, typename Graph::Node node) {
    std::size_t looked_at = 0;
    bool found = false;
    graph.each_successor(node, [&](typename Graph::Node s) {
        found = graph.num_open(s) == 1 && graph.is_counted(s, node);
        return !found && ++looked_at < few_successors;
    });
    return found;
}

/// Tasks that could be issued behind `first`, and behind each other, without anything being fetched but small parts of
/// chunks; no more than `most_counted`. `counted` is overwritten.
template<class Graph, class List> std::size_t count(Graph& graph, typename Graph::Node first, List& counted) {
    using Node = typename Graph::Node;
    const auto may_follow = [&](Node node) {
        if (!graph.is_counted(node, first) || graph.num_open(node) > counted.size()) return false;
        graph.add_steps(counted.size());
        if (std::find(counted.begin(), counted.end(), node) != counted.end()) return false;
        return graph.num_edges_from(counted, node) >= graph.num_open(node) && graph.gets_all_it_reads(node, counted);
    };
    counted.assign(1, first);
    bool goes_on = true;
    for (std::size_t i = 0; i < counted.size() && goes_on; ++i)
        graph.each_successor(counted[i], [&](Node s) {
            goes_on = graph.may_step() && counted.size() <= most_counted;
            if (goes_on && may_follow(s)) counted.push_back(s);
            return goes_on;
        });
    return counted.size() - 1;
}

}  // namespace kmm::schedule::enabling
