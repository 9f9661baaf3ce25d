// Records that are made at first touch: which exist, what they take, and who sees them.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "../boxes/cuts.hpp"
#include "host_allocations.hpp"
#include "kmm/graph/paged_records.hpp"

namespace {

using kmm::graph::PagedRecords;

struct Counted {
    static inline int alive = 0;
    explicit Counted(std::size_t v) : value(v) { ++alive; }
    Counted(const Counted& other) : value(other.value) { ++alive; }
    ~Counted() { --alive; }
    std::size_t value;
};
using Records = PagedRecords<Counted>;

Counted& touch(Records& records, std::size_t i) {
    return records.touch(i, [&] { return Counted(i); });
}

TEST(PagedRecords, none_exists_before_it_is_touched_and_each_stays_where_it_is) {
    for (const std::size_t count : {1ul, 63ul, 64ul, 65ul, 1000ul, 40'000ul, 3'000'000ul}) {
        Records records(count);
        std::set<std::size_t> touched;
        std::vector<Counted*> places;
        kmm_test::CutRandom random(static_cast<unsigned>(count));
        EXPECT_EQ(records.begin(), records.end());
        for (int i = 0; i < 300; i++) {
            const auto at = static_cast<std::size_t>(kmm_test::pick(random, 0, static_cast<std::int64_t>(count) - 1));
            ASSERT_EQ(records.find(at) != nullptr, touched.count(at) != 0);
            Counted* const place = &touch(records, at);
            ASSERT_EQ(place->value, at);
            ASSERT_EQ(&touch(records, at), place);
            touched.insert(at);
            places.push_back(place);
        }
        ASSERT_EQ(Counted::alive, static_cast<int>(touched.size()));
        for (const Counted* place : places) ASSERT_EQ(place, &records[place->value]);
        std::vector<std::size_t> walked;
        for (const Counted& c : std::as_const(records)) walked.push_back(c.value);
        ASSERT_TRUE(std::equal(walked.begin(), walked.end(), touched.begin(), touched.end()));
    }
    EXPECT_EQ(Counted::alive, 0);
}

TEST(PagedRecords, the_first_and_the_last_of_each_page_are_walked) {
    const std::vector<std::size_t> some{0, 63, 64, 127, 32'767, 32'768, 65'535, 65'536, 99'999};
    Records records(100'000);
    for (const std::size_t i : some) touch(records, i);
    std::vector<std::size_t> walked;
    for (const Counted& c : records) walked.push_back(c.value);
    EXPECT_EQ(walked, some);
}

TEST(PagedRecords, one_that_cannot_be_made_does_not_exist) {
    Records records(1000);
    EXPECT_THROW(records.touch(70, []() -> Counted { throw std::bad_alloc(); }), std::bad_alloc);
    EXPECT_EQ(records.find(70), nullptr);
    EXPECT_EQ(records.begin(), records.end());
    EXPECT_EQ(touch(records, 70).value, 70u);
}

TEST(PagedRecords, whatever_allocation_fails_the_record_does_not_exist_and_can_be_made_later) {
    for (const std::size_t i : {5ul, 70ul, 90'000ul}) {
        int failures = 0;
        for (int left = 0;; ++left) {
            Records records(100'000);
            rmm_test::has_failed = false;
            rmm_test::allocations_left = left;
            bool is_made = true;
            try {
                touch(records, i);
            } catch (const std::bad_alloc&) {
                is_made = false;
            }
            rmm_test::allocations_left = -1;
            ASSERT_NE(is_made, rmm_test::has_failed);
            if (is_made) break;
            ++failures;
            ASSERT_EQ(records.find(i), nullptr);
            ASSERT_EQ(records.begin(), records.end());
            ASSERT_EQ(touch(records, i).value, i);
            ASSERT_EQ(Counted::alive, 1);
        }
        EXPECT_EQ(failures, i < 64 ? 1 : 3);
    }
}

TEST(PagedRecords, who_finds_a_record_sees_it_as_it_was_made) {
    constexpr std::size_t count = 40'000;
    PagedRecords<std::vector<std::size_t>> records(count);
    std::atomic<bool> is_over{false};
    std::thread reader([&] {
        for (bool last = false; !last;) {
            last = is_over.load();
            std::size_t found = 0;
            for (std::size_t i = 0; i < count; i += 17) {
                const std::vector<std::size_t>* const record = records.find(i);
                if (record == nullptr) continue;
                ASSERT_EQ(record->size(), 2u);
                ASSERT_EQ(record->front(), i);
                ++found;
            }
            if (last) {
                EXPECT_EQ(found, (count + 16) / 17);
            }
        }
    });
    for (std::size_t i = 0; i < count; i += 17) records.touch(i, [&] { return std::vector<std::size_t>{i, i}; });
    is_over.store(true);
    reader.join();
}

}  // namespace
