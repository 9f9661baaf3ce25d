// Ready tasks that miss something in their memory, by the order in which they are best issued.
//
// Owns: the order. Must not know: why tasks are kept.
#pragma once

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/ready_uses.hpp"
#include "kmm/schedule/order_policy.hpp"

namespace kmm::schedule {

struct KeyedTask {
    OrderKey key;
    graph::Task* task = nullptr;
    memory::ReadyUse* uses = nullptr;  ///< the first; by these it is told what changes
    friend bool operator<(const KeyedTask& a, const KeyedTask& b) noexcept { return a.key < b.key; }
};
using TasksByKey = graph::Set<KeyedTask>;

}  // namespace kmm::schedule
