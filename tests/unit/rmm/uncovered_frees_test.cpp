// The latest frees for which there may be no event yet.
#include "rmm/pool/uncovered_frees.hpp"

#include <gtest/gtest.h>

namespace {

using namespace rmm;

TEST(UncoveredFrees, are_forgotten_beyond_a_limit_for_each_kind) {
    mr::detail::expect_in_engine();
    kmm::locks::ShortLock of_shared_arena;
    mr::detail::uncovered_frees uncovered(of_shared_arena);
    for (std::uint64_t i = 1; i <= 1000; ++i) uncovered.note_large(heap::fence_set(heap::fence{i, i}));
    const std::size_t most = uncovered.size();
    EXPECT_EQ(most, 256u);
    uncovered.note_shared(heap::fence_set(heap::fence{7, 7}));
    EXPECT_EQ(uncovered.size(), most + 1);
    EXPECT_EQ(uncovered.take_all().back(), (heap::fence{7, 7}));
    EXPECT_EQ(uncovered.size(), 0u);
}

}  // namespace
