// Owns: copies and fills of a driver, compared with loops on the host.
#include <random>

#include "driver_test.hpp"

namespace driver_test {
namespace {

class DriverCopies : public DriverTest {
  protected:
    static std::vector<unsigned char> numbers(std::size_t n, unsigned seed = 1) {
        std::vector<unsigned char> result(n);
        for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<unsigned char>((i * 131 + seed * 17) >> 2);
        return result;
    }
    static void reference(const BoxCopy& box) {
        for (std::size_t z = 0; z < box.depth; ++z)
            for (std::size_t y = 0; y < box.height; ++y)
                std::memcpy(static_cast<unsigned char*>(box.destination) + z * box.destination_plane_pitch +
                                y * box.destination_row_pitch,
                            static_cast<const unsigned char*>(box.source) + z * box.source_plane_pitch +
                                y * box.source_row_pitch,
                            box.width_bytes);
    }
};

TEST_P(DriverCopies, bytes_go_up_across_and_down) {
    for (const std::size_t n : {1u, 3u, 255u, 4096u, 100001u, 3u << 20}) {
        const auto source = numbers(n);
        unsigned char* a = device_memory(n);
        unsigned char* b = device_memory(n);
        unsigned char* up = pinned_memory(n);
        unsigned char* down = pinned_memory(n);
        std::memcpy(up, source.data(), n);
        KMM_OK(driver().copy(a, up, n, stream()));
        KMM_OK(driver().copy(b, a, n, stream()));
        KMM_OK(driver().copy(down, b, n, stream()));
        KMM_OK(driver().synchronize_stream(stream()));
        EXPECT_EQ(std::vector<unsigned char>(down, down + n), source) << n;
    }
}

TEST_P(DriverCopies, a_pageable_source_may_change_when_the_call_has_returned) {
    for (const std::size_t n : {100u, 60000u, 200000u, 5u << 20}) {
        unsigned char* a = device_memory(n);
        auto source = numbers(n);
        const auto expected = source;
        KMM_OK(driver().copy(a, source.data(), n, stream()));
        std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));
        EXPECT_EQ(read(a, n), expected) << n;
    }
}

TEST_P(DriverCopies, a_pageable_destination_is_complete_when_the_call_has_returned) {
    const auto source = numbers(300000);
    unsigned char* a = device_memory(source.size());
    write(a, source);
    std::vector<unsigned char> result(source.size());
    KMM_OK(driver().copy(result.data(), a, source.size(), stream()));
    EXPECT_EQ(result, source);
}

TEST_P(DriverCopies, copies_are_ordered_with_other_work) {
    int* a = device_memory<int>(1000);
    int* b = device_memory<int>(1000);
    for (int i = 0; i < 20; ++i) {
        KMM_OK(fill_ints(a, i, 1000, stream()));
        KMM_OK(driver().copy(b, a, 4000, stream()));
        KMM_OK(add(b, 1000, 100, stream()));
        KMM_OK(driver().copy(a, b, 4000, stream()));
    }
    EXPECT_EQ(read(a, 1000), std::vector<int>(1000, 119));
}

TEST_P(DriverCopies, nothing_to_copy_is_fine) {
    int* a = device_memory<int>(4);
    KMM_OK(driver().copy(a, a, 0, stream()));
    BoxCopy box;
    box.destination = a;
    box.source = a;
    KMM_OK(driver().copy_box(box, stream()));
    KMM_OK(driver().copy_batch(nullptr, 0, stream()));
    const int zero = 0;
    KMM_OK(driver().fill(a, &zero, 4, 0, stream()));
    KMM_OK(driver().synchronize_stream(stream()));
}

TEST_P(DriverCopies, random_boxes_equal_loops_on_the_host) {
    std::mt19937 random(3);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    constexpr std::size_t bytes = 20000;
    unsigned char* device_a = device_memory(bytes);
    unsigned char* device_b = device_memory(bytes);
    unsigned char* pinned = pinned_memory(bytes);
    for (int trial = 0; trial < 150; ++trial) {
        BoxCopy box;
        box.width_bytes = 1 + below(40);
        box.height = 1 + below(12);
        box.depth = 1 + below(6);
        box.source_row_pitch = box.width_bytes + below(20);
        box.destination_row_pitch = box.width_bytes + below(20);
        // Planes are whole rows apart, which is all that the hardware's copy engines know.
        box.source_plane_pitch = box.source_row_pitch * (box.height + below(3));
        box.destination_plane_pitch = box.destination_row_pitch * (box.height + below(3));
        const std::size_t from = below(100), to = below(100);

        const auto source = numbers(bytes, static_cast<unsigned>(trial));
        auto expected = numbers(bytes, static_cast<unsigned>(trial) + 1000);
        BoxCopy on_host = box;
        on_host.source = source.data() + from;
        const auto before = expected;
        on_host.destination = expected.data() + to;
        reference(on_host);

        const int direction = trial % 3;  // up, across, down
        unsigned char* source_memory = direction == 0 ? pinned : device_a;
        unsigned char* destination_memory = direction == 2 ? pinned : device_b;
        KMM_OK(driver().copy(source_memory, source.data(), bytes, stream()));
        KMM_OK(driver().copy(destination_memory, before.data(), bytes, stream()));
        box.source = source_memory + from;
        box.destination = destination_memory + to;
        KMM_OK(driver().copy_box(box, stream()));
        ASSERT_EQ(read(destination_memory, bytes), expected) << "trial " << trial;
    }
}

TEST_P(DriverCopies, boxes_whose_rows_overlap_are_refused) {
    unsigned char* a = device_memory(1000);
    BoxCopy box;
    box.destination = a;
    box.source = a + 500;
    box.width_bytes = 10;
    box.height = 3;
    box.destination_row_pitch = 5;
    box.source_row_pitch = 20;
    KMM_FAILS(driver().copy_box(box, stream()), Code::invalid_argument);
}

TEST_P(DriverCopies, a_batch_copies_every_piece) {
    std::mt19937 random(5);
    constexpr std::size_t num_pieces = 300, piece_bytes = 96;
    const auto source = numbers(num_pieces * piece_bytes);
    unsigned char* a = device_memory(source.size());
    unsigned char* b = device_memory(source.size());
    write(a, source);
    KMM_OK(driver().fill(b, "x", 1, source.size(), stream()));
    std::vector<CopyPiece> pieces;
    auto expected = std::vector<unsigned char>(source.size(), 'x');
    for (std::size_t i = 0; i < num_pieces; ++i) {
        const std::size_t n = 1 + random() % piece_bytes;
        const std::size_t to = (num_pieces - 1 - i) * piece_bytes;
        pieces.push_back({b + to, a + i * piece_bytes, n});
        std::memcpy(expected.data() + to, source.data() + i * piece_bytes, n);
    }
    KMM_OK(driver().copy_batch(pieces.data(), pieces.size(), stream()));
    EXPECT_EQ(read(b, source.size()), expected);
}

TEST_P(DriverCopies, fills_repeat_patterns_of_1_to_64_bytes) {
    constexpr std::size_t bytes = 8192;
    unsigned char* a = device_memory(bytes);
    for (std::size_t pattern_bytes = 1; pattern_bytes <= 64; ++pattern_bytes) {
        unsigned char pattern[64];
        for (std::size_t i = 0; i < 64; ++i) pattern[i] = static_cast<unsigned char>(i * 37 + pattern_bytes);
        for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{97}}) {
            KMM_OK(driver().fill(a, "\xee", 1, bytes, stream()));
            KMM_OK(driver().fill(a, pattern, pattern_bytes, count, stream()));
            std::vector<unsigned char> expected(bytes, 0xee);
            for (std::size_t i = 0; i < pattern_bytes * count; ++i) expected[i] = pattern[i % pattern_bytes];
            ASSERT_EQ(read(a, bytes), expected) << pattern_bytes << " bytes, " << count << " times";
        }
    }
}

TEST_P(DriverCopies, a_fill_reads_its_pattern_before_it_returns) {
    Gate gate;
    int* a = device_memory<int>(64);
    unsigned long long pattern[2] = {1, 2};
    KMM_OK(close(gate, stream()));
    KMM_OK(driver().fill(a, pattern, 16, 16, stream()));
    pattern[0] = pattern[1] = 77;
    gate.open();
    EXPECT_EQ(read(a, 4), (std::vector<int>{1, 0, 2, 0}));
}

TEST_P(DriverCopies, patterns_of_no_or_too_many_bytes_are_refused) {
    unsigned char* a = device_memory(1000);
    const unsigned char pattern[65] = {};
    KMM_FAILS(driver().fill(a, pattern, 0, 1, stream()), Code::invalid_argument);
    KMM_FAILS(driver().fill(a, pattern, 65, 1, stream()), Code::invalid_argument);
    KMM_FAILS(driver().fill(a, pattern, 16, ~std::size_t{0} / 8, stream()), Code::invalid_argument);
}

TEST_P(DriverCopies, peer_copies_move_bytes_between_devices) {
    const int last = driver().device_count() - 1;
    const auto source = numbers(70000);
    unsigned char* a = device_memory(source.size(), 0);
    unsigned char* b = device_memory(source.size(), last);
    write(a, source);
    KMM_OK(driver().copy_peer(b, last, a, 0, source.size(), stream()));
    KMM_OK(driver().synchronize_stream(stream()));
    EXPECT_EQ(read(b, source.size(), last), source);
}

KMM_ON_EVERY_DRIVER(DriverCopies);

}  // namespace
}  // namespace driver_test
