// Tasks that read a part of what some other task wrote, with the boxes that they read.
//
// Owns: PartReaders. Must not know: who wrote. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kmm/boxes/box.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::graph {

using boxes::Box;

/// A short list, oldest first. An entry takes 4 bytes, and 4 for each axis, as long as all boxes are within 2^15
/// elements of the first one's begin and all numbers within 2^31 of the first; else 8 bytes, and 8 for each axis, or 16
/// where some side is 2^31 or more elements away. Every call costs O(readers).
class PartReaders {
  public:
    /// Axes from `rank` on are not looked at.
    explicit PartReaders(std::size_t rank) noexcept : rank_(static_cast<std::uint8_t>(rank)) {
        set_width(Width::narrow);
    }

    /// Its memory stays.
    void clear() noexcept { size_ = 0; }
    std::size_t size() const noexcept { return size_; }
    /// Memory of the list, for tests.
    std::size_t capacity_bytes() const noexcept { return data_.capacity() * sizeof(Word); }
    /// Throws std::bad_alloc, with nothing done.
    void add(const Box& box, TaskNumber task) {
        if (size_ == 0) begin(box, task);
        // Grows by half instead of doubling: an array has one list for each chunk.
        if (place_of(size() + 1) > data_.size()) [[unlikely]]
            make_room(size() + std::max(few, size() / 2));
        if (width_ != Width::narrow || !fill_narrow(size_, box, task)) [[unlikely]]
            fill_wide(box, task);
        ++size_;
    }
    /// Whether the last entry is this task's, and contains the box.
    bool was_read_last_by(const Box& box, TaskNumber task) const noexcept {
        return size_ != 0 && task_of(size_ - 1) == task && boxes::contains(box_of(size_ - 1), box, rank_);
    }
    /// Calls `f(task, box)` for each.
    template<typename F> void each(F&& f) const {
        for (std::size_t i = 0; i < size_; ++i) f(task_of(i), box_of(i));
    }
    /// Calls `f(task)` for each.
    template<typename F> void each_task(F&& f) const {
        for (std::size_t i = 0; i < size_; ++i) f(task_of(i));
    }
    /// Drops those for which `drops(task)` holds.
    template<typename F> void drop_if(F&& drops) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i)
            if (!drops(task_of(i))) move(i, kept++);
        keep(kept);
    }
    /// Drops the oldest entries beyond `most`: calls `f(task, box)` for each.
    template<typename F> void shorten(std::size_t most, F&& f) {
        const std::size_t count = size() - std::min(most, size());
        for (std::size_t i = 0; i < count; ++i) f(task_of(i), box_of(i));
        for (std::size_t i = count; i < size_; ++i) move(i, i - count);
        keep(size() - count);
    }
    /// Called for a write of `region`: calls `f(task)` for each reader of an element of it. Drops entries inside the
    /// region, and shrinks one whose rest is a single box.
    template<typename F> void cut(const Box& region, F&& f) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i) {
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
    using Word = std::uint16_t;
    /// Words of each distance; in the narrowest form the task's number is one as well, of two words.
    enum class Width : std::uint8_t { narrow = 1, wide = 2, widest = 4 };
    static constexpr std::size_t few = 4;  // least growth, in entries

    // First the origin and the base, four words for each axis and for a task's number. Then the entries: the number,
    // then begin and end of each axis, as distances from the origin.
    std::size_t head_words() const noexcept { return 4 * std::size_t{rank_} + 4; }
    static std::size_t task_words(Width width) noexcept { return width == Width::narrow ? 2 : 4; }
    void set_width(Width width) noexcept {
        width_ = width;
        entry_words_ = static_cast<std::uint16_t>(task_words(width) + 2 * static_cast<std::size_t>(width) * rank_);
    }
    std::size_t place_of(std::size_t i) const noexcept { return head_words() + i * entry_words_; }
    /// For that many entries. Throws std::bad_alloc, with nothing done.
    void make_room(std::size_t count) {
        data_.reserve(place_of(count));
        data_.resize(place_of(count));
    }
    template<typename T> T value_at(std::size_t at) const noexcept {
        T value;
        std::memcpy(&value, data_.data() + at, sizeof value);
        return value;
    }
    template<typename T> void put_at(std::size_t at, std::int64_t value) noexcept {
        const auto narrowed = static_cast<T>(value);
        std::memcpy(data_.data() + at, &narrowed, sizeof narrowed);
    }
    std::int64_t origin(std::size_t axis) const noexcept { return value_at<std::int64_t>(4 * axis); }
    TaskNumber base() const noexcept { return value_at<TaskNumber>(4 * std::size_t{rank_}); }
    static std::int64_t distance(TaskNumber task, TaskNumber from) noexcept {
        return static_cast<std::int64_t>(task - from);
    }

    /// The first entry is about to be added to an empty list.
    void begin(const Box& box, TaskNumber task) {
        if (data_.empty()) make_room(few);  // else it keeps its form
        for (std::size_t k = 0; k < rank_; ++k) put_at<std::int64_t>(4 * k, box.begin[k]);
        put_at<TaskNumber>(4 * std::size_t{rank_}, static_cast<std::int64_t>(task));
    }
    template<typename Side> static bool fits(std::int64_t value) noexcept { return value == static_cast<Side>(value); }
    template<typename Side> bool fits(const Box& box) const noexcept {
        for (std::size_t k = 0; k < rank_; ++k)
            if (!fits<Side>(box.begin[k] - origin(k)) || !fits<Side>(box.end[k] - origin(k))) return false;
        return true;
    }
    /// Sets an entry of the narrowest form, for which there is room; false, with the entry undefined, if it needs more.
    bool fill_narrow(std::size_t i, const Box& box, TaskNumber task) noexcept {
        const Word* origin = data_.data();
        Word* at = data_.data() + place_of(i);
        const auto put_if_it_fits = [&at](std::int64_t value, auto narrowed) {
            narrowed = static_cast<decltype(narrowed)>(value);
            std::memcpy(at, &narrowed, sizeof narrowed);
            at += sizeof narrowed / sizeof(Word);
            return value == narrowed;
        };
        bool fits = put_if_it_fits(distance(task, base()), std::int32_t{});
        for (std::size_t k = 0; k < rank_; ++k, origin += 4) {
            std::int64_t from;
            std::memcpy(&from, origin, sizeof from);
            fits = put_if_it_fits(box.begin[k] - from, std::int16_t{}) && fits;
            fits = put_if_it_fits(box.end[k] - from, std::int16_t{}) && fits;
        }
        return fits;
    }
    /// Sets the entry behind the last, for which there is room in this form. Throws std::bad_alloc, with nothing done.
    [[gnu::noinline]] void fill_wide(const Box& box, TaskNumber task) {
        const Width width = fits<std::int32_t>(box) ? Width::wide : Width::widest;
        if (width > width_) widen(width);
        put(size_, box, task);
    }
    /// Throws std::bad_alloc, with nothing done.
    void widen(Width width) {
        PartReaders wide(rank_);
        wide.set_width(width);
        wide.make_room(size() + 1);
        std::copy_n(data_.data(), head_words(), wide.data_.data());
        each([&wide](TaskNumber task, const Box& box) { wide.put(wide.size_++, box, task); });
        *this = std::move(wide);
    }
    TaskNumber task_of(std::size_t i) const noexcept {
        const std::size_t at = place_of(i);
        if (width_ == Width::narrow) [[likely]]
            return base() + static_cast<TaskNumber>(std::int64_t{value_at<std::int32_t>(at)});
        return value_at<TaskNumber>(at);
    }
    Box box_of(std::size_t i) const noexcept {
        const std::size_t at = place_of(i) + task_words(width_);
        if (width_ == Width::narrow) [[likely]]
            return box_at<std::int16_t>(at);
        return width_ == Width::wide ? box_at<std::int32_t>(at) : box_at<std::int64_t>(at);
    }
    template<typename Side> Box box_at(std::size_t at) const noexcept {
        constexpr std::size_t words = sizeof(Side) / sizeof(Word);
        Box box;
        for (std::size_t k = 0; k < rank_; ++k) {
            box.begin[k] = origin(k) + value_at<Side>(at + 2 * k * words);
            box.end[k] = origin(k) + value_at<Side>(at + (2 * k + 1) * words);
        }
        return box;
    }
    void put(std::size_t i, const Box& box, TaskNumber task) noexcept {
        const std::size_t at = place_of(i);
        if (width_ == Width::narrow) [[likely]] {
            put_at<std::int32_t>(at, distance(task, base()));
            return put_box<std::int16_t>(at + task_words(width_), box);
        }
        put_at<TaskNumber>(at, static_cast<std::int64_t>(task));
        if (width_ == Width::wide) return put_box<std::int32_t>(at + task_words(width_), box);
        put_box<std::int64_t>(at + task_words(width_), box);
    }
    template<typename Side> void put_box(std::size_t at, const Box& box) noexcept {
        constexpr std::size_t words = sizeof(Side) / sizeof(Word);
        for (std::size_t k = 0; k < rank_; ++k) {
            put_at<Side>(at + 2 * k * words, box.begin[k] - origin(k));
            put_at<Side>(at + (2 * k + 1) * words, box.end[k] - origin(k));
        }
    }
    void move(std::size_t from, std::size_t to) noexcept {
        if (from == to) return;
        std::copy_n(data_.data() + place_of(from), std::size_t{entry_words_}, data_.data() + place_of(to));
    }
    /// Drops all entries from `count` on.
    void keep(std::size_t count) noexcept { size_ = static_cast<std::uint32_t>(count); }

    Vector<Word> data_;  ///< the head, and room for entries, of which `size_` are used
    std::uint32_t size_ = 0;
    std::uint16_t entry_words_;
    std::uint8_t rank_;
    Width width_;
};
static_assert(sizeof(PartReaders) == 32);

}  // namespace kmm::graph
