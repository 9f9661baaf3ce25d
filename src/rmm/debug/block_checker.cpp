// Implements block_checker.hpp: handing out and taking back. Looking at what was freed: block_checks.cpp.
#include "rmm/debug/block_checker.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/debug/tending.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Slots for copies of zones per allocation of page-locked memory, a call of some 100 microseconds.
constexpr std::size_t slots_per_allocation = 128;
constexpr std::size_t min_staging_bytes = std::size_t{1} << 20;
// Blocks remembered after they have left the quarantine, to recognise a double free.
constexpr std::size_t most_remembered = 4096;
// Leaks printed on stderr; all are counted.
constexpr std::size_t most_leaks_printed = 32;

std::size_t front_bytes(const debug_options& options) noexcept {
    return align_up(options.red_zone_bytes, CUDA_ALLOCATION_ALIGNMENT);
}

std::size_t* count_of(debug_counts& counts, debug_error error) noexcept {
    switch (error) {
    case debug_error::write_before: return &counts.write_before;
    case debug_error::write_behind: return &counts.write_behind;
    case debug_error::write_after_free: return &counts.write_after_free;
    case debug_error::double_free: return &counts.double_free;
    case debug_error::wrong_size: return &counts.wrong_size;
    case debug_error::leak: return &counts.leaks;
    case debug_error::unknown_pointer: break;
    }
    return &counts.unknown_pointer;
}

}  // namespace

std::size_t block_checker::overhead_bytes(const debug_options& options) noexcept {
    return front_bytes(options) + options.red_zone_bytes;
}

block_checker::block_checker(memory_below& below, memory_registration* registration, const debug_options& options,
                             checked_resource of)
    : below_(below),
      registration_(registration),
      options_(options),
      of_(std::move(of)),
      driver_(rmm::detail::the_driver()),
      device_(rmm::detail::current_device()),
      front_bytes_(front_bytes(options)),
      back_bytes_(options.red_zone_bytes),
      staging_bytes_(std::max(min_staging_bytes, front_bytes_ + back_bytes_)),
      writes_patterns_(registration == nullptr),
      own_(cuda_stream::flags::non_blocking) {}

block_checker::~block_checker() {
    const driver::DeviceGuard on(driver_, device_);
    try {
        const tending mine(*this, true);
        const bool idle = live_.empty() && held_.empty() && unfinished_.empty();
        const std::optional<std::uint64_t> end_serial = idle ? std::nullopt : wait_for_device();
        look_at_frees(std::numeric_limits<std::size_t>::max(), true);
        shrink_quarantine(0, 0);
        if (end_serial) check_live(*end_serial);
        report_leaks();
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("could not look at the last blocks of ", of_.name, ": ", e.what());
    }
    // Frees that could not be checked still own an event.
    for (const freed_ptr& b : unfinished_)
        if (b->event.native != nullptr) spare_events_.push_back(b->event);
    for (driver::EventHandle e : spare_events_) (void)driver_.destroy_event(e);
    for (void* p : pinned_) (void)driver_.free_pinned(p);
    (void)driver_.take_last_error();
}

debug_counts block_checker::counts() const {
    const kmm::locks::Guard lock(mutex_);
    return counts_;
}

std::size_t block_checker::quarantined_bytes() const {
    const kmm::locks::Guard lock(mutex_);
    return held_bytes_;
}

void block_checker::report(const debug_finding& finding) noexcept {
    bool last_leak = false;
    {
        const kmm::locks::Guard lock(mutex_);
        ++*count_of(counts_, finding.error);
        if (options_.report == nullptr && finding.error == debug_error::leak) {
            if (leaks_printed_ > most_leaks_printed) return;
            last_leak = leaks_printed_++ == most_leaks_printed;
        }
    }
    if (options_.report != nullptr) try {
            options_.report(finding, options_.report_user);
        } catch (...) {
            rmm::detail::report_misuse("debug_options::report threw for: ", finding.text);
        }
    else if (last_leak)
        rmm::detail::report_misuse("debug: further blocks are still in use; no more of them are listed");
    else
        rmm::detail::report_misuse("debug: ", finding.text);
}

std::shared_ptr<const rmm::detail::stack_trace> block_checker::stack_here() const {
    return options_.stacks ? std::make_shared<const rmm::detail::stack_trace>() : nullptr;
}

bool block_checker::fill(std::uintptr_t address, unsigned char pattern, std::size_t bytes,
                         cuda_stream_view stream) noexcept {
    if (bytes == 0) return true;
    if (driver_.fill(reinterpret_cast<void*>(address), &pattern, 1, bytes, rmm::detail::handle_of(stream)).ok())
        return true;
    (void)driver_.take_last_error();
    return false;
}

bool block_checker::copy(void* to, std::uintptr_t from, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (driver_.copy(to, reinterpret_cast<const void*>(from), bytes, rmm::detail::handle_of(stream)).ok()) return true;
    (void)driver_.take_last_error();
    return false;
}

// ---- handing out

void* block_checker::allocate(std::size_t bytes, cuda_stream_view stream) {
    if (bytes == 0) return nullptr;
    // Larger than any upstream's memory: upstream refuses it.
    const bool has_room = bytes <= std::numeric_limits<std::size_t>::max() / 2;
    live_block b;
    b.history.bytes = bytes;
    b.history.allocated_on = stream;
    b.history.allocated_at = stack_here();
    void* const base = allocate_below(has_room ? size_below(bytes) : bytes, stream);
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(base) + front_bytes_;
    b.history.address = address;
    if (registration_ != nullptr) registration_->give(reinterpret_cast<void*>(address), bytes);
    if (!is_being_captured(driver_, stream)) {
        if (writes_patterns_ && back_bytes_ != 0)
            b.has_zones = fill(address - front_bytes_, zone_pattern, front_bytes_, stream) &&
                          fill(address + bytes, zone_pattern, back_bytes_, stream);
        if (options_.fill) (void)fill(address, new_pattern, bytes, stream);
    }
    try {
        const kmm::locks::Guard lock(mutex_);
        recent_.erase(address);
        b.serial = next_serial_++;
        live_.insert_or_assign(address, std::move(b));
    } catch (...) {
        if (registration_ != nullptr) registration_->take(reinterpret_cast<void*>(address), bytes, stream);
        below_.deallocate(base, size_below(bytes), stream);
        throw rmm::bad_alloc("there is no host memory to remember a block of " + of_.name);
    }
    return reinterpret_cast<void*>(address);
}

void* block_checker::allocate_below(std::size_t bytes, cuda_stream_view stream) {
    try {
        return below_.allocate(bytes, stream);
    } catch (const std::bad_alloc&) {
        if (quarantined_bytes() == 0) throw;
    }
    empty_quarantine();
    return below_.allocate(bytes, stream);
}

// ---- taking back

void block_checker::deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (ptr == nullptr) return;
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    const live_map::node_type was = take_live(address);
    bool is_noted = false;
    try {
        if (was.empty()) {
            block_history freed;
            freed.address = address;
            return report_unknown(freed, bytes, stream);
        }
        take_back(was.mapped(), bytes, stream, &is_noted);
        tend();
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a free of ", of_.name, " is not looked at: ", e.what());
        if (was.empty() || is_noted) return;
        if (registration_ != nullptr) registration_->take(ptr, was.mapped().history.bytes, stream);
        below_.deallocate(base_of(address), size_below(was.mapped().history.bytes), stream);
    }
}

/// `*is_noted`: the block was entered in the quarantine or given back. An exception before that has no effect.
void block_checker::take_back(const live_block& was, std::size_t bytes, cuda_stream_view stream, bool* is_noted) {
    std::list<freed_ptr> one;
    freed_block& b = *one.emplace_back(std::make_unique<freed_block>());
    b.history = was.history;
    b.history.freed_on = stream;
    b.history.freed_at = stack_here();
    const block_history& history = b.history;
    if (history.bytes != bytes) report(describe_wrong_free(debug_error::wrong_size, history, bytes, stream, of_));
    {
        // Its entry, in case it is held back.
        const kmm::locks::Guard lock(mutex_);
        held_.emplace(history.address, &b);
    }
    *is_noted = true;
    queue_checks(b, was.has_zones, stream);
    const bool held = b.held;
    const bool unfinished = b.event.native != nullptr;
    const std::size_t size = size_below(history.bytes);
    void* const base = base_of(history.address);
    {
        const kmm::locks::Guard lock(mutex_);
        if (held) {
            held_bytes_ += size;
        } else {
            held_.erase(history.address);
            remember(history);
        }
        if (unfinished) unfinished_.splice(unfinished_.end(), one);
    }
    if (!held) below_.deallocate(base, size, stream);
    if (options_.synchronous && unfinished)
        rmm::detail::report_failure(driver_.synchronize_stream(rmm::detail::handle_of(stream)),
                                    "wait for a stream, to look at a block");
}

/// Removes the block from the table of blocks in use; empty if it is not there.
block_checker::live_map::node_type block_checker::take_live(std::uintptr_t address) {
    kmm::locks::Lock lock(mutex_);
    tended_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return !reading_live_; });
    return live_.extract(address);
}

void block_checker::report_unknown(const block_history& freed, std::size_t bytes, cuda_stream_view stream) {
    block_history known = freed;
    bool twice = true;
    {
        const kmm::locks::Guard lock(mutex_);
        if (const auto held = held_.find(freed.address); held != held_.end())
            known = held->second->history;
        else if (const auto recent = recent_.find(freed.address); recent != recent_.end())
            known = recent->second;
        else
            twice = false;
    }
    report(describe_wrong_free(twice ? debug_error::double_free : debug_error::unknown_pointer, known, bytes, stream,
                               of_));
}

/// Queues the copies, the fill and the event of the free, and decides whether the block is held back.
void block_checker::queue_checks(freed_block& b, bool has_zones, cuda_stream_view stream) {
    const block_history& h = b.history;
    if (registration_ != nullptr) registration_->take(reinterpret_cast<void*>(h.address), h.bytes, stream);
    if (is_being_captured(driver_, stream)) return;
    const bool hold = options_.quarantine_blocks != 0 && size_below(h.bytes) <= options_.quarantine_bytes;
    if (has_zones) {
        b.zones = take_slot();
        if (b.zones != nullptr && !(copy(b.zones, h.address - front_bytes_, front_bytes_, stream) &&
                                    copy(b.zones + front_bytes_, h.address + h.bytes, back_bytes_, stream)))
            b.zones = nullptr;  // a copy may still be on its way: the slot is given up
    }
    if (writes_patterns_ && (options_.fill || hold)) b.filled = fill(h.address, freed_pattern, h.bytes, stream);
    if (b.zones == nullptr && !hold) return;
    b.event = take_event();
    if (b.event.native == nullptr) return;
    if (driver_.record_event(b.event, rmm::detail::handle_of(stream)).ok()) {
        b.held = hold;
        return;
    }
    // Of another device, perhaps.
    (void)driver_.take_last_error();
    (void)driver_.destroy_event(b.event);
    b.event = {};
}

/// Only for the texts of later findings, which say less if the host has no memory for it.
void block_checker::remember(const block_history& history) noexcept {
    if (recent_order_.size() >= most_remembered) {
        recent_.erase(recent_order_.front());
        recent_order_.pop_front();
    }
    try {
        if (recent_.insert_or_assign(history.address, history).second) recent_order_.push_back(history.address);
    } catch (const std::bad_alloc&) {
        recent_.erase(history.address);
    }
}

// ---- what checks need

driver::EventHandle block_checker::take_event() noexcept {
    {
        const kmm::locks::Guard lock(mutex_);
        if (!spare_events_.empty()) {
            const driver::EventHandle e = spare_events_.back();
            spare_events_.pop_back();
            return e;
        }
    }
    driver::EventHandle e;
    if (driver_.create_event(device_, false, false, &e).ok()) return e;
    (void)driver_.take_last_error();
    return {};
}

void* block_checker::allocate_pinned(std::size_t bytes) noexcept {
    void* memory = nullptr;
    if (driver_.allocate_pinned(bytes, &memory).ok()) return memory;
    (void)driver_.take_last_error();
    return nullptr;
}

/// Null where the host has no memory for it.
unsigned char* block_checker::take_slot() {
    const auto take_spare = [this]() KMM_REQUIRES(mutex_) -> unsigned char* {
        if (spare_slots_.empty()) return nullptr;
        unsigned char* const slot = spare_slots_.back();
        spare_slots_.pop_back();
        return slot;
    };
    {
        const kmm::locks::Guard lock(mutex_);
        if (unsigned char* const slot = take_spare()) return slot;
    }
    const std::size_t slot_bytes = align_up(front_bytes_ + back_bytes_, CUDA_ALLOCATION_ALIGNMENT);
    // Large zones: no more of them at a time than staging takes.
    const std::size_t count = std::clamp<std::size_t>(staging_bytes_ / slot_bytes, 1, slots_per_allocation);
    auto* const memory = static_cast<unsigned char*>(allocate_pinned(count * slot_bytes));
    if (memory == nullptr) return nullptr;
    try {
        const kmm::locks::Guard lock(mutex_);
        spare_slots_.reserve(spare_slots_.size() + count);
        pinned_.push_back(memory);
        for (std::size_t i = 0; i < count; ++i) spare_slots_.push_back(memory + i * slot_bytes);
        return take_spare();
    } catch (const std::bad_alloc&) {
        (void)driver_.free_pinned(memory);
        return nullptr;
    }
}

/// Only while tending. Null where the host has no memory for it.
unsigned char* block_checker::staging() noexcept {
    if (staging_ != nullptr) return staging_;
    void* const memory = allocate_pinned(staging_bytes_);
    if (memory == nullptr) return nullptr;
    try {
        const kmm::locks::Guard lock(mutex_);
        pinned_.push_back(memory);
    } catch (...) {
        (void)driver_.free_pinned(memory);
        return nullptr;
    }
    return staging_ = static_cast<unsigned char*>(memory);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
