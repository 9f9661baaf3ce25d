// <rmm/aligned.hpp>, <rmm/detail/aligned.hpp>, <rmm/detail/format.hpp>, names in texts, and the version.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "rmm/class_names.hpp"
#include "rmm/detail/aligned.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/status.hpp"
#include "rmm/version_config.hpp"

namespace {

static_assert(RMM_VERSION_MAJOR == 25 && RMM_VERSION_MINOR == 10 && RMM_VERSION_PATCH == 0);
static_assert(rmm::CUDA_ALLOCATION_ALIGNMENT == 256);
static_assert(!rmm::is_pow2(0) && rmm::is_pow2(1) && rmm::is_pow2(4096) && !rmm::is_pow2(768));
static_assert(rmm::align_up(0, 256) == 0 && rmm::align_up(1, 256) == 256 && rmm::align_up(256, 256) == 256);
static_assert(rmm::align_down(255, 256) == 0 && rmm::align_down(511, 256) == 256);
static_assert(rmm::is_aligned(512, 256) && !rmm::is_aligned(511, 256));
static_assert(rmm::detail::align_up(3, 2) == 4);

TEST(Aligned, pointers_are_judged_by_their_address) {
    EXPECT_TRUE(rmm::is_pointer_aligned(reinterpret_cast<void*>(std::uintptr_t{512})));
    EXPECT_FALSE(rmm::is_pointer_aligned(reinterpret_cast<void*>(std::uintptr_t{520})));
    EXPECT_TRUE(rmm::is_pointer_aligned(reinterpret_cast<void*>(std::uintptr_t{520}), 8));
}

TEST(Aligned, host_memory_is_aligned_and_given_back_as_it_came) {
    for (std::size_t alignment : {1u, 2u, 16u, 256u, 4096u}) {
        void* original = nullptr;
        std::size_t padded = 0;
        void* const ptr = rmm::detail::aligned_host_allocate(100, alignment, [&](std::size_t bytes) {
            padded = bytes;
            return original = std::malloc(bytes);
        });
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % alignment, 0u);
        EXPECT_EQ(padded, 100 + alignment + sizeof(std::ptrdiff_t));
        EXPECT_LE(static_cast<char*>(ptr) + 100, static_cast<char*>(original) + padded);
        void* freed = nullptr;
        rmm::detail::aligned_host_deallocate(ptr, 100, alignment, [&](void* p) { freed = p; });
        EXPECT_EQ(freed, original);
        std::free(original);
    }
}

TEST(Aligned, null_host_memory_stays_null) {
    EXPECT_EQ(rmm::detail::aligned_host_allocate(100, 64, [](std::size_t) -> void* { return nullptr; }), nullptr);
    bool called = false;
    rmm::detail::aligned_host_deallocate(nullptr, 100, 64, [&](void*) { called = true; });
    EXPECT_FALSE(called);
}

TEST(Aligned, a_padded_size_that_overflows_throws) {
    EXPECT_THROW(rmm::detail::aligned_host_allocate(std::numeric_limits<std::size_t>::max() - 10, 64,
                                                    [](std::size_t) -> void* { return nullptr; }),
                 std::bad_alloc);
}

TEST(Format, sizes_are_divided_while_above_1024) {
    EXPECT_EQ(rmm::detail::format_bytes(0), "0.000000 B");
    EXPECT_EQ(rmm::detail::format_bytes(1024), "1024.000000 B");
    EXPECT_EQ(rmm::detail::format_bytes(1025), "1.000977 KiB");
    EXPECT_EQ(rmm::detail::format_bytes(std::size_t{3} << 30), "3.000000 GiB");
}

TEST(Format, streams_are_printed_as_pointers) {
    EXPECT_EQ(rmm::detail::format_stream(rmm::cuda_stream_view{}), "0");
    EXPECT_EQ(rmm::detail::format_stream(rmm::cuda_stream_legacy), "0x1");
    EXPECT_EQ(rmm::detail::format_stream(rmm::cuda_stream_per_thread), "0x2");
}

TEST(Format, texts_have_one_name_for_both_handles_of_the_default_stream) {
    for (const rmm::cuda_stream_view stream : {rmm::cuda_stream_view{}, rmm::cuda_stream_legacy}) {
        EXPECT_EQ(rmm::detail::stream_name(stream), "the default stream");
        EXPECT_EQ(rmm::detail::short_stream_name(stream), "default");
    }
    EXPECT_EQ(rmm::detail::stream_name(rmm::cuda_stream_per_thread), "stream 0x2");
    EXPECT_EQ(rmm::detail::short_stream_name(rmm::cuda_stream_per_thread), "0x2");
}

TEST(Format, classes_have_their_names_of_cpp) {
    constexpr const char* text = "a vmm_memory_resource, of blocks_to_preallocate";
    EXPECT_EQ(rmm::detail::with_class_names(text), text);
}

}  // namespace
