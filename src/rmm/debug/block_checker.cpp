// Implements block_checker.hpp: handing out and taking back; then the checks of frees whose event has passed, of blocks
// that leave the quarantine, and of blocks in use, by the one thread that is tending.
#include "rmm/debug/block_checker.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
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

// Earlier frees that each free looks at: more than one, so that a late stream does not hide the others.
constexpr std::size_t frees_looked_at = 16;
// An overfull quarantine shrinks by limit / quarantine_slack, so that several blocks are copied to the host at once.
constexpr std::size_t quarantine_slack = 8;
constexpr std::size_t everything = std::numeric_limits<std::size_t>::max();

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

// ------------------------------------------------------------------------------------------------------------- checks

/// After a free.
void block_checker::tend() {
    const tending mine(*this, options_.synchronous);
    if (!mine) return;
    look_at_frees(options_.synchronous ? everything : frees_looked_at, false);
    bool too_full = false;
    {
        const kmm::locks::Guard lock(mutex_);
        too_full = held_bytes_ > options_.quarantine_bytes || held_.size() > options_.quarantine_blocks;
    }
    if (!too_full) return;
    const auto less = [](std::size_t limit) { return limit - limit / quarantine_slack; };
    shrink_quarantine(less(options_.quarantine_bytes), less(options_.quarantine_blocks));
    // Streams that never finish must not keep all memory from the program.
    expel_unfinished(options_.quarantine_bytes <= everything / 2 ? 2 * options_.quarantine_bytes : everything);
}

/// Never waits for the program's streams: blocks with unfinished streams leave unchecked.
void block_checker::empty_quarantine() {
    const tending mine(*this, true);
    look_at_frees(everything, false);
    shrink_quarantine(0, 0);
    expel_unfinished(0);
}

std::size_t block_checker::check() {
    const driver::DeviceGuard on(driver_, device_);
    const std::size_t before = counts().total();
    const tending mine(*this, true);
    const std::optional<std::uint64_t> end_serial = wait_for_device();
    look_at_frees(everything, true);
    std::vector<freed_block*> blocks;
    {
        const kmm::locks::Guard lock(mutex_);
        for (const freed_ptr& b : quarantine_) blocks.push_back(b.get());
    }
    check_contents(blocks);
    if (end_serial) check_live(*end_serial);
    return counts().total() - before;
}

/// Waits for all queued work, which may have written anywhere. Returns the serial before which all blocks have their
/// zones; nothing if the driver refuses.
std::optional<std::uint64_t> block_checker::wait_for_device() {
    std::uint64_t end_serial = 0;
    {
        const kmm::locks::Guard lock(mutex_);
        end_serial = next_serial_;
    }
    const driver::Status status = driver_.synchronize_device(device_);
    if (status.ok()) return end_serial;
    rmm::detail::report_failure(status, "wait for a device, to look at the blocks of its memory");
    return std::nullopt;
}

/// Checks the `most` oldest frees whose events have passed; with `wait`, waits for the events. After an exception the
/// frees are left for the next look.
void block_checker::look_at_frees(std::size_t most, bool wait) {
    std::list<freed_ptr> batch;
    std::list<freed_ptr> passed;
    std::vector<driver::EventHandle> events;
    {
        const kmm::locks::Guard lock(mutex_);
        const std::size_t count = std::min(most, unfinished_.size());
        events.reserve(spare_events_.size() + count);
        batch.splice(batch.end(), unfinished_, unfinished_.begin(),
                     std::next(unfinished_.begin(), static_cast<std::ptrdiff_t>(count)));
    }
    for (auto next = batch.begin(); next != batch.end();) {
        const auto at = next++;
        const freed_block& b = **at;
        const driver::Status status = wait ? driver_.synchronize_event(b.event) : driver_.query_event(b.event);
        // After an error the copies are not valid.
        if (!status.ok()) (void)driver_.take_last_error();
        if (status.code == driver::Code::not_ready) continue;
        try {
            if (status.ok() && b.zones != nullptr) (void)check_zones(b.history, b.zones);
        } catch (const std::bad_alloc& e) {
            rmm::detail::report_misuse("debug: there is something wrong with a block of ", of_.name, ": ", e.what());
        }
        passed.splice(passed.end(), batch, at);
    }
    const kmm::locks::Guard lock(mutex_);
    unfinished_.splice(unfinished_.begin(), batch);
    // Others only take spare events meanwhile.
    if (events.capacity() > spare_events_.capacity()) {
        events.assign(spare_events_.begin(), spare_events_.end());
        spare_events_.swap(events);
    }
    for (auto next = passed.begin(); next != passed.end();) {
        const auto at = next++;
        freed_block& b = **at;
        spare_events_.push_back(std::exchange(b.event, {}));
        try {
            if (b.zones != nullptr) spare_slots_.push_back(std::exchange(b.zones, nullptr));
        } catch (const std::bad_alloc&) {
            // The slot is given up; its memory goes with the rest.
        }
        if (b.held) quarantine_.splice(quarantine_.end(), passed, at);
    }
}

/// Gives the oldest blocks back whose streams have finished with them, after a check of their contents.
void block_checker::shrink_quarantine(std::size_t most_bytes, std::size_t most_blocks) {
    std::list<freed_ptr> leaving;
    std::vector<freed_block*> blocks;
    {
        const kmm::locks::Guard lock(mutex_);
        blocks.reserve(quarantine_.size());
        while (!quarantine_.empty() && (held_bytes_ > most_bytes || held_.size() > most_blocks)) {
            leaving.splice(leaving.end(), quarantine_, quarantine_.begin());
            const block_history& h = leaving.back()->history;
            held_.erase(h.address);
            held_bytes_ -= size_below(h.bytes);
            remember(h);
            blocks.push_back(leaving.back().get());
        }
    }
    try {
        check_contents(blocks);
    } catch (const std::bad_alloc& e) {
        rmm::detail::report_misuse("freed blocks of ", of_.name, " are not looked at: ", e.what());
    }
    for (const freed_block* b : blocks)
        below_.deallocate_unused(base_of(b->history.address), size_below(b->history.bytes), own_.view());
}

/// Gives the oldest blocks back whose streams have not finished with them: behind their events, contents unchecked.
void block_checker::expel_unfinished(std::size_t most_bytes) {
    std::vector<freed_block*> leaving;
    {
        const kmm::locks::Guard lock(mutex_);
        leaving.reserve(held_bytes_ > most_bytes ? unfinished_.size() : 0);
        for (const freed_ptr& b : unfinished_) {
            if (held_bytes_ <= most_bytes) break;
            if (!b->held) continue;
            b->held = false;
            held_.erase(b->history.address);
            held_bytes_ -= size_below(b->history.bytes);
            remember(b->history);
            leaving.push_back(b.get());
        }
    }
    for (const freed_block* b : leaving) {
        const driver::Status status = driver_.wait_event(rmm::detail::handle_of(own_.view()), b->event);
        if (!status.ok()) {
            rmm::detail::report_failure(status, "wait for the last user of a block, which is lost");
            continue;
        }
        below_.deallocate(base_of(b->history.address), size_below(b->history.bytes), own_.view());
    }
}

/// The copies of both zones; false if something is wrong with them.
bool block_checker::check_zones(const block_history& history, const unsigned char* zones) {
    bool intact = true;
    if (wrong_bytes front = compare_with_pattern(zones, front_bytes_, zone_pattern); front.count != 0) {
        // The one next to the block says most: there an index was a little too small.
        front.first = front.last;
        front.found = front.last_found;
        report(describe_write(debug_error::write_before, history, -static_cast<std::ptrdiff_t>(front_bytes_), front,
                              zone_pattern, of_));
        intact = false;
    }
    if (const wrong_bytes back = compare_with_pattern(zones + front_bytes_, back_bytes_, zone_pattern);
        back.count != 0) {
        report(describe_write(debug_error::write_behind, history, static_cast<std::ptrdiff_t>(history.bytes), back,
                              zone_pattern, of_));
        intact = false;
    }
    return intact;
}

/// Whether freed blocks still have their pattern. Several small blocks, or parts of a large one, are copied together.
void block_checker::check_contents(const std::vector<freed_block*>& blocks) {
    struct part {
        std::size_t block;
        std::size_t begin;
        std::size_t bytes;
        const unsigned char* copied;
    };
    std::vector<wrong_bytes> wrong(blocks.size());
    std::vector<part> parts;
    std::size_t staged = 0;
    const auto look = [&] {
        const bool copied = driver_.synchronize_stream(rmm::detail::handle_of(own_.view())).ok();
        if (!copied) (void)driver_.take_last_error();
        for (const part& p : parts) {
            const wrong_bytes w = compare_with_pattern(p.copied, copied ? p.bytes : 0, freed_pattern);
            wrong_bytes& of_block = wrong[p.block];
            if (of_block.count == 0 && w.count != 0) of_block = {0, p.begin + w.first, w.found, 0, 0};
            of_block.count += w.count;
        }
        parts.clear();
        staged = 0;
    };
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const block_history& h = blocks[i]->history;
        if (!blocks[i]->filled || staging() == nullptr) continue;
        for (std::size_t begin = 0; begin < h.bytes;) {
            if (staged == staging_bytes_) look();
            const std::size_t bytes = std::min(h.bytes - begin, staging_bytes_ - staged);
            if (!copy(staging_ + staged, h.address + begin, bytes, own_.view())) break;
            parts.push_back({i, begin, bytes, staging_ + staged});
            staged += bytes;
            begin += bytes;
        }
    }
    if (!parts.empty()) look();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (wrong[i].count == 0) continue;
        blocks[i]->filled = false;  // told once
        report(describe_write(debug_error::write_after_free, blocks[i]->history, 0, wrong[i], freed_pattern, of_));
    }
}

/// The zones of blocks in use before `end_serial`. Frees of other threads wait for the end of the tending.
void block_checker::check_live(std::uint64_t end_serial) {
    if (front_bytes_ == 0 || !writes_patterns_) return;
    std::vector<block_history> blocks;
    {
        const kmm::locks::Guard lock(mutex_);
        reading_live_ = true;
        for (const auto& [address, b] : live_)
            if (b.has_zones && b.serial < end_serial) blocks.push_back(b.history);
    }
    const std::size_t zones_bytes = front_bytes_ + back_bytes_;
    const std::size_t most = staging_bytes_ / zones_bytes;
    for (std::size_t begin = 0; begin < blocks.size() && staging() != nullptr; begin += most) {
        const std::size_t end = std::min(begin + most, blocks.size());
        bool copied = true;
        for (std::size_t i = begin; i < end && copied; ++i) {
            unsigned char* const to = staging_ + (i - begin) * zones_bytes;
            copied = copy(to, blocks[i].address - front_bytes_, front_bytes_, own_.view()) &&
                     copy(to + front_bytes_, blocks[i].address + blocks[i].bytes, back_bytes_, own_.view());
        }
        if (!driver_.synchronize_stream(rmm::detail::handle_of(own_.view())).ok()) copied = false;
        if (!copied) {
            (void)driver_.take_last_error();
            return;
        }
        for (std::size_t i = begin; i < end; ++i) {
            if (check_zones(blocks[i], staging_ + (i - begin) * zones_bytes)) continue;
            const kmm::locks::Guard lock(mutex_);
            live_.at(blocks[i].address).has_zones = false;  // told once
        }
    }
}

void block_checker::report_leaks() {
    if (!options_.report_leaks) return;
    std::vector<std::pair<std::uint64_t, const block_history*>> blocks;
    {
        const kmm::locks::Guard lock(mutex_);
        for (const auto& [address, b] : live_) blocks.emplace_back(b.serial, &b.history);
    }
    std::sort(blocks.begin(), blocks.end());
    for (const auto& [serial, history] : blocks) report(describe_leak(*history, of_));
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
