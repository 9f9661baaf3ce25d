// Implements the part of memory_service.hpp that shares a device's memory with its other users in this process: gives
// memory back when they are short, and waits for memory that they hold.
//
// Runs on the service's thread, except `reclaim`. Waits for no device (a driver's own free may), and for no other
// thread but the one that has the baton: steps in use leave one by one as their users pass, and services ask each other
// by messages.
#include <algorithm>
#include <exception>
#include <future>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/base/log.hpp"
#include "kmm/supply/memory_service.hpp"
#include "rmm/ledger.hpp"
#include "rmm/status.hpp"

namespace kmm::supply {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_pause{50};
constexpr double longest_wait_seconds = 1e9;
// Refusals without any other holder or allocation in transit before `await` gives up; a few milliseconds in all.
constexpr int times_to_be_alone = 3;

/// The services of this process.
struct Neighbourhood {
    locks::Mutex mutex;
    std::vector<MemoryService*> services KMM_GUARDED_BY(mutex);
};

Neighbourhood& neighbourhood() { return driver::never_destroyed<Neighbourhood>(); }  // runtimes may be statics

}  // namespace

void MemoryService::meet_neighbours() {
    Neighbourhood& all = neighbourhood();
    const locks::Guard guard(all.mutex);
    all.services.push_back(this);
}

void MemoryService::leave_neighbours() noexcept {
    Neighbourhood& all = neighbourhood();
    const locks::Guard guard(all.mutex);
    std::erase(all.services, this);
}

/// Asks one neighbour at a time, round robin, for no more than the driver lacks.
void MemoryService::ask_a_neighbour(memory::MemoryIndex m) {
    Awaited& awaited = *memories_[m].awaited;
    if (awaited.asked != nullptr && awaited.asked->pending.load()) return;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    (void)driver_.memory_info(ordinals_[m.device()], &free_bytes, &total_bytes);
    Neighbourhood& all = neighbourhood();
    const locks::Guard guard(all.mutex);
    std::vector<std::pair<MemoryService*, memory::MemoryIndex>> neighbours;
    for (MemoryService* s : all.services) {
        if (s == this || &s->driver_ != &driver_) continue;
        const auto at = std::find(s->ordinals_.begin(), s->ordinals_.end(), ordinals_[m.device()]);
        if (at == s->ordinals_.end()) continue;
        const auto theirs = memory::MemoryIndex::of_device(static_cast<std::uint32_t>(at - s->ordinals_.begin()));
        // The program's resource may have a limit of its own: memory freed to the driver does not help there.
        if (memories_[m].device->in_order() && !s->memories_[theirs].device->in_order()) continue;
        neighbours.emplace_back(s, theirs);
    }
    if (neighbours.empty()) return;
    const auto [neighbour, theirs] = neighbours[awaited.next_neighbour++ % neighbours.size()];
    awaited.asked = std::make_shared<Asked>();
    awaited.asked->wanted_bytes =
        std::max<std::size_t>(1, awaited.lacking.bytes - std::min(awaited.lacking.bytes, free_bytes));
    awaited.asked->service = number_;
    awaited.asked->turn = awaited.turn;
    Request request;
    request.wish = Wish::reclaim;
    request.memory = theirs;
    request.asked = awaited.asked;
    neighbour->push(std::move(request));
}

void MemoryService::wake(std::uint64_t service) {
    Neighbourhood& all = neighbourhood();
    const locks::Guard guard(all.mutex);
    for (MemoryService* s : all.services)
        if (s->number_ == service) {
            try {
                s->push({Wish::look});
            } catch (const std::bad_alloc&) {
                // It looks by itself at its next retry.
            }
        }
}

// ---- giving back

std::size_t MemoryService::reclaim(memory::MemoryIndex memory, std::size_t bytes, bool at_once,
                                   Clock::time_point deadline) noexcept {
    try {
        auto asked = std::make_shared<Asked>();
        asked->at_once = at_once;
        asked->wanted_bytes = bytes;
        std::future<std::size_t> given = asked->given.get_future();
        Request request;
        request.wish = Wish::reclaim;
        request.memory = memory;
        request.asked = asked;
        push(std::move(request));
        if (given.wait_until(deadline) == std::future_status::ready) return given.get();
        asked->waits.store(false);
        return asked->told_bytes.load();
    } catch (const std::exception&) {  // no host memory
    }
    return 0;
}

/// Answers the requester, once.
void MemoryService::answer(Asked& asked) {
    if (!asked.pending.exchange(false)) return;
    if (asked.service == 0)
        asked.given.set_value(asked.given_bytes);
    else
        wake(asked.service);
}

void MemoryService::reclaim_for(memory::MemoryIndex m, const std::shared_ptr<Asked>& asked) {
    const Memory& memory = memories_[m];
    // A service that has waited longer than the requester gives nothing: else two would pass memory back and forth.
    const bool first = asked->service != 0 && memory.awaited && memory.awaited->turn < asked->turn;
    asked->choosing = true;
    try {
        while (asked->waits.load() && !first) {
            const bool host_growing = let_go(m, asked);
            if (!host_growing || asked->given_bytes + asked->leaving_bytes >= asked->wanted_bytes) break;
            // Serves the growth of the host's memory that this search requested: then dirty chunks can be saved.
            graph::Vector<Request> host = pending_growth(memory::MemoryIndex::host());
            for (Request& r : host) serve(r);
            if (host.empty()) break;
        }
        // Refuses pending growth of this memory, which would take the freed memory again before the requester.
        if (asked->given_bytes + asked->leaving_bytes != 0)
            for ([[maybe_unused]] const Request& r : pending_growth(m)) offer(m, {}, engine::Message::What::grown);
    } catch (const std::exception& e) {
        log::write(log::warn, "memory could not be given to others: ", e.what());
    }
    asked->choosing = false;
    if (asked->leaving_bytes == 0) answer(*asked);
}

/// Takes steps out of the heap, and frees those without pending users. True: more could be evicted if the host's memory
/// were larger.
bool MemoryService::let_go(memory::MemoryIndex m, const std::shared_ptr<Asked>& asked) {
    Memory& memory = memories_[m];
    std::vector<memory::AddressRange> regions;
    for (const Step& s : memory.steps) regions.push_back({reinterpret_cast<std::uintptr_t>(s.address), s.bytes});
    leaving_.reserve(leaving_.size() + regions.size());
    const std::size_t wanted = asked->wanted_bytes - asked->given_bytes - asked->leaving_bytes;
    const memory::Reclaimed reclaimed = mailbox_.reclaim(m, regions, wanted, asked->at_once);
    for (const memory::Reclaimed::Taken& t : reclaimed.taken) {
        leaving_.push_back({memory.steps[t.region], m, t.users, asked});
        asked->leaving_bytes += memory.steps[t.region].bytes;
    }
    std::erase_if(memory.steps, [&](const Step& s) {
        return std::any_of(leaving_.begin(), leaving_.end(),
                           [&](const Leaving& l) { return l.memory == m && l.step.address == s.address; });
    });
    note_sample(m);
    num_leaving_.store(leaving_.size(), std::memory_order_seq_cst);
    give_what_has_left();
    return reclaimed.host_growing;
}

/// Frees the leaving steps whose last users have passed.
void MemoryService::give_what_has_left() {
    graph::Vector<std::shared_ptr<Asked>> served, touched;
    graph::Vector<char> given(ordinals_.size(), 0);  // by device: host memory is never requested
    std::erase_if(leaving_, [&](Leaving& l) {
        Memory& memory = memories_[l.memory];
        const bool ordered =
            memory.device->in_order() && lanes_.order_after(memory.device->stream(), l.users, scratch_).ok();
        if (!ordered && !std::all_of(l.users.begin(), l.users.end(), [&](graph::Fence f) { return lanes_.passed(f); }))
            return false;
        memory.offered_bytes -= l.step.bytes;
        if (memory.awaited) {
            memory.awaited->lacking.bytes += l.step.bytes;
            memory.awaited->lacking.least_bytes += l.step.bytes;
        }
        l.asked->leaving_bytes -= l.step.bytes;
        l.asked->given_bytes += l.step.bytes;
        give_back(l.memory, l.step);
        touched.push_back(l.asked);
        given[l.memory.device()] = 1;
        const bool all = l.asked->leaving_bytes == 0 && !l.asked->choosing;
        if (all || l.asked->given_bytes >= l.asked->wanted_bytes) served.push_back(l.asked);
        return true;
    });
    num_leaving_.store(leaving_.size(), std::memory_order_seq_cst);
    for (const memory::MemoryIndex m : memories_.device_memories())
        if (given[m.device()] != 0) memories_[m].device->trim();
    for (const std::shared_ptr<Asked>& asked : touched) asked->told_bytes.store(asked->given_bytes);
    if (!served.empty()) count();
    for (const std::shared_ptr<Asked>& asked : served) answer(*asked);
}

/// Removes and returns the queued requests for growth of a memory.
graph::Vector<MemoryService::Request> MemoryService::pending_growth(memory::MemoryIndex m) {
    graph::Vector<Request> growth;
    const locks::Guard guard(mutex_);
    std::erase_if(requests_, [&](const Request& r) {
        if (r.memory != m || (r.wish != Wish::grow && r.wish != Wish::exchange)) return false;
        growth.push_back(r);
        return true;
    });
    return growth;
}

void MemoryService::note_sample(memory::MemoryIndex m) noexcept {
    memories_[m].sample.store(memories_[m].steps.empty() ? nullptr : memories_[m].steps.back().address);
}

// ---- waiting for what others hold

/// Bytes that other users in this process hold of the device, or of the resource that the runtime uses.
std::size_t MemoryService::held_by_others(memory::MemoryIndex m) noexcept {
    DeviceMemory& device = *memories_[m].device;
    try {
        const rmm::detail::driver_scope own_driver(driver_);
        std::size_t held = 0;
        rmm::detail::for_each_holder(ordinals_[m.device()], [&](rmm::detail::memory_holder& h) {
            const rmm::detail::holder_figures f = h.figures();
            if (!device.in_order()) {
                if (f.takes_from_driver) held += f.held_bytes;
                return;
            }
            // In a shared resource, memory in use counts, once, and not what its holders have reserved.
            rmm::detail::tag_sums used;
            h.add_by_tag(&used);
            if (used.empty() && f.takes_from_driver) held += f.in_use_bytes;
            for (std::size_t tag = 0; tag < used.size(); ++tag)
                if (tag != rmm::detail::of_a_pool) held += used[tag].bytes;
        });
        return held - std::min(held, device.held_bytes());
    } catch (const std::exception&) {
        return 0;
    }
}

namespace {

std::chrono::steady_clock::duration patience_of(double seconds) {
    using Duration = std::chrono::steady_clock::duration;
    if (!(seconds > 0)) return Duration{0};
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, longest_wait_seconds)));
}

}  // namespace

void MemoryService::await_now(memory::MemoryIndex m, const memory::Lacking& lacking, bool patient) {
    Awaited& awaited = memories_[m].awaited.emplace(Awaited{});
    const Clock::time_point now = Clock::now();
    awaited.lacking = lacking;
    awaited.turn = {now, number_};
    awaited.until = now + patience_of(patient ? config_.memory_wait : 0);
    awaited.next = now;
    awaited.least_held_by_others = held_by_others(m);
    awaited.others_held = awaited.least_held_by_others != 0;
}

void MemoryService::end_awaited(memory::MemoryIndex m, const Step& step) {
    if (const auto& asked = memories_[m].awaited->asked) asked->waits.store(false);
    memories_[m].awaited.reset();
    offer(m, step, engine::Message::What::awaited);
}

// Polls the driver, which does not notify when memory is freed, least of all by other processes.
void MemoryService::try_awaited() {
    for (const memory::MemoryIndex m : memories_.device_memories()) {
        if (!memories_[m].awaited || Clock::now() < memories_[m].awaited->next) continue;
        Awaited& awaited = *memories_[m].awaited;
        const std::size_t left = left_bytes(m);
        // An allocation or free in transit during a refusal is in no holder's figures.
        bool settled = !rmm::detail::is_in_transit(ordinals_[m.device()]);
        awaited.others_held |= held_by_others(m) != 0;
        Step step;
        const std::size_t wanted = in_pieces(m, awaited.lacking.bytes, left);
        if (left != 0 && take_anywhere(m, wanted, &step)) {
            end_awaited(m, step);
            continue;
        }
        const Clock::time_point now = Clock::now();
        settled &= !rmm::detail::is_in_transit(ordinals_[m.device()]);
        const std::size_t held = held_by_others(m);
        awaited.others_held |= held != 0;
        if (held < awaited.least_held_by_others && awaited.until > now) {
            awaited.least_held_by_others = held;
            awaited.until = now + patience_of(config_.memory_wait);
        }
        // One refusal proves little: a holder may free memory after it, and take it again before the next attempt. So
        // several refusals must see no other holder.
        if (settled) ++awaited.times_alone;
        const bool alone = awaited.times_alone >= times_to_be_alone && !awaited.others_held;
        if (left == 0 || now >= awaited.until || alone) {
            // Tries `least_bytes` only now, because it needs an exchange, during which others could take the memory.
            const std::size_t least = in_pieces(m, awaited.lacking.least_bytes, left);
            if (least < wanted) (void)take_anywhere(m, least, &step);
            end_awaited(m, step);
            continue;
        }
        try {
            ask_a_neighbour(m);
        } catch (const std::bad_alloc&) {
            // The next attempt asks.
        }
        awaited.next = now + awaited.pause;
        awaited.pause = std::min(2 * awaited.pause, longest_pause);
    }
}

}  // namespace kmm::supply
