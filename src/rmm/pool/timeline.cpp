// Implements timeline.hpp.
#include "rmm/pool/timeline.hpp"

#include <algorithm>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

using rmm::detail::stream_identity;

namespace {

// So many events of a stream tell points of it apart. More would cost an event for each, and a question when memory is short.
constexpr std::size_t max_recorded = 8;

}  // namespace

timeline::timeline(const stream_identity& who) : kind(who.kind), number(who.number), owned(who.owned) {
    if (owned != nullptr) {
        owned->retain();
        owned->observe();
    }
}

timeline::~timeline() {
    if (owned != nullptr) owned->release();
}

timelines::~timelines() {
    for (auto& [number, t] : timelines_)
        for (const recorded_epoch& r : t->recorded)
            if (!r.borrowed) destroy_event(r.event);
    for (driver::EventHandle event : spare_) destroy_event(event);
}

timeline* timelines::find(std::uint64_t number) noexcept {
    const auto at = timelines_.find(number);
    return at == timelines_.end() ? nullptr : at->second.get();
}

timeline& timelines::at(const stream_identity& who) {
    if (timeline* known = find(who.number)) return *known;
    auto made = std::make_unique<timeline>(who);
    made->passed = counter_;
    made->cleared = counter_;
    made->last_used = counter_;
    made->epoch = ++counter_;
    return *timelines_.emplace(who.number, std::move(made)).first->second;
}

namespace {

std::deque<recorded_epoch>::iterator entry_for(timeline& t, std::uint64_t epoch) {
    return std::lower_bound(t.recorded.begin(), t.recorded.end(), epoch,
                            [](const recorded_epoch& r, std::uint64_t e) { return r.epoch < e; });
}

}  // namespace

timelines::readiness timelines::prepare_waits(const heap::fence_set& fences, std::uint64_t own, reach how_far,
                                              std::vector<pending_wait>* out, std::size_t* missing) {
    std::size_t num_needed = 0;
    std::size_t num_waits = 0;
    for (const heap::fence& f : fences) {
        if (f.timeline == own || has_passed(f)) continue;
        timeline& t = *find(f.timeline);
        ++num_waits;
        if (entry_for(t, f.position) != t.recorded.end()) continue;
        if (!t.fenced_late() && how_far == reach::streams) return readiness::needs_device;
        ++num_needed;
    }
    if (num_needed > spare_.size()) {
        *missing = num_needed - spare_.size();
        return readiness::needs_events;
    }

    out->reserve(out->size() + num_waits);
    for (const heap::fence& f : fences) {
        if (f.timeline == own || has_passed(f)) continue;
        timeline& t = *find(f.timeline);
        pending_wait w;
        w.number = t.number;
        // Kept alive beyond the lock: the event may be the one that marks the stream's end.
        w.owned = t.owned;
        if (w.owned != nullptr) w.owned->retain();
        if (const auto at = entry_for(t, f.position); at != t.recorded.end()) {
            w.event = at->event;
        } else {
            w.spare = take_spare();
            w.whole_device = !t.fenced_late();
            w.epoch = close_epoch(t);
        }
        out->push_back(w);
    }
    return readiness::ready;
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
        if (entry_for(t, f.position) == t.recorded.end() && !t.fenced_late()) return f.timeline;
    }
    return heap::heap::no_timeline;
}

std::uint64_t timelines::first_not_recorded(const std::vector<pending_wait>& waits) noexcept {
    for (const pending_wait& w : waits)
        if (w.spare.native != nullptr && !w.recorded) return w.number;
    return heap::heap::no_timeline;
}

driver::Status timelines::carry_out(std::vector<pending_wait>& waits, const driver::StreamHandle* stream) noexcept {
    for (pending_wait& w : waits) {
        driver::Status status;
        if (w.event.native == nullptr) {
            if (w.whole_device) {
                status = driver_.device_event_record(device_, w.spare);
                w.event = w.spare;
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
        }
        // Still none: the stream has ended and was waited for.
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
        if (w.spare.native != nullptr && !(w.recorded && w.event == w.spare && t != nullptr)) give_spare(w.spare);
        if (w.recorded && t != nullptr) {
            if (w.event.native == nullptr)
                t->passed = std::max(t->passed, w.epoch);
            else
                add_recorded(*t, {w.epoch, ++counter_, w.event, w.event != w.spare, false});
        }
        if (w.owned != nullptr) w.owned->release();
    }
    waits.clear();
}

void timelines::add_recorded(timeline& t, const recorded_epoch& entry) {
    const auto at = std::lower_bound(t.recorded.begin(), t.recorded.end(), entry.epoch,
                                     [](const recorded_epoch& r, std::uint64_t e) { return r.epoch < e; });
    const bool known = entry.epoch <= t.passed || (at != t.recorded.end() && at->epoch == entry.epoch);
    if (known) {
        // Both recordings came after everything of the epoch; one is enough.
        if (!entry.borrowed) give_spare(entry.event);
        return;
    }
    t.recorded.insert(at, entry);
    ++num_recorded_;
}

driver::Status timelines::create_events(std::size_t count, std::vector<driver::EventHandle>* out) {
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

driver::EventHandle timelines::take_spare() noexcept {
    if (spare_.empty()) return {};
    const driver::EventHandle event = spare_.back();
    spare_.pop_back();
    return event;
}

std::uint64_t timelines::close_epoch(timeline& t) noexcept {
    // Whoever reads the epoch from here on is not covered by the event; whoever read it before has queued its work already.
    return t.epoch.exchange(++counter_, std::memory_order_seq_cst);
}

bool timelines::begin_recording(timeline& t, recording* out) noexcept {
    *out = {};
    if (t.recorded.size() >= max_recorded) {
        recorded_epoch& latest = t.recorded.back();
        if (!latest.busy && !latest.borrowed) {
            latest.busy = true;
            out->event = latest.event;
            out->stamp = latest.stamp;
        }
    }
    if (out->event.native == nullptr) out->event = take_spare();
    if (out->event.native == nullptr) return false;
    out->epoch = close_epoch(t);
    return true;
}

void timelines::end_recording(timeline& t, const recording& what, bool recorded) {
    if (what.stamp != 0) {
        const auto entry = std::find_if(t.recorded.begin(), t.recorded.end(),
                                        [&](const recorded_epoch& r) { return r.stamp == what.stamp; });
        if (entry != t.recorded.end()) {
            entry->busy = false;
            if (!recorded) return;
            recorded_epoch again = *entry;
            again.epoch = what.epoch;
            again.stamp = ++counter_;
            t.recorded.erase(entry);
            --num_recorded_;
            add_recorded(t, again);
            return;
        }
        // What it covered has passed meanwhile; the event stayed with us.
    }
    if (recorded)
        add_recorded(t, {what.epoch, ++counter_, what.event});
    else
        give_spare(what.event);
}

std::vector<timelines::question> timelines::questions() const {
    std::vector<question> all;
    all.reserve(num_recorded_);
    for (const auto& [number, t] : timelines_)
        for (const recorded_epoch& r : t->recorded)
            if (!r.busy) {
                all.push_back({number, r, false, r.borrowed ? t->owned : nullptr});
                if (all.back().owned != nullptr) all.back().owned->retain();
            }
    return all;
}

void timelines::ask(std::vector<question>& questions) noexcept {
    const auto has_passed = [this](question& q) {
        const driver::Status status = driver_.query_event(q.recorded.event);
        q.has_passed = status.ok();
        if (!status.ok() && status.code != driver::Code::not_ready) (void)driver_.take_last_error();
        return q.has_passed;
    };
    // The epochs of a timeline pass in order and stand in order here: the newest first, which mostly settles them all; else
    // from the oldest to the first that has not passed.
    for (auto first = questions.begin(); first != questions.end();) {
        auto last = std::find_if(first, questions.end(), [&](const question& q) { return q.number != first->number; });
        if (!has_passed(*(last - 1)))
            for (auto q = first; q != last - 1 && has_passed(*q); ++q) {}
        first = last;
    }
}

void timelines::answer(const std::vector<question>& answers) {
    for (const question& q : answers) {
        if (q.owned != nullptr) q.owned->release();
        timeline* t = q.has_passed ? find(q.number) : nullptr;
        if (t == nullptr) continue;
        const auto at = std::find_if(t->recorded.begin(), t->recorded.end(),
                                     [&](const recorded_epoch& r) { return r.stamp == q.recorded.stamp; });
        if (at == t->recorded.end()) continue;  // taken over or answered by somebody else meanwhile
        t->passed = std::max(t->passed, at->epoch);
        for (auto old = t->recorded.begin(); old != at + 1; ++old)
            if (!old->borrowed && !old->busy) give_spare(old->event);
        num_recorded_ -= static_cast<std::size_t>(at - t->recorded.begin()) + 1;
        t->recorded.erase(t->recorded.begin(), at + 1);
    }
}

void timelines::forget_idle() {
    for (auto at = timelines_.begin(); at != timelines_.end();)
        at = at->second->is_idle() ? timelines_.erase(at) : std::next(at);
}

std::vector<std::uint64_t> timelines::moved() const {
    std::vector<std::uint64_t> numbers;
    for (const auto& [number, t] : timelines_)
        if (t->passed != t->cleared) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

void timelines::note_cleared(const std::vector<std::uint64_t>& moved) noexcept {
    for (const std::uint64_t number : moved)
        if (timeline* t = find(number)) t->cleared = t->passed;
}

heap::fence_set timelines::outstanding() const {
    heap::fence_set all;
    for (const auto& [number, t] : timelines_)
        if (const std::uint64_t last = t->last_used.load(); last > t->passed) all.add({number, last});
    return all;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
