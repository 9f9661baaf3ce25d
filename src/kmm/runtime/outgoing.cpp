#include "kmm/runtime/outgoing.hpp"

#include <algorithm>
#include <cstring>

namespace kmm::detail {

namespace {

// After a refusal the driver is not asked for more for this time, while the runtime can do with what it has.
constexpr std::int64_t refusal_counts_ns = 1'000'000'000;

}  // namespace

void Outgoing::flush() {
    for (std::size_t d = 0; d < instructions_.size(); ++d)
        if (!instructions_[d].empty()) engine_.push(static_cast<std::uint32_t>(d), instructions_[d]);
    if (to_host_.empty()) return;
    engine_.push_to_host(to_host_);
    to_host_.clear();
}

bool Outgoing::ask_for_bounce(std::size_t bytes) {
    engine_.give_bounce(bytes);
    return true;
}

void Outgoing::move_on_host(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes) {
    std::memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source), bytes);
}

void Outgoing::grow(memory::MemoryIndex memory, std::size_t bytes) { engine_.grow(memory, bytes); }

bool Outgoing::exchange(memory::MemoryIndex memory, std::size_t bytes) {
    engine_.exchange(memory, bytes);
    return true;
}

bool Outgoing::await_memory(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient) {
    engine_.await(memory, lacking, patient);
    return true;
}

bool Outgoing::may_ask_again(memory::MemoryIndex memory) noexcept {
    return engine::now_ns() - refused_at_ns_[memory] > refusal_counts_ns;
}

bool Outgoing::linked(memory::MemoryIndex from, memory::MemoryIndex to) const noexcept {
    return memory::Tiers::link(from, to) == memory::Link::device_to_device &&
           platform_.has_peer_access(to.device(), from.device());
}

void Outgoing::recycle(Task& task) noexcept {
    // Whatever the program's function captured or threw ends where the program's code may run.
    if (!task.has_payload() && task.thrown == nullptr) {
        books_.pool().give(&task);
        return;
    }
    try {
        to_host_.push_back(&task);
    } catch (const std::bad_alloc&) {
        books_.lose();  // and the record stays until the runtime's end
    }
}

std::shared_ptr<graph::Failure> Outgoing::make_failure(Task& task, std::exception_ptr thrown,
                                                       const std::shared_ptr<graph::RootFailure>& root) {
    auto failure = std::allocate_shared<graph::Failure>(graph::ReservedAllocator<graph::Failure>());
    task.trace(failure->task);
    failure->root = root;
    if (root != nullptr) {
        for (const graph::View& v : task.views) failure->keeps_content |= v.kind == AccessKind::write;
        return failure;
    }
    failure->root = std::allocate_shared<graph::RootFailure>(graph::ReservedAllocator<graph::RootFailure>());
    graph::RootFailure& r = *failure->root;
    r.number = task.public_number();
    r.cause = std::move(thrown);
    if (r.cause == nullptr && task.cold != nullptr) r.unworded = task.cold->unworded;
    task.trace(r.task);
    if (r.unworded == nullptr || !r.unworded->is_logged()) return failure;
    constexpr std::size_t most_told_at_once = 16;
    if (news_.roots.size() < most_told_at_once)
        news_.roots.push_back(failure->root);
    else
        ++news_.more;
    return failure;
}

void Outgoing::out_of_memory(Task& task) {
    try {
        task.cold_part(graph::UseOfReserve::yes).unworded = shortages_.look(task, *scheduler_, books_.table(), engine_);
    } catch (const std::bad_alloc&) {
        task.thrown = books_.no_host_memory();
    }
}

void Outgoing::memory_wait_ends(Task& task) noexcept {
    const std::int64_t waited = engine::now_ns() - task.cold->waits_for_memory_ns;
    memory_waits_.sum_ns += waited;
    memory_waits_.longest_ns = std::max(memory_waits_.longest_ns, waited);
    ++memory_waits_.count;
}

}  // namespace kmm::detail
