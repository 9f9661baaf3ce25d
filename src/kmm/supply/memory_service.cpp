// Implements memory_service.hpp: steps that grow, are exchanged and given back; then how a device's memory is shared
// with its other users in this process, who get some where they are short, and whose memory is waited for.
//
// Runs on the service's thread, except `reclaim` and what hands it requests. Sharing waits for no device (a driver's
// own free may), and for no other thread but the one that has the baton: steps in use leave one by one as their users
// pass, and services ask each other by messages.
#include "kmm/supply/memory_service.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <new>
#include <utility>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/base/log.hpp"
#include "rmm/ledger.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace kmm::supply {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
// A first step that costs about a millisecond, and a largest one that is ready in 40 ms where 16 threads touch pages.
constexpr std::size_t smallest_host_step = 32 * mib;
constexpr std::size_t largest_host_step = 1024 * mib;
constexpr std::size_t smallest_device_step = 64 * mib;
constexpr std::size_t largest_device_step = 2048 * mib;
// Granularity of the heaps.
constexpr std::size_t heap_unit = 256;

std::uint64_t next_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

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

MemoryService::MemoryService(engine::Lanes& lanes, std::vector<int> ordinals,
                             memory::PerMemory<std::size_t> limits_bytes, const RuntimeConfig& config,
                             DeviceMemoryKind device_kind, const void* runtime, engine::Mailbox& mailbox)
    : driver_(lanes.driver()),
      lanes_(lanes),
      ordinals_(std::move(ordinals)),
      limits_(std::move(limits_bytes)),
      config_(config),
      runtime_(runtime),
      mailbox_(mailbox),
      memories_(memory::PerMemory<Memory>::of_devices(limits_.num_devices())),
      scratch_(lanes),
      number_(next_number()) {
    memories_[memory::MemoryIndex::host()].rule = {heap_unit, config_.host_memory_block_size, smallest_host_step,
                                                   largest_host_step,
                                                   config_.host_memory_kind == HostMemoryKind::NoPool};
    for (const memory::MemoryIndex m : memories_.device_memories()) {
        const std::uint32_t d = m.device();
        const DeviceMemorySource* source =
            device_kind == DeviceMemoryKind::Resource ? &config_.device_resource[d] : nullptr;
        memories_[m].device = std::make_unique<DeviceMemory>(driver_, ordinals_, d, device_kind, source);
        memories_[m].rule = {memories_[m].device->piece_bytes(), config_.device_memory_block_size, smallest_device_step,
                             largest_device_step, config_.device_memory_kind == DeviceMemoryKind::NoPool};
    }
    current_.device_bytes.resize(ordinals_.size());
    figures_ = current_;
    meet_neighbours();
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        leave_neighbours();
        throw;
    }
}

MemoryService::~MemoryService() {
    leave_neighbours();
    {
        const locks::Guard guard(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void MemoryService::push(Request request) {
    {
        const locks::Guard guard(mutex_);
        requests_.push_back(std::move(request));
    }
    wake_.notify_one();
}

void MemoryService::grow(memory::MemoryIndex memory, std::size_t at_least_bytes) {
    push({Wish::grow, memory, at_least_bytes});
}

void MemoryService::exchange(memory::MemoryIndex memory, std::size_t at_least_bytes) {
    push({Wish::exchange, memory, at_least_bytes});
}

void MemoryService::await(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient) {
    push({Wish::await, memory, lacking.bytes, nullptr, patient, lacking.least_bytes});
}

void MemoryService::give_bounce(std::size_t bytes) { push({Wish::bounce, memory::MemoryIndex::host(), bytes}); }

void MemoryService::trim() {
    std::promise<void> trimmed;
    push({Wish::trim, {}, 0, &trimmed});
    trimmed.get_future().wait();
}

MemoryService::Figures MemoryService::figures() const {
    const locks::Guard guard(mutex_);
    return figures_;
}

/// Sleeps until there is one, or it is time to try again to get what is awaited (false as well).
bool MemoryService::next_request(Request* out) {
    Clock::time_point next = Clock::time_point::max();
    for (const Memory& m : memories_)
        if (m.awaited) next = std::min(next, m.awaited->next);
    locks::Lock lock(mutex_);
    const auto something = [this]() KMM_REQUIRES(mutex_) { return stop_ || !requests_.empty(); };
    if (next == Clock::time_point::max())
        wake_.wait(lock, something);
    else
        wake_.wait_until(lock, next, something);
    if (stop_ || requests_.empty()) return false;
    *out = std::move(requests_.front());
    requests_.pop_front();
    return true;
}

void MemoryService::serve(Request& request) {
    switch (request.wish) {
    case Wish::grow: grow_now(request.memory, request.bytes); break;
    case Wish::exchange: exchange_now(request.memory, request.bytes); break;
    case Wish::trim: trim_now(); break;
    case Wish::await: await_now(request.memory, {request.bytes, request.least_bytes}, request.patient); break;
    case Wish::reclaim: reclaim_for(request.memory, request.asked); break;
    case Wish::bounce: give_bounce_now(request.bytes); break;
    case Wish::look:
        for (Memory& m : memories_)
            if (m.awaited && m.awaited->asked != nullptr && !m.awaited->asked->pending.load())
                m.awaited->next = Clock::now();
        break;
    }
    if (request.done != nullptr) request.done->set_value();
}

// Answers a request that could not be served for lack of host memory.
void MemoryService::refuse(Request& request) noexcept {
    switch (request.wish) {
    case Wish::grow:
    case Wish::exchange: offer(request.memory, {}, engine::Message::What::grown); break;
    case Wish::await:
        memories_[request.memory].awaited.reset();
        offer(request.memory, {}, engine::Message::What::awaited);
        break;
    case Wish::reclaim: answer(*request.asked); break;
    case Wish::bounce: post_bounce(); break;
    case Wish::trim: request.done->set_value(); break;
    case Wish::look: break;
    }
}

void MemoryService::run() {
    const engine::RuntimeThread mark(runtime_);
    // A reclaimer may wait for this thread.
    const rmm::detail::no_reclaimers_scope ask_nobody;
    (void)driver_.set_current_device(ordinals_.front());  // pinning needs one
    for (;;) {
        Request request;
        if (next_request(&request)) {
            try {
                serve(request);
            } catch (const std::bad_alloc&) {
                refuse(request);
            }
        }
        try {
            if (!leaving_.empty()) give_what_has_left();
            try_awaited();
        } catch (const std::bad_alloc&) {
            // Tried again at the next look.
        }
        mailbox_.help();
        const locks::Guard guard(mutex_);
        if (stop_) break;
    }
    for (const Leaving& l : leaving_) {
        lanes_.wait_on_host(l.users);
        give_back(l.memory, l.step);
        answer(*l.asked);
    }
    graph::Deque<Request> unserved;
    {
        const locks::Guard guard(mutex_);
        unserved.swap(requests_);
    }
    for (const Request& r : unserved)
        if (r.asked != nullptr) answer(*r.asked);
    for (const memory::MemoryIndex m : memories_.memories()) {
        for (const Step& s : memories_[m].steps) give_back(m, s);
        memories_[m].device.reset();
    }
    if (bounce_.bytes != 0) give_back(memory::MemoryIndex::host(), bounce_);
}

void MemoryService::give_bounce_now(std::size_t bytes) {
    if (bounce_.bytes != 0) give_back(memory::MemoryIndex::host(), std::exchange(bounce_, {}));
    if (!take(memory::MemoryIndex::host(), bytes, &bounce_)) bounce_ = {};
    current_.bounce_bytes = bounce_.bytes;
    count();
    post_bounce();
}

void MemoryService::post_bounce() {
    engine::Message message;
    message.what = engine::Message::What::bounce_came;
    message.address = reinterpret_cast<std::uintptr_t>(bounce_.address);
    message.bytes = bounce_.bytes;
    mailbox_.post(std::move(message));
}

// A step is a whole number of pieces, so that the heap gets all that is taken of the device. The last step ends at the
// limit.
std::size_t MemoryService::in_pieces(memory::MemoryIndex m, std::size_t bytes, std::size_t left) const noexcept {
    if (bytes >= left) return left;
    const std::size_t piece = memories_[m].rule.piece_bytes;
    const std::size_t rest = bytes % piece;
    return rest == 0 ? bytes : std::min(left, bytes - rest + piece);
}

// What the last step of a heap should hold: neither a sliver that nothing fits into, nor, where no chunk may lie across
// two steps, a part of a chunk. `needed` and the result are in pieces.
std::size_t MemoryService::step_bytes(memory::MemoryIndex m, std::size_t needed, std::size_t left) const {
    const Memory& memory = memories_[m];
    const StepRule& rule = memory.rule;
    if (rule.block_bytes != 0) return std::max(needed, in_pieces(m, rule.block_bytes, left));
    if (rule.by_request) return needed;
    std::size_t step = std::clamp(memory.offered_bytes, rule.smallest_bytes, rule.largest_bytes);
    if (needed >= step) return needed;
    if (step >= left || left - step < step / 4) return left;
    if (memory.device == nullptr || !memory.device->is_one_range()) step = step / needed * needed;
    return in_pieces(m, step, left);
}

bool MemoryService::take(memory::MemoryIndex m, std::size_t bytes, Step* out) {
    Step step;
    step.bytes = bytes;
    if (memories_[m].device == nullptr) {
        const auto begin = std::chrono::steady_clock::now();
        const rmm::detail::driver_scope own_driver(driver_);  // texts of failures
        if (config_.host_memory_kind == HostMemoryKind::NoPool) {
            step.block.size_bytes = bytes;
            if (!driver_.allocate_pinned(bytes, &step.block.address).ok()) return false;
        } else {
            try {
                if (!rmm::detail::pin(driver_, bytes, &step.block).ok()) return false;
            } catch (const std::exception&) {  // no host memory or no threads
                return false;
            }
        }
        step.address = step.block.address;
        current_.pinned_bytes += step.block.size_bytes;
        current_.pinning_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    } else {
        DeviceMemory& device = *memories_[m].device;
        if (current_.device_bytes[m.device()] == 0) lanes_.make_streams(m.device());
        step.address = device.take(bytes);
        step.sealed = !device.is_one_range();
        if (step.address == nullptr) return false;
    }
    *out = step;
    return true;
}

void MemoryService::give_back(memory::MemoryIndex m, const Step& step) {
    if (memories_[m].device == nullptr) {
        const rmm::detail::driver_scope own_driver(driver_);
        rmm::detail::unpin(driver_, step.block);
        current_.pinned_bytes -= step.block.size_bytes;
    } else if (step.plain) {
        memories_[m].device->give_back_plain(step.address, step.bytes);
    } else {
        memories_[m].device->give_back(step.address, step.bytes);
    }
}

/// 0 bytes: a refusal.
void MemoryService::offer(memory::MemoryIndex m, const Step& step, engine::Message::What what) {
    if (step.bytes != 0) {
        memories_[m].steps.push_back(step);
        note_sample(m);
        memories_[m].offered_bytes += step.bytes;
        ++current_.steps;
    }
    count();
    engine::Message message;
    message.what = what;
    message.to = m;
    message.address = reinterpret_cast<std::uintptr_t>(step.address);
    message.bytes = step.bytes;
    message.sealed = step.sealed;
    mailbox_.post(std::move(message));
}

void MemoryService::count() {
    current_.mappings = 0;
    for (const memory::MemoryIndex m : memories_.device_memories()) {
        const Memory& memory = memories_[m];
        current_.mappings += memory.device->mappings();
        current_.device_bytes[m.device()] = memory.device->held_bytes();
    }
    const locks::Guard guard(mutex_);
    figures_ = current_;  // of equal sizes: allocates nothing
}

void MemoryService::grow_now(memory::MemoryIndex m, std::size_t bytes) {
    const std::size_t left = left_bytes(m);
    const std::size_t needed = in_pieces(m, bytes, left);
    // What others keep for themselves they give once: a runtime that gets on with less must not empty their pools every
    // second. And they give what is needed, not what would be nice to have.
    Step step;
    const std::size_t piece = memories_[m].rule.piece_bytes;
    std::optional<rmm::mr::no_reclaim_scope> ask_nobody(std::in_place);
    for (std::size_t attempt = step_bytes(m, needed, left); attempt > needed;) {
        if (take(m, attempt, &step)) break;
        attempt = std::max(needed, attempt / 2 / piece * piece);
    }
    if (!memories_[m].refused) ask_nobody.reset();
    if (step.address == nullptr && needed != 0) (void)take_anywhere(m, needed, &step);
    memories_[m].refused = step.address == nullptr;
    offer(m, step, engine::Message::What::grown);
}

/// As `take`; if not even one piece can be mapped, tries a plain allocation of the driver.
bool MemoryService::take_anywhere(memory::MemoryIndex m, std::size_t bytes, Step* out) {
    if (take(m, bytes, out)) return true;
    if (memories_[m].device == nullptr || !memories_[m].device->is_one_range()) return false;
    Step step;
    step.address = memories_[m].device->take_plain(bytes);
    if (step.address == nullptr) return false;
    step.bytes = bytes;
    step.plain = true;
    *out = step;
    return true;
}

/// Takes the wholly free steps out of the heap. Blocks until their last users on devices have finished.
graph::Vector<MemoryService::Step> MemoryService::take_back_free(memory::MemoryIndex m) {
    Memory& memory = memories_[m];
    graph::Vector<Step> taken;
    graph::FenceSet users;
    std::erase_if(memory.steps, [&](const Step& s) {
        if (!mailbox_.take_back(m, s.address, s.bytes, &users)) return false;
        taken.push_back(s);
        memory.offered_bytes -= s.bytes;
        return true;
    });
    note_sample(m);
    lanes_.wait_on_host(users);
    return taken;
}

void MemoryService::exchange_now(memory::MemoryIndex m, std::size_t bytes) {
    const graph::Vector<Step> old = take_back_free(m);
    std::size_t old_bytes = 0;
    for (const Step& s : old) old_bytes += s.bytes;
    const std::size_t left = left_bytes(m);
    const std::size_t needed = std::max(old_bytes, bytes);
    if (needed > left) {
        for (const Step& s : old) offer(m, s, engine::Message::What::given_again);
        offer(m, {}, engine::Message::What::grown);
        return;
    }
    for (const Step& s : old) give_back(m, s);
    if (memories_[m].device != nullptr) memories_[m].device->trim();
    Step step;
    if (!take_anywhere(m, in_pieces(m, needed, left), &step)) {
        for (const Step& s : old) {
            Step again;
            if (take_anywhere(m, s.bytes, &again)) offer(m, again, engine::Message::What::given_again);
        }
        step = {};
    }
    offer(m, step, engine::Message::What::grown);
}

void MemoryService::trim_now() {
    for (const memory::MemoryIndex m : memories_.memories()) {
        for (const Step& s : take_back_free(m)) give_back(m, s);
        if (memories_[m].device != nullptr) memories_[m].device->trim();
    }
    if (bounce_.bytes != 0) {
        lanes_.wait_on_host(mailbox_.take_back_bounce());
        give_back(memory::MemoryIndex::host(), std::exchange(bounce_, {}));
        current_.bounce_bytes = 0;
    }
    count();
}

// ------------------------------------------------------------------------------------------------------------ sharing

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
