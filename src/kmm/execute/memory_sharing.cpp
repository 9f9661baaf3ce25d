// Implements the part of memory_service.hpp that shares a device's memory with others in this process: what the service gives
// back when they are short, and how it waits for what they hold.
//
// The service's thread, but for what is called by others. Services ask each other by messages and never wait for one another.
#include <algorithm>
#include <exception>
#include <future>

#include "driver/never_destroyed.hpp"
#include "kmm/execute/memory_service.hpp"
#include "rmm/ledger.hpp"
#include "rmm/status.hpp"

namespace kmm::execute {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_pause{50};
constexpr double longest_wait_seconds = 1e6;

/// The services of this process.
struct Neighbourhood {
    std::mutex mutex;
    std::vector<MemoryService*> services;
};

Neighbourhood& neighbourhood() { return driver::never_destroyed<Neighbourhood>(); }  // runtimes may be statics

}  // namespace

void MemoryService::meet_neighbours() {
    Neighbourhood& all = neighbourhood();
    std::lock_guard<std::mutex> guard(all.mutex);
    all.services.push_back(this);
}

void MemoryService::leave_neighbours() noexcept {
    Neighbourhood& all = neighbourhood();
    std::lock_guard<std::mutex> guard(all.mutex);
    std::erase(all.services, this);
}

/// Each of the others that uses the device has at most one such request of ours waiting.
void MemoryService::ask_neighbours(memory::MemoryIndex m) {
    const Awaited& awaited = *memories_[m].awaited;
    Neighbourhood& all = neighbourhood();
    std::lock_guard<std::mutex> guard(all.mutex);
    for (MemoryService* s : all.services) {
        if (s == this || &s->driver_ != &driver_) continue;
        const auto at = std::find(s->ordinals_.begin(), s->ordinals_.end(), ordinals_[m - 1]);
        if (at == s->ordinals_.end()) continue;
        const auto theirs = static_cast<memory::MemoryIndex>(at - s->ordinals_.begin() + 1);
        {
            std::lock_guard<std::mutex> inside(s->mutex_);
            const auto asked = [&](const Request& r) { return r.waits == awaited.waits; };
            if (std::any_of(s->requests_.begin(), s->requests_.end(), asked)) continue;
            Request request;
            request.wish = Wish::reclaim;
            request.memory = theirs;
            request.bytes = awaited.bytes;
            request.waits = awaited.waits;
            request.turn = awaited.turn;
            s->requests_.push_back(std::move(request));
        }
        s->wake_.notify_one();
    }
}

void MemoryService::wake(std::uint64_t service) {
    Neighbourhood& all = neighbourhood();
    std::lock_guard<std::mutex> guard(all.mutex);
    for (MemoryService* s : all.services)
        if (s->number_ == service) s->push({Wish::look});
}

// ---- giving back

std::size_t MemoryService::reclaim(memory::MemoryIndex memory, std::size_t bytes) noexcept {
    try {
        Request request;
        request.wish = Wish::reclaim;
        request.memory = memory;
        request.bytes = bytes;
        request.given = std::make_shared<std::promise<std::size_t>>();
        std::future<std::size_t> given = request.given->get_future();
        push(std::move(request));
        return given.wait_for(reclaim_patience) == std::future_status::ready ? given.get() : 0;
    } catch (const std::exception&) {  // no host memory, or the runtime ends
        return 0;
    }
}

void MemoryService::reclaim_for(const Request& request) {
    Memory& memory = memories_[request.memory];
    const bool for_service = request.waits != nullptr;
    // Two that wait for each other would give the same memory back and forth.
    const bool first = for_service && memory.awaited && memory.awaited->turn < request.turn;
    const bool over = for_service && !request.waits->load();
    const std::size_t given = first || over ? 0 : reclaim_now(request.memory, request.bytes);
    if (request.given != nullptr) request.given->set_value(given);
    if (for_service && given != 0) wake(request.turn.service);
}

/// Requests for more of a memory that nobody has served yet.
std::vector<MemoryService::Request> MemoryService::pending_growth(memory::MemoryIndex m) {
    std::vector<Request> growth;
    std::lock_guard<std::mutex> guard(mutex_);
    std::erase_if(requests_, [&](const Request& r) {
        if (r.memory != m || (r.wish != Wish::grow && r.wish != Wish::exchange)) return false;
        growth.push_back(r);
        return true;
    });
    return growth;
}

std::size_t MemoryService::reclaim_now(memory::MemoryIndex m, std::size_t bytes) {
    Memory& memory = memories_[m];
    std::size_t given = 0;
    for (;;) {
        std::vector<memory::Region> regions;
        for (const Step& s : memory.steps) regions.push_back({reinterpret_cast<std::uintptr_t>(s.address), s.bytes});
        memory::Reclaimed reclaimed = reports_.reclaim(m, regions, bytes - given);
        std::vector<Step> taken;
        for (const std::size_t i : reclaimed.taken) taken.push_back(memory.steps[i]);
        std::erase_if(memory.steps, [&](const Step& s) {
            return std::any_of(taken.begin(), taken.end(), [&](const Step& t) { return t.address == s.address; });
        });
        const bool ordered = memory.device->in_order() && !taken.empty() &&
                             lanes_.order_after(memory.device->stream(), reclaimed.users, scratch_).ok();
        if (!ordered) lanes_.wait_on_host(reclaimed.users);
        for (const Step& s : taken) {
            memory.offered_bytes -= s.bytes;
            given += s.bytes;
            give_back(m, s);
        }
        if (given >= bytes || !reclaimed.host_growing) break;
        // What is dirty can be saved when the host has more memory; it was asked for by this very search.
        std::vector<Request> host = pending_growth(0);
        for (Request& r : host) serve(r);
        if (host.empty()) break;
    }
    if (given == 0) return 0;
    memory.device->trim();
    // It would be taken again before those who need it look.
    for ([[maybe_unused]] const Request& r : pending_growth(m)) offer(m, {}, Message::What::grown);
    if (memory.awaited) memory.awaited->bytes += given;
    count();
    return given;
}

// ---- waiting for what others hold

/// Somebody else in this process has memory of the device, or of the resource that the runtime uses: then it makes sense to wait.
bool MemoryService::others_hold(memory::MemoryIndex m) noexcept {
    DeviceMemory& device = *memories_[m].device;
    try {
        const rmm::detail::driver_scope own_driver(driver_);
        std::size_t held = 0;
        rmm::detail::for_each_holder(ordinals_[m - 1], [&](rmm::detail::memory_holder& h) {
            const rmm::detail::holder_figures f = h.figures();
            if (!device.in_order()) {
                if (f.takes_from_driver) held += f.held_bytes;
                return;
            }
            // A shared resource has memory for others in it: what counts is who uses it, and only once.
            rmm::detail::tag_sums used;
            h.add_by_tag(&used);
            if (used.empty() && f.takes_from_driver) held += f.in_use_bytes;
            for (std::size_t tag = 0; tag < used.size(); ++tag)
                if (tag != rmm::detail::of_a_pool) held += used[tag].bytes;
        });
        return held > device.held_bytes();
    } catch (const std::exception&) {
        return false;
    }
}

void MemoryService::await_now(memory::MemoryIndex m, std::size_t bytes) {
    Awaited& awaited = memories_[m].awaited.emplace();
    const Clock::time_point now = Clock::now();
    const double seconds = std::min(config_.memory_wait, longest_wait_seconds);
    awaited.bytes = bytes;
    awaited.turn = {now, number_};
    awaited.until = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    awaited.next = now;
}

void MemoryService::end_awaited(memory::MemoryIndex m, const Step& step) {
    memories_[m].awaited->waits->store(false);
    memories_[m].awaited.reset();
    offer(m, step, Message::What::grown);
}

// The driver tells nobody when memory becomes free, least of all that of other processes: it is asked again and again.
void MemoryService::try_awaited() {
    for (memory::MemoryIndex m = 1; m < memories_.size(); ++m) {
        if (!memories_[m].awaited) continue;
        Awaited& awaited = *memories_[m].awaited;
        const std::size_t left = limits_[m] - std::min(limits_[m], memories_[m].offered_bytes);
        Step step;
        if (left != 0 && take_anywhere(m, std::min(awaited.bytes, left), &step)) {
            end_awaited(m, step);
            continue;
        }
        const Clock::time_point now = Clock::now();
        if (left == 0 || now >= awaited.until || !others_hold(m)) {
            end_awaited(m, {});
            continue;
        }
        ask_neighbours(m);
        awaited.next = now + awaited.pause;
        awaited.pause = std::min(2 * awaited.pause, longest_pause);
    }
}

}  // namespace kmm::execute
