// Lists of tasks' numbers that share one piece of memory.
//
// Owns: NumberLists. Must not know: what the lists are for. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::graph {

/// Many short lists, none of which has memory of its own: destroying this object frees them all in O(1). Falls back on
/// the host's reserve.
class NumberLists {
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  public:
    /// A list of one owner. A copy is the same list: only one of them may be changed or cleared.
    struct List {
        TaskNumber latest = 0;  ///< valid unless the list is empty
        std::uint32_t size = 0;

      private:
        friend class NumberLists;
        std::uint32_t first = none;  ///< node of all but the latest, oldest first
    };

    /// Appends. O(size). Throws std::bad_alloc, with the list unchanged.
    void push(List& list, TaskNumber number) {
        if (list.size != 0) push_in_nodes(list, list.size - 1, list.latest);
        list.latest = number;
        ++list.size;
    }
    /// Calls `f(number)` for each, oldest first. `f` may change other lists.
    template<typename F> void each(const List& list, F&& f) const {
        if (list.size == 0) return;
        std::uint32_t node = list.first;
        for (std::uint32_t i = 0; i + 1 < list.size; ++i) {
            if (i != 0 && i % node_size == 0) node = nodes_[node].next;
            f(TaskNumber{nodes_[node].numbers[i % node_size]});
        }
        f(TaskNumber{list.latest});
    }
    /// Empties the list and frees its nodes for others. O(size).
    void clear(List& list) noexcept {
        for (std::uint32_t node = list.first; node != none;) {
            const std::uint32_t next = nodes_[node].next;
            nodes_[node].next = free_;
            free_ = node;
            node = next;
        }
        list = List();
    }

    /// Nodes of all lists, used and free, for tests.
    std::size_t num_nodes() const noexcept { return nodes_.size(); }

  private:
    static constexpr std::uint32_t node_size = 3;
    struct Node {
        TaskNumber numbers[node_size] = {};
        std::uint32_t next = none;
    };

    /// Appends to the list's nodes, which hold `at` numbers.
    void push_in_nodes(List& list, std::uint32_t at, TaskNumber number) {
        std::uint32_t node = list.first;
        for (std::uint32_t i = node_size; node != none && i < at; i += node_size) node = nodes_[node].next;
        if (at % node_size == 0) {
            const std::uint32_t added = new_node();
            (at == 0 ? list.first : nodes_[node].next) = added;
            node = added;
        }
        nodes_[node].numbers[at % node_size] = number;
    }
    std::uint32_t new_node() {
        const std::uint32_t node = free_;
        if (node == none) {
            nodes_.emplace_back();
            return static_cast<std::uint32_t>(nodes_.size() - 1);
        }
        free_ = nodes_[node].next;
        nodes_[node].next = none;
        return node;
    }

    Vector<Node> nodes_;
    std::uint32_t free_ = none;
};

}  // namespace kmm::graph
