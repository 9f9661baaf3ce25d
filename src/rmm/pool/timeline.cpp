// Implements timeline.hpp.
#include "rmm/pool/timeline.hpp"

#include <algorithm>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

using rmm::detail::stream_identity;

namespace {

// Recorded events kept per stream. Each costs an event, and a query when memory is short.
constexpr std::size_t max_recorded = 8;
// Timelines without an arena but with unfinished work that one call of `forget_idle` examines.
constexpr std::size_t most_kept_asked = 16;
// The number of what is recorded for the whole device, in questions.
constexpr std::uint64_t of_device = heap::heap::no_timeline;

}  // namespace

timeline::timeline(const stream_identity& who, const std::atomic<std::uint64_t>& of_device)
    : kind(who.kind), number(who.number), owned(who.owned), device_epoch(of_device) {
    if (owned != nullptr) {
        owned->retain();
        owned->observe();
    }
}

timeline::~timeline() {
    if (owned != nullptr) owned->release();
}

timelines::~timelines() {
    timelines_.for_each([this](std::uint64_t, timeline* t) {
        for (const recorded_epoch& r : t->recorded)
            if (!r.borrowed) (void)driver_.destroy_event(r.event);
        delete t;
    });
    for (const recorded_epoch& r : device_recorded_) (void)driver_.destroy_event(r.event);
}

spare_events::~spare_events() {
    for (driver::EventHandle event : spare_) (void)driver_.destroy_event(event);
}

timeline& timelines::at(const stream_identity& who) {
    if (timeline* known = find(who.number)) return *known;
    timelines_.reserve_one();
    auto* const made = new timeline(who, device_epoch_);
    made->passed = counter_;
    made->cleared = counter_;
    made->last_used = counter_;
    made->epoch = ++counter_;
    timelines_.insert(who.number + 1, made);
    left_.push_back(*made);
    return *made;
}

namespace {

template<typename Entries>
auto entry_for(Entries& recorded, std::uint64_t epoch) {
    return std::lower_bound(recorded.begin(), recorded.end(), epoch,
                            [](const recorded_epoch& r, std::uint64_t e) { return r.epoch < e; });
}

}  // namespace

const recorded_epoch* timelines::find_recorded(const timeline& t, std::uint64_t position) const noexcept {
    if (const auto at = entry_for(t.recorded, position); at != t.recorded.end()) return &*at;
    // A stream that can be fenced later gets an event of its own, so that its waiters do not wait for other streams.
    if (t.fenced_late()) return nullptr;
    const auto at = entry_for(device_recorded_, position);
    return at == device_recorded_.end() ? nullptr : &*at;
}

timelines::readiness timelines::prepare_waits(const heap::fence_set& fences, std::uint64_t own, reach how_far,
                                              std::vector<pending_wait>* out, std::size_t* missing) {
    std::size_t num_needed = 0;
    std::size_t num_waits = 0;
    bool needs_device = false;
    for (const heap::fence& f : fences) {
        if (f.timeline == own || has_passed(f)) continue;
        timeline& t = *find(f.timeline);
        ++num_waits;
        if (find_recorded(t, f.position) != nullptr) continue;
        if (t.fenced_late()) {
            ++num_needed;
        } else {
            if (how_far == reach::streams) return readiness::needs_device;
            num_needed += needs_device ? 0 : 1;
            needs_device = true;
        }
    }
    if (num_needed > spare_.size()) {
        *missing = num_needed - spare_.size();
        return readiness::needs_events;
    }

    out->reserve(out->size() + num_waits);
    // One event of the device stands for all that need it.
    bool has_device = false;
    for (const heap::fence& f : fences) {
        if (f.timeline == own || has_passed(f)) continue;
        timeline& t = *find(f.timeline);
        pending_wait w;
        w.number = t.number;
        // Kept alive beyond the lock: the event may be the one that marks the stream's end.
        w.owned = t.owned;
        if (const recorded_epoch* const known = find_recorded(t, f.position)) {
            w.event = known->event;
        } else if (t.fenced_late()) {
            w.spare = spare_.take();
            w.epoch = close_epoch(t.epoch);
        } else {
            if (has_device) continue;
            has_device = true;
            w.spare = spare_.take();
            w.whole_device = true;
            w.epoch = close_epoch(device_epoch_);
        }
        if (w.owned != nullptr) w.owned->retain();
        out->push_back(w);
    }
    return readiness::ready;
}

std::size_t timelines::prepare_cover(std::span<const heap::fence> frees, reach how_far,
                                     std::vector<pending_wait>* out) {
    std::size_t num_missing = 0;
    bool has_device = false;
    out->reserve(out->size() + frees.size());
    for (const heap::fence& f : frees) {
        ++num_steps_;
        if (f.position <= device_passed_) continue;
        timeline* const t = find(f.timeline);
        if (t == nullptr || f.position <= t->passed || t->kind == rmm::detail::stream_kind::legacy) continue;
        const bool needs_device = !t->fenced_late();
        // What is recorded from here on covers other frees of the stream too.
        if (t->covered >= f.position || find_recorded(*t, f.position) != nullptr) continue;
        if (needs_device && (has_device || how_far == reach::streams || !has_device_events_)) continue;
        pending_wait w;
        w.spare = spare_.take();
        if (w.spare.native == nullptr) {
            ++num_missing;
            continue;
        }
        w.number = t->number;
        w.whole_device = needs_device;
        if (needs_device) {
            has_device = true;
            w.epoch = close_epoch(device_epoch_);
        } else {
            w.owned = t->owned;
            w.owned->retain();
            w.epoch = close_epoch(t->epoch);
            t->covered = w.epoch;
        }
        out->push_back(w);
    }
    return num_missing;
}

bool timelines::is_part_of_capture(driver::StreamHandle stream) noexcept {
    driver::DeviceGuard on(driver_, device_);
    driver::CaptureStatus status = driver::CaptureStatus::none;
    const driver::Status asked = driver_.capture_status(stream, &status, nullptr);
    if (!asked.ok()) (void)driver_.take_last_error();
    return asked.code == driver::Code::capture_error || status != driver::CaptureStatus::none;
}

std::uint64_t timelines::first_out_of_reach(const heap::fence_set& fences, std::uint64_t own) {
    for (const heap::fence& f : fences) {
        if (f.timeline == own || has_passed(f)) continue;
        timeline& t = *find(f.timeline);
        if (find_recorded(t, f.position) == nullptr && !t.fenced_late()) return f.timeline;
    }
    return heap::heap::no_timeline;
}

std::uint64_t timelines::first_not_recorded(const std::vector<pending_wait>& waits) noexcept {
    for (const pending_wait& w : waits)
        if (w.spare.native != nullptr && !w.recorded) return w.number;
    return heap::heap::no_timeline;
}

/// Where nothing is recorded yet.
driver::Status timelines::record_one(pending_wait& w) noexcept {
    if (w.event.native != nullptr) return {};
    driver::Status status;
    if (w.whole_device && has_device_events_) {
        status = driver_.device_event_record(device_, w.spare);
        w.event = w.spare;
    } else if (w.whole_device) {
        status = driver_.synchronize_device(device_);
    } else if (w.owned == nullptr && is_part_of_capture(driver::legacy_stream())) {
        status = {driver::Code::capture_error, 0};
    } else if (w.owned != nullptr) {
        status = w.owned->fence(w.spare, &w.event);
    } else {
        driver::DeviceGuard on(driver_, device_);
        status = driver_.record_event(w.spare, driver::StreamHandle{});
        w.event = w.spare;
    }
    w.recorded = status.ok();
    return status;
}

void timelines::record(std::vector<pending_wait>& waits) noexcept {
    for (pending_wait& w : waits)
        if (!record_one(w).ok()) (void)driver_.take_last_error();
}

driver::Status timelines::carry_out(std::vector<pending_wait>& waits, const driver::StreamHandle* stream) noexcept {
    for (pending_wait& w : waits) {
        driver::Status status = record_one(w);
        // Still none: it was waited for.
        if (status.ok() && w.event.native != nullptr)
            status = stream != nullptr ? driver_.wait_event(*stream, w.event) : driver_.synchronize_event(w.event);
        if (!status.ok()) {
            (void)driver_.take_last_error();
            return status;
        }
    }
    return {};
}

void timelines::finish(std::vector<pending_wait>& waits) {
    for (pending_wait& w : waits) {
        timeline* t = find(w.number);
        const bool is_known = w.whole_device || t != nullptr;
        if (w.spare.native != nullptr && !(w.recorded && w.event == w.spare && is_known)) spare_.give(w.spare);
        if (w.recorded && w.whole_device) {
            if (w.event.native == nullptr)
                note_device_passed(w.epoch);
            else
                add_device_recorded({w.epoch, ++counter_, w.event});
        } else if (w.recorded && t != nullptr) {
            if (w.event.native == nullptr)
                note_passed(*t, w.epoch);
            else
                add_recorded(*t, {w.epoch, ++counter_, w.event, w.event != w.spare, false});
        }
        gone_.release(w.owned);
    }
    waits.clear();
}

void timelines::add_recorded(timeline& t, const recorded_epoch& entry) {
    const auto at = entry_for(t.recorded, entry.epoch);
    const bool known = entry.epoch <= t.passed || (at != t.recorded.end() && at->epoch == entry.epoch);
    if (known) {
        // Both recordings came after everything of the epoch; one is enough.
        if (!entry.borrowed) spare_.give(entry.event);
        return;
    }
    try {
        t.recorded.insert(at, entry);
    } catch (const std::bad_alloc&) {
        // The recording is dropped; the next wait for the epoch records another.
        if (!entry.borrowed) spare_.give(entry.event);
        return;
    }
    t.recorded_up_to = t.recorded.back().epoch;
    if (t.shown != nullptr) t.shown->recorded.store(t.recorded_up_to, std::memory_order_relaxed);
    with_recorded_.push_back(t);
    ++num_recorded_;
}

void timelines::note_passed(timeline& t, std::uint64_t epoch) noexcept {
    if (epoch <= t.passed) return;
    t.passed.store(epoch, std::memory_order_release);
    if (t.shown != nullptr) t.shown->passed.store(epoch, std::memory_order_release);
    ++num_passes_;
    moved_.push_back(t);
}

void timelines::note_device_passed(std::uint64_t epoch) noexcept {
    if (epoch <= device_passed_) return;
    device_passed_.store(epoch, std::memory_order_release);
    ++num_passes_;
}

driver::Status spare_events::create(std::size_t count, std::vector<driver::EventHandle>* out) {
    out->reserve(out->size() + count);
    for (std::size_t i = 0; i < count; ++i) {
        driver::EventHandle event;
        const driver::Status status = driver_.create_event(device_, false, false, &event);
        if (!status.ok()) {
            (void)driver_.take_last_error();
            return status;
        }
        out->push_back(event);
    }
    return {};
}

driver::EventHandle spare_events::take() noexcept {
    if (spare_.empty()) return {};
    const driver::EventHandle event = spare_.back();
    spare_.pop_back();
    return event;
}

/// Of a timeline or of the device: everything freed so far has the result at most, everything freed from here on more.
std::uint64_t timelines::close_epoch(std::atomic<std::uint64_t>& epoch) noexcept {
    // A thread that reads the epoch from here on is not covered by the event; one that read it before has queued its
    // work already.
    const std::uint64_t covered = counter_;
    epoch.store(++counter_, std::memory_order_seq_cst);
    return covered;
}

bool timelines::begin(std::vector<recorded_epoch>& recorded, recording* out) noexcept {
    *out = {};
    if (recorded.size() >= max_recorded) {
        recorded_epoch& latest = recorded.back();
        if (!latest.busy && !latest.borrowed) {
            latest.busy = true;
            out->event = latest.event;
            out->stamp = latest.stamp;
        }
    }
    if (out->event.native == nullptr) out->event = spare_.take();
    return out->event.native != nullptr;
}

/// What is to be added now; nothing if the recording failed.
std::optional<recorded_epoch> timelines::end(std::vector<recorded_epoch>& recorded, const recording& what,
                                             bool succeeded) {
    if (what.stamp != 0) {
        const auto entry = std::find_if(recorded.begin(), recorded.end(),
                                        [&](const recorded_epoch& r) { return r.stamp == what.stamp; });
        if (entry != recorded.end()) {
            entry->busy = false;
            if (!succeeded) return std::nullopt;
            recorded.erase(entry);
            --num_recorded_;
        }
        // Else what it covered has passed meanwhile; the event stayed with us.
    }
    if (succeeded) return recorded_epoch{what.epoch, ++counter_, what.event};
    spare_.give(what.event);
    return std::nullopt;
}

bool timelines::begin_recording(timeline& t, recording* out) noexcept {
    if (!begin(t.recorded, out)) return false;
    out->epoch = close_epoch(t.epoch);
    return true;
}

void timelines::end_recording(timeline& t, const recording& what, bool recorded) {
    if (const auto made = end(t.recorded, what, recorded)) add_recorded(t, *made);
    if (t.recorded.empty()) with_recorded_.erase(t);
}

bool timelines::begin_device_recording(recording* out) noexcept {
    if (!has_device_events_ || !begin(device_recorded_, out)) return false;
    out->epoch = close_epoch(device_epoch_);
    return true;
}

void timelines::end_device_recording(const recording& what, bool recorded) {
    if (const auto made = end(device_recorded_, what, recorded)) add_device_recorded(*made);
}

void timelines::add_device_recorded(const recorded_epoch& entry) {
    if (entry.epoch <= device_passed_) return spare_.give(entry.event);
    try {
        device_recorded_.insert(entry_for(device_recorded_, entry.epoch), entry);
    } catch (const std::bad_alloc&) {
        return spare_.give(entry.event);  // as if it had not been recorded
    }
    device_recorded_up_to_.store(device_recorded_.back().epoch, std::memory_order_relaxed);
    ++num_recorded_;
}

void timelines::add_question(std::vector<question>* all, const timeline& t, const recorded_epoch& r) const {
    if (r.busy) return;
    all->push_back({t.number, r, false, r.borrowed ? t.owned : nullptr});
    if (all->back().owned != nullptr) all->back().owned->retain();
}

std::vector<timelines::question> timelines::questions(std::size_t most) {
    std::vector<question> all = questions_of_device();
    const bool asks_all = most >= with_recorded_.size();
    all.reserve(asks_all ? num_recorded_ : std::min(num_recorded_, all.size() + max_recorded * most));
    try {
        for (std::size_t n = std::min(most, with_recorded_.size()); n > 0; --n) {
            timeline& t = *with_recorded_.take_front();
            with_recorded_.push_back(t);
            num_steps_ += 1 + t.recorded.size();
            for (const recorded_epoch& r : t.recorded) add_question(&all, t, r);
        }
    } catch (...) {
        // `answer` will not be called, so release here.
        for (const question& q : all) gone_.release(q.owned);
        throw;
    }
    return all;
}

std::vector<timelines::question> timelines::questions_of_device() const {
    std::vector<question> all;
    for (const recorded_epoch& r : device_recorded_)
        if (!r.busy) all.push_back({of_device, r, false, nullptr});
    num_steps_ += all.size();
    return all;
}

void timelines::add_questions_about(timeline& t, std::uint64_t position, std::vector<question>* few) {
    driver::EventHandle end;
    if (entry_for(t.recorded, position) == t.recorded.end() && t.has_ended() && t.owned->has_closed(&end)) {
        const std::uint64_t epoch = close_epoch(t.epoch);
        if (end.native == nullptr)
            note_passed(t, epoch);
        else
            add_recorded(t, {epoch, ++counter_, end, true, false});
    }
    const std::size_t before = few->size();
    few->reserve(before + 2);  // a question may hold its stream
    if (const auto at = entry_for(t.recorded, position); at != t.recorded.end()) {
        add_question(few, t, *at);
        if (at + 1 != t.recorded.end()) add_question(few, t, t.recorded.back());
    } else if (const auto covers = entry_for(device_recorded_, position);
               covers != device_recorded_.end() && !covers->busy) {
        const auto asked = [&](const question& q) { return q.recorded.stamp == covers->stamp; };
        if (std::none_of(few->begin(), few->end(), asked)) few->push_back({of_device, *covers, false, nullptr});
    }
    num_steps_ += few->size() - before;
}

void timelines::ask(std::vector<question>& questions) noexcept {
    const auto has_passed = [this](question& q) {
        const driver::Status status = driver_.query_event(q.recorded.event);
        q.has_passed = status.ok();
        if (!status.ok() && status.code != driver::Code::not_ready) (void)driver_.take_last_error();
        return q.has_passed;
    };
    // The epochs of a timeline pass in order and stand in order here: the newest first, which mostly settles them all;
    // else from the oldest to the first that has not passed.
    for (auto first = questions.begin(); first != questions.end();) {
        auto last = std::find_if(first, questions.end(), [&](const question& q) { return q.number != first->number; });
        if (!has_passed(*(last - 1)))
            for (auto q = first; q != last - 1 && has_passed(*q); ++q) {}
        first = last;
    }
}

void timelines::answer(const std::vector<question>& answers) {
    for (const question& q : answers) {
        gone_.release(q.owned);
        if (!q.has_passed) continue;
        timeline* const t = q.number == of_device ? nullptr : find(q.number);
        if (t == nullptr && q.number != of_device) continue;
        std::vector<recorded_epoch>& recorded = t == nullptr ? device_recorded_ : t->recorded;
        const auto at = std::find_if(recorded.begin(), recorded.end(),
                                     [&](const recorded_epoch& r) { return r.stamp == q.recorded.stamp; });
        if (at == recorded.end()) continue;  // recorded again or answered by another thread meanwhile
        const std::uint64_t epoch = at->epoch;
        for (auto old = recorded.begin(); old != at + 1; ++old)
            if (!old->borrowed && !old->busy) spare_.give(old->event);
        num_recorded_ -= static_cast<std::size_t>(at - recorded.begin()) + 1;
        recorded.erase(recorded.begin(), at + 1);
        if (t == nullptr) {
            note_device_passed(epoch);
        } else {
            note_passed(*t, epoch);
            if (recorded.empty()) with_recorded_.erase(*t);
        }
    }
}

void timelines::forget_idle() {
    // Timelines that cannot be forgotten yet go to the end of the queue, a few in each call.
    std::size_t num_kept = 0;
    for (std::size_t n = left_.size(); n > 0 && num_kept < most_kept_asked; --n) {
        timeline& t = *left_.take_front();
        ++num_steps_;
        if (is_idle(t)) {
            timelines_.take(t.number + 1);
            gone_.release(std::exchange(t.owned, nullptr));
            delete &t;
        } else {
            left_.push_back(t);
            ++num_kept;
        }
    }
}

timelines::progress timelines::moved() const {
    progress all;
    all.numbers.reserve(moved_.size());
    for (const timeline* t = moved_.front(); t != nullptr; t = moved_.behind(*t)) all.numbers.push_back(t->number);
    num_steps_ += all.numbers.size();
    std::sort(all.numbers.begin(), all.numbers.end());
    all.passed.reserve(all.numbers.size());
    for (const std::uint64_t number : all.numbers) all.passed.push_back(find(number)->passed);
    if (has_device_moved()) all.of_device = device_passed_;
    return all;
}

void timelines::note_cleared(const progress& moved) noexcept {
    for (std::size_t i = 0; i < moved.numbers.size(); ++i)
        if (timeline* t = find(moved.numbers[i])) {
            t->cleared = std::max(t->cleared, moved.passed[i]);
            if (t->passed == moved.passed[i]) moved_.erase(*t);
        }
    device_cleared_ = std::max(device_cleared_, moved.of_device);
}

heap::fence_set timelines::outstanding() const {
    std::vector<heap::fence> latest;
    latest.reserve(timelines_.size());
    timelines_.for_each([&](std::uint64_t, const timeline* t) {
        if (const std::uint64_t last = t->last_used.load(); last > std::max(t->passed.load(), device_passed_.load()))
            latest.push_back({t->number, last});
    });
    // In the order of the set, which is made in linear time so.
    std::sort(latest.begin(), latest.end(), [](const auto& a, const auto& b) { return a.timeline < b.timeline; });
    heap::fence_set all;
    for (const heap::fence& f : latest) all.add(f);
    return all;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
