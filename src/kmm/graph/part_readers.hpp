// Tasks that read a part of what some other task wrote, with the boxes that they read.
//
// Owns: PartReaders. Must not know: who wrote. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kmm/graph/box.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::graph {

/// A short list, oldest first; a box takes 16 bytes for each axis. Every call costs O(readers).
class PartReaders {
  public:
    /// Axes from `rank` on are not looked at.
    explicit PartReaders(std::size_t rank) noexcept : rank_(rank) {}

    void clear() noexcept { data_.clear(); }
    std::size_t size() const noexcept { return data_.size() / entry_size(); }
    /// Throws std::bad_alloc.
    void add(const Box& box, TaskNumber task) {
        data_.resize(data_.size() + entry_size());
        put(size() - 1, box, task);
    }
    /// Whether the last one is this task, and has read all of the box.
    bool was_read_last_by(const Box& box, TaskNumber task) const noexcept {
        return size() != 0 && task_of(size() - 1) == task && contains(box_of(size() - 1), box, rank_);
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
        data_.resize(kept * entry_size());
    }
    /// Drops the oldest ones, all but so many: calls `f(task, box)` for each.
    template<typename F> void shorten(std::size_t most, F&& f) {
        const std::size_t count = size() - std::min(most, size());
        for (std::size_t i = 0; i < count; ++i) f(task_of(i), box_of(i));
        data_.erase(data_.begin(), data_.begin() + static_cast<std::ptrdiff_t>(count * entry_size()));
    }
    /// The region is written: calls `f(task)` for each that has read an element of it. What nobody has read beside the
    /// region goes; where one box is left, it is that from then on.
    template<typename F> void cut(const Box& region, F&& f) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size(); ++i) {
            const Box box = box_of(i);
            if (overlaps(box, region, rank_)) {
                f(task_of(i));
                if (contains(region, box, rank_)) continue;
                std::size_t pieces = 0;
                Box left;
                subtract(box, region, [&](const Box& piece) { left = piece, ++pieces; });
                if (pieces == 1) put(i, left, task_of(i));
            }
            move(i, kept++);
        }
        data_.resize(kept * entry_size());
    }

  private:
    // The task's number, then begin and end of each axis.
    std::size_t entry_size() const noexcept { return 1 + 2 * rank_; }
    TaskNumber task_of(std::size_t i) const noexcept { return static_cast<TaskNumber>(data_[i * entry_size()]); }
    Box box_of(std::size_t i) const noexcept {
        const std::int64_t* const sides = data_.data() + i * entry_size() + 1;
        Box box;
        for (std::size_t k = 0; k < rank_; ++k) {
            box.begin[k] = sides[2 * k];
            box.end[k] = sides[2 * k + 1];
        }
        return box;
    }
    void put(std::size_t i, const Box& box, TaskNumber task) noexcept {
        std::int64_t* at = data_.data() + i * entry_size();
        *at++ = static_cast<std::int64_t>(task);
        for (std::size_t k = 0; k < rank_; ++k) {
            *at++ = box.begin[k];
            *at++ = box.end[k];
        }
    }
    void move(std::size_t from, std::size_t to) noexcept {
        if (from != to) std::copy_n(data_.data() + from * entry_size(), entry_size(), data_.data() + to * entry_size());
    }

    std::size_t rank_;
    Vector<std::int64_t> data_;
};

}  // namespace kmm::graph
