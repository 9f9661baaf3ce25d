// The blocks in use that belong to no arena.
#include "rmm/pool/large_blocks.hpp"

#include <gtest/gtest.h>

namespace {

using namespace rmm;

TEST(LargeBlocks, count_what_is_in_use) {
    mr::detail::expect_in_engine();
    mr::detail::large_blocks blocks;
    blocks.insert(4096, {.size_bytes = 512});
    blocks.insert(8192, {.size_bytes = 1024});
    EXPECT_EQ(blocks.bytes(), 1536u);
    EXPECT_FALSE(blocks.take(256));
    EXPECT_EQ(blocks.take(4096)->size_bytes, 512u);
    EXPECT_FALSE(blocks.take(4096));
    EXPECT_EQ(blocks.bytes(), 1024u);
    EXPECT_EQ(blocks.size(), 1u);
}

}  // namespace
