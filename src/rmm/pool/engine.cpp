// Implements engine.hpp.
#include "rmm/pool/engine.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "rmm/aligned.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::format_bytes;
using rmm::detail::format_size;
using rmm::detail::identify;
using rmm::detail::stream_identity;
using rmm::detail::stream_kind;

// A block is rounded up to this, which is also what every pointer is aligned to.
constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;

// Blocks that streams keep for themselves before they go into the heap, where they merge: enough for every size of a
// program's inner loop on many streams, few enough that a miss puts them all back in well under a millisecond.
constexpr std::size_t max_kept = 4096;

// Recorded epochs that are left alone before they are asked about: each question costs a driver call.
constexpr std::size_t poll_slack = 64;

// The heap must not merge blocks of upstream that happen to touch, since a copy across the seam of two allocations of the
// driver may fail. One that would touch is entered into the heap here, above every address that a process can have.
constexpr std::uintptr_t moved_addresses = std::uintptr_t{1} << 62;

/// Lets a lock go for a scope; it is back whichever way the scope ends.
class unlocked {
  public:
    explicit unlocked(std::unique_lock<rmm::detail::short_lock>& held) noexcept : held_(held) { held_.unlock(); }
    ~unlocked() { held_.lock(); }
    unlocked(const unlocked&) = delete;
    unlocked& operator=(const unlocked&) = delete;

  private:
    std::unique_lock<rmm::detail::short_lock>& held_;
};

}  // namespace

pool_engine::pool_engine(device_async_resource_ref upstream, std::size_t initial_bytes,
                         std::optional<std::size_t> maximum_bytes, bool ordered_upstream)
    : driver_(rmm::detail::the_driver()),
      device_(rmm::detail::current_device()),
      upstream_(upstream),
      maximum_bytes_(maximum_bytes),
      ordered_upstream_(ordered_upstream),
      name_("pool_memory_resource"),
      heap_(unit),
      timelines_(driver_, device_),
      next_moved_address_(moved_addresses),
      poll_above_(poll_slack) {
    if (initial_bytes == 0) return;
    refusal why;
    std::size_t attempt = initial_bytes;
    void* const base = ask_upstream(&attempt, initial_bytes, cuda_stream_view{}, &why.reason);
    if (base == nullptr) {
        why.why = refusal::cause::exhausted;
        throw_refusal(initial_bytes, why, cuda_stream_view{});
    }
    try {
        heap::fence_set fences;
        if (ordered_upstream_) fences.add(timelines_.fence_now(timelines_.at(identify(driver_, cuda_stream_view{}))));
        add_upstream_block(base, initial_bytes);
        enter(regions_.begin()->second, fences);
    } catch (...) {
        upstream_.deallocate_async(base, initial_bytes, unit, cuda_stream_view{});
        throw;
    }
}

pool_engine::~pool_engine() {
    driver::DeviceGuard on(driver_, device_);
    // The default stream, on which the memory goes back, comes after the last users. Streams that cannot be named any more
    // have left events.
    try {
        lock held(mutex_);
        const driver::Status status = wait_for(held, timelines_.outstanding(), cuda_stream_view{});
        if (!status.ok()) wait_for_device();
    } catch (const std::bad_alloc&) {
        wait_for_device();
    }
    for (const auto& [address, r] : regions_) {
        try {
            upstream_.deallocate_async(reinterpret_cast<void*>(address), r.size_bytes, unit, cuda_stream_view{});
        } catch (const std::exception& e) {
            rmm::detail::report_misuse(std::string("the upstream of a pool threw in deallocate: ") + e.what());
        }
    }
}

void* pool_engine::allocate(std::size_t bytes, cuda_stream_view stream) {
    refusal why;
    if (void* const ptr = try_allocate(bytes, stream, &why)) return ptr;
    throw_refusal(bytes, why, stream);
}

void* pool_engine::try_allocate(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
        why->why = refusal::cause::too_large;
        return nullptr;
    }
    const std::size_t size = align_up(bytes, unit);
    const stream_identity who = identify(driver_, stream);
    lock held(mutex_);
    if (timelines_.num_recorded() > poll_above_) poll(held);
    piece taken = take_or_grow(held, size, who, stream, why);
    if (!taken.block) return nullptr;
    try {
        const heap::fence_set& fences = taken.block.fences;
        const driver::Status status = fences.empty() ? driver::Status{} : wait_for(held, fences, stream, who.number);
        if (status.ok()) return hand_out(taken.block);
        why->why = refusal::cause::driver;
        why->status = status;
    } catch (...) {
        put_back(taken, who.number);
        throw;
    }
    put_back(taken, who.number);
    return nullptr;
}

/// An empty block, with the cause in `*why`, if there is none. Lets the lock go while upstream is asked.
pool_engine::piece pool_engine::take_or_grow(lock& held, std::size_t size, const stream_identity& who,
                                             cuda_stream_view stream, refusal* why) {
    for (;;) {
        if (piece taken = take(size, who.number); taken.block) return taken;
        if (growing_ && grower_ != std::this_thread::get_id()) {
            grown_.wait(held, [this] { return !growing_; });
            continue;
        }
        if (heap::block block = grow(held, size, who, stream, why)) return {std::move(block), 0};
        // While upstream was asked, others may have freed something.
        return take(size, who.number);
    }
}

/// From what the stream keeps, else from the heap, else from the heap with everything that is kept in it.
pool_engine::piece pool_engine::take(std::size_t size, std::uint64_t own) {
    if (num_kept_ > 0) {
        timeline* t = timelines_.find(own);
        if (t != nullptr && t->num_kept > 0) {
            if (const auto at = t->kept.find(size); at != t->kept.end() && !at->second.empty()) {
                const kept_block kept = at->second.back();
                at->second.pop_back();
                --t->num_kept;
                --num_kept_;
                return {heap::block{kept.address, size, {}}, kept.epoch};
            }
        }
    }
    piece taken{heap_.try_allocate(size), 0};
    if (!taken.block && num_kept_ > 0) {
        flush_kept();
        taken.block = heap_.try_allocate(size);
    }
    return taken;
}

void pool_engine::put_back(const piece& taken, std::uint64_t own) {
    heap::fence_set fences = taken.block.fences;
    if (taken.kept_epoch != 0) fences.add({own, taken.kept_epoch});
    give(taken.block.address, taken.block.size_bytes, fences);
}

void* pool_engine::hand_out(const heap::block& block) {
    void* const ptr = real_address(block.address);
    live_.insert({reinterpret_cast<std::uintptr_t>(ptr), block.size_bytes, block.address});
    in_use_bytes_ += block.size_bytes;
    return ptr;
}

/// Makes `stream` (whose own fences need nothing) wait for `fences`. Lets the lock go for the driver.
driver::Status pool_engine::wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream,
                                     std::uint64_t own) {
    std::vector<pending_wait> waits;
    while (const std::size_t missing = timelines_.prepare_waits(fences, own, &waits)) {
        std::vector<driver::EventHandle> made;
        driver::Status status;
        {
            const unlocked without(held);
            status = timelines_.create_events(missing, &made);
        }
        for (driver::EventHandle e : made) timelines_.give_spare(e);
        if (!status.ok()) return status;
    }
    if (waits.empty()) return {};
    held.unlock();
    const driver::Status status = timelines_.carry_out(waits, rmm::detail::handle_of(stream));
    held.lock();
    timelines_.finish(waits);
    return status;
}

driver::Status pool_engine::wait_for(lock& held, const heap::fence_set& fences, cuda_stream_view stream) {
    return wait_for(held, fences, stream, identify(driver_, stream).number);
}

void pool_engine::wait_for_device() noexcept {
    (void)driver_.take_last_error();
    rmm::detail::report_failure(driver_.synchronize_device(device_), "wait for the users of a pool's memory");
}

std::optional<std::size_t> pool_engine::first_attempt(std::size_t size, refusal* why) const {
    const std::size_t held = held_bytes();
    if (!maximum_bytes_) return std::max(size, held);
    const std::size_t room = *maximum_bytes_ > held ? align_up(*maximum_bytes_ - held, unit) : 0;
    if (size > room) {
        why->why = refusal::cause::exhausted;
        why->reason = "Not enough room to grow, current/max/try size = " + format_bytes(held) + ", " +
                      format_bytes(*maximum_bytes_) + ", " + format_bytes(size);
        return std::nullopt;
    }
    return std::max(size, align_down(room / 2, unit));
}

/// Called with a miss, by one thread at a time. An empty block, with the cause, if upstream does not give.
heap::block pool_engine::grow(lock& held, std::size_t size, const stream_identity& who, cuda_stream_view stream,
                              refusal* why) {
    const auto first = first_attempt(size, why);
    if (!first) return {};
    // An upstream that calls back into this pool is the same thread growing again; it leaves the marks to the outer call.
    struct mark {
        pool_engine& pool;
        bool outermost;
        explicit mark(pool_engine& p) : pool(p), outermost(!p.growing_) {
            if (!outermost) return;
            pool.growing_ = true;
            pool.grower_ = std::this_thread::get_id();
        }
        ~mark() {
            if (!outermost) return;
            pool.growing_ = false;
            pool.grower_ = {};
            pool.grown_.notify_all();
        }
    };
    const mark growing(*this);
    std::size_t attempt = *first;
    void* base = nullptr;
    {
        const unlocked without(held);
        base = ask_upstream(&attempt, size, stream, &why->reason);
    }
    if (base == nullptr) {
        why->why = refusal::cause::exhausted;
        return {};
    }
    try {
        heap::fence_set fences;
        if (ordered_upstream_) {
            if (const auto f = fence_now(held, who, stream)) fences.add(*f);
        }
        const region& r = add_upstream_block(base, attempt);
        // The request's own stream is the one on which upstream gave the memory: its part needs no fence.
        heap_.add_region(r.heap_address, size);
        const heap::block block = take_exactly(r.heap_address, size);
        if (attempt > size) enter({attempt - size, r.heap_address + size}, fences);
        return block;
    } catch (...) {
        // What is noted already goes back with the pool, though the heap may not have all of it.
        if (regions_.count(reinterpret_cast<std::uintptr_t>(base)) == 0) {
            held.unlock();
            upstream_.deallocate_async(base, attempt, unit, stream);
            held.lock();
        }
        throw;
    }
}

/// Without the lock. Null, with upstream's words in `*reason`, after upstream has refused exactly `size`.
void* pool_engine::ask_upstream(std::size_t* attempt, std::size_t size, cuda_stream_view stream, std::string* reason) {
    for (;;) {
        try {
            return upstream_.allocate_async(*attempt, unit, stream);
        } catch (const std::exception& e) {
            *reason = e.what();
        }
        if (*attempt <= size) return nullptr;
        *attempt = std::max(size, align_down(*attempt / 2, unit));
    }
}

/// Notes a block of upstream, which is not in the heap yet.
const pool_engine::region& pool_engine::add_upstream_block(void* base, std::size_t bytes) {
    const auto real = reinterpret_cast<std::uintptr_t>(base);
    RMM_EXPECTS(real % unit == 0, "the upstream of a pool gave memory that is not aligned to 256 bytes");
    const auto next = regions_.lower_bound(real);
    const bool touches =
        (next != regions_.end() && next->first <= real + bytes) ||
        (next != regions_.begin() && std::prev(next)->first + std::prev(next)->second.size_bytes >= real);
    std::uintptr_t address = real;
    if (touches) {
        address = next_moved_address_;
        moved_.emplace(address, real);
        next_moved_address_ += bytes + unit;
    }
    const region& r = regions_.emplace(real, region{bytes, address}).first->second;
    held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return r;
}

/// Enters free memory into the heap, with fences.
void pool_engine::enter(const region& r, const heap::fence_set& fences) {
    heap_.add_region(r.heap_address, r.size_bytes);
    if (fences.empty()) return;
    const heap::block whole = take_exactly(r.heap_address, r.size_bytes);
    give(whole.address, whole.size_bytes, fences);
}

/// Takes out a free piece that is known to be there without fences.
heap::block pool_engine::take_exactly(std::uintptr_t heap_address, std::size_t size) {
    // The heap chooses the lowest of several that fit equally well.
    std::vector<heap::block> others;
    heap::block block = heap_.try_allocate(size);
    while (block && block.address != heap_address) {
        others.push_back(std::move(block));
        block = heap_.try_allocate(size);
    }
    for (const heap::block& other : others) give(other.address, other.size_bytes, other.fences);
    return block;
}

void pool_engine::free(void* ptr, std::size_t bytes, std::span<const cuda_stream_view> streams) noexcept {
    const std::size_t size = align_up(bytes, unit);
    live_block block;
    try {
        lock held(mutex_, std::defer_lock);
        std::optional<heap::fence> only;
        heap::fence_set fences;
        for (cuda_stream_view stream : streams) {
            if (held.owns_lock()) held.unlock();
            const stream_identity who = identify(driver_, stream);
            held.lock();
            only = fence_now(held, who, stream);
            if (only && streams.size() > 1) fences.add(*only);
        }
        if (!held.owns_lock()) held.lock();
        block = live_.take(reinterpret_cast<std::uintptr_t>(ptr));
        if (block.address != 0) {
            in_use_bytes_ -= block.size_bytes;
            timeline* t = only && streams.size() == 1 ? timelines_.find(only->timeline) : nullptr;
            if (t != nullptr && num_kept_ < max_kept) {
                t->kept[block.size_bytes].push_back({block.heap_address, only->position});
                ++t->num_kept;
                ++num_kept_;
            } else {
                if (t != nullptr) fences.add(*only);
                give(block.heap_address, block.size_bytes, fences);
            }
        }
    } catch (const std::exception& e) {
        rmm::detail::report_misuse(std::string("a block of a pool is lost until the pool is destroyed: ") + e.what());
        return;
    }
    if (block.size_bytes != size) report_free(ptr, bytes, block.size_bytes);
}

/// "Not before `stream` has reached where it is now." A stream that cannot be fenced is waited for, with its whole device,
/// and needs no fence then. Lets the lock go for the driver.
std::optional<heap::fence> pool_engine::fence_now(lock& held, const stream_identity& who, cuda_stream_view stream) {
    if (who.kind == stream_kind::legacy || who.kind == stream_kind::owned)
        return timelines_.fence_now(timelines_.at(who));
    driver::EventHandle event = timelines_.take_spare();
    driver::Status status;
    // Another thread may free on the same stream at the same time: an event counts only if nothing was adopted between.
    for (;;) {
        const std::uint64_t version = timelines_.at(who).version;
        {
            const unlocked without(held);
            if (event.native == nullptr) status = driver_.create_event(device_, false, false, &event);
            if (status.ok()) status = driver_.record_event(event, rmm::detail::handle_of(stream));
            if (!status.ok()) wait_for_device();
        }
        if (!status.ok()) {
            if (event.native != nullptr) timelines_.give_spare(event);
            return std::nullopt;
        }
        timeline& t = timelines_.at(who);
        if (timelines_.adopt(t, event, version)) return timelines_.fence_now(t);
    }
}

/// Into the heap. What the heap cannot take is lost until the pool is destroyed.
void pool_engine::give(std::uintptr_t heap_address, std::size_t size, const heap::fence_set& fences) {
    heap::fence_set unpassed = fences;
    unpassed.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
    heap_.free(heap_address, size, unpassed);
}

void pool_engine::flush_kept() {
    for (auto& [number, t] : timelines_) {
        if (t->num_kept == 0) continue;
        for (auto& [size, blocks] : t->kept) {
            while (!blocks.empty()) {
                give(blocks.back().address, size, heap::fence_set{{number, blocks.back().epoch}});
                blocks.pop_back();
                --t->num_kept;
                --num_kept_;
            }
        }
        // Sizes that were asked for once must not gather here.
        t->kept.clear();
    }
}

/// Asks which recorded epochs have passed, and clears their fences.
void pool_engine::poll(lock& held) {
    std::vector<timelines::question> questions = timelines_.questions();
    {
        const unlocked without(held);
        timelines_.ask(questions);
    }
    timelines_.answer(questions);
    heap_.prune([this](const heap::fence& f) { return timelines_.has_passed(f); });
    timelines_.forget_idle();
    // The next round comes when as many again have gathered, so that its cost is spread over what caused it.
    poll_above_ = 2 * timelines_.num_recorded() + poll_slack;
}

void* pool_engine::real_address(std::uintptr_t heap_address) const {
    if (heap_address < moved_addresses) return reinterpret_cast<void*>(heap_address);
    const auto at = std::prev(moved_.upper_bound(heap_address));
    return reinterpret_cast<void*>(at->second + (heap_address - at->first));
}

pool_statistics pool_engine::statistics() {
    lock held(mutex_);
    pool_statistics s;
    flush_kept();
    s.held_bytes = held_bytes();
    s.in_use_bytes = in_use_bytes_;
    s.free_bytes = heap_.free_bytes();
    s.largest_free_bytes = heap_.largest_free_bytes();
    s.maximum_bytes = maximum_bytes_.value_or(0);
    s.num_blocks = live_.size();
    s.num_upstream_blocks = regions_.size();
    return s;
}

std::size_t pool_engine::trim(std::size_t keep_bytes) {
    std::size_t given_back = 0;
    lock held(mutex_);
    flush_kept();
    for (auto at = regions_.begin(); at != regions_.end() && held_bytes() > keep_bytes;) {
        const std::uintptr_t real = at->first;
        const region r = at->second;
        heap::fence_set fences;
        if (!heap_.remove_region(r.heap_address, r.size_bytes, &fences)) {
            ++at;
            continue;
        }
        // Out of the heap it is nobody's while the lock is let go.
        if (!wait_for(held, fences, cuda_stream_view{}).ok()) {
            (void)driver_.take_last_error();
            enter(r, fences);
            return given_back;
        }
        regions_.erase(real);
        moved_.erase(r.heap_address);
        held_bytes_.fetch_sub(r.size_bytes, std::memory_order_relaxed);
        given_back += r.size_bytes;
        held.unlock();
        upstream_.deallocate_async(reinterpret_cast<void*>(real), r.size_bytes, unit, cuda_stream_view{});
        held.lock();
        at = regions_.upper_bound(real);
    }
    return given_back;
}

void pool_engine::set_name(std::string name) {
    lock held(mutex_);
    name_ = std::move(name);
}

void pool_engine::throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream) {
    if (why.why == refusal::cause::driver)
        rmm::detail::throw_allocation_failure(why.status, bytes,
                                              "a pool, making a stream wait for the last users of a block,");
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    if (why.why == refusal::cause::too_large)
        throw rmm::out_of_memory("Maximum allocation size exceeded (failed to allocate " + format_bytes(bytes) + ")",
                                 shortage);

    const pool_statistics s = statistics();
    shortage.pool_bytes = s.held_bytes;
    shortage.pool_in_use_bytes = s.in_use_bytes;
    shortage.pool_free_bytes = s.free_bytes;
    shortage.pool_largest_free_bytes = s.largest_free_bytes;
    shortage.pool_maximum_bytes = s.maximum_bytes;
    std::string name;
    {
        lock held(mutex_);
        name = name_;
    }
    std::string text = "Maximum pool size exceeded (failed to allocate " + format_bytes(bytes) + "): " + why.reason;
    text +=
        "\nout of memory on " + rmm::detail::device_name(device_) + ": pool \"" + name + "\" was asked for " +
        format_size(bytes) + " on stream " + rmm::detail::format_stream(stream) +
        (maximum_bytes_ ? " and may hold at most " + format_size(*maximum_bytes_) : std::string(" and has no maximum"));
    text += "\n  this pool   holds " + format_size(s.held_bytes) + " (in use " + format_size(s.in_use_bytes) + " in " +
            std::to_string(s.num_blocks) + " blocks, free " + format_size(s.free_bytes) + ", largest free piece " +
            format_size(s.largest_free_bytes) + ")";
    text += "\n  " + rmm::detail::describe_device_memory(device_, &shortage);
    const bool in_pieces = s.free_bytes >= bytes;
    text += std::string("\n  try         ") +
            (in_pieces ? "a larger pool, or one initial block instead of growth: enough is free but in pieces"
                       : (maximum_bytes_ ? "a larger maximum, or freeing blocks"
                                         : "freeing blocks, or a device with more memory"));
    throw rmm::out_of_memory(text, shortage);
}

void pool_engine::report_free(void* ptr, std::size_t bytes, std::size_t true_size) const noexcept {
    try {
        char address[32];
        std::snprintf(address, sizeof(address), "%p", ptr);
        if (true_size == 0)
            rmm::detail::report_misuse(
                std::string("a pool was given ") + address + " with " + std::to_string(bytes) +
                " bytes to free, which is not a block in use: freed twice, or by the wrong resource?");
        else
            rmm::detail::report_misuse(std::string("a pool was given ") + address + " with " + std::to_string(bytes) +
                                       " bytes to free; the block has " + std::to_string(true_size) +
                                       ". Free with the size that was allocated");
    } catch (const std::bad_alloc&) {
        rmm::detail::report_failure({driver::Code::out_of_memory, 0}, "describe a wrong free");
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
