// Owns: the comparison of the heap with a slow, obviously right model: one cell per alignment unit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "rmm/heap/heap.hpp"

namespace {

using rmm::heap::block;
using rmm::heap::fence;
using rmm::heap::fence_set;
using rmm::heap::heap;

constexpr std::size_t unit = 256;
constexpr std::size_t num_cells = 160;
constexpr std::uintptr_t base = 64 * unit;

/// What is known about each unit of address space: outside all regions, in use, or free with fences.
struct Model {
    enum class State { outside, used, available };
    struct Cell {
        State state = State::outside;
        std::map<std::uint64_t, std::uint64_t> fences;
    };
    std::vector<Cell> cells = std::vector<Cell>(num_cells);

    std::size_t count(State s) const {
        return std::count_if(cells.begin(), cells.end(), [&](const Cell& c) { return c.state == s; });
    }
    bool all(std::size_t first, std::size_t n, State s) const {
        return std::all_of(cells.begin() + first, cells.begin() + first + n,
                           [&](const Cell& c) { return c.state == s; });
    }
    std::size_t largest_run() const {
        std::size_t best = 0, run = 0;
        for (const Cell& c : cells) {
            run = c.state == State::available ? run + 1 : 0;
            best = std::max(best, run);
        }
        return best;
    }
    std::size_t largest_unfenced_run() const {
        std::size_t best = 0, run = 0;
        for (const Cell& c : cells) {
            run = c.state == State::available && c.fences.empty() ? run + 1 : 0;
            best = std::max(best, run);
        }
        return best;
    }
    std::size_t extent(std::size_t first, std::size_t n) const {
        std::size_t begin = first, end = first + n;
        while (begin > 0 && cells[begin - 1].state == State::available) --begin;
        while (end < num_cells && cells[end].state == State::available) ++end;
        return end - begin;
    }
};

struct Random {
    std::mt19937 engine;
    std::size_t below(std::size_t n) { return engine() % n; }
};

struct Live {
    std::size_t first, n;
    std::size_t asked_bytes;
};

class HeapModel : public ::testing::TestWithParam<unsigned> {
  protected:
    HeapModel() { random.engine.seed(GetParam()); }

    std::uintptr_t address(std::size_t cell) const { return base + cell * unit; }

    fence_set random_fences() {
        fence_set set;
        for (std::size_t i = random.below(4); i > 0; --i) set.add({1 + random.below(3), 1 + random.below(5)});
        return set;
    }

    void allocate() {
        const std::size_t n = 1 + random.below(12);
        const std::size_t bytes = (n - 1) * unit + 1 + random.below(unit);
        const std::size_t largest = model.largest_run();
        const bool unfenced_fits = model.largest_unfenced_run() >= n;
        const block b = h.try_allocate(bytes);
        ASSERT_EQ(static_cast<bool>(b), largest >= n) << "a request succeeds exactly when a free row is long enough";
        if (!b) return;
        ASSERT_EQ(b.size_bytes, n * unit);
        ASSERT_EQ(b.address % unit, 0u);
        const std::size_t first = (b.address - base) / unit;
        ASSERT_TRUE(model.all(first, n, Model::State::available));
        ASSERT_TRUE(!unfenced_fits || b.fences.empty());
        for (std::size_t i = first; i < first + n; ++i) {
            for (auto [timeline, position] : model.cells[i].fences) {
                const bool covered =
                    std::any_of(b.fences.begin(), b.fences.end(), [&, t = timeline, p = position](const fence& f) {
                        return f.timeline == t && f.position >= p;
                    });
                ASSERT_TRUE(covered) << "a fence was lost";
            }
            model.cells[i].state = Model::State::used;
            model.cells[i].fences.clear();
        }
        live.push_back({first, n, bytes});
    }

    void release() {
        if (live.empty()) return;
        const std::size_t which = random.below(live.size());
        const Live l = live[which];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
        const fence_set fences = random_fences();
        ASSERT_EQ(h.extent_if_freed(address(l.first), l.asked_bytes), model.extent(l.first, l.n) * unit);
        h.free(address(l.first), l.asked_bytes, fences);
        for (std::size_t i = l.first; i < l.first + l.n; ++i) {
            model.cells[i].state = Model::State::available;
            for (const fence& f : fences) model.cells[i].fences[f.timeline] = f.position;
        }
    }

    void add_region() {
        const std::size_t first = random.below(num_cells);
        const std::size_t n = 1 + random.below(std::min<std::size_t>(40, num_cells - first));
        if (!model.all(first, n, Model::State::outside)) {
            ASSERT_THROW(h.add_region(address(first), n * unit), std::invalid_argument);
            return;
        }
        h.add_region(address(first), n * unit);
        for (std::size_t i = first; i < first + n; ++i) model.cells[i].state = Model::State::available;
    }

    void remove_region() {
        const std::size_t first = random.below(num_cells);
        const std::size_t n = 1 + random.below(std::min<std::size_t>(20, num_cells - first));
        const bool possible = model.all(first, n, Model::State::available);
        fence_set left;
        ASSERT_EQ(h.remove_region(address(first), n * unit, &left), possible);
        if (!possible) return;
        std::map<std::uint64_t, std::uint64_t> expected;
        for (std::size_t i = first; i < first + n; ++i) {
            for (auto [timeline, position] : model.cells[i].fences)
                expected[timeline] = std::max(expected[timeline], position);
            model.cells[i] = {};
        }
        for (auto [timeline, position] : expected) {
            const fence_set before = left;
            left.add({timeline, position});
            ASSERT_EQ(left, before) << "a fence of removed memory was lost";
        }
    }

    void prune() {
        const std::uint64_t timeline = 1 + random.below(3);
        const std::uint64_t position = 1 + random.below(5);
        h.prune([&](const fence& f) { return f.timeline == timeline && f.position <= position; });
        for (Model::Cell& c : model.cells) {
            auto at = c.fences.find(timeline);
            if (at != c.fences.end() && at->second <= position) c.fences.erase(at);
        }
    }

    Random random;
    heap h{unit};
    Model model;
    std::vector<Live> live;
};

TEST_P(HeapModel, random_operations_agree_with_one_cell_per_unit) {
    add_region();
    for (int step = 0; step < 4000; ++step) {
        const std::size_t dice = random.below(100);
        if (dice < 45)
            allocate();
        else if (dice < 85)
            release();
        else if (dice < 90)
            add_region();
        else if (dice < 93)
            remove_region();
        else
            prune();
        if (HasFatalFailure()) FAIL() << "at step " << step;
        ASSERT_EQ(h.free_bytes(), model.count(Model::State::available) * unit) << step;
        ASSERT_EQ(h.capacity_bytes(), (num_cells - model.count(Model::State::outside)) * unit) << step;
        ASSERT_EQ(h.largest_free_bytes(), model.largest_run() * unit) << step;
    }
}

/// The same requests go to the heap and to a list of its free pieces, which is searched from end to end.
class HeapChoice : public ::testing::TestWithParam<std::tuple<rmm::heap::placement, unsigned>> {
  protected:
    struct listed {
        std::uintptr_t address;
        std::size_t size_bytes;
        fence_set fences;
    };
    std::vector<listed> pieces() const {
        std::vector<listed> all;
        h.for_each_free(
            [&](std::uintptr_t address, std::size_t size, const fence_set& f) { all.push_back({address, size, f}); });
        return all;
    }
    /// A border that nothing crosses lies between every two regions.
    static bool touch(const listed& a, const listed& b) {
        return a.address + a.size_bytes == b.address && (b.address - base) % region_bytes != 0;
    }
    /// Where the contract says that a block comes from; 0: from nowhere.
    std::uintptr_t expected(std::size_t size, std::uint64_t own, const std::vector<std::uint64_t>& avoided,
                            bool only_ready) const {
        const std::vector<listed> all = pieces();
        const listed* best = nullptr;
        const auto consider = [&](auto&& is_candidate) {
            for (const listed& p : all)
                if (p.size_bytes >= size && is_candidate(p) && (best == nullptr || p.size_bytes < best->size_bytes))
                    best = &p;
        };
        const auto is_own = [&](const listed& p) { return p.fences.size() == 1 && p.fences.begin()->timeline == own; };
        if (size < h.small_below_bytes()) {
            consider(is_own);
            for (const listed& p : all) {
                if (p.size_bytes < size || !p.fences.empty()) continue;
                if (best == nullptr || p.address < best->address) best = &p;
                break;
            }
        } else {
            // Of equals one without fences.
            consider([&](const listed& p) { return p.fences.empty(); });
            consider(is_own);
        }
        if (best == nullptr && !only_ready) consider([&](const listed& p) { return !p.fences.has_any_of(avoided); });
        if (best != nullptr || only_ready) return best == nullptr ? 0 : best->address;
        for (std::size_t i = 0; i < all.size(); ++i) {
            std::size_t total = 0;
            for (std::size_t k = i; k < all.size() && !all[k].fences.has_any_of(avoided); ++k) {
                if (k != i && !touch(all[k - 1], all[k])) break;
                total += all[k].size_bytes;
                if (total >= size) return all[i].address;
            }
        }
        return 0;
    }

    /// What the steps are at a time, in percent of them; the others are frees.
    struct mix {
        std::size_t requests;
        std::size_t prunes;
        std::size_t merges;
    };
    /// Requests have up to `common_units`, a few more. Sets `num_from_below`, and `num_pieces` of each step.
    template<typename MixAt>
    void run(const std::vector<std::size_t>& regions, std::size_t common_units, MixAt mix_at) {
        Random random;
        random.engine.seed(std::get<1>(GetParam()));
        for (const std::size_t i : regions)
            h.add_region(base + i * region_bytes, region_bytes, rmm::heap::border::sealed);
        std::vector<block> live;
        std::vector<std::uint64_t> reached(7, 0);
        std::uint64_t position = 0;
        for (int step = 0; step < 3000; ++step) {
            const mix now = mix_at(step);
            const std::size_t dice = random.below(100);
            if (dice < now.requests) {
                const std::size_t size = unit * (1 + random.below(random.below(8) == 0 ? 48 : common_units));
                num_from_below += size < h.small_below_bytes() ? 1u : 0u;
                const std::uint64_t own = random.below(2) == 0 ? heap::no_timeline : 1 + random.below(6);
                std::vector<std::uint64_t> avoided;
                for (std::size_t i = random.below(3); i > 0; --i) avoided.push_back(1 + random.below(6));
                const bool only_ready = random.below(3) == 0;
                const std::uintptr_t where = expected(size, own, avoided, only_ready);
                const block b = only_ready ? h.try_allocate_ready(size, own) : h.try_allocate(size, own, avoided);
                ASSERT_EQ(b.address, where) << step;
                if (b) live.push_back(b);
            } else if (dice < 100 - now.prunes - now.merges && !live.empty()) {
                const std::size_t which = random.below(live.size());
                std::swap(live[which], live.back());
                fence_set fences;
                for (std::size_t i = random.below(4); i > 0; --i) fences.add({1 + random.below(6), ++position});
                h.free(live.back().address, live.back().size_bytes, fences);
                live.pop_back();
            } else if (dice < 100 - now.merges) {
                std::vector<std::uint64_t> moved;
                for (std::uint64_t t = 1; t < reached.size(); ++t)
                    if (random.below(3) == 0) {
                        reached[t] = position;
                        moved.push_back(t);
                    }
                const auto has_passed = [&](const fence& f) { return f.position <= reached[f.timeline]; };
                ASSERT_TRUE(h.prune(moved, has_passed));
                for (const listed& p : pieces())
                    ASSERT_TRUE(p.fences.empty() || !std::all_of(p.fences.begin(), p.fences.end(), has_passed))
                        << "a piece that is ready was not found";
            } else {
                h.merge_all();
            }
            std::size_t row = 0, longest = 0, sum = 0;
            const std::vector<listed> all = pieces();
            for (std::size_t i = 0; i < all.size(); ++i) {
                row = i > 0 && touch(all[i - 1], all[i]) ? row + all[i].size_bytes : all[i].size_bytes;
                longest = std::max(longest, row);
                sum += all[i].size_bytes;
            }
            ASSERT_EQ(h.largest_free_bytes(), longest) << step;
            ASSERT_EQ(h.free_bytes(), sum) << step;
            ASSERT_EQ(h.num_free_pieces(), all.size()) << step;
            num_pieces.push_back(all.size());
        }
    }

    static constexpr std::size_t region_bytes = 64 * unit;
    heap h{unit, rmm::heap::merging::same_timelines, std::get<0>(GetParam())};
    std::size_t num_from_below = 0;
    std::vector<std::size_t> num_pieces;
};

TEST_P(HeapChoice, what_the_trees_find_is_what_a_search_of_all_pieces_finds) {
    run({2u, 0u, 3u, 1u}, 12, [](int) { return mix{45, 8, 2}; });
    if (std::get<0>(GetParam()) == rmm::heap::placement::small_from_below)
        EXPECT_GT(num_from_below, 100u);
    else
        EXPECT_EQ(num_from_below, 0u);
}

TEST_P(HeapChoice, so_it_is_while_few_pieces_become_many_and_many_few) {
    std::vector<std::size_t> regions(24);
    std::iota(regions.begin(), regions.end(), 0u);
    run(regions, 2, [](int step) {
        const int at = step % 1000;
        return at < 500 ? mix{90, 1, 0} : at < 900 ? mix{5, 1, 0} : mix{10, 20, 20};
    });
    int num_times_many = 0;
    bool are_many = false;
    for (const std::size_t n : num_pieces) {
        num_times_many += !are_many && n > 150 ? 1 : 0;
        are_many = n > 150 || (are_many && n > 50);
    }
    EXPECT_EQ(num_times_many, 3);
    EXPECT_FALSE(are_many);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HeapChoice,
                         ::testing::Combine(::testing::Values(rmm::heap::placement::best_fit,
                                                              rmm::heap::placement::small_from_below),
                                            ::testing::Range(1u, 13u)));
INSTANTIATE_TEST_SUITE_P(Seeds, HeapModel, ::testing::Range(1u, 21u));

}  // namespace
