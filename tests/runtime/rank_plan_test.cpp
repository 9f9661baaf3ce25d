// What ranks would plan of a submit by formulas alone is what the runtime plans with records of chunks: the same
// numbers, and the same order.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ranks/rank_planner.hpp"
#include "recorded_tasks.hpp"

namespace {

using namespace kmm::placeholders;
using kmm::ranks::AccessKind;
using kmm::ranks::AxisRule;
using kmm::ranks::Box;
using kmm_test::Number;
using kmm_test::TaskKind;
using Order = std::map<Number, std::set<Number>>;  ///< tasks, and all that each comes after

/// The order of what a program submits, without the helpers in between; `first` is the number of its first task.
Order recorded(const std::function<void(const kmm::RuntimeHandle&)>& program, Number* first) {
    const kmm_test::RecordedTasks record = kmm_test::record_of(program, first);
    ++*first;
    const auto is_meant = [&](Number number) {
        return number >= *first && !kmm::graph::is_helper(number) && record.tasks.at(number).kind != TaskKind::join;
    };
    Order result;
    for (const auto& [number, task] : record.tasks) {
        if (!is_meant(number)) continue;
        for (const Number before : record.all_before(number))
            if (is_meant(before)) result[number].insert(before);
    }
    return result;
}

/// The same from the plans of ranks, put together.
class Planned {
  public:
    explicit Planned(Number first, kmm::ranks::RankNumber num_ranks = 3) : offset_(first - 1) {
        for (kmm::ranks::RankNumber r = 0; r < num_ranks; ++r) ranks_.emplace_back(num_ranks, 2, r);
    }
    void add_array(std::vector<std::int64_t> extents) {
        Box box;
        for (std::size_t k = 0; k < extents.size(); ++k) box.end[k] = extents[k];
        for (auto& rank : ranks_) rank.add_array(extents.size(), box);
    }
    void submit(std::vector<std::int64_t> size, std::vector<std::int64_t> tile,
                const std::vector<kmm::ranks::RuleAccess>& accesses) {
        std::int64_t extents[3] = {1, 1, 1}, cut[3] = {1, 1, 1};
        std::copy(size.begin(), size.end(), extents);
        std::copy(tile.begin(), tile.end(), cut);
        const auto domain = kmm::ranks::DomainRule::cyclic(extents, cut, 1, 2 * ranks_.size());
        for (auto& rank : ranks_) {
            const auto plan = rank.submit({domain, accesses});
            ASSERT_TRUE(plan);
            for (const auto& task : plan->tasks)
                for (const auto& edge : task.edges) before_[task.number + offset_].insert(edge.before + offset_);
        }
    }
    Order order() const {
        Order all;
        for (const auto& [number, before] : before_)  // ascending: those before are complete
            for (const Number b : before) {
                all[number].insert(b);
                if (const auto more = all.find(b); more != all.end())
                    all[number].insert(more->second.begin(), more->second.end());
            }
        return all;
    }

  private:
    Number offset_;
    std::vector<kmm::ranks::RankPlanner> ranks_;
    std::map<Number, std::set<Number>> before_;
};

kmm::ranks::RuleAccess use(std::uint32_t array, AccessKind kind, std::vector<AxisRule> axes) {
    kmm::ranks::RuleAccess a;
    a.array = array;
    a.kind = kind;
    std::copy(axes.begin(), axes.end(), a.axes.begin());
    return a;
}

TEST(RankPlan, of_a_stencil_has_the_numbers_and_the_order_that_the_runtime_has) {
    constexpr std::int64_t n = 70, tile = 8;
    const AxisRule x = AxisRule::along(0);
    Number first = 0;
    const Order order = recorded(
        [&](const kmm::RuntimeHandle& rt) {
            kmm::Array<int> u(n), v(n);
            const kmm::TileDomain domain(n, tile);
            const auto make = [](kmm::SubviewMut<int>, kmm::SubviewMut<int>) {};
            rt.parallel_submit(domain, kmm::Host(make), overwrite(u[_x]), overwrite(v[_x]));
            for (int step = 0; step < 5; ++step) {
                const auto f = [](kmm::Subview<int>, kmm::SubviewMut<int>) {};
                rt.parallel_submit(domain, kmm::Host(f), u[kmm::range(_x - 1, _x + 2)], overwrite(v[_x]));
                std::swap(u, v);
            }
        },
        &first);
    Planned planned(first);
    planned.add_array({n});
    planned.add_array({n});
    planned.submit({n}, {tile}, {use(0, AccessKind::overwrite, {x}), use(1, AccessKind::overwrite, {x})});
    for (std::uint32_t step = 0; step < 5; ++step)
        planned.submit({n}, {tile},
                       {use(step % 2, AccessKind::read, {AxisRule::along(0, 1, -1, 3)}),
                        use(1 - step % 2, AccessKind::overwrite, {x})});
    EXPECT_EQ(order, planned.order());
    EXPECT_GT(order.size(), 40u);
}

TEST(RankPlan, of_a_product_and_a_transposed_read_has_the_order_that_the_runtime_has) {
    constexpr std::int64_t n = 20, tile = 5;
    const AxisRule x = AxisRule::along(0), y = AxisRule::along(1);
    Number first = 0;
    const Order order = recorded(
        [&](const kmm::RuntimeHandle& rt) {
            kmm::Array<int, 2> a({n, n}), b({n, n}), c({n, n});
            const kmm::TileDomain domain({n, n}, {tile, tile});
            const auto make = [](kmm::SubviewMut<int, 2>) {};
            for (auto* array : {&a, &b, &c}) rt.parallel_submit(domain, kmm::Host(make), overwrite((*array)(_x, _y)));
            const auto multiply = [](kmm::Subview<int, 2>, kmm::Subview<int, 2>, kmm::SubviewMut<int, 2>) {};
            for (std::int64_t k = 0; k < n; k += tile) {
                const auto inner = kmm::range(k, k + tile);
                rt.parallel_submit(domain, kmm::Host(multiply), a(_x, inner), b(inner, _y), write(c(_x, _y)));
            }
            const auto turn = [](kmm::Subview<int, 2>, kmm::SubviewMut<int, 2>) {};
            rt.parallel_submit(domain, kmm::Host(turn), c(_y, _x), overwrite(a(_x, _y)));
        },
        &first);
    Planned planned(first);
    for (int i = 0; i < 3; ++i) planned.add_array({n, n});
    const std::vector<std::int64_t> size{n, n}, cut{tile, tile};
    for (std::uint32_t i = 0; i < 3; ++i) planned.submit(size, cut, {use(i, AccessKind::overwrite, {x, y})});
    for (std::int64_t k = 0; k < n; k += tile) {
        const AxisRule inner = AxisRule::all_of({k, k + tile});
        planned.submit(size, cut,
                       {use(0, AccessKind::read, {x, inner}), use(1, AccessKind::read, {inner, y}),
                        use(2, AccessKind::write, {x, y})});
    }
    planned.submit(size, cut, {use(2, AccessKind::read, {y, x}), use(0, AccessKind::overwrite, {x, y})});
    EXPECT_EQ(order, planned.order());
    EXPECT_GT(order.size(), 60u);
}

}  // namespace
