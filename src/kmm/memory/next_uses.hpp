// Which tasks will use a chunk and have not been issued, in the order of submission.
//
// Owns: their numbers. Must not know: tasks, chunks, memories. Guarded by the scheduler's baton.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kmm/graph/host_reserve.hpp"
#include "kmm/memory/record_slabs.hpp"

namespace kmm::memory {

/// Sorted. An entry that is removed from the middle stays, marked as over, until at least half of all are, so that a
/// removal moves nothing. One use lies in the record itself; several in a list from a pool, until all are over.
class NextUses {
  private:
    struct List;

  public:
    using Pool = RecordSlabs<List, graph::HostReserve, 4096>;

    enum class Kind : std::uint8_t {
        needs = 0,     ///< its content, or writes some of it
        part = 1,      ///< a small part of its content, which can be read from anywhere
        replaces = 2,  ///< overwrites the content without reading it
    };
    struct Use {
        std::uint64_t task = 0;  ///< its number: not 0
        Kind kind = Kind::needs;
        bool replaces() const noexcept { return kind == Kind::replaces; }
        friend bool operator==(const Use&, const Use&) = default;
    };
    NextUses() = default;
    NextUses(const NextUses&) = delete;
    NextUses& operator=(const NextUses&) = delete;

    bool empty() const noexcept { return word_ == 0; }
    /// Must not be empty.
    Use first() const noexcept { return use_of(first_entry()); }
    bool begins_with_part() const noexcept {
        return word_ != 0 && (first_entry() & kind_mask) == static_cast<std::uint64_t>(Kind::part);
    }
    /// Returns whether the use is the first now. O(later uses): nearly always none, because only tasks published by
    /// several threads arrive a little out of order. Adds the entries examined to `*steps`. Throws std::bad_alloc, with
    /// nothing done.
    bool add(const Use& use, Pool& pool, std::uint64_t* steps) {
        const std::uint64_t entry = entry_of(use);
        ++*steps;
        if (word_ == 0) {
            word_ = entry;
            return true;
        }
        if (!is_list()) become_list(pool);
        List& list = this->list();
        auto at = list.entries.end();
        const auto head = list.entries.begin() + static_cast<std::ptrdiff_t>(list.head);
        for (; at != head && (*(at - 1) & ~over_bit) > entry; --at) ++*steps;
        const bool is_first = entry < *head;
        const auto place = at - list.entries.begin();
        make_room(list);
        list.entries.insert(list.entries.begin() + place, entry);
        ++list.num_open;
        return is_first;
    }
    /// Returns whether the use was the first; false also if there is no such use. O(log uses), plus amortised O(1) to
    /// erase entries that are over.
    bool remove(const Use& use, Pool& pool, std::uint64_t* steps) noexcept {
        const std::uint64_t entry = entry_of(use);
        if (!is_list()) {
            if (word_ != entry) return false;
            word_ = 0;
            return true;
        }
        List& list = this->list();
        const auto head = list.entries.begin() + static_cast<std::ptrdiff_t>(list.head);
        // Tasks are issued nearly in order, so that the entry is mostly one of the first. Transfers before one submit
        // share a place; at equal places entries that are over come first.
        auto at = head;
        if (*head != entry)
            at = std::partition_point(head, list.entries.end(), [&](std::uint64_t other) {
                ++*steps;
                return (other & ~over_bit) < entry || other == (entry | over_bit);
            });
        if (at == list.entries.end() || *at != entry) return false;
        const bool was_first = at == head;
        *at |= over_bit;
        if (--list.num_open == 0) {
            pool.give(list);
            word_ = 0;
            return was_first;
        }
        while ((list.entries[list.head] & over_bit) != 0) ++list.head, ++*steps;
        give_back(list, steps);
        return was_first;
    }
    /// Number of tasks that read parts of the content before it is replaced, if no task needs more of it. Final: tasks
    /// before the replacing one in the order are published before it. 0: a task needs more, no task replaces the
    /// content, or the replacing one is not among the first few entries. O(1).
    std::size_t num_parts_until_replaced() const noexcept {
        std::size_t num_parts = 0;
        for (const std::uint64_t entry : few_entries()) {
            if ((entry & over_bit) != 0) continue;
            const Use use = use_of(entry);
            if (use.replaces()) return num_parts;
            if (use.kind != Kind::part) return 0;
            ++num_parts;
        }
        return 0;
    }
    /// The first use that needs more than a small part, searched among the first few entries, else the first use. Must
    /// not be empty. O(1).
    Use first_whole() const noexcept {
        for (const std::uint64_t entry : few_entries()) {
            if ((entry & over_bit) != 0) continue;
            const Use use = use_of(entry);
            if (use.kind != Kind::part) return use;
        }
        return first();
    }
    /// Calls `f(use)` for the first `count` open uses, in order.
    template<typename F>
    void for_each_first(std::size_t count, F&& f) const {
        for (const std::uint64_t entry : entries()) {
            if (count == 0) return;
            if ((entry & over_bit) != 0) continue;
            f(use_of(entry));
            --count;
        }
    }
    /// Open uses; for tests and reports. O(entries).
    graph::Vector<Use> open() const {
        graph::Vector<Use> uses;
        for_each_first(~std::size_t{0}, [&](const Use& use) { uses.push_back(use); });
        return uses;
    }
    /// Entries, including those that are over and not erased yet.
    std::size_t num_entries() const noexcept { return is_list() ? list().entries.size() : word_ != 0 ? 1 : 0; }

  private:
    struct List {
        graph::Vector<std::uint64_t> entries;
        std::uint32_t head = 0;  ///< first open entry; all before it are over
        std::uint32_t num_open = 0;
        List* next_free = nullptr;
        std::uint16_t place_in_slab = 0;

        static List*& free_link(List& list) noexcept { return list.next_free; }
        /// A small list keeps its memory.
        void recycle() noexcept {
            if (entries.capacity() > most_kept)
                graph::Vector<std::uint64_t>().swap(entries);
            else
                entries.clear();
            head = num_open = 0;
        }
    };

    static_assert(sizeof(List) == 48);

    static constexpr std::uint64_t kind_mask = 3;
    static constexpr std::uint64_t list_bits = 3;  ///< no kind: the other bits of the word are the list's address
    static constexpr std::uint64_t over_bit = 4;
    static constexpr int task_shift = 3;  // a task's number has 48 bits
    static constexpr std::size_t few_looked_at = 16;
    static constexpr std::size_t few_over = 512;  // fewer are not worth erasing
    static constexpr std::size_t most_kept = 64;

    /// At one place uses of the content sort before its replacement: a transfer reads what its task overwrites.
    static std::uint64_t entry_of(const Use& use) noexcept {
        return use.task << task_shift | static_cast<std::uint64_t>(use.kind);
    }
    static std::uint64_t task_of(std::uint64_t entry) noexcept { return entry >> task_shift; }
    static Use use_of(std::uint64_t entry) noexcept { return {task_of(entry), static_cast<Kind>(entry & kind_mask)}; }

    bool is_list() const noexcept { return (word_ & list_bits) == list_bits; }
    List& list() const noexcept { return *reinterpret_cast<List*>(word_ & ~list_bits); }
    std::uint64_t first_entry() const noexcept { return is_list() ? list().entries[list().head] : word_; }
    /// From the first open one on.
    std::span<const std::uint64_t> entries() const noexcept {
        if (is_list()) return std::span(list().entries).subspan(list().head);
        return {&word_, word_ != 0 ? std::size_t{1} : 0};
    }
    std::span<const std::uint64_t> few_entries() const noexcept {
        const auto all = entries();
        return all.first(std::min(all.size(), few_looked_at));
    }
    void become_list(Pool& pool) {
        List& list = pool.take();
        try {
            // Room for the use that is added next, too.
            list.entries.reserve(fewest_entries);
        } catch (...) {
            pool.give(list);
            throw;
        }
        list.entries.push_back(word_);
        list.num_open = 1;
        static_assert(alignof(List) > list_bits);
        word_ = reinterpret_cast<std::uintptr_t>(&list) | list_bits;
    }
    /// For one more. A list grows by a fourth, since each pending task has an entry in that of each of its chunks; a
    /// long one to the next power of two, so that half a million entries still fit into the host's reserve.
    static void make_room(List& list) {
        auto& entries = list.entries;
        if (entries.size() == entries.capacity())
            entries.reserve(entries.size() < long_list ? entries.size() + std::max(least_growth, entries.size() / 4)
                                                       : std::bit_ceil(entries.size() + 1));
    }
    static void give_back(List& list, std::uint64_t* steps) noexcept {
        const std::size_t num_over = list.entries.size() - list.num_open;
        if (num_over < few_over || num_over < list.num_open) return;
        *steps += list.entries.size();
        std::erase_if(list.entries, [](std::uint64_t entry) { return (entry & over_bit) != 0; });
        list.head = 0;
    }

    static constexpr std::size_t fewest_entries = 4;
    static constexpr std::size_t least_growth = 8;
    static constexpr std::size_t long_list = 1024;

    std::uint64_t word_ = 0;  ///< 0: no use; the only entry; or the list's address
};

}  // namespace kmm::memory
