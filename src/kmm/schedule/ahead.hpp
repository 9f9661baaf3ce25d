// Which tasks have not been given their memory, in the order of submission, and what content was made ahead of them.
//
// Owns: for each place in the order what must fit when its turn comes, and the bytes that were made ahead of turn. Must
// not know: tasks, chunks, memories. Pure; used under the scheduler's baton.
//
// This is the banker's algorithm (Dijkstra 1965) with one order of completion, that of submission: a task makes content
// ahead of its turn only if every earlier task that waits for memory still fits beside all that was made ahead. ADR
// 0024 has the invariant and the proof.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::schedule {

/// Terms: a task is *placed* when it has been given its memory, or will never need any. The *front* is the first place
/// with a task that is not placed. The *claim* of a task: the bytes that the program held when it submitted the task,
/// and what the task needs at once.
class Ahead {
  public:
    using Place = graph::TaskNumber;

    /// A task at `place` is not placed yet. In the order of submission; a late one, behind which the front is already,
    /// is at the front too, and keeps it from going on. Amortised O(1).
    void add(Place place, std::size_t claim_bytes) {
        ++num_steps_;
        if (place < front_) {
            largest_late_ = num_late_++ == 0 ? claim_bytes : std::max(largest_late_, claim_bytes);
            return;
        }
        if (entries_.empty() && num_late_ == 0) front_ = place;
        const auto index = static_cast<std::size_t>(place - front_);
        if (entries_.size() <= index) entries_.resize(index + 1);
        Entry& entry = entries_[index];
        ++entry.num_unplaced;
        entry.claim_bytes = std::max(entry.claim_bytes, claim_bytes);
        if (front_ + index < asked_end_) look_again();
    }
    /// With no task that is not placed: some place behind those that are.
    Place front() const noexcept { return front_; }
    /// No task before it waits for its memory.
    bool is_front(Place place) const noexcept { return place <= front_; }
    /// Whether a task at `place` may make `bytes` of content ahead of its turn, with `capacity_bytes` of memory in all.
    /// Amortised O(1). May be false although it fits, where a task behind `place` was asked about before.
    bool may_make(Place place, std::size_t bytes, std::size_t capacity_bytes) {
        const std::size_t others = largest_claim_before(place);
        return others <= capacity_bytes && made_bytes_ <= capacity_bytes - others &&
               bytes <= capacity_bytes - others - made_bytes_;
    }
    /// Whether each task before `place` that is not placed fits at its turn. Cost and bound as `may_make`.
    bool all_fit_before(Place place, std::size_t capacity_bytes) {
        return largest_claim_before(place) <= capacity_bytes;
    }
    /// A task at `place` is placed, and makes `bytes` of content. O(log tasks that made content ahead), amortised.
    void placed(Place place, std::size_t bytes) {
        if (place < front_) {
            if (--num_late_ == 0) advance();
            return;
        }
        const auto index = static_cast<std::size_t>(place - front_);
        --entries_[index].num_unplaced;
        if (index != 0 && bytes != 0) {
            made_[place] += bytes;
            made_bytes_ += bytes;
        }
        if (index == 0 && num_late_ == 0) advance();
    }
    /// Content that a task at `place` made was freed. O(log tasks that made content ahead).
    void gone(Place place, std::size_t bytes) noexcept {
        const auto made = made_.find(place);
        if (made == made_.end()) return;
        const std::size_t gone_bytes = std::min(bytes, made->second);
        made->second -= gone_bytes;
        made_bytes_ -= gone_bytes;
    }
    /// Live content that placed tasks behind the front have made.
    std::size_t made_bytes() const noexcept { return made_bytes_; }
    /// Places from the front to the last one that was added.
    std::size_t size() const noexcept { return entries_.size(); }
    /// Entries examined so far.
    std::uint64_t num_steps() const noexcept { return num_steps_; }

  private:
    struct Entry {
        std::size_t claim_bytes = 0;
        std::uint32_t num_unplaced = 0;
    };

    void advance() noexcept {
        while (!entries_.empty() && entries_.front().num_unplaced == 0) {
            entries_.pop_front();
            ++front_;
            ++num_steps_;
        }
        while (!made_.empty() && made_.begin()->first < front_) {
            made_bytes_ -= made_.begin()->second;
            made_.erase(made_.begin());
            ++num_steps_;
        }
        while (!largest_.empty() && largest_.front().first < front_) largest_.pop_front();
    }
    /// Upper bound over the tasks before `place`: some may have been placed since their claim was read.
    std::size_t largest_claim_before(Place place) {
        asked_end_ = std::max(asked_end_, front_);
        for (const Place end = std::min(place, front_ + entries_.size()); asked_end_ < end; ++asked_end_) {
            ++num_steps_;
            const Entry& entry = entries_[static_cast<std::size_t>(asked_end_ - front_)];
            if (entry.num_unplaced == 0) continue;
            while (!largest_.empty() && largest_.back().second <= entry.claim_bytes) largest_.pop_back();
            largest_.push_back({asked_end_, entry.claim_bytes});
        }
        return std::max(largest_.empty() ? 0 : largest_.front().second, num_late_ != 0 ? largest_late_ : 0);
    }
    void look_again() noexcept {
        largest_.clear();
        asked_end_ = front_;
    }

    Place front_ = 0;              ///< with no entries: no place before it has a task that is not placed
    graph::Deque<Entry> entries_;  ///< from the front on
    /// Monotonic queue of the claims from the front on and before `asked_end_`: the first is the largest.
    graph::Deque<std::pair<Place, std::size_t>> largest_;
    Place asked_end_ = 0;
    std::uint64_t num_late_ = 0;           ///< tasks before the front that came late and are not placed
    std::size_t largest_late_ = 0;         ///< claim of one of these, since there was none
    graph::Map<Place, std::size_t> made_;  ///< live bytes, by the place of the task that made them
    std::size_t made_bytes_ = 0;           ///< their sum
    std::uint64_t num_steps_ = 0;
};

}  // namespace kmm::schedule
