// Plans that are made without a runtime, applied to arrays of two.
#include "kmm/api/plan_batch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "../kmm_api/small_runtime.hpp"

namespace {

namespace plan = kmm::plan;
using kmm::detail::AccessKind;
using kmm::detail::Box;
using kmm::detail::TaskContext;
using kmm::memory::MemoryIndex;

constexpr std::int64_t size = 40, chunk = 10;

Box line(std::int64_t begin, std::int64_t end) {
    Box b;
    b.begin[0] = begin;
    b.end[0] = end;
    return b;
}

/// Each element of the array was written.
struct AllWritten final : plan::Written {
    State state_of(std::uint32_t) const noexcept override { return {nullptr, true, true}; }
    bool covers(std::uint32_t, const Box&, Box*) const override { return true; }
};

plan::Request request(std::uint32_t task, AccessKind kind, const Box& region) {
    plan::Request r;
    r.region = region;
    r.kind = kind;
    r.task = task;
    return r;
}

/// Host tasks: task 0 writes 5..25 beside the chunks, task 1 reads what it replaces, and task 2 replaces a chunk.
std::vector<plan::Request> requests() {
    return {request(0, AccessKind::write, line(5, 25)), request(1, AccessKind::read, line(0, 30)),
            request(2, AccessKind::read, line(31, 33)), request(2, AccessKind::overwrite, line(30, 40))};
}

plan::SubmitPlan plan_of(const std::vector<plan::Request>& requests) {
    const plan::Layout layout(1, line(0, size), std::array{chunk}.data(), plan::ChunkHomes());
    const AllWritten written;
    const plan::PlannedArray array{&layout, &written, sizeof(int), kmm::memory::heap_alignment, false};
    const std::array arrays{&array};
    plan::Planner planner;
    EXPECT_TRUE(planner.make(requests, arrays, {SIZE_MAX}));
    return planner.plan();
}

struct Sums {
    int of_old = 0;  ///< 0..30, as task 1 sees it
    int of_two = 0;  ///< 31..33, as task 2 sees it
};

void add_to_each(void*, TaskContext& context) {
    for (int i = 0; i < 20; i++) static_cast<int*>(context.addresses[0])[i] += 1000;
}
void sum_up(void* payload, TaskContext& context) {
    const auto* const in = static_cast<const int*>(context.addresses[0]);
    static_cast<Sums*>(payload)->of_old = std::accumulate(in, in + 30, 0);
}
void replace(void* payload, TaskContext& context) {
    const auto* const in = static_cast<const int*>(context.addresses[0]);
    static_cast<Sums*>(payload)->of_two = in[0] + in[1];
    std::fill_n(static_cast<int*>(context.addresses[1]), 10, -1);
}

class Applied final : public kmm::detail::PlanBatch {
  public:
    Applied(const kmm::detail::ArrayRef& array, const std::vector<plan::Request>& requests, Sums& sums,
            const plan::SubmitPlan& of) {
        kmm::detail::Binding& binding = *array->binding();
        core = binding.runtime.get();
        set_books(core->books());
        infos_.reset(std::make_unique<kmm::graph::SubmitInfo>());
        wanted = requests;
        planned = &of;
        constexpr void (*bodies[])(void*, TaskContext&) = {add_to_each, sum_up, replace};
        for (const plan::Request& r : requests) {
            if (tasks().size() <= r.task) {
                kmm::graph::Task& t = add_task();
                t.kind = kmm::graph::TaskKind::host;
                t.where = kmm::ResourceId::host();
                t.function = {{bodies[r.task], nullptr}, &sums};
                infos_.give_to(t.info);
            }
            accesses.push_back({array.get(), &binding, static_cast<std::uint32_t>(current().views.size())});
            current().views.emplace_back().kind = r.kind;
        }
        infos_.give_to(add_task().info);
    }
    void run() {
        core->commit(*this);
        core->wait_settled(last(), nullptr);
        core->throw_failure(last());
    }

  private:
    kmm::graph::SubmitInfoSource infos_;
};

TEST(PlanBatch, applies_one_plan_to_the_arrays_of_two_runtimes) {
    const std::vector<plan::Request> wanted = requests();
    const plan::SubmitPlan plan = plan_of(wanted);
    ASSERT_EQ(plan.transfers.size(), 6u) << "three gathers, and three pieces that are written back";
    for (int runtime = 0; runtime < 2; runtime++) {
        const kmm::RuntimeHandle rt = kmm_test::small_runtime();
        std::vector<int> values(size);
        std::iota(values.begin(), values.end(), 100 * runtime);
        auto array = rt.array<int>(size, kmm::Dim<1>(chunk));
        array.copy_from(values);
        const int old = std::accumulate(values.begin(), values.begin() + 30, 0);
        for (int round = 0; round < 2; round++) {
            Sums sums;
            Applied(array.record(), wanted, sums, plan).run();
            EXPECT_EQ(sums.of_old, old + 20 * 1000 * round) << "what was there before the submit";
            EXPECT_EQ(sums.of_two, round == 0 ? values[31] + values[32] : -2);
        }
        for (int i = 5; i < 25; i++) values[static_cast<std::size_t>(i)] += 2000;
        std::fill(values.begin() + 30, values.end(), -1);
        std::vector<int> result(size);
        array.copy_to(result.data());
        EXPECT_EQ(result, values);
    }
}

TEST(PlanBatch, of_a_submit_that_is_refused_makes_no_record_of_a_chunk) {
    const kmm::RuntimeHandle rt = kmm_test::small_runtime();
    auto large = rt.array<char>(std::int64_t{200} << 20, kmm::Dim<1>(50 << 20));
    const auto nothing = [](kmm::DeviceResource&, kmm::GPUViewMut<char>) {};
    EXPECT_THROW(rt.submit(kmm::DeviceId(0), kmm::GPU(nothing), kmm::overwrite(large)), kmm::OutOfMemory);
    const kmm::detail::Binding& binding = *large.record()->binding();
    for (std::size_t c = 0; c < 4; c++) {
        EXPECT_EQ(binding.data->chunks.find(c), nullptr);
        EXPECT_EQ(binding.histories.find(c), nullptr);
    }
}

}  // namespace
