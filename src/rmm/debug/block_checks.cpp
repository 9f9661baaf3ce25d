// Implements the checks of block_checker.hpp: of frees whose event has passed, of blocks that leave the quarantine, of
// blocks in use. Run by the one thread that is tending.
#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/debug/block_checker.hpp"
#include "rmm/debug/tending.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Earlier frees that each free looks at: more than one, so that a late stream does not hide the others.
constexpr std::size_t frees_looked_at = 16;
// An overfull quarantine shrinks by limit / quarantine_slack, so that several blocks are copied to the host at once.
constexpr std::size_t quarantine_slack = 8;
constexpr std::size_t everything = std::numeric_limits<std::size_t>::max();

}  // namespace

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
