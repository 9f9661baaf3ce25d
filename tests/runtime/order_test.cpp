// Who comes after whom, against all pairs of tasks: random submits over arrays of one to four axes, cut into chunks in
// any way, are recorded while nothing runs. Two tasks that use a common element, which one of them writes, must be
// ordered by what they were told to come after, perhaps through others; a task is told to come after no other, but
// that where there are very many readers a write may come after a read of another part of the chunk; and marked as data
// are exactly the tasks that wrote last what it needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <latch>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "recorded_tasks.hpp"

namespace {

using kmm::detail::AccessKind;
using kmm::detail::Box;
using kmm_test::Number;
using kmm_test::RecordedTasks;
using kmm_test::TaskKind;

std::size_t count_helpers(const RecordedTasks& record) {
    return static_cast<std::size_t>(std::count_if(record.tasks.begin(), record.tasks.end(),
                                                  [](const auto& t) { return kmm::graph::is_helper(t.first); }));
}

/// Calls f(index) for every element of a region, numbered within `all`.
template<typename F> void for_each_element(const Box& region, const Box& all, F&& f) {
    std::array<std::int64_t, kmm::detail::max_rank> at{};
    for (std::size_t k = 0; k < at.size(); ++k) {
        if (region.begin[k] >= region.end[k]) return;
        at[k] = region.begin[k];
    }
    for (;;) {
        std::int64_t index = 0;
        for (std::size_t k = 0; k < at.size(); ++k) index = index * (all.end[k] - all.begin[k]) + at[k] - all.begin[k];
        f(index);
        std::size_t k = at.size();
        while (k-- > 0) {
            if (++at[k] < region.end[k]) break;
            at[k] = region.begin[k];
        }
        if (k == ~std::size_t{0}) return;
    }
}

bool overlap(const Box& a, const Box& b) {
    for (std::size_t k = 0; k < kmm::detail::max_rank; ++k)
        if (a.begin[k] >= b.end[k] || b.begin[k] >= a.end[k]) return false;
    return true;
}

/// Whether one of two tasks writes an element that the other uses.
bool conflict(const kmm::trace::Task& first, const kmm::trace::Task& second) {
    for (const auto& a : first.uses)
        for (const auto& b : second.uses)
            if (!a.empty && !b.empty && a.array == b.array &&
                (a.kind != AccessKind::read || b.kind != AccessKind::read) && overlap(a.region, b.region))
                return true;
    return false;
}

/// Whether the first reads anything of a chunk that the second writes.
bool reads_chunk_written_by(const kmm::trace::Task& first, const kmm::trace::Task& second) {
    for (const auto& a : first.uses)
        for (const auto& b : second.uses)
            if (!a.empty && !b.empty && a.array == b.array && a.chunk == b.chunk && a.kind == AccessKind::read &&
                b.kind != AccessKind::read)
                return true;
    return false;
}

/// Looks at every pair of tasks.
class Oracle {
  public:
    explicit Oracle(const RecordedTasks& record) : record_(record) {}
    void check() {
        for (const auto& [number, task] : record_.tasks) {
            check_order(task);
            check_reasons(task);
            check_data(task);
        }
    }
    std::size_t num_conflicts = 0;
    std::size_t num_needless = 0;  ///< orders between a read and a write of different parts of a chunk

  private:
    void check_order(const kmm::trace::Task& task) {
        const std::set<Number>& before = record_.all_before(task.number);
        for (const auto& [number, other] : record_.tasks) {
            if (number >= task.number) break;
            if (!conflict(other, task)) continue;
            ++num_conflicts;
            EXPECT_TRUE(before.count(number) != 0) << "task " << task.number << " may overtake task " << number;
        }
    }
    /// What a task comes after by itself, joins replaced by what they stand for.
    void expand(Number number, std::set<Number>& real) const {
        const kmm::trace::Task& task = record_.tasks.at(number);
        if (task.kind != TaskKind::join)
            real.insert(number);
        else
            for (const auto& p : task.predecessors) expand(p.task, real);
    }
    void check_reasons(const kmm::trace::Task& task) {
        if (task.kind == TaskKind::join || task.kind == TaskKind::barrier) return;
        for (const auto& p : task.predecessors) {
            std::set<Number> told;
            expand(p.task, told);
            for (const Number number : told) {
                const kmm::trace::Task& before = record_.tasks.at(number);
                if (conflict(before, task)) continue;
                ++num_needless;
                EXPECT_TRUE(!p.data && reads_chunk_written_by(before, task))
                    << "task " << task.number << " comes after task " << number << " without a reason";
            }
        }
    }
    void check_data(const kmm::trace::Task& task) {
        if (task.kind == TaskKind::join || task.kind == TaskKind::barrier) return;
        std::set<Number> needed, told;
        for (const auto& use : task.uses)
            if (!use.empty && use.kind != AccessKind::overwrite)
                for_each_element(use.region, record_.boxes.at(use.array), [&](std::int64_t i) {
                    if (const Number writer = writer_[{use.array, i}]; writer != 0) needed.insert(writer);
                });
        for (const auto& p : task.predecessors)
            if (p.data) told.insert(p.task);
        EXPECT_EQ(told, needed) << "failures of which task " << task.number << " shares";
        for (const auto& use : task.uses)
            if (!use.empty && use.kind != AccessKind::read)
                for_each_element(use.region, record_.boxes.at(use.array),
                                 [&](std::int64_t i) { writer_[{use.array, i}] = task.number; });
    }

    const RecordedTasks& record_;
    std::map<std::pair<Number, std::int64_t>, Number> writer_;  ///< by array and element
};

/// An array and its chunks.
template<std::size_t N> struct Cut {
    kmm::Array<char, N> array;
    std::vector<kmm::Bounds<N>> chunks;
};

template<std::size_t N> class Program {
  public:
    Program(kmm::RuntimeHandle rt, std::uint64_t seed) : rt_(std::move(rt)), random_(seed) {}
    void submit_all() {
        const std::int64_t num_arrays = pick(1, 3);
        for (std::int64_t i = 0; i < num_arrays; ++i) arrays_.push_back(pick(0, 1) == 0 ? tiled() : cut_anyhow());
        const std::int64_t num_tasks = pick(10, 60);
        for (std::int64_t i = 0; i < num_tasks; ++i) {
            submit_one();
            if (pick(0, 30) == 0) read_often();
        }
    }

  private:
    std::int64_t pick(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    kmm::Bounds<N> random_shape() {
        kmm::Bounds<N> shape;
        for (std::size_t k = 0; k < N; ++k) shape[k] = kmm::Range<>(0, pick(1, N == 1 ? 40 : N == 2 ? 9 : 4));
        return shape;
    }
    static kmm::Dim<N> sizes(const kmm::Bounds<N>& bounds) {
        kmm::Dim<N> sizes;
        for (std::size_t k = 0; k < N; ++k) sizes[k] = bounds[k].end - bounds[k].begin;
        return sizes;
    }
    Cut<N> tiled() {
        Cut<N> c;
        const kmm::Bounds<N> shape = random_shape();
        kmm::Dim<N> tile;
        c.chunks = {shape};
        for (std::size_t k = 0; k < N; ++k) {
            tile[k] = pick(1, shape[k].end);
            std::vector<kmm::Bounds<N>> cut;
            for (const kmm::Bounds<N>& chunk : c.chunks)
                for (std::int64_t i = 0; i < shape[k].end; i += tile[k]) {
                    cut.push_back(chunk);
                    cut.back()[k] = kmm::Range<>(i, std::min<std::int64_t>(i + tile[k], shape[k].end));
                }
            c.chunks = std::move(cut);
        }
        c.array = rt_.template array<char, N>(sizes(shape), tile);
        c.array.fill('a');
        return c;
    }
    /// Along random planes, again and again; the first write says so.
    Cut<N> cut_anyhow() {
        if constexpr (N > 3) {
            return tiled();
        } else {
            Cut<N> c;
            const kmm::Bounds<N> shape = random_shape();
            c.chunks = {shape};
            for (std::int64_t cuts = pick(0, 6); cuts > 0; --cuts) {
                kmm::Bounds<N>& whole = c.chunks[static_cast<std::size_t>(pick(0, std::ssize(c.chunks) - 1))];
                const auto k = static_cast<std::size_t>(pick(0, N - 1));
                if (whole[k].end - whole[k].begin < 2) continue;
                const std::int64_t at = pick(whole[k].begin + 1, whole[k].end - 1);
                kmm::Bounds<N> rest = whole;
                whole[k].end = at;
                rest[k].begin = at;
                c.chunks.push_back(rest);
            }
            c.array = kmm::Array<char, N>(sizes(shape));
            std::vector<kmm::DomainChunk> domain;
            for (const kmm::Bounds<N>& chunk : c.chunks) {
                kmm::DomainChunk d{kmm::ResourceId::host(), {}, {}};
                for (std::size_t k = 0; k < kmm::DOMAIN_DIMS; ++k) {
                    d.offset[k] = k < N ? chunk[k].begin : 0;
                    d.size[k] = k < N ? chunk[k].end - chunk[k].begin : 1;
                }
                domain.push_back(d);
            }
            using namespace kmm::placeholders;
            const kmm::Host nothing([](kmm::SubviewMut<char, N>) {});
            if constexpr (N == 1)
                rt_.parallel_submit(domain, nothing, overwrite(c.array[_x]));
            else if constexpr (N == 2)
                rt_.parallel_submit(domain, nothing, overwrite(c.array[_x][_y]));
            else
                rt_.parallel_submit(domain, nothing, overwrite(c.array[_x][_y][_z]));
            return c;
        }
    }
    /// Of one chunk; often all of it.
    kmm::Bounds<N> random_region(const Cut<N>& c) {
        kmm::Bounds<N> region = c.chunks[static_cast<std::size_t>(pick(0, std::ssize(c.chunks) - 1))];
        if (pick(0, 2) == 0) return region;
        for (std::size_t k = 0; k < N; ++k) {
            const std::int64_t begin = pick(region[k].begin, region[k].end - 1);
            region[k] = kmm::Range<>(begin, pick(begin + 1, region[k].end));
        }
        return region;
    }
    static bool overlap(const kmm::Bounds<N>& a, const kmm::Bounds<N>& b) {
        for (std::size_t k = 0; k < N; ++k)
            if (a[k].begin >= b[k].end || b[k].begin >= a[k].end) return false;
        return true;
    }
    static auto region_of(const kmm::Bounds<N>& b) {
        return [&]<std::size_t... K>(std::index_sequence<K...>) {
            return kmm::bounds(kmm::range(b[K].begin, b[K].end)...);
        }(std::make_index_sequence<N>());
    }
    /// More readers of one chunk than are remembered.
    void read_often() {
        const Cut<N>& in = arrays_[static_cast<std::size_t>(pick(0, std::ssize(arrays_) - 1))];
        const auto chunk = region_of(in.chunks[static_cast<std::size_t>(pick(0, std::ssize(in.chunks) - 1))]);
        for (int i = 0; i < 12; ++i)
            rt_.submit(kmm::ResourceId::host(), kmm::Host([](kmm::Subview<char, N>) {}), kmm::read(in.array, chunk));
    }
    void submit_one() {
        Cut<N>& out = arrays_[static_cast<std::size_t>(pick(0, std::ssize(arrays_) - 1))];
        Cut<N>& in = arrays_[static_cast<std::size_t>(pick(0, std::ssize(arrays_) - 1))];
        const kmm::Bounds<N> written = random_region(out);
        const kmm::Bounds<N> read = random_region(in);
        if (&in == &out && overlap(written, read)) return;
        const kmm::ResourceId where = kmm::ResourceId::host();
        const auto w = region_of(written);
        const auto r = region_of(read);
        const kmm::Host both([](kmm::SubviewMut<char, N>, kmm::Subview<char, N>) {});
        switch (pick(0, 3)) {
        case 0: rt_.submit(where, kmm::Host([](kmm::Subview<char, N>) {}), kmm::read(in.array, r)); break;
        case 1: rt_.submit(where, both, overwrite(out.array, w), kmm::read(in.array, r)); break;
        default: rt_.submit(where, both, write(out.array, w), kmm::read(in.array, r)); break;
        }
    }

    kmm::RuntimeHandle rt_;
    std::mt19937_64 random_;
    std::vector<Cut<N>> arrays_;
};

/// What the program with this number submits.
RecordedTasks recorded(std::uint64_t seed) {
    return kmm_test::record_of([&](const kmm::RuntimeHandle& rt) {
        switch (seed % 4) {
        case 0: Program<1>(rt, seed).submit_all(); break;
        case 1: Program<2>(rt, seed).submit_all(); break;
        case 2: Program<3>(rt, seed).submit_all(); break;
        default: Program<4>(rt, seed).submit_all();
        }
    });
}

TEST(Order, a_submit_takes_numbers_that_follow_each_other_and_joins_of_the_library_take_none) {
    using namespace kmm::placeholders;
    constexpr int chunks = 4;
    kmm::RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    const kmm::RuntimeHandle rt = kmm::make_runtime(config);
    const auto number = [](kmm::EventId event) { return event.get() & ((std::uint64_t{1} << 47) - 1); };
    kmm::Array<int> one = rt.array<int>(chunks);  // a single chunk, which all tasks of a submit read
    kmm::Array<int> parts = rt.array<int>(chunks, 1);
    one.fill(1);
    std::vector<kmm::DomainChunk> domain;
    for (int i = 0; i < chunks; ++i)
        domain.push_back({kmm::ResourceId::host(), kmm::DomainPoint(i), kmm::DomainDim(1)});
    std::latch all_submitted(1);  // until then no reader settles, so that there is something to join
    rt.submit(kmm::ResourceId::host(), kmm::Host([&](kmm::ViewMut<int>) { all_submitted.wait(); }), kmm::write(one));
    std::uint64_t last = number(parts.fill(2));
    for (int round = 0; round < 10; ++round) {
        const auto read = [](kmm::Range<std::int64_t>, kmm::Subview<int>, kmm::SubviewMut<int>) {};
        const kmm::EventId reads =
            rt.parallel_submit(domain, kmm::Host(read), _x, one[kmm::All()], kmm::write(parts[_x]));
        EXPECT_EQ(number(reads), last += chunks + 1) << "round " << round;
    }
    EXPECT_EQ(number(rt.submit(kmm::ResourceId::host(), kmm::Host([](kmm::ViewMut<int>) {}), kmm::write(one))), ++last)
        << "a single task stands for its submit";
    EXPECT_EQ(number(rt.barrier()), ++last);
    all_submitted.count_down();
    (void)parts.copy_to_vector();  // a task copies one chunk or several
    EXPECT_LE(number(rt.barrier()), last + chunks + 2)
        << "that every part of a copy can be read is a join of the library's own";
    rt.synchronize();
}

TEST(Order, of_random_submits_is_that_of_all_pairs_that_conflict) {
    std::size_t num_conflicts = 0, num_needless = 0, num_helpers = 0;
    for (std::uint64_t seed = 1; seed <= 200 && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("program " + std::to_string(seed));
        const RecordedTasks tasks = recorded(seed);
        Oracle oracle(tasks);
        oracle.check();
        num_conflicts += oracle.num_conflicts;
        num_helpers += count_helpers(tasks);
        num_needless += oracle.num_needless;
    }
    RecordProperty("conflicts", static_cast<int>(num_conflicts));
    RecordProperty("needless", static_cast<int>(num_needless));
    EXPECT_GT(num_helpers, 20u) << "some reads were joined";
    EXPECT_GT(num_conflicts, 10'000u) << "there was something to order";
    EXPECT_EQ(num_needless, 0u) << "orders between a read and a write of different parts of a chunk";
}

}  // namespace
