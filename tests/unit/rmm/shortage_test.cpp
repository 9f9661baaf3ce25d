// The error of a pool that is out of memory, from plain figures: no pool is made.
#include <gtest/gtest.h>

#include <string>

#include "rmm/error.hpp"
#include "rmm/pool/arena.hpp"
#include "rmm/pool/shortage.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"
#include "rmm/tags.hpp"
#include "scripted_driver.hpp"

namespace {

using namespace rmm;
using mr::detail::pool_account;
using mr::detail::refusal;

constexpr std::size_t MiB = std::size_t{1} << 20;

class Shortage : public testing::Test {
  protected:
    Shortage() {
        account_.name = "fields";
        account_.now.held_bytes = account_.now.maximum_bytes = 16 * MiB;
        account_.now.in_use_bytes = 12 * MiB;
        account_.now.free_bytes = 4 * MiB;
        account_.now.largest_free_bytes = 1 * MiB;
        account_.now.num_blocks = 3;
    }
    out_of_memory error(const refusal& why, std::size_t bytes) {
        const mr::detail::pool_facts facts(driver_, 0, traits_, options_);
        try {
            mr::detail::shortage(facts, account_, bytes, cuda_stream_legacy).raise(why);
        } catch (const out_of_memory& e) {
            return e;
        }
    }
    std::string text(const refusal& why, std::size_t bytes) { return error(why, bytes).what(); }
    refusal at_maximum(std::size_t bytes) const {
        refusal why;
        why.meet_maximum(account_.now.held_bytes, account_.now.maximum_bytes, bytes);
        return why;
    }
    static refusal device_is_full() {
        refusal why;
        why.why = refusal::cause::exhausted;
        why.device_is_full = true;
        why.reason = "upstream has no more";
        return why;
    }
    static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

    kmm::driver::testing::ScriptedDriver driver_;
    const rmm::detail::driver_scope on_{driver_};
    mr::detail::growth_traits traits_;
    mr::detail::pool_options options_;
    pool_account account_;
};

TEST_F(Shortage, has_the_figures_of_the_pool_and_the_limit_that_was_met) {
    const memory_shortage s = error(at_maximum(8 * MiB), 8 * MiB).shortage();
    EXPECT_EQ(s.requested_bytes, 8 * MiB);
    EXPECT_EQ(s.pool_in_use_bytes, 12 * MiB);
    EXPECT_EQ(s.pool_largest_free_bytes, 1 * MiB);
    EXPECT_EQ(s.limit, memory_limit::maximum);
    EXPECT_EQ(error(device_is_full(), 8 * MiB).shortage().limit, memory_limit::device);
    options_.on_device = false;
    EXPECT_EQ(error(device_is_full(), 8 * MiB).shortage().limit, memory_limit::unknown);
}

TEST_F(Shortage, names_the_largest_holders_first) {
    account_.by_tag.resize(std::size_t{rmm::detail::number_of_tag("shortage.large")} + 1);
    const auto number = rmm::detail::number_of_tag("shortage.small");
    rmm::detail::add_to(&account_.by_tag, number, 1 * MiB);
    rmm::detail::add_to(&account_.by_tag, rmm::detail::number_of_tag("shortage.large"), 11 * MiB);
    account_.by_stream = {{mr::detail::arena::no_stream(), 1 * MiB}, {mr::detail::arena::shared_streams(), 11 * MiB}};
    const out_of_memory e = error(at_maximum(8 * MiB), 8 * MiB);
    const std::string what = e.what();
    for (const char* name : {"shortage.large", "shortage.small", "(streams that share memory)", "(ended)"})
        EXPECT_TRUE(has(what, name)) << name << " is not in\n" << what;
    EXPECT_LT(what.find("shortage.large"), what.find("shortage.small"));
    EXPECT_LT(what.find("(streams that share memory)"), what.find("(ended)"));
    EXPECT_STREQ(e.shortage().largest_tag, "shortage.large");
    EXPECT_EQ(e.shortage().largest_tag_bytes, 11 * MiB);
}

TEST_F(Shortage, of_a_request_by_another_pool_names_no_holders) {
    rmm::detail::add_to(&account_.by_tag, rmm::detail::number_of_tag("shortage.large"), 11 * MiB);
    const rmm::detail::upstream_call call;
    EXPECT_FALSE(mr::detail::shortage::names_holders());
    const std::string what = text(at_maximum(8 * MiB), 8 * MiB);
    EXPECT_TRUE(has(what, "pool \"fields\" was asked for 8.00 MiB")) << what;
    EXPECT_FALSE(has(what, "holders")) << what;
    EXPECT_FALSE(has(what, "\n  try")) << what;
}

TEST_F(Shortage, advises_only_what_would_help) {
    account_.now.free_bytes = account_.now.in_use_bytes = 4 * MiB;
    std::string what = text(at_maximum(2 * MiB), 2 * MiB);
    EXPECT_TRUE(has(what, "enough is free but in pieces")) << what;
    EXPECT_TRUE(has(what, "a larger maximum")) << what;
    traits_.is_virtual = true;  // memory in pieces is mapped side by side there
    what = text(at_maximum(2 * MiB), 2 * MiB);
    EXPECT_FALSE(has(what, "enough is free but in pieces")) << what;
    what = text(device_is_full(), 1024 * MiB);
    EXPECT_FALSE(has(what, "a larger maximum")) << what;
    EXPECT_TRUE(has(what, "the whole device has less")) << what;
}

TEST_F(Shortage, names_another_pool_that_holds_unused_memory) {
    struct idle_pool final : rmm::detail::memory_holder {
        rmm::detail::holder_figures figures() override {
            rmm::detail::holder_figures f;
            f.name = "images";
            f.held_bytes = 32 * MiB;
            f.in_use_bytes = 2 * MiB;
            return f;
        }
    } other;
    rmm::detail::enter_ledger(0, other);
    const std::string what = text(device_is_full(), 8 * MiB);
    account_.self = &other;
    const std::string of_itself = text(device_is_full(), 8 * MiB);
    rmm::detail::leave_ledger(other);
    EXPECT_TRUE(has(what, "trimming pool \"images\"")) << what;
    EXPECT_FALSE(has(of_itself, "trimming")) << of_itself;
}

TEST_F(Shortage, of_a_request_above_the_block_size_says_the_block_size) {
    options_.block_bytes = 4096;
    refusal why;
    why.why = refusal::cause::too_large;
    const std::string what = text(why, 5000);
    EXPECT_TRUE(has(what, "Maximum allocation size exceeded")) << what;
    EXPECT_TRUE(has(what, "its blocks have 4.00 KiB")) << what;
}

TEST_F(Shortage, is_not_what_a_failed_call_of_the_driver_is_reported_as) {
    const mr::detail::pool_facts facts(driver_, 0, traits_, options_);
    refusal why;
    why.why = refusal::cause::driver;
    why.status = {kmm::driver::Code::invalid_handle, 0};
    try {
        mr::detail::shortage(facts, account_, 256, cuda_stream_legacy).raise(why);
    } catch (const out_of_memory& e) {
        ADD_FAILURE() << e.what();
    } catch (const rmm::bad_alloc& e) {
        EXPECT_TRUE(has(e.what(), "invalid_handle")) << e.what();
    }
}

}  // namespace
