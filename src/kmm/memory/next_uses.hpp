// Which tasks will use a chunk and have not been issued, in the order of submission.
//
// Owns: their numbers. Must not know: tasks, chunks, memories. Belongs to whoever holds the scheduler's baton.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kmm/graph/host_reserve.hpp"

namespace kmm::memory {

/// Sorted. What leaves from the middle stays as a mark until that is half of all, so that nothing is moved for it.
class NextUses {
  public:
    struct Use {
        std::uint64_t task = 0;
        bool replaces = false;  ///< it owes nothing to the content before
        friend bool operator==(const Use&, const Use&) = default;
    };
    bool empty() const noexcept { return num_open_ == 0; }
    /// Only where it is not empty.
    Use first() const noexcept { return use_of(entries_[head_]); }
    /// Whether it is the first now. O(uses behind it): nearly always there is none, because only tasks that several
    /// threads publish arrive a little out of order. Adds the entries that were looked at to `*steps`.
    bool add(std::uint64_t task, bool replaces, std::uint64_t* steps) {
        const std::uint64_t entry = entry_of(task, replaces);
        auto at = entries_.end();
        const auto head = entries_.begin() + static_cast<std::ptrdiff_t>(head_);
        for (; at != head && (*(at - 1) & ~over_bit) > entry; --at) ++*steps;
        const bool is_first = num_open_ == 0 || entry < entries_[head_];
        entries_.insert(at, entry);
        ++num_open_;
        ++*steps;
        return is_first;
    }
    /// Whether it was the first; false also where there is no such use. O(log uses), and amortised O(1) to give back
    /// what is over.
    bool remove(std::uint64_t task, bool replaces, std::uint64_t* steps) noexcept {
        const std::uint64_t entry = entry_of(task, replaces);
        const auto head = entries_.begin() + static_cast<std::ptrdiff_t>(head_);
        // Tasks are issued nearly in order: it is one of the first, mostly.
        auto at = head;
        if (num_open_ != 0 && entries_[head_] != entry)
            at = std::partition_point(head, entries_.end(), [&](std::uint64_t other) {
                ++*steps;
                return (other & ~over_bit) < entry;
            });
        // Transfers that are made for one task stand at its place.
        for (; at != entries_.end() && *at == (entry | over_bit); ++at) ++*steps;
        if (at == entries_.end() || *at != entry) return false;
        const bool was_first = at == head;
        *at |= over_bit;
        --num_open_;
        while (head_ < entries_.size() && (entries_[head_] & over_bit) != 0) ++head_, ++*steps;
        give_back(steps);
        return was_first;
    }
    /// Open uses; for tests and reports. O(entries).
    graph::Vector<Use> open() const {
        graph::Vector<Use> uses;
        for (std::size_t i = head_; i < entries_.size(); ++i)
            if ((entries_[i] & over_bit) == 0) uses.push_back(use_of(entries_[i]));
        return uses;
    }
    /// With those that are over and have not been given back.
    std::size_t num_entries() const noexcept { return entries_.size(); }

  private:
    static constexpr std::uint64_t replaces_bit = 1;
    static constexpr std::uint64_t over_bit = 2;
    static constexpr int task_shift = 2;          // a task's number has 48 bits
    static constexpr std::size_t few_over = 512;  // so many cost less than the care for them

    /// At one place what is needed comes before what replaces it: a transfer reads what its task writes.
    static std::uint64_t entry_of(std::uint64_t task, bool replaces) noexcept {
        return task << task_shift | (replaces ? replaces_bit : 0);
    }
    static std::uint64_t task_of(std::uint64_t entry) noexcept { return entry >> task_shift; }
    static Use use_of(std::uint64_t entry) noexcept { return {task_of(entry), (entry & replaces_bit) != 0}; }
    void give_back(std::uint64_t* steps) noexcept {
        if (num_open_ == 0) {
            entries_.clear();
            head_ = 0;
            return;
        }
        const std::size_t num_over = entries_.size() - num_open_;
        if (num_over < few_over || num_over < num_open_) return;
        *steps += entries_.size();
        std::erase_if(entries_, [](std::uint64_t entry) { return (entry & over_bit) != 0; });
        head_ = 0;
    }

    graph::Vector<std::uint64_t> entries_;
    std::size_t head_ = 0;  ///< what is before it is over; there an open one stands, if there is any
    std::size_t num_open_ = 0;
};

}  // namespace kmm::memory
