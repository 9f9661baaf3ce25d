// Who holds what: <rmm/memory_tag.hpp>, <rmm/memory_report.hpp>, and what an out-of-memory error says.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/registry.hpp"
#include "recording_resource.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/memory_report.hpp"
#include "rmm/memory_tag.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/reclaimer.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using nlohmann::json;
using pool = mr::pool_memory_resource<mr::cuda_memory_resource>;

json device_now(int device = 0, snapshot_blocks blocks = snapshot_blocks::no) {
    return json::parse(memory_snapshot(blocks)).at("devices").at(static_cast<std::size_t>(device));
}

json holder_named(const std::string& name, snapshot_blocks blocks = snapshot_blocks::no) {
    const json device = device_now(0, blocks);
    for (const json& h : device.at("holders"))
        if (h.at("name") == name) return h;
    return nullptr;
}

std::size_t tagged_bytes(const std::string& tag) {
    const json device = device_now();
    for (const json& t : device.at("by_tag"))
        if (t.at("tag") == tag) return t.at("in_use_bytes");
    return 0;
}

template<typename F> rmm::out_of_memory error_of(F&& f) {
    try {
        f();
    } catch (const rmm::out_of_memory& e) {
        return e;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {"nothing"};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- tags

TEST(MemoryTag, blocks_belong_to_the_tag_under_which_they_were_allocated_until_they_are_freed) {
    mr::cuda_memory_resource cuda;
    for (const std::size_t size : {64 * KiB, 20 * MiB}) {  // of an arena; of the heap
        pool p{cuda, 128 * MiB};
        void* const plain = p.allocate(size);
        void* a = nullptr;
        {
            const memory_tag tag{"join"};
            a = p.allocate(size);
        }
        EXPECT_EQ(p.in_use_bytes("join"), size);
        EXPECT_EQ(p.in_use_bytes(nullptr), size);
        EXPECT_EQ(p.in_use_bytes("nobody has used this"), 0u);
        {
            const memory_tag tag{"groupby"};
            p.deallocate(plain, size);
        }
        EXPECT_EQ(p.in_use_bytes(""), 0u);
        EXPECT_EQ(p.in_use_bytes("groupby"), 0u);
        p.deallocate(a, size);
        EXPECT_EQ(p.in_use_bytes("join"), 0u);
    }
}

TEST(MemoryTag, the_innermost_scope_of_the_thread_holds) {
    EXPECT_STREQ(memory_tag::current(), "");
    const memory_tag outer{"outer"};
    {
        const memory_tag inner{std::string("inner").c_str()};
        EXPECT_STREQ(memory_tag::current(), "inner");
        const memory_tag none{nullptr};
        EXPECT_STREQ(memory_tag::current(), "");
    }
    EXPECT_STREQ(memory_tag::current(), "outer");
    std::thread([] { EXPECT_STREQ(memory_tag::current(), ""); }).join();
}

TEST(MemoryTag, names_are_told_by_their_text_not_by_where_it_lies) {
    char text[8] = "one";
    const char* first = nullptr;
    {
        const memory_tag tag{text};
        first = memory_tag::current();
    }
    std::strcpy(text, "two");
    const memory_tag tag{text};
    EXPECT_STREQ(memory_tag::current(), "two");
    EXPECT_STREQ(first, "one");
    const memory_tag same{"one"};
    EXPECT_EQ(memory_tag::current(), first);
}

TEST(MemoryTag, memory_that_another_stream_has_left_takes_the_tag_of_its_new_owner) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 64 * MiB, 64 * MiB};
    cuda_stream one;
    cuda_stream two;
    std::vector<void*> blocks;
    {
        const memory_tag tag{"before"};
        for (int i = 0; i < 900; ++i) blocks.push_back(p.allocate(64 * KiB, one));
    }
    for (void* ptr : blocks) p.deallocate(ptr, 64 * KiB, two);
    blocks.clear();
    {
        const memory_tag tag{"after"};
        for (int i = 0; i < 900; ++i) blocks.push_back(p.allocate(64 * KiB, two));
    }
    EXPECT_EQ(p.in_use_bytes("before"), 0u);
    EXPECT_EQ(p.in_use_bytes("after"), 900 * 64 * KiB);
    for (void* ptr : blocks) p.deallocate(ptr, 64 * KiB, two);
}

TEST(MemoryTag, threads_count_together) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 128 * MiB};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&p] {
            const memory_tag tag{"shared work"};
            cuda_stream stream;
            std::vector<void*> blocks;
            for (int i = 0; i < 200; ++i) blocks.push_back(p.allocate(4 * KiB, stream));
            EXPECT_GE(p.in_use_bytes("shared work"), 200 * 4 * KiB);
            for (void* ptr : blocks) p.deallocate(ptr, 4 * KiB, stream);
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(p.in_use_bytes("shared work"), 0u);
}

// ---- the ledger

TEST(MemorySnapshot, every_resource_has_a_place_for_as_long_as_it_lives) {
    mr::cuda_memory_resource cuda;
    {
        pool a{cuda, 4 * MiB, 64 * MiB};
        a.set_name("a pool");
        mr::arena_memory_resource<mr::cuda_memory_resource> b{&cuda, 8 * MiB};
        b.set_name("an arena");
        mr::fixed_size_memory_resource<mr::cuda_memory_resource> c{&cuda, MiB, 2};
        mr::binning_memory_resource<mr::cuda_memory_resource> d{&cuda, 14, 14};
        mr::vmm_memory_resource e;
        e.set_name("mapped");
        void* const block = e.allocate(10 * MiB);
        mr::cuda_async_memory_resource f{16 * MiB};
        EXPECT_EQ(holder_named("a pool").at("held_bytes"), 4 * MiB);
        EXPECT_EQ(holder_named("a pool").at("maximum_bytes"), 64 * MiB);
        EXPECT_EQ(holder_named("a pool").at("kind"), "pool_memory_resource");
        EXPECT_EQ(holder_named("an arena").at("held_bytes"), 8 * MiB);
        EXPECT_EQ(holder_named("fixed_size_memory_resource").at("held_bytes"), 2 * MiB);
        EXPECT_EQ(holder_named("bin of 16384 bytes").at("kind"), "fixed_size_memory_resource");
        EXPECT_EQ(holder_named("mapped").at("in_use_bytes"), 10 * MiB);
        EXPECT_TRUE(holder_named("mapped").at("takes_from_driver"));
        EXPECT_EQ(holder_named("cuda_async_memory_resource").at("held_bytes"), 16 * MiB);
        EXPECT_EQ(holder_named("cuda_async_memory_resource").at("in_use_bytes"), 0u);
        e.deallocate(block, 10 * MiB);
    }
    for (const char* name :
         {"a pool", "an arena", "fixed_size_memory_resource", "mapped", "cuda_async_memory_resource"})
        EXPECT_TRUE(holder_named(name).is_null()) << name;
}

TEST(MemorySnapshot, memory_that_resources_pass_on_is_counted_once) {
    mr::cuda_memory_resource cuda;
    const json before = device_now();
    pool outer{cuda, 64 * MiB, 64 * MiB};
    outer.set_name("outer");
    mr::pool_memory_resource<pool> inner{outer, 16 * MiB, 16 * MiB};
    inner.set_name("inner");
    void* const block = inner.allocate(MiB);
    const json now = device_now();
    EXPECT_EQ(now.at("held_bytes").get<std::size_t>() - before.at("held_bytes").get<std::size_t>(), 64 * MiB);
    EXPECT_EQ(now.at("total_bytes"), 256 * MiB);
    EXPECT_EQ(now.at("free_bytes").get<std::size_t>() + now.at("held_bytes").get<std::size_t>() +
                  now.at("elsewhere_bytes").get<std::size_t>(),
              256 * MiB);
    EXPECT_EQ(holder_named("outer").at("in_use_bytes"), 16 * MiB);
    EXPECT_EQ(holder_named("inner").at("in_use_bytes"), MiB);
    EXPECT_EQ(tagged_bytes(""), MiB);
    inner.deallocate(block, MiB);
}

TEST(MemorySnapshot, a_block_of_the_driver_is_found_whichever_device_is_current_when_it_is_freed) {
    mr::cuda_memory_resource cuda;
    mr::managed_memory_resource managed;
    void* const block = cuda.allocate(3 * MiB);
    void* const shared = managed.allocate(MiB);
    EXPECT_EQ(holder_named("cuda_memory_resource").at("in_use_bytes"), 3 * MiB);
    EXPECT_EQ(holder_named("managed_memory_resource").at("in_use_bytes"), MiB);
    EXPECT_FALSE(holder_named("managed_memory_resource").at("takes_from_driver"));
    {
        const cuda_set_device_raii other{cuda_device_id{1}};
        cuda.deallocate(block, 1);  // the driver needs no size either
        managed.deallocate(shared, MiB);
    }
    EXPECT_EQ(holder_named("cuda_memory_resource").at("held_bytes"), 0u);
    EXPECT_GE(holder_named("cuda_memory_resource").at("peak_bytes"), 3 * MiB);
    EXPECT_EQ(holder_named("managed_memory_resource").at("held_bytes"), 0u);
}

TEST(MemorySnapshot, tells_blocks_with_their_tags_if_asked) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 128 * MiB};
    p.set_name("with blocks");
    const memory_tag tag{"join \xff"};
    void* const small = p.allocate(1000);
    void* const large = p.allocate(30 * MiB);
    EXPECT_FALSE(holder_named("with blocks").contains("blocks"));
    const json blocks = holder_named("with blocks", snapshot_blocks::yes).at("blocks");
    ASSERT_EQ(blocks.size(), 2u);
    std::size_t sum = 0;
    for (const json& b : blocks) {
        sum += b.at("size_bytes").get<std::size_t>();
        EXPECT_EQ(b.at("tag"), "join \ufffd");
        const auto address = std::stoull(b.at("address").get<std::string>(), nullptr, 16);
        EXPECT_TRUE(address == reinterpret_cast<std::uintptr_t>(small) ||
                    address == reinterpret_cast<std::uintptr_t>(large));
    }
    EXPECT_EQ(sum, 30 * MiB + 1024);
    p.deallocate(small, 1000);
    p.deallocate(large, 30 * MiB);
}

TEST(MemorySnapshot, looking_does_not_take_memory_from_streams) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 128 * MiB};
    p.set_name("looked at");
    p.deallocate(p.allocate(KiB), KiB);
    const json before = holder_named("looked at");
    EXPECT_LT(before.at("largest_free_bytes"), 128 * MiB);  // a span is the stream's
    EXPECT_EQ(holder_named("looked at"), before);
    EXPECT_EQ(p.statistics().largest_free_bytes, 128 * MiB);
}

TEST(MemoryReport, is_a_text_with_a_line_for_each_holder) {
    mr::vmm_memory_resource p{64 * MiB};
    p.set_name("of the report");
    const memory_tag tag{"report"};
    void* const block = p.allocate(2 * MiB);
    const std::string text = memory_report();
    EXPECT_TRUE(contains(text, "virtual device 0: total 256.00 MiB   free ")) << text;
    EXPECT_TRUE(contains(text, "\n  of the report (vmm_memory_resource): holds ")) << text;
    EXPECT_TRUE(contains(text, "(in use 2.00 MiB in 1 blocks, largest free piece ")) << text;
    EXPECT_TRUE(contains(text, "   maximum 64.00 MiB\n")) << text;
    EXPECT_TRUE(contains(text, "   report 2.00 MiB in 1")) << text;
    EXPECT_FALSE(contains(memory_report(cuda_device_id{1}), "of the report"));
    EXPECT_THROW((void)memory_report(cuda_device_id{99}), rmm::cuda_error);
    p.deallocate(block, 2 * MiB);
}

// ---- errors

TEST(OutOfMemory, names_the_holders_by_tag_and_stream_and_what_would_help) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 64 * MiB, 64 * MiB};
    p.set_name("default");
    cuda_stream stream;
    std::vector<void*> blocks;
    for (const char* name : {"join", "groupby", "a", "b", "c", "d"}) {
        const memory_tag tag{name};
        blocks.push_back(p.allocate((*name == 'j' ? 24 : 2) * MiB, stream));
    }
    void* const plain = p.allocate(5 * MiB);
    const rmm::out_of_memory e = error_of([&] { (void)p.allocate(60 * MiB, stream); });
    const std::string text = e.what();
    EXPECT_TRUE(contains(text,
                         "Maximum pool size exceeded (failed to allocate 60.000000 MiB): Not enough room to grow, "
                         "current/max/try size = 64.000000 MiB, 64.000000 MiB, 60.000000 MiB\n"
                         "out of memory on virtual device 0: pool \"default\" was asked for 60.00 MiB (62914560 "
                         "bytes) on stream 0x"))
        << text;
    EXPECT_TRUE(contains(text, " and is at its maximum of 64.00 MiB\n  virtual device 0   total 256.00 MiB   this pool "
                               "64.00 MiB (in use 39.00 MiB (40894464 bytes) in 7 blocks, free 25.00 MiB"))
        << text;
    EXPECT_TRUE(contains(text, "   other pools 0 B   other processes and driver 0 B   free 192.00 MiB\n")) << text;
    EXPECT_TRUE(contains(text,
                         "\n  holders     by tag: join 24.00 MiB in 1   (untagged) 5.00 MiB in 1   groupby 2.00 MiB "
                         "in 1   a 2.00 MiB in 1   b 2.00 MiB in 1   2 others 4.00 MiB blocks      by stream: 0x"))
        << text;
    EXPECT_TRUE(contains(text,
                         "\n  try         a larger maximum (192.00 MiB are free on the device); freeing blocks (most "
                         "named ones are of \"join\", 24.00 MiB)"))
        << text;
    const memory_shortage& s = e.shortage();
    EXPECT_EQ(s.limit, memory_limit::maximum);
    EXPECT_STREQ(s.largest_tag, "join");
    EXPECT_EQ(s.largest_tag_bytes, 24 * MiB);
    EXPECT_EQ(s.pool_num_blocks, 7u);
    EXPECT_EQ(s.elsewhere_bytes, 0u);
    std::size_t i = 0;
    for (void* ptr : blocks) p.deallocate(ptr, (i++ == 0 ? 24 : 2) * MiB, stream);
    p.deallocate(plain, 5 * MiB);
}

TEST(OutOfMemory, memory_in_pieces_is_told_with_the_resource_that_can_use_it) {
    mr::cuda_memory_resource cuda;
    pool p{cuda, 8 * MiB, 8 * MiB};
    void* const a = p.allocate(3 * MiB);
    void* const b = p.allocate(2 * MiB);
    p.deallocate(a, 3 * MiB);
    const std::string text = error_of([&] { (void)p.allocate(5 * MiB); }).what();
    EXPECT_TRUE(contains(text,
                         "\n  try         a vmm_memory_resource, or one initial block instead of growth: enough is "
                         "free but in pieces (6.00 MiB); a larger maximum"))
        << text;
    p.deallocate(b, 2 * MiB);
}

TEST(OutOfMemory, a_full_device_is_told_with_who_has_it) {
    mr::cuda_memory_resource cuda;
    pool other{cuda, 128 * MiB, 128 * MiB};
    other.set_name("the other one");
    void* const keeps = other.allocate(MiB);
    void* elsewhere = nullptr;
    ASSERT_TRUE(kmm::driver::process_default().allocate(0, 100 * MiB, &elsewhere).ok());
    pool p{cuda, 0};
    const rmm::out_of_memory e = error_of([&] { (void)p.allocate(80 * MiB); });
    const std::string text = e.what();
    EXPECT_TRUE(contains(text, " and has no maximum\n")) << text;
    EXPECT_TRUE(contains(text, "other pools 128.00 MiB   other processes and driver 100.00 MiB   free 28.00 MiB"))
        << text;
    EXPECT_TRUE(contains(text, "trimming pool \"the other one\", or one pool for both: it holds 127.00 MiB that nobody "
                               "uses; ending other processes: 100.00 MiB are held outside this library"))
        << text;
    EXPECT_FALSE(contains(text, "larger maximum")) << text;
    EXPECT_EQ(e.shortage().limit, memory_limit::device);
    EXPECT_EQ(e.shortage().other_pools_bytes, 128 * MiB);
    EXPECT_EQ(e.shortage().elsewhere_bytes, 100 * MiB);
    EXPECT_TRUE(kmm::driver::process_default().free(elsewhere).ok());
    other.deallocate(keeps, MiB);
}

TEST(OutOfMemory, a_vmm_resource_on_a_full_device_says_that_it_is_the_device) {
    mr::cuda_memory_resource cuda;
    void* const most = cuda.allocate(200 * MiB);
    mr::vmm_memory_resource p{128 * MiB};
    const rmm::out_of_memory e = error_of([&] { (void)p.allocate(100 * MiB); });
    EXPECT_TRUE(contains(e.what(), "the device has no more memory to map\nout of memory on virtual device 0: pool "
                                   "\"vmm_memory_resource\" was asked for 100.00 MiB"))
        << e.what();
    EXPECT_TRUE(contains(e.what(), " and may hold at most 128.00 MiB\n")) << e.what();
    EXPECT_EQ(e.shortage().limit, memory_limit::device);
    EXPECT_EQ(error_of([&] { (void)p.allocate(150 * MiB); }).shortage().limit, memory_limit::maximum);
    cuda.deallocate(most, 200 * MiB);
}

TEST(OutOfMemory, what_upstream_said_is_told_in_one_line) {
    mr::cuda_memory_resource cuda;
    pool below{cuda, 4 * MiB, 4 * MiB};
    below.set_name("below");
    mr::pool_memory_resource<pool> above{below, 0};
    const rmm::out_of_memory e = error_of([&] { (void)above.allocate(8 * MiB); });
    EXPECT_TRUE(contains(e.what(),
                         "(failed to allocate 8.000000 MiB): std::bad_alloc: out_of_memory: Maximum pool size "
                         "exceeded (failed to allocate 8.000000 MiB): Not enough room to grow"))
        << e.what();
    EXPECT_FALSE(contains(e.what(), "\"below\" was asked")) << e.what();
    EXPECT_EQ(e.shortage().limit, memory_limit::maximum);
}

TEST(OutOfMemory, every_resource_says_which_limit_it_met) {
    mr::cuda_memory_resource cuda;
    EXPECT_EQ(error_of([&] { (void)cuda.allocate(300 * MiB); }).shortage().limit, memory_limit::device);
    mr::limiting_resource_adaptor<mr::cuda_memory_resource> limited{&cuda, MiB};
    EXPECT_EQ(error_of([&] { (void)limited.allocate(2 * MiB); }).shortage().limit, memory_limit::maximum);
    rmm_test::recording_resource unknown;
    unknown.limit = 0;
    mr::pool_memory_resource<rmm_test::recording_resource> p{unknown, 0};
    EXPECT_EQ(error_of([&] { (void)p.allocate(2 * MiB); }).shortage().limit, memory_limit::device);
}

}  // namespace
