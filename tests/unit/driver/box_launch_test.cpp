// Which boxes a kernel moves and how, and that what its threads do moves the right bytes.
#include "driver/box_launch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

using namespace kmm::driver;
using namespace kmm::driver::boxes;

using Bytes = std::vector<unsigned char>;

void move_by_loops(const BoxMove& box, unsigned char* to, const unsigned char* from, std::uint32_t axis = 0) {
    if (axis == box.num_axes) {
        std::copy(from, from + box.run_bytes, to);
        return;
    }
    for (std::int64_t i = 0; i < box.counts[axis]; ++i)
        move_by_loops(box, to + i * box.destination_steps[axis], from + i * box.source_steps[axis], axis + 1);
}

void move_by_loops(const BoxMove& box) {
    move_by_loops(box, static_cast<unsigned char*>(box.destination), static_cast<const unsigned char*>(box.source));
}

/// As the kernel does: each block takes units in turn.
void move_as_kernel(const BoxList::Launch& launch) {
    for (std::uint32_t block = 0; block < launch.num_blocks; ++block)
        for (std::uint32_t unit = block; unit < launch.words[num_units]; unit += launch.num_blocks)
            for (unsigned thread = 0; thread < threads; ++thread) move_unit(launch.words, unit, thread);
}

/// As a driver does: launches whenever the list is full. Returns the launches.
int move_in_launches(const std::vector<BoxMove>& moves, int multiprocessors, BoxList& list) {
    int launches = 0;
    const auto launch = [&] {
        const BoxList::Launch made = list.finish(multiprocessors);
        EXPECT_LE(made.num_words, BoxList::max_words);
        EXPECT_GE(made.num_blocks, 1u);
        EXPECT_LE(made.num_blocks, made.words[num_units]);
        move_as_kernel(made);
        list.clear();
        ++launches;
    };
    for (const BoxMove& move : moves) {
        if (is_empty(move)) continue;
        const BoxMove box = joined(move);
        if (list.add(box, Place::own, Place::host)) continue;
        launch();
        EXPECT_TRUE(list.add(box, Place::own, Place::host));
    }
    if (!list.empty()) launch();
    return launches;
}

BoxMove rows(void* to, const void* from, std::size_t run, std::int64_t count, std::int64_t to_step,
             std::int64_t from_step) {
    BoxMove box;
    box.destination = to;
    box.source = from;
    box.run_bytes = run;
    box.num_axes = 1;
    box.counts[0] = count;
    box.destination_steps[0] = to_step;
    box.source_steps[0] = from_step;
    return box;
}

/// Steps of a random box, which are multiples of `unit`; returns how far it reaches.
std::size_t make_steps(std::mt19937& random, const BoxMove& box, std::size_t unit, std::int64_t* steps) {
    std::size_t reach = box.run_bytes;
    for (std::uint32_t k = box.num_axes; k-- > 0;) {
        const std::size_t step = (reach + unit - 1) / unit * unit + (random() % 2 == 0 ? 0 : unit * (random() % 9));
        steps[k] = static_cast<std::int64_t>(step);
        reach += step * static_cast<std::size_t>(std::max<std::int64_t>(box.counts[k], 1) - 1);
    }
    return reach;
}

class Memory {
  public:
    explicit Memory(std::size_t bytes) : source_(bytes + 16), destination_(bytes + 16), expected_(bytes + 16) {}

    /// At a multiple of 16.
    unsigned char* source() { return aligned(source_); }
    unsigned char* destination() { return aligned(destination_); }
    unsigned char* expected(const void* of) {
        return expected_.data() + (static_cast<const unsigned char*>(of) - destination_.data());
    }
    void fill(unsigned seed) {
        for (std::size_t i = 0; i < source_.size(); ++i) {
            source_[i] = static_cast<unsigned char>((i * 131 + seed * 17) >> 2);
            destination_[i] = expected_[i] = static_cast<unsigned char>(~i);
        }
    }
    bool is_as_expected() const { return destination_ == expected_; }

  private:
    static unsigned char* aligned(Bytes& bytes) {
        return bytes.data() + (16 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 16) % 16;
    }
    Bytes source_, destination_, expected_;
};

/// Boxes side by side, as many as there is room for up to `most`, and what they must give.
std::vector<BoxMove> random_boxes(std::mt19937& random, Memory& memory, std::size_t bytes, std::size_t most) {
    const std::size_t unit = std::size_t{1} << random() % 5;
    const auto offset = [&] { return random() % 3 == 0 ? 0 : unit * (random() % 9); };
    std::vector<BoxMove> moves;
    std::size_t to = offset(), from = offset();
    while (moves.size() < most) {
        BoxMove box;
        box.run_bytes = unit * (random() % 30 == 0 ? 300 : 1 + random() % 20);
        box.num_axes = static_cast<std::uint32_t>(random() % (BoxMove::max_axes + 1));
        for (std::uint32_t k = 0; k < box.num_axes; ++k)
            box.counts[k] = static_cast<std::int64_t>(random() % 50 == 0   ? 0
                                                      : box.num_axes > 4   ? 1 + random() % 3
                                                      : random() % 10 == 0 ? 1 + random() % 300
                                                                           : 1 + random() % 8);
        const std::size_t to_reach = make_steps(random, box, unit, box.destination_steps);
        const std::size_t from_reach = make_steps(random, box, unit, box.source_steps);
        if (to + to_reach > bytes || from + from_reach > bytes) break;
        box.destination = memory.destination() + to;
        box.source = memory.source() + from;
        moves.push_back(box);
        move_by_loops(box, memory.expected(box.destination), memory.source() + from);
        to = (to + to_reach + unit - 1) / unit * unit + offset();
        from = (from + from_reach + unit - 1) / unit * unit + offset();
    }
    return moves;
}

TEST(box_launch, random_lists_move_as_loops_do) {
    std::mt19937 random(1);
    constexpr std::size_t bytes = 100000;
    Memory memory(bytes);
    BoxList list;
    int moved = 0;
    for (unsigned trial = 0; trial < 400; ++trial) {
        memory.fill(trial);
        const std::vector<BoxMove> moves = random_boxes(random, memory, bytes, 1 + random() % 40);
        for (const BoxMove& box : moves) ASSERT_TRUE(is_valid(box));
        (void)move_in_launches(moves, trial % 3 == 0 ? 132 : 1, list);
        ASSERT_TRUE(memory.is_as_expected()) << "trial " << trial;
        moved += static_cast<int>(moves.size());
    }
    EXPECT_GT(moved, 1000);
}

TEST(box_launch, joined_boxes_move_the_same_bytes_by_fewer_axes) {
    std::mt19937 random(2);
    constexpr std::size_t bytes = 100000;
    Memory memory(bytes);
    for (unsigned trial = 0; trial < 300; ++trial) {
        memory.fill(trial);
        for (const BoxMove& move : random_boxes(random, memory, bytes, 5)) {
            if (is_empty(move)) continue;
            const BoxMove box = joined(move);
            EXPECT_LE(box.num_axes, move.num_axes);
            EXPECT_TRUE(is_valid(box));
            EXPECT_EQ(destination_reach(box), destination_reach(move));
            EXPECT_EQ(source_reach(box), source_reach(move));
            move_by_loops(box);
        }
        ASSERT_TRUE(memory.is_as_expected()) << "trial " << trial;
    }
}

TEST(box_launch, axes_that_touch_become_one_run) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    BoxMove box;
    box.destination = to;
    box.source = from;
    box.run_bytes = 8;
    box.num_axes = 3;
    for (const int k : {0, 1, 2}) box.counts[k] = 5;
    for (std::int64_t* const steps : {box.destination_steps, box.source_steps}) {
        steps[2] = 8;
        steps[1] = 40;
        steps[0] = 200;
    }
    EXPECT_EQ(joined(box).num_axes, 0u);
    EXPECT_EQ(joined(box).run_bytes, 1000u);
    box.source_steps[0] = 208;  // one side alone does not go on
    EXPECT_EQ(joined(box).num_axes, 1u);
    EXPECT_EQ(joined(box).run_bytes, 200u);
    EXPECT_EQ(joined(box).counts[0], 5);
    box.source_steps[2] = 16;
    box.source_steps[1] = 80;
    box.source_steps[0] = 408;
    EXPECT_EQ(joined(box).num_axes, 2u);
    EXPECT_EQ(joined(box).run_bytes, 8u);
    EXPECT_EQ(joined(box).counts[1], 25);
}

TEST(box_launch, steps_of_axes_of_one_do_not_count) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    BoxMove box = rows(to, from, 32, 1, -7, 3);
    EXPECT_TRUE(is_valid(box));
    EXPECT_EQ(joined(box).num_axes, 0u);
    EXPECT_EQ(joined(box).run_bytes, 32u);
    EXPECT_EQ(source_reach(box), 32u);
}

TEST(box_launch, boxes_against_the_rules_are_found) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    const BoxMove good = rows(to, from, 10, 5, 10, 12);
    EXPECT_TRUE(is_valid(good));
    BoxMove bad = good;
    bad.counts[0] = -1;
    EXPECT_FALSE(is_valid(bad));
    bad = good;
    bad.source = nullptr;
    EXPECT_FALSE(is_valid(bad));
    bad.counts[0] = 0;
    EXPECT_TRUE(is_valid(bad)) << "it moves nothing";
    bad = good;
    bad.num_axes = BoxMove::max_axes + 1;
    EXPECT_FALSE(is_valid(bad));
    bad = good;
    bad.destination_steps[0] = 9;
    EXPECT_FALSE(is_valid(bad)) << "its runs overlap";
    bad = good;
    bad.source_steps[0] = -12;
    EXPECT_FALSE(is_valid(bad));
    bad = good;
    bad.counts[0] = INT64_MAX / 4;
    EXPECT_FALSE(is_valid(bad)) << "it reaches beyond every address";
    bad = good;
    bad.run_bytes = SIZE_MAX;
    EXPECT_FALSE(is_valid(bad));
}

/// The bytes of an item, for a list of one box.
unsigned item_bytes(const BoxMove& box) {
    BoxList list;
    EXPECT_TRUE(list.add(joined(box), Place::own, Place::own));
    const Word* const words = list.finish(1).words;
    return 1u << (lower(words[upper(words[first_entry + shape_at]) + form]) >> 8);
}

TEST(box_launch, an_item_is_what_addresses_runs_and_steps_are_multiples_of) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    EXPECT_EQ(item_bytes(rows(to, from, 64, 4, 128, 256)), 16u);
    EXPECT_EQ(item_bytes(rows(to, from, 72, 4, 128, 256)), 8u);
    EXPECT_EQ(item_bytes(rows(to + 8, from, 64, 4, 128, 256)), 8u);
    EXPECT_EQ(item_bytes(rows(to, from + 4, 64, 4, 128, 256)), 4u);
    EXPECT_EQ(item_bytes(rows(to, from, 64, 4, 66, 256)), 2u);
    EXPECT_EQ(item_bytes(rows(to, from, 64, 4, 128, 129)), 1u);
    EXPECT_EQ(item_bytes(rows(to, from, 64, 1, 77, 77)), 16u);
    EXPECT_EQ(item_bytes(rows(to, from, 3, 1, 0, 0)), 1u);
}

TEST(box_launch, long_runs_and_memory_out_of_reach_are_left_to_copies) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    const BoxMove small = rows(to, from, 4096, 1 << 20, 8192, 8192);
    EXPECT_EQ(way_of(small, Place::own, Place::own), Way::kernel);
    EXPECT_EQ(way_of(small, Place::host, Place::own), Way::copies);
    EXPECT_EQ(way_of(rows(to, from, 2048, 127, 8192, 8192), Place::host, Place::own), Way::kernel);
    EXPECT_EQ(way_of(rows(to, from, 2048, 128, 8192, 8192), Place::own, Place::host), Way::copies);
    EXPECT_EQ(way_of(rows(to, from, 2047, 1 << 20, 8192, 8192), Place::own, Place::host), Way::kernel);
    EXPECT_EQ(way_of(rows(to, from, 130'000, 2, 1 << 20, 1 << 20), Place::own, Place::host), Way::kernel);
    EXPECT_EQ(way_of(rows(to, from, 4096, 1000, std::int64_t{1} << 31, 8192), Place::own, Place::host), Way::kernel);
    // Planes of two rows that are three and a half rows apart on one side take a call each.
    BoxMove planes = rows(to, from, 2048, 4096, 4 * 2048, 7 * 1024);
    planes.num_axes = 2;
    planes.counts[1] = 2;
    planes.destination_steps[1] = planes.source_steps[1] = 2048;
    EXPECT_EQ(way_of(planes, Place::own, Place::host), Way::kernel);
    planes.source_steps[0] = 6 * 1024;
    EXPECT_EQ(way_of(planes, Place::own, Place::host), Way::copies);
    EXPECT_EQ(way_of(small, Place::own, Place::peer), Way::kernel);
    EXPECT_EQ(way_of(small, Place::out_of_reach, Place::own), Way::copies);
    EXPECT_EQ(way_of(small, Place::own, Place::out_of_reach), Way::copies);
    EXPECT_EQ(way_of(rows(to, from, engine_run_bytes, 3, 2 << 20, 2 << 20), Place::own, Place::own), Way::copies);
    EXPECT_EQ(way_of(rows(to, from, engine_run_bytes - 1, 3, 2 << 20, 2 << 20), Place::own, Place::own), Way::kernel);
    EXPECT_EQ(way_of(joined(rows(to, from, 4096, 256, 4096, 4096)), Place::host, Place::own), Way::copies);
}

TEST(box_launch, more_blocks_are_asked_for_within_a_device_than_over_a_link) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    const BoxMove box = rows(to, from, 4096, 1 << 20, 8192, 8192);
    const auto blocks = [&](Place farther) {
        BoxList list;
        EXPECT_TRUE(list.add(box, Place::own, farther));
        return list.finish(132).num_blocks;
    };
    EXPECT_GT(blocks(Place::own), blocks(Place::peer));
    EXPECT_GT(blocks(Place::peer), blocks(Place::host));
    EXPECT_GE(blocks(Place::host), 8u);
}

TEST(box_launch, a_small_box_is_spread_over_the_device) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    BoxList list;
    ASSERT_TRUE(list.add(rows(to, from, 8, 16384, 8, 4096), Place::own, Place::own));
    const BoxList::Launch launch = list.finish(132);
    EXPECT_EQ(launch.num_blocks, 16384 / threads);
    EXPECT_EQ(launch.num_words, BoxList::few_words);
}

TEST(box_launch, boxes_of_one_shape_share_it_and_a_thousand_take_few_launches) {
    std::mt19937 random(3);
    constexpr std::size_t bytes = 1000 * 512;
    Memory memory(bytes);
    BoxList list;
    for (const bool alike : {true, false}) {
        memory.fill(4);
        std::vector<BoxMove> moves;
        for (std::size_t i = 0; i < 1000; ++i) {
            const std::size_t run = alike ? 16 : 1 + random() % 60;
            moves.push_back(rows(memory.destination() + i * 512, memory.source() + (999 - i) * 512, run, 5, 64, 80));
            move_by_loops(moves.back(), memory.expected(moves.back().destination),
                          static_cast<const unsigned char*>(moves.back().source));
        }
        const int launches = move_in_launches(moves, 132, list);
        EXPECT_LE(launches, alike ? 8 : 32);
        EXPECT_TRUE(memory.is_as_expected());
    }
}

TEST(box_launch, a_list_has_room_for_any_box_and_says_when_it_has_none) {
    constexpr std::size_t bytes = 1 << 20;
    Memory memory(bytes);
    memory.fill(5);
    BoxMove box;  // eight axes and a run that no two of which touch
    box.destination = memory.destination();
    box.source = memory.source();
    box.run_bytes = 3;
    box.num_axes = BoxMove::max_axes;
    std::int64_t step = 4;
    for (std::uint32_t k = box.num_axes; k-- > 0; step = step * 2 + 1) {
        box.counts[k] = 2;
        box.destination_steps[k] = step;
        box.source_steps[k] = step + static_cast<std::int64_t>(k);
    }
    for (std::uint32_t k = box.num_axes; k-- > 1;) box.source_steps[k - 1] = box.source_steps[k] * 2 + 5;
    ASSERT_TRUE(is_valid(box));
    ASSERT_EQ(joined(box).num_axes, BoxMove::max_axes);
    BoxList list;
    std::size_t boxes = 0;
    for (;; ++boxes) {
        BoxMove other = box;
        other.counts[0] = 2 + static_cast<std::int64_t>(boxes);  // a shape of its own
        if (!list.add(other, Place::own, Place::own)) break;
    }
    EXPECT_GE(boxes, 10u);
    EXPECT_EQ(lower(list.finish(1).words[num_boxes]), boxes);
    list.clear();
    EXPECT_TRUE(list.add(box, Place::own, Place::own));
    move_by_loops(box, memory.expected(box.destination), memory.source());
    move_as_kernel(list.finish(4));
    EXPECT_TRUE(memory.is_as_expected());
}

/// What a driver puts into its lists.
std::vector<BoxMove> parts_of(const BoxMove& box) {
    BoxMove first, second;
    if (!cut_if_large(box, &first, &second)) return {box};
    std::vector<BoxMove> parts = parts_of(first);
    const std::vector<BoxMove> more = parts_of(second);
    parts.insert(parts.end(), more.begin(), more.end());
    return parts;
}

TEST(box_launch, boxes_of_more_items_than_a_kernel_counts_are_cut) {
    alignas(16) unsigned char to[16];
    alignas(16) unsigned char from[16];
    BoxMove box = rows(to + 1, from, 1, 2, std::int64_t{1} << 41, std::int64_t{1} << 42);  // 2^40 bytes, one by one
    box.num_axes = 3;
    const std::int64_t counts[] = {2, 2048, std::int64_t{1} << 28};
    std::copy(counts, counts + 3, box.counts);
    for (std::int64_t* const steps : {box.destination_steps, box.source_steps}) {
        steps[1] = steps == box.source_steps ? std::int64_t{1} << 31 : std::int64_t{1} << 30;
        steps[2] = 3;
    }
    ASSERT_TRUE(is_valid(box));
    const std::vector<BoxMove> parts = parts_of(joined(box));
    EXPECT_EQ(parts.size(), 512u);
    Word items = 0;
    BoxList list;
    for (const BoxMove& part : parts) {
        ASSERT_TRUE(list.add(part, Place::own, Place::own));
        const BoxList::Launch launch = list.finish(132);
        items += Word{lower(launch.words[num_units])} * upper(launch.words[items_of_thread]) * threads;
        list.clear();
    }
    EXPECT_EQ(items, Word{1} << 40);
    const auto offset = [](const void* of, const unsigned char* base) {
        return reinterpret_cast<std::uintptr_t>(of) - reinterpret_cast<std::uintptr_t>(base);
    };
    EXPECT_EQ(offset(parts.back().source, from), (Word{1} << 42) + 2040 * (Word{1} << 31));
    EXPECT_EQ(offset(parts.back().destination, to), 1 + (Word{1} << 41) + 2040 * (Word{1} << 30));
    EXPECT_EQ(parts_of(rows(to, from, 16, std::int64_t{1} << 31, 16, 32)).size(), 1u) << "items are of 16 bytes";
    EXPECT_EQ(parts_of(rows(to, from, 16, (std::int64_t{1} << 31) + 1, 16, 32)).size(), 2u);
}

TEST(box_launch, parts_of_a_box_move_what_it_moves) {
    constexpr std::size_t bytes = 1 << 16;
    Memory memory(bytes);
    memory.fill(7);
    // Large in name: the runs of the slowest axis lie beyond the memory, and only the first ones are moved.
    const BoxMove box = rows(memory.destination(), memory.source(), 1, (std::int64_t{1} << 31) + 2, 3, 2);
    const std::vector<BoxMove> parts = parts_of(joined(box));
    ASSERT_EQ(parts.size(), 2u);
    BoxList list;
    ASSERT_TRUE(list.add(parts[0], Place::own, Place::own));
    const BoxList::Launch launch = list.finish(132);
    for (unsigned thread = 0; thread < threads; ++thread) move_unit(launch.words, 3, thread);
    const std::size_t each = upper(launch.words[items_of_thread]) * threads;
    for (std::size_t i = 3 * each; i < 4 * each; ++i)
        memory.expected(memory.destination())[i * 3] = memory.source()[i * 2];
    EXPECT_TRUE(memory.is_as_expected());
}

TEST(box_launch, the_last_of_two_thousand_million_items_is_found) {
    // Nobody has the memory for such a box: all but its slowest axis stay in one place.
    Memory memory(64);
    memory.fill(6);
    Word list[32] = {};
    list[num_boxes] = pair(1, 1);
    list[num_units] = most_items / threads;
    Word* const e = list + first_entry;
    e[destination] = reinterpret_cast<Word>(memory.destination());
    e[source] = reinterpret_cast<Word>(memory.source());
    e[end_unit] = pair(list[num_units], first_entry + entry_words);
    Word* const shape = list + first_entry + entry_words;
    shape[form] = pair(2, most_items);
    Word* axis = shape + first_axis;
    axis[count] = pair(most_items / 8, threads);
    axis += axis_words;
    axis[count] = pair(8, 0);
    axis[destination_step] = 2;
    axis[source_step] = 3;
    move_unit(list, static_cast<std::uint32_t>(list[num_units] - 1), threads - 1);
    *(memory.expected(memory.destination()) + 14) = memory.source()[21];
    EXPECT_TRUE(memory.is_as_expected());
}

}  // namespace
