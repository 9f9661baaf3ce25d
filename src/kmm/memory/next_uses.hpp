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
    enum class Kind : std::uint8_t {
        needs = 0,     ///< its content, or writes some of it
        part = 1,      ///< a small part of its content, which can be read from anywhere
        replaces = 2,  ///< owes nothing to the content before
    };
    struct Use {
        std::uint64_t task = 0;
        Kind kind = Kind::needs;
        bool replaces() const noexcept { return kind == Kind::replaces; }
        friend bool operator==(const Use&, const Use&) = default;
    };
    bool empty() const noexcept { return num_open_ == 0; }
    /// Only where it is not empty.
    Use first() const noexcept { return use_of(entries_[head_]); }
    bool begins_with_part() const noexcept {
        return num_open_ != 0 && (entries_[head_] & kind_mask) == static_cast<std::uint64_t>(Kind::part);
    }
    /// Whether it is the first now. O(uses behind it): nearly always there is none, because only tasks that several
    /// threads publish arrive a little out of order. Adds the entries that were looked at to `*steps`.
    bool add(const Use& use, std::uint64_t* steps) {
        const std::uint64_t entry = entry_of(use);
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
    bool remove(const Use& use, std::uint64_t* steps) noexcept {
        const std::uint64_t entry = entry_of(use);
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
    /// How many tasks read parts of the content before it is replaced, if no task needs more of it: all that is known
    /// of its future, and there is no more, because whoever stands before a task in the order is published before it.
    /// 0: some does, nobody replaces it, or it is not among the first few. O(1).
    std::size_t num_parts_until_replaced() const noexcept {
        std::size_t num_parts = 0;
        for (std::size_t i = head_; i < entries_.size() && i < head_ + few_looked_at; ++i) {
            if ((entries_[i] & over_bit) != 0) continue;
            const Use use = use_of(entries_[i]);
            if (use.replaces()) return num_parts;
            if (use.kind != Kind::part) return 0;
            ++num_parts;
        }
        return 0;
    }
    /// The first of the first few that needs more than a small part, else the first of all. Only where it is not
    /// empty. O(1).
    Use first_whole() const noexcept {
        for (std::size_t i = head_; i < entries_.size() && i < head_ + few_looked_at; ++i) {
            if ((entries_[i] & over_bit) != 0) continue;
            const Use use = use_of(entries_[i]);
            if (use.kind != Kind::part) return use;
        }
        return first();
    }
    /// Calls `f(use)` for so many open uses, in order.
    template<typename F>
    void for_each_first(std::size_t count, F&& f) const {
        for (std::size_t i = head_; i < entries_.size() && count != 0; ++i) {
            if ((entries_[i] & over_bit) != 0) continue;
            f(use_of(entries_[i]));
            --count;
        }
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
    static constexpr std::uint64_t kind_mask = 3;
    static constexpr std::uint64_t over_bit = 4;
    static constexpr int task_shift = 3;  // a task's number has 48 bits
    static constexpr std::size_t few_looked_at = 16;
    static constexpr std::size_t few_over = 512;  // so many cost less than the care for them

    /// At one place what is needed comes before what replaces it: a transfer reads what its task writes.
    static std::uint64_t entry_of(const Use& use) noexcept {
        return use.task << task_shift | static_cast<std::uint64_t>(use.kind);
    }
    static std::uint64_t task_of(std::uint64_t entry) noexcept { return entry >> task_shift; }
    static Use use_of(std::uint64_t entry) noexcept { return {task_of(entry), static_cast<Kind>(entry & kind_mask)}; }
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
