// Plans of ranks: each alone has exactly its part of the plan of all, which is what a look at every element says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "ranks/rank_planner.hpp"

namespace {

using namespace kmm::ranks;
using Kind = RankEdge::Kind;

Box box_of(const std::vector<Interval>& axes) {
    Box b;
    for (std::size_t k = 0; k < axes.size(); ++k) b.begin[k] = axes[k].begin, b.end[k] = axes[k].end;
    return b;
}
Box line(std::int64_t begin, std::int64_t end) { return box_of({{begin, end}}); }

RuleAccess access(std::uint32_t array, AccessKind kind, const std::vector<AxisRule>& axes) {
    RuleAccess a;
    a.array = array;
    a.kind = kind;
    std::copy(axes.begin(), axes.end(), a.axes.begin());
    return a;
}
AxisRule x(std::int64_t scale = 1, std::int64_t offset = 0, std::int64_t length = 1, std::int64_t divisor = 1) {
    return AxisRule::along(0, scale, offset, length, divisor);
}

// ------------------------------------------------------------------------------------------------------- formulas

/// What TileDomain, BlockDomain and CyclicDomain are documented to be, as a list.
struct Listed {
    std::vector<DomainBox> chunks;
    std::vector<std::size_t> owners;
};

void expect_equal(const DomainRule& rule, const Listed& listed, std::size_t num_owners) {
    ASSERT_EQ(rule.num_chunks(), listed.chunks.size());
    std::vector<std::vector<std::size_t>> of_owner(num_owners);
    for (std::size_t i = 0; i < listed.chunks.size(); ++i) {
        EXPECT_EQ(rule.chunk(i), listed.chunks[i]) << i;
        EXPECT_EQ(rule.owner(i), listed.owners[i]) << i;
        of_owner[listed.owners[i]].push_back(i);
        std::int64_t place[domain_rank];
        rule.place_of(i, place);
        EXPECT_EQ(rule.chunk_at(place), i);
    }
    for (std::size_t first = 0; first < num_owners; ++first) {
        std::vector<std::size_t> expected;
        for (std::size_t end = first + 1; end <= num_owners; ++end) {
            expected.insert(expected.end(), of_owner[end - 1].begin(), of_owner[end - 1].end());
            std::sort(expected.begin(), expected.end());
            ASSERT_EQ(rule.num_chunks_of(first, end), expected.size());
            for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_EQ(rule.chunk_of(first, end, n), expected[n]);
        }
    }
}

TEST(DomainRule, a_formula_has_the_chunks_and_owners_that_a_list_would_have) {
    std::mt19937_64 random(1);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    for (int round = 0; round < 300; ++round) {
        const std::int64_t size[3] = {pick(0, 12), pick(0, 5), pick(0, 3)};
        const std::int64_t tile[3] = {pick(1, 5), pick(1, 3), pick(1, 2)};
        const auto owners = static_cast<std::size_t>(pick(1, 5)), run = static_cast<std::size_t>(pick(1, 3));
        Listed cyclic;
        for (std::int64_t z = 0; z < size[2]; z += tile[2])
            for (std::int64_t y = 0; y < size[1]; y += tile[1])
                for (std::int64_t i = 0; i < size[0]; i += tile[0])
                    cyclic.chunks.push_back({{{i, std::min(i + tile[0], size[0])},
                                              {y, std::min(y + tile[1], size[1])},
                                              {z, std::min(z + tile[2], size[2])}}});
        Listed blocks = cyclic;
        const std::size_t n = cyclic.chunks.size();
        for (std::size_t i = 0; i < n; ++i) {
            cyclic.owners.push_back(i / run % owners);
            blocks.owners.push_back(i * owners / n);
        }
        expect_equal(DomainRule::cyclic(size, tile, run, owners), cyclic, owners);
        expect_equal(DomainRule::blocks(size, tile, owners), blocks, owners);
    }
}

TEST(DomainRule, slabs_differ_by_one_index_and_a_short_axis_leaves_owners_without_any) {
    for (std::int64_t length = 1; length < 12; ++length)
        for (std::size_t owners = 1; owners < 6; ++owners) {
            const std::int64_t size[3] = {4, length, 1};
            if (length == 1) continue;  // then it is the first axis that is cut
            const auto blocks = std::min<std::int64_t>(length, static_cast<std::int64_t>(owners));
            Listed listed;
            std::int64_t at = 0;
            for (std::int64_t i = 0; i < blocks; ++i) {
                const std::int64_t more = length / blocks + (i < length % blocks ? 1 : 0);
                listed.chunks.push_back({{{0, 4}, {at, at + more}, {0, 1}}});
                listed.owners.push_back(static_cast<std::size_t>(i));
                at += more;
            }
            expect_equal(DomainRule::slabs(size, owners), listed, owners);
        }
    const std::int64_t nothing[3] = {0, 3, 1};
    EXPECT_EQ(DomainRule::slabs(nothing, 2).num_chunks(), 0u);
}

TEST(RegionRule, the_inverse_of_a_map_names_exactly_the_tiles_that_use_a_box) {
    std::mt19937_64 random(2);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    std::size_t num_found = 0;
    for (int round = 0; round < 3000; ++round) {
        const std::int64_t size[3] = {pick(1, 12), pick(1, 6), 1}, tile[3] = {pick(1, 4), pick(1, 3), 1};
        const DomainRule domain = DomainRule::cyclic(size, tile, 1, 1);
        const Box array = box_of({{0, pick(1, 20)}, {0, pick(1, 10)}});
        std::array<AxisRule, max_rank> axes;
        for (std::size_t k = 0; k < 2; ++k)
            axes[k] = pick(0, 4) == 0 ? AxisRule::all_of({pick(-2, 4), pick(3, 12)})
                                      : AxisRule::along(static_cast<std::size_t>(pick(0, 2)), pick(-3, 3), pick(-5, 9),
                                                        pick(1, 4), pick(1, 3));
        const RegionRule rule(2, array, axes);
        const Box wanted = box_of({{pick(-1, 9), pick(10, 21)}, {pick(-1, 5), pick(6, 12)}});
        const DomainBox places = rule.places_that_use(domain, wanted);
        for (std::size_t i = 0; i < domain.num_chunks(); ++i) {
            const Box region = rule.region(domain.chunk(i));
            const bool uses = !kmm::boxes::is_empty(region, 2) && kmm::boxes::overlaps(region, wanted, 2) &&
                              kmm::boxes::overlaps(wanted, array, 2);
            std::int64_t place[domain_rank];
            domain.place_of(i, place);
            bool is_named = true;
            for (std::size_t k = 0; k < domain_rank; ++k)
                is_named = is_named && places.axes[k].begin <= place[k] && place[k] < places.axes[k].end;
            num_found += uses ? 1 : 0;
            ASSERT_EQ(is_named, uses) << "round " << round << ", chunk " << i;
        }
    }
    EXPECT_GT(num_found, 1000u);
}

// --------------------------------------------------------------------------------------------------------- oracle

/// Who wrote and read each element last. Knows no formulas but those of single regions.
class Oracle {
  public:
    Oracle(RankNumber num_ranks, std::uint32_t owners_of_rank) : owners_(owners_of_rank) { (void)num_ranks; }
    void add_array(std::size_t rank, const Box& box) {
        ranks_.push_back(rank);
        boxes_.push_back(box);
    }
    /// False: two tasks write the same, or something is read that was never written; nothing has changed.
    bool is_good(const RuleSubmit& s) const {
        std::set<std::pair<std::uint32_t, std::vector<std::int64_t>>> written;
        for (std::size_t c = 0; c < s.domain.num_chunks(); ++c)
            for (std::size_t a = 0; a < s.accesses.size(); ++a) {
                bool good = true;
                each_element(s, a, c, [&](const std::vector<std::int64_t>& at) {
                    const auto key = std::pair(s.accesses[a].array, at);
                    if (s.accesses[a].kind == AccessKind::read)
                        good = good && elements_.count(key) != 0;
                    else
                        good = written.insert(key).second && good;
                });
                if (!good) return false;
            }
        return true;
    }
    void expect_plan(const RuleSubmit& s, const RankPlan& plan) {
        ASSERT_EQ(plan.first, next_);
        ASSERT_EQ(plan.tasks.size(), s.domain.num_chunks());
        for (std::size_t c = 0; c < s.domain.num_chunks(); ++c) expect_task(s, plan.tasks[c], c);
        for (const bool writes : {false, true})
            for (std::size_t c = 0; c < s.domain.num_chunks(); ++c)
                for (std::size_t a = 0; a < s.accesses.size(); ++a)
                    if ((s.accesses[a].kind != AccessKind::read) == writes)
                        each_element(s, a, c, [&](const std::vector<std::int64_t>& at) {
                            Element& e = elements_[{s.accesses[a].array, at}];
                            if (writes)
                                e = {next_ + c, rank_of(s, c), {}};
                            else
                                e.readers.insert({next_ + c, rank_of(s, c)});
                        });
        next_ += s.domain.num_chunks() > 1 ? s.domain.num_chunks() + 1 : s.domain.num_chunks();
        EXPECT_EQ(plan.first + plan.count, next_);
    }

  private:
    struct Element {
        TaskNumber writer = 0;
        RankNumber rank = 0;
        std::set<std::pair<TaskNumber, RankNumber>> readers;
    };

    RankNumber rank_of(const RuleSubmit& s, std::size_t c) const {
        return static_cast<RankNumber>(s.domain.owner(c) / owners_);
    }
    template<typename F> void each_element_of(const Box& region, std::size_t rank, F&& f) const {
        if (kmm::boxes::is_empty(region, rank)) return;
        std::vector<std::int64_t> at(region.begin, region.begin + rank);
        for (;;) {
            f(at);
            std::size_t k = rank;
            while (k-- > 0) {
                if (++at[k] < region.end[k]) break;
                at[k] = region.begin[k];
            }
            if (k == ~std::size_t{0}) return;
        }
    }
    Box region_of(const RuleSubmit& s, std::size_t a, std::size_t c) const {
        const RuleAccess& use = s.accesses[a];
        return RegionRule(ranks_[use.array], boxes_[use.array], use.axes).region(s.domain.chunk(c));
    }
    template<typename F> void each_element(const RuleSubmit& s, std::size_t a, std::size_t c, F&& f) const {
        each_element_of(region_of(s, a, c), ranks_[s.accesses[a].array], f);
    }
    void expect_task(const RuleSubmit& s, const RankTask& task, std::size_t c) {
        EXPECT_EQ(task.number, next_ + c);
        EXPECT_EQ(task.rank, rank_of(s, c));
        std::map<TaskNumber, RankNumber> data, order, snapshot;
        std::map<std::vector<std::int64_t>, TaskNumber> sources;
        std::size_t num_accesses = 0, num_sourced = 0;
        for (std::size_t a = 0; a < s.accesses.size(); ++a) {
            const RuleAccess& use = s.accesses[a];
            if (kmm::boxes::is_empty(region_of(s, a, c), ranks_[use.array])) continue;
            const RankAccess& planned = task.accesses.at(num_accesses++);
            EXPECT_EQ(planned.is_snapshot, use.kind == AccessKind::read && is_written_inside(s, a, c));
            sources.clear();
            each_element(s, a, c, [&](const std::vector<std::int64_t>& at) {
                const auto found = elements_.find({use.array, at});
                if (found == elements_.end()) return;
                (use.kind == AccessKind::overwrite ? order : data)[found->second.writer] = found->second.rank;
                if (use.kind != AccessKind::overwrite) sources[at] = found->second.writer;
                if (use.kind == AccessKind::read) return;
                for (const auto& [reader, rank] : found->second.readers) order[reader] = rank;
            });
            num_sourced = 0;
            for (const RankSource& source : planned.sources)
                each_element_of(source.box, ranks_[use.array], [&](const std::vector<std::int64_t>& at) {
                    ++num_sourced;
                    EXPECT_EQ(sources.count(at) == 0 ? 0 : sources[at], source.writer);
                });
            EXPECT_EQ(num_sourced, sources.size());
            if (use.kind != AccessKind::read) find_snapshots(s, a, c, snapshot);
        }
        for (const auto& [number, rank] : data) order.erase(number);
        std::map<TaskNumber, RankNumber> planned[3];
        for (const RankEdge& e : task.edges)
            EXPECT_TRUE(planned[static_cast<int>(e.kind)].emplace(e.before, e.rank).second) << "twice";
        EXPECT_EQ(planned[0], data) << "task " << task.number;
        EXPECT_EQ(planned[1], order) << "task " << task.number;
        EXPECT_EQ(planned[2], snapshot) << "task " << task.number;
    }
    bool is_written_inside(const RuleSubmit& s, std::size_t a, std::size_t c) const {
        const Box region = region_of(s, a, c);
        for (std::size_t b = 0; b < s.accesses.size(); ++b)
            for (std::size_t other = 0; other < s.domain.num_chunks(); ++other)
                if (s.accesses[b].array == s.accesses[a].array && s.accesses[b].kind != AccessKind::read &&
                    meet(s, b, other, region))
                    return true;
        return false;
    }
    void find_snapshots(const RuleSubmit& s, std::size_t a, std::size_t c,
                        std::map<TaskNumber, RankNumber>& found) const {
        for (std::size_t b = 0; b < s.accesses.size(); ++b)
            for (std::size_t other = 0; other < s.domain.num_chunks(); ++other)
                if (other != c && s.accesses[b].array == s.accesses[a].array &&
                    s.accesses[b].kind == AccessKind::read && meet(s, b, other, region_of(s, a, c)))
                    found[next_ + other] = rank_of(s, other);
    }
    bool meet(const RuleSubmit& s, std::size_t b, std::size_t c, const Box& region) const {
        const Box other = region_of(s, b, c);
        const std::size_t rank = ranks_[s.accesses[b].array];
        return !kmm::boxes::is_empty(other, rank) && !kmm::boxes::is_empty(region, rank) &&
               kmm::boxes::overlaps(other, region, rank);
    }

    std::uint32_t owners_;
    TaskNumber next_ = 1;
    std::vector<std::size_t> ranks_;
    std::vector<Box> boxes_;
    std::map<std::pair<std::uint32_t, std::vector<std::int64_t>>, Element> elements_;
};

/// A planner of all, one for each rank, and the oracle.
class Ranks {
  public:
    Ranks(RankNumber count, std::uint32_t owners) : all_(count, owners, every_rank), oracle_(count, owners) {
        for (RankNumber r = 0; r < count; ++r) ranks_.emplace_back(count, owners, r);
    }
    void add_array(std::size_t rank, const Box& box) {
        all_.add_array(rank, box);
        oracle_.add_array(rank, box);
        for (RankPlanner& r : ranks_) r.add_array(rank, box);
    }
    /// Whether it was taken: by all or by none.
    bool submit(const RuleSubmit& s) {
        const bool is_good = oracle_.is_good(s);
        const auto plan = all_.submit(s);
        EXPECT_EQ(plan.has_value(), is_good);
        for (RankNumber r = 0; r < ranks_.size(); ++r) {
            const auto part = ranks_[r].submit(s);
            EXPECT_EQ(part.has_value(), is_good);
            if (!part || !plan) continue;
            EXPECT_TRUE(*part == plan->slice(r)) << "rank " << r << " of " << ranks_.size();
        }
        if (plan && is_good) oracle_.expect_plan(s, *plan);
        return plan.has_value();
    }

  private:
    RankPlanner all_;
    Oracle oracle_;
    std::vector<RankPlanner> ranks_;
};

class RandomRules {
  public:
    RandomRules(std::uint64_t seed, RankNumber num_ranks, std::uint32_t owners)
        : random_(seed), num_owners_(std::size_t{num_ranks} * owners), ranks_(num_ranks, owners) {
        for (std::uint32_t a = 0; a < 3; ++a) {
            array_ranks_.push_back(static_cast<std::size_t>(pick(1, 2)));
            boxes_.push_back(array_ranks_[a] == 1 ? line(0, pick(1, 40)) : box_of({{0, pick(1, 9)}, {0, pick(1, 7)}}));
            ranks_.add_array(array_ranks_[a], boxes_[a]);
            if (pick(0, 3) == 0) continue;
            EXPECT_TRUE(ranks_.submit(write_of_all(a)));
        }
    }
    std::size_t submit(int count) {
        std::size_t num_taken = 0;
        for (int i = 0; i < count; ++i) num_taken += ranks_.submit(next()) ? 1 : 0;
        return num_taken;
    }

  private:
    std::int64_t pick(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    DomainRule domain(const std::int64_t (&size)[3]) {
        const std::int64_t tile[3] = {pick(1, std::max<std::int64_t>(size[0] / 2, 1)), pick(1, 3), 1};
        switch (pick(0, 2)) {
        case 0: return DomainRule::slabs(size, num_owners_);
        case 1: return DomainRule::blocks(size, tile, num_owners_);
        default: return DomainRule::cyclic(size, tile, static_cast<std::size_t>(pick(1, 3)), num_owners_);
        }
    }
    RuleSubmit write_of_all(std::uint32_t a) {
        const std::int64_t size[3] = {boxes_[a].end[0], array_ranks_[a] == 2 ? boxes_[a].end[1] : 1, 1};
        return {domain(size), {access(a, AccessKind::overwrite, {x(), AxisRule::along(1)})}};
    }
    RuleSubmit next() {
        if (pick(0, 4) == 0) return write_of_all(static_cast<std::uint32_t>(pick(0, 2)));
        const std::int64_t size[3] = {pick(0, 30), pick(pick(0, 9) == 0 ? 0 : 1, 4), 1};
        RuleSubmit s{domain(size), {}};
        for (std::int64_t n = pick(1, 3); n > 0; --n) {
            const auto kind = static_cast<AccessKind>(pick(0, 2));
            const auto a = static_cast<std::uint32_t>(pick(0, 2));
            std::vector<AxisRule> axes;
            for (std::size_t k = 0; k < array_ranks_[a]; ++k) {
                if (kind == AccessKind::read && pick(0, 3) == 0)
                    axes.push_back(AxisRule::all_of({pick(0, 3), pick(3, 9)}));
                else if (kind == AccessKind::read)
                    axes.push_back(AxisRule::along(static_cast<std::size_t>(pick(0, 1)), pick(-2, 2), pick(-4, 6),
                                                   pick(1, 4), pick(1, 2)));
                else
                    axes.push_back(AxisRule::along(pick(0, 5) == 0 ? 1 - k % 2 : k % 2,
                                                   pick(0, 3) == 0 ? pick(1, 3) : 1, pick(0, 2), pick(1, 2),
                                                   pick(0, 5) == 0 ? 2 : 1));
            }
            s.accesses.push_back(access(a, kind, axes));
        }
        return s;
    }

    std::mt19937_64 random_;
    std::size_t num_owners_;
    Ranks ranks_;
    std::vector<std::size_t> array_ranks_;
    std::vector<Box> boxes_;
};

TEST(RankPlanner, each_of_1_2_7_and_64_ranks_has_its_slice_of_the_plan_of_all_which_is_what_each_element_says) {
    std::size_t num_taken = 0, num_submits = 0;
    for (const RankNumber ranks : {1u, 2u, 7u, 64u})
        for (std::uint64_t seed = 0; seed < (ranks == 64 ? 20u : 60u); ++seed) {
            RandomRules program(1000 * ranks + seed, ranks, static_cast<std::uint32_t>(seed % 3 + 1));
            num_taken += program.submit(25);
            num_submits += 25;
            if (HasFailure()) FAIL() << "seed " << seed << ", ranks " << ranks;
        }
    EXPECT_GT(num_taken, num_submits / 3);
    EXPECT_LT(num_taken, num_submits);
}

// ----------------------------------------------------------------------------------------------------------- cost

DomainRule tiles_of(std::int64_t tiles, std::int64_t tile, std::size_t num_owners) {
    const std::int64_t size[3] = {tiles * tile, 1, 1}, each[3] = {tile, 1, 1};
    return DomainRule::blocks(size, each, num_owners);
}

/// Steps of one submit of a stencil in a loop, which reads one element beyond each tile.
std::uint64_t steps_of_stencil(RankNumber num_ranks, RankNumber rank, std::int64_t tiles, int num_submits = 6) {
    RankPlanner planner(num_ranks, 1, rank);
    const DomainRule domain = tiles_of(tiles, 100, num_ranks);
    for (std::uint32_t a = 0; a < 2; ++a) {
        planner.add_array(1, line(0, tiles * 100));
        EXPECT_TRUE(planner.submit({domain, {access(a, AccessKind::overwrite, {x()})}}));
    }
    std::uint64_t before = 0;
    for (int step = 0; step < num_submits; ++step) {
        before = planner.num_looked_at();
        const auto from = static_cast<std::uint32_t>(step % 2);
        EXPECT_TRUE(planner.submit(
            {domain, {access(from, AccessKind::read, {x(1, -1, 3)}), access(1 - from, AccessKind::overwrite, {x()})}}));
    }
    return planner.num_looked_at() - before;
}

TEST(RankPlanner, a_rank_of_64_pays_for_its_own_tasks_and_its_halo) {
    constexpr std::int64_t own = 32;
    // One rank of its own, with as many tasks as that rank has and the halo of two.
    const std::uint64_t alone = steps_of_stencil(1, 0, own + 2);
    for (const RankNumber rank : {0u, 1u, 31u, 63u})
        EXPECT_LE(2 * steps_of_stencil(64, rank, 64 * own), 3 * alone) << "rank " << rank;
}

TEST(RankPlanner, what_others_do_costs_a_rank_nothing_and_a_long_loop_no_more_than_a_short_one) {
    const std::uint64_t of_64 = steps_of_stencil(64, 5, 64 * 16);
    EXPECT_EQ(steps_of_stencil(128, 5, 128 * 16), of_64);
    EXPECT_LE(steps_of_stencil(64, 5, 64 * 32), of_64 * 22 / 10);
    EXPECT_EQ(steps_of_stencil(64, 5, 64 * 16, 200), of_64);
}

TEST(RankPlanner, submits_that_nobody_comes_after_are_forgotten) {
    RankPlanner planner(4, 1, 2);
    planner.add_array(1, line(0, 4000));
    const DomainRule domain = tiles_of(40, 100, 4);
    ASSERT_TRUE(planner.submit({domain, {access(0, AccessKind::overwrite, {x()})}}));
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(planner.submit({domain, {access(0, AccessKind::write, {x()})}}));
    EXPECT_LT(planner.num_kept_submits(), 200u);
    EXPECT_EQ(planner.num_segments(0), 1u);
    // Readers stay until they have settled, since a write comes after each.
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(planner.submit({domain, {access(0, AccessKind::read, {x()})}}));
    EXPECT_GT(planner.num_kept_submits(), 1000u);
    planner.forget_up_to(planner.next_number() - 1);
    EXPECT_EQ(planner.num_kept_submits(), 1u);
    const auto plan = planner.submit({domain, {access(0, AccessKind::write, {x()})}});
    ASSERT_TRUE(plan);
    for (const RankTask& task : plan->tasks) {
        EXPECT_TRUE(task.edges.empty());
        ASSERT_EQ(task.accesses.front().sources.size(), 1u);
    }
}

// ------------------------------------------------------------------------------------------------------- refusals

TEST(RankPlanner, ranks_without_a_part_in_a_conflict_refuse_it_too) {
    for (RankNumber rank = 0; rank < 4; ++rank) {
        RankPlanner planner(4, 1, rank);
        planner.add_array(1, line(0, 400));
        const DomainRule domain = tiles_of(4, 100, 4);
        EXPECT_FALSE(planner.submit({domain, {access(0, AccessKind::overwrite, {x(1, 0, 2)})}}));
        EXPECT_EQ(planner.refusal().reason, RuleRefusal::Reason::conflict);
        EXPECT_EQ(planner.refusal().region.begin[0], 100);
        EXPECT_EQ(planner.refusal().region.end[0], 101);
        EXPECT_FALSE(planner.submit({domain, {access(0, AccessKind::read, {x()})}}));
        EXPECT_EQ(planner.refusal().reason, RuleRefusal::Reason::unwritten);
        EXPECT_FALSE(planner.submit({tiles_of(4, 100, 3), {access(0, AccessKind::overwrite, {x()})}}));
        EXPECT_EQ(planner.refusal().reason, RuleRefusal::Reason::owners);
        EXPECT_EQ(planner.next_number(), 1u);
        EXPECT_EQ(planner.num_kept_submits(), 0u);
        EXPECT_TRUE(planner.submit({domain, {access(0, AccessKind::overwrite, {x()})}}));
    }
}

// ----------------------------------------------------------------------------------------------------------- text

TEST(RankPlan, its_text_names_tasks_regions_and_what_goes_between_ranks) {
    RankPlanner planner(2, 1, 1);
    planner.add_array(1, line(0, 40));
    planner.add_array(1, line(0, 40));
    const DomainRule domain = tiles_of(4, 10, 2);
    ASSERT_TRUE(planner.submit({domain, {access(0, AccessKind::overwrite, {x()})}}));
    const auto plan =
        planner.submit({domain, {access(0, AccessKind::read, {x(1, -1, 3)}), access(1, AccessKind::overwrite, {x()})}});
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->to_text({"u", "v"}, {1, 1}),
              "task 8 on rank 1, device 0: [20, 30) [0, 1) [0, 1)\n"
              "  reads u {19...31}: {19...20} of task 2 from rank 0, {20...30} of task 3, {30...31} of task 4\n"
              "  overwrites v {20...30}\n"
              "  after task 2 of rank 0 (data)\n"
              "  after task 3 (data)\n"
              "  after task 4 (data)\n"
              "task 9 on rank 1, device 0: [30, 40) [0, 1) [0, 1)\n"
              "  reads u {29...40}: {29...30} of task 3, {30...40} of task 4\n"
              "  overwrites v {30...40}\n"
              "  after task 3 (data)\n"
              "  after task 4 (data)\n"
              "rank 0 sends u {19...20} of task 2 to rank 1\n"
              "rank 1 sends u {20...21} of task 3 to rank 0\n");
    const std::string dot = plan->to_dot({"u", "v"}, {1, 1});
    EXPECT_NE(dot.find("t2 -> t8;"), std::string::npos);
    EXPECT_NE(dot.find("t9 [label=\"9 on rank 1\\nreads u {29...40}\\noverwrites v {30...40}\""), std::string::npos);
}

}  // namespace
