// Tasks that read a part of what some other task wrote, with the boxes that they read.
//
// Owns: PartReaders. Must not know: who wrote. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "kmm/boxes/box.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::graph {

using boxes::Box;

/// A short list, oldest first; a box takes 8 bytes for each axis, or 16 where some side is 2^31 or more elements away
/// from the first box's begin. Every call costs O(readers).
class PartReaders {
  public:
    /// Axes from `rank` on are not looked at.
    explicit PartReaders(std::size_t rank) noexcept : rank_(rank) {}

    void clear() noexcept { data_.clear(); }
    std::size_t size() const noexcept { return data_.empty() ? 0 : (data_.size() - origin_words()) / entry_words(); }
    /// Throws std::bad_alloc, with nothing done.
    void add(const Box& box, TaskNumber task) {
        if (data_.empty()) {
            data_.reserve(origin_words() + narrow_words() * few);
            data_.resize(origin_words());
            for (std::size_t k = 0; k < rank_; ++k) put_long(2 * k, box.begin[k]);
            is_wide_ = false;
        }
        if (!is_wide_ && !is_narrow(box)) widen();
        const std::size_t words = data_.size() + entry_words();
        // Grows by half instead of doubling: an array has one list for each chunk.
        if (words > data_.capacity()) data_.reserve(data_.size() + std::max(few, size() / 2) * entry_words());
        data_.resize(words);
        put(size() - 1, box, task);
    }
    /// Whether the last entry is this task's, and contains the box.
    bool was_read_last_by(const Box& box, TaskNumber task) const noexcept {
        return size() != 0 && task_of(size() - 1) == task && boxes::contains(box_of(size() - 1), box, rank_);
    }
    /// Calls `f(task, box)` for each.
    template<typename F> void each(F&& f) const {
        for (std::size_t i = 0; i < size(); ++i) f(task_of(i), box_of(i));
    }
    /// Drops those for which `drops(task)` holds.
    template<typename F> void drop_if(F&& drops) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size(); ++i)
            if (!drops(task_of(i))) move(i, kept++);
        keep(kept);
    }
    /// Drops the oldest entries beyond `most`: calls `f(task, box)` for each.
    template<typename F> void shorten(std::size_t most, F&& f) {
        const std::size_t count = size() - std::min(most, size());
        for (std::size_t i = 0; i < count; ++i) f(task_of(i), box_of(i));
        for (std::size_t i = count; i < size(); ++i) move(i, i - count);
        keep(size() - count);
    }
    /// Called for a write of `region`: calls `f(task)` for each reader of an element of it. Drops entries inside the
    /// region, and shrinks one whose rest is a single box.
    template<typename F> void cut(const Box& region, F&& f) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size(); ++i) {
            const Box box = box_of(i);
            if (boxes::overlaps(box, region, rank_)) {
                f(task_of(i));
                if (boxes::contains(region, box, rank_)) continue;
                std::size_t pieces = 0;
                Box left;
                boxes::subtract(box, region, [&](const Box& piece) { left = piece, ++pieces; });
                if (pieces == 1) put(i, left, task_of(i));
            }
            move(i, kept++);
        }
        keep(kept);
    }

  private:
    static constexpr std::size_t few = 4;  // least growth, in entries

    // First the origin, two words for each axis. Then the entries: the task's number in two words, then begin and end
    // of each axis, as distances from the origin, in one word each; with `is_wide_` in two.
    std::size_t origin_words() const noexcept { return 2 * rank_; }
    std::size_t narrow_words() const noexcept { return 2 + 2 * rank_; }
    std::size_t entry_words() const noexcept { return 2 + (is_wide_ ? 4 : 2) * rank_; }
    std::size_t place_of(std::size_t i) const noexcept { return origin_words() + i * entry_words(); }
    std::int64_t long_at(std::size_t at) const noexcept {
        std::int64_t value;
        std::memcpy(&value, data_.data() + at, sizeof value);
        return value;
    }
    void put_long(std::size_t at, std::int64_t value) noexcept { std::memcpy(data_.data() + at, &value, sizeof value); }
    bool is_narrow(const Box& box) const noexcept {
        constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
        for (std::size_t k = 0; k < rank_; ++k) {
            const std::int64_t origin = long_at(2 * k);
            if (box.begin[k] < origin - most || box.end[k] > origin + most) return false;
        }
        return true;
    }
    /// Throws std::bad_alloc, with nothing done.
    void widen() {
        PartReaders wide(rank_);
        wide.data_.reserve(origin_words() + (size() + 1) * (2 + 4 * rank_));
        wide.data_.assign(data_.begin(), data_.begin() + static_cast<std::ptrdiff_t>(origin_words()));
        wide.is_wide_ = true;
        each([&wide](TaskNumber task, const Box& box) { wide.add(box, task); });
        *this = std::move(wide);
    }
    TaskNumber task_of(std::size_t i) const noexcept { return static_cast<TaskNumber>(long_at(place_of(i))); }
    Box box_of(std::size_t i) const noexcept {
        std::size_t at = place_of(i) + 2;
        Box box;
        for (std::size_t k = 0; k < rank_; ++k) {
            const std::int64_t origin = long_at(2 * k);
            box.begin[k] = origin + take(&at);
            box.end[k] = origin + take(&at);
        }
        return box;
    }
    std::int64_t take(std::size_t* at) const noexcept {
        const std::int64_t value = is_wide_ ? long_at(*at) : data_[*at];
        *at += is_wide_ ? 2 : 1;
        return value;
    }
    void put(std::size_t i, const Box& box, TaskNumber task) noexcept {
        std::size_t at = place_of(i);
        put_long(at, static_cast<std::int64_t>(task));
        at += 2;
        const auto put_side = [&](std::int64_t distance) {
            if (is_wide_)
                put_long(at, distance);
            else
                data_[at] = static_cast<std::int32_t>(distance);
            at += is_wide_ ? 2 : 1;
        };
        for (std::size_t k = 0; k < rank_; ++k) {
            const std::int64_t origin = long_at(2 * k);
            put_side(box.begin[k] - origin);
            put_side(box.end[k] - origin);
        }
    }
    void move(std::size_t from, std::size_t to) noexcept {
        if (from == to) return;
        std::copy_n(data_.data() + place_of(from), entry_words(), data_.data() + place_of(to));
    }
    /// Drops all entries from `count` on.
    void keep(std::size_t count) noexcept {
        if (data_.empty()) return;
        data_.resize(count == 0 ? 0 : place_of(count));
    }

    std::size_t rank_;
    bool is_wide_ = false;
    Vector<std::int32_t> data_;
};

}  // namespace kmm::graph
