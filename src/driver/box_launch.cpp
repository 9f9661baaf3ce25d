#include "driver/box_launch.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace kmm::driver::boxes {

static_assert(max_axes == BoxMove::max_axes + 1);

bool is_empty(const BoxMove& box) noexcept {
    bool empty = box.run_bytes == 0;
    for (std::uint32_t k = 0; k < box.num_axes; ++k) empty = empty || box.counts[k] == 0;
    return empty;
}

namespace {

/// Whether no step is below what is nested in it, and the reach is a number of 63 bits.
bool are_nested(const BoxMove& box, const std::int64_t* steps) noexcept {
    if (box.run_bytes > static_cast<std::size_t>(INT64_MAX)) return false;
    auto reach = static_cast<std::int64_t>(box.run_bytes);
    for (std::uint32_t k = box.num_axes; k-- > 0;) {
        if (box.counts[k] == 1) continue;
        std::int64_t more = 0;
        if (steps[k] < reach || __builtin_mul_overflow(box.counts[k] - 1, steps[k], &more) ||
            __builtin_add_overflow(reach, more, &reach))
            return false;
    }
    return true;
}

/// Whether an axis of this step goes on where axis `k` ends.
bool goes_on(const BoxMove& box, const std::int64_t* steps, std::uint32_t k, std::int64_t step) noexcept {
    return static_cast<std::uint64_t>(step) ==
           static_cast<std::uint64_t>(steps[k]) * static_cast<std::uint64_t>(box.counts[k]);
}

std::size_t reach_of(const BoxMove& box, const std::int64_t* steps) noexcept {
    std::size_t reach = box.run_bytes;
    for (std::uint32_t k = 0; k < box.num_axes; ++k)
        if (box.counts[k] > 1) reach += static_cast<std::size_t>((box.counts[k] - 1) * steps[k]);
    return reach;
}

}  // namespace

bool is_valid(const BoxMove& box) noexcept {
    if (box.num_axes > BoxMove::max_axes) return false;
    for (std::uint32_t k = 0; k < box.num_axes; ++k)
        if (box.counts[k] < 0) return false;
    if (is_empty(box)) return true;
    return box.destination != nullptr && box.source != nullptr && are_nested(box, box.destination_steps) &&
           are_nested(box, box.source_steps);
}

std::size_t destination_reach(const BoxMove& box) noexcept { return reach_of(box, box.destination_steps); }

std::size_t source_reach(const BoxMove& box) noexcept { return reach_of(box, box.source_steps); }

BoxMove joined(const BoxMove& box) noexcept {
    BoxMove result;
    result.destination = box.destination;
    result.source = box.source;
    result.run_bytes = box.run_bytes;
    std::uint32_t n = 0;  // axes of the result so far, fastest first
    for (std::uint32_t k = box.num_axes; k-- > 0;) {
        const std::int64_t count = box.counts[k];
        if (count == 1) continue;
        const std::int64_t to = box.destination_steps[k];
        const std::int64_t from = box.source_steps[k];
        const auto run = static_cast<std::int64_t>(result.run_bytes);
        if (n == 0 && to == run && from == run) {
            result.run_bytes *= static_cast<std::size_t>(count);
        } else if (n > 0 && goes_on(result, result.destination_steps, n - 1, to) &&
                   goes_on(result, result.source_steps, n - 1, from)) {
            result.counts[n - 1] *= count;
        } else {
            result.counts[n] = count;
            result.destination_steps[n] = to;
            result.source_steps[n] = from;
            ++n;
        }
    }
    result.num_axes = n;
    for (std::int64_t* const axes : {result.counts, result.destination_steps, result.source_steps})
        std::reverse(axes, axes + n);
    return result;
}

namespace {

/// Whether one call copies these rows and planes: vendors want pitches of 31 bits, and planes whole rows apart.
bool is_one_strided_copy(const BoxMove& box, const std::int64_t* steps) noexcept {
    constexpr std::int64_t most_pitch = 0x7fffffff;
    if (box.num_axes == 0) return true;
    const std::int64_t pitch = steps[box.num_axes - 1];
    return box.num_axes <= 2 && pitch <= most_pitch && (box.num_axes == 1 || steps[0] % pitch == 0);
}

/// Whether one strided copy moves the box over the link to the host, and is as fast as the kernel.
bool suits_engine_of_link(const BoxMove& box) noexcept {
    if (box.run_bytes < link_run_bytes) return false;
    std::size_t bytes = box.run_bytes;
    for (std::uint32_t k = 0; k < box.num_axes; ++k) bytes *= static_cast<std::size_t>(box.counts[k]);
    return bytes >= link_box_bytes && is_one_strided_copy(box, box.destination_steps) &&
           is_one_strided_copy(box, box.source_steps);
}

}  // namespace

Way way_of(const BoxMove& box, Place destination, Place source) noexcept {
    if (destination == Place::out_of_reach || source == Place::out_of_reach) return Way::copies;
    if (box.run_bytes >= engine_run_bytes) return Way::copies;
    const bool over_link = destination == Place::host || source == Place::host;
    return over_link && suits_engine_of_link(box) ? Way::copies : Way::kernel;
}

namespace {

/// The logarithm of the largest item that every address and every run is a multiple of.
unsigned log_item_bytes(const BoxMove& box) noexcept {
    auto bits = reinterpret_cast<std::uintptr_t>(box.destination) | reinterpret_cast<std::uintptr_t>(box.source) |
                box.run_bytes | sizeof(Item16);
    for (std::uint32_t k = 0; k < box.num_axes; ++k)
        bits |= static_cast<std::uint64_t>(box.destination_steps[k]) | static_cast<std::uint64_t>(box.source_steps[k]);
    return static_cast<unsigned>(std::countr_zero(bits));
}

/// A block has `batch * threads` items on their way. What is short of this many bytes on a multiprocessor leaves its
/// share of the device's memory idle; smaller items are a matter of instructions, too, and get more blocks.
constexpr Word own_blocks(unsigned log_bytes) noexcept { return log_bytes >= 3 ? 2 : 4; }

/// Number of blocks that hides a link's latency (bytes in flight: PCIe 100 KiB, NVLink 1 MiB). More would only take
/// multiprocessors from other kernels.
constexpr Word far_blocks(Place place, unsigned log_bytes) noexcept {
    const Word of_16_bytes = place == Place::host ? 16 : 64;
    return of_16_bytes << (log_bytes >= 4 ? 0 : log_bytes == 3 ? 1 : 2);
}

constexpr Word units_of(Word items, Word items_each) noexcept {
    const Word items_of_unit = items_each * threads;
    return (items + items_of_unit - 1) / items_of_unit;
}

constexpr Word words_of_shape(Word axes) noexcept { return first_axis + axes * axis_words; }

Word items_of(const BoxMove& box) noexcept {
    Word items = box.run_bytes >> log_item_bytes(box);
    for (std::uint32_t k = 0; k < box.num_axes; ++k) items *= static_cast<Word>(box.counts[k]);
    return items;
}

}  // namespace

bool cut_if_large(const BoxMove& box, BoxMove* lower_part, BoxMove* upper_part) noexcept {
    if (box.num_axes == 0 || items_of(box) <= most_items) return false;
    const std::int64_t half = box.counts[0] / 2;
    BoxMove part = box;
    part.counts[0] = half;
    *lower_part = joined(part);
    part.counts[0] = box.counts[0] - half;
    part.destination = static_cast<std::byte*>(box.destination) + half * box.destination_steps[0];
    part.source = static_cast<const std::byte*>(box.source) + half * box.source_steps[0];
    *upper_part = joined(part);
    return true;
}

void BoxList::clear() noexcept {
    num_boxes_ = 0;
    num_shape_words_ = 0;
    most_own_blocks_ = 0;
    most_far_blocks_ = 0;
}

/// Writes the shape behind those that there are. Returns the words that it takes.
Word BoxList::make_shape(const BoxMove& box) noexcept {
    const unsigned log_bytes = log_item_bytes(box);
    Word* const shape = shapes_ + num_shape_words_;
    Word axes = 0, items = 1, rest = threads;
    const auto put = [&](Word n, std::int64_t to, std::int64_t from) {
        Word* const axis = shape + first_axis + axes * axis_words;
        axis[count] = pair(n, rest % n);
        axis[destination_step] = static_cast<Word>(to);
        axis[source_step] = static_cast<Word>(from);
        rest /= n;
        items *= n;
        ++axes;
    };
    const auto item_bytes = std::int64_t{1} << log_bytes;
    const Word items_of_run = box.run_bytes >> log_bytes;
    if (items_of_run > 1 || box.num_axes == 0) put(items_of_run, item_bytes, item_bytes);
    for (std::uint32_t k = box.num_axes; k-- > 0;)
        put(static_cast<Word>(box.counts[k]), box.destination_steps[k], box.source_steps[k]);
    assert(items <= most_items);
    shape[form] = pair(axes | Word{log_bytes} << 8, items);
    return words_of_shape(axes);
}

bool BoxList::add(const BoxMove& box, Place to, Place from) noexcept {
    const std::size_t entries_end = first_entry + (num_boxes_ + 1) * entry_words;
    // A shape is made in place, and takes no room if it is there already.
    if (entries_end > max_words || num_shape_words_ + words_of_shape(max_axes) > max_words) return false;
    const std::size_t room = max_words - entries_end;
    const Word words = make_shape(box);
    const Word* const made = shapes_ + num_shape_words_;
    std::size_t at = 0;
    while (at < num_shape_words_ && !std::equal(made, made + words, shapes_ + at))
        at += words_of_shape(lower(shapes_[at + form]) & 0xffu);
    const std::size_t needed = at == num_shape_words_ ? num_shape_words_ + words : num_shape_words_;
    if (needed > room) return false;
    num_shape_words_ = needed;
    Word* const e = entry(num_boxes_++);
    e[destination] = reinterpret_cast<std::uintptr_t>(box.destination);
    e[source] = reinterpret_cast<std::uintptr_t>(box.source);
    e[shape_at] = pair(0, at);
    const unsigned log_bytes = lower(made[form]) >> 8;
    const Place farther = std::max(to, from);
    if (farther == Place::own)
        most_own_blocks_ = std::max(most_own_blocks_, own_blocks(log_bytes));
    else
        most_far_blocks_ = std::max(most_far_blocks_, far_blocks(farther, log_bytes));
    return true;
}

BoxList::Launch BoxList::finish(int multiprocessors) noexcept {
    const Word most_blocks =
        std::max({most_own_blocks_ * static_cast<Word>(std::max(1, multiprocessors)), most_far_blocks_, Word{1}});
    const auto units_of_entry = [&](std::size_t i, Word items_each) {
        return units_of(upper(shapes_[upper(entry(i)[shape_at]) + num_items]), items_each);
    };
    // A thread with many items seldom has to find its place; one with few leaves work to all blocks.
    Word units = 0, items_each = 16;
    for (;; items_each /= 2) {
        units = 0;
        for (std::size_t i = 0; i < num_boxes_; ++i) units += units_of_entry(i, items_each);
        if (units >= most_blocks || items_each == 1) break;
    }
    const std::size_t shapes = first_entry + num_boxes_ * entry_words;
    Word end = 0;
    for (std::size_t i = 0; i < num_boxes_; ++i) {
        end += units_of_entry(i, items_each);
        Word* const e = entry(i);
        e[end_unit] = pair(end, shapes + upper(e[shape_at]));
    }
    std::copy(shapes_, shapes_ + num_shape_words_, words_ + shapes);
    words_[num_boxes] = pair(num_boxes_, items_each);
    words_[num_units] = units;
    const std::size_t words = shapes + num_shape_words_;
    return {words_, words <= few_words ? few_words : max_words,
            static_cast<std::uint32_t>(std::min(units, most_blocks))};
}

}  // namespace kmm::driver::boxes
