// Records of tasks: as new whenever they are taken, of several sizes, and given back to the host.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "blocks_freed.hpp"
#include "kmm/graph/task_pool.hpp"

namespace kmm_test {

std::atomic<int> blocks_freed{0};

}  // namespace kmm_test

namespace {

std::atomic<int> aligned_blocks_freed{0};  // slabs are, and nothing else here

}  // namespace

void* operator new(std::size_t bytes) {
    if (void* const p = std::malloc(bytes)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
    ++kmm_test::blocks_freed;
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    ++kmm_test::blocks_freed;
    std::free(p);
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* const p = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept {
    ++aligned_blocks_freed;
    std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    ++aligned_blocks_freed;
    std::free(p);
}

namespace {

using kmm::graph::Task;
using kmm::graph::TaskPool;
using kmm::graph::RecordSize;
using kmm::graph::UseOfReserve;

struct Told final : kmm::graph::Unworded {
    std::exception_ptr words() const override { return nullptr; }
};

constexpr RecordSize sizes[] = {{}, {1, 24, false}, {4, 200, true}, {12, 400, true}, {40, 5000, true}};

void fill(Task& t, const RecordSize& size, std::uint64_t seed) {
    t.number = seed;
    for (std::size_t i = 0; i < size.num_uses; ++i) {
        t.uses.emplace_back().content_at = seed + i;
        t.views.emplace_back().offset_bytes = seed + i;
        t.predecessors.push_back({seed + i, true});
    }
    auto* const storage = static_cast<std::byte*>(t.allocate_storage(size.storage_bytes + 1, 16));
    std::fill_n(storage, size.storage_bytes + 1, std::byte{1});
}

void expect_filled(const Task& t, const RecordSize& size, std::uint64_t seed) {
    EXPECT_EQ(t.number, seed);
    ASSERT_EQ(t.uses.size(), size.num_uses);
    for (std::size_t i = 0; i < size.num_uses; ++i) {
        EXPECT_EQ(t.uses[i].content_at, seed + i);
        EXPECT_EQ(t.views[i].offset_bytes, seed + i);
        EXPECT_EQ(t.predecessors[i].number, seed + i);
    }
}

TEST(TaskPool, a_record_is_as_new_and_belongs_to_one_at_a_time) {
    TaskPool pool;
    std::mt19937 random(3);
    std::vector<std::pair<Task*, std::size_t>> used;
    std::set<Task*> unique;
    for (std::uint64_t step = 1; step < 20'000; ++step) {
        if (used.empty() || random() % 5 < 3) {
            const std::size_t size = random() % std::size(sizes);
            Task* const t = pool.take(sizes[size]);
            ASSERT_TRUE(unique.insert(t).second);
            ASSERT_EQ(t->number, 0u);
            ASSERT_TRUE(t->uses.empty() && t->views.empty() && t->predecessors.empty() && t->addresses == nullptr);
            fill(*t, sizes[size], 1 + size);
            used.emplace_back(t, size);
        } else {
            std::swap(used[random() % used.size()], used.back());
            const auto [t, size] = used.back();
            expect_filled(*t, sizes[size], 1 + size);
            unique.erase(t);
            pool.give(t);
            used.pop_back();
        }
        if (step % 1000 == 0) pool.trim();
    }
    for (const auto& [t, size] : used) expect_filled(*t, sizes[size], 1 + size);
    for (const auto& [t, size] : used) pool.give(t);
}

TEST(TaskPool, gives_everything_back_that_no_task_is_in) {
    TaskPool pool;
    Task* const kept = pool.take({1, 24, false});
    const std::size_t least = pool.size_bytes();
    std::vector<Task*> many;
    for (int i = 0; i < 10'000; ++i) many.push_back(pool.take(sizes[i % 5]));
    const std::size_t most = pool.size_bytes();
    EXPECT_GT(most, 10'000 * sizeof(Task));
    for (Task* t : many) pool.give(t);
    EXPECT_EQ(pool.size_bytes(), most);
    fill(*kept, {1, 24, false}, 9);
    pool.trim();
    EXPECT_EQ(pool.size_bytes(), least);
    expect_filled(*kept, {1, 24, false}, 9);
    pool.give(kept);
    pool.trim();
    EXPECT_EQ(pool.size_bytes(), 0u);
    pool.give(pool.take());
}

// What the host must have for a task that waits: records of kernels with one use and with four, and of functions with
// one, two and four.
TEST(TaskPool, a_record_takes_little_more_than_what_is_in_it) {
    for (const auto& [size, most_bytes] :
         {std::pair(RecordSize{1, 32, false}, 640u), std::pair(RecordSize{4, 128, false}, 1088u),
          std::pair(RecordSize{1, 96, true}, 832u), std::pair(RecordSize{2, 120, true}, 960u),
          std::pair(RecordSize{4, 160, true}, 1344u)}) {
        TaskPool pool;
        std::vector<Task*> many;
        for (int i = 0; i < 1024; ++i) many.push_back(pool.take(size));
        const std::size_t before = pool.size_bytes();
        for (int i = 0; i < 20 * 1024; ++i) many.push_back(pool.take(size));
        EXPECT_LE((pool.size_bytes() - before) / (20 * 1024), most_bytes);
        for (Task* t : many) pool.give(t);
    }
}

TEST(TaskPool, a_record_has_a_part_for_what_few_tasks_have_only_while_it_needs_one) {
    TaskPool pool;
    for (const RecordSize& size : sizes) {
        Task* const t = pool.take(size);
        EXPECT_EQ(t->cold, nullptr);
        EXPECT_TRUE(t->across().empty() && t->unset().empty());
        EXPECT_TRUE(t->open_data_predecessors().empty());
        EXPECT_FALSE(t->has_failed());
        auto told = std::make_shared<Told>();
        kmm::graph::ColdPart& cold = t->cold_part(UseOfReserve::no, 2 * sizeof(std::uint32_t));
        cold.unworded = told;
        for (std::uint32_t i = 0; i < 5; ++i) {  // beyond the room that was made
            cold.parts.emplace_back() = i;
            cold.unset.emplace_back().index = i;
        }
        EXPECT_EQ(&t->cold_part(UseOfReserve::yes), &cold);
        for (std::uint32_t i = 0; i < 5; ++i) {
            EXPECT_EQ(cold.parts[i], i);
            EXPECT_EQ(t->unset()[i].index, i);
        }
        EXPECT_TRUE(t->has_failed());
        pool.give(t);
        EXPECT_EQ(told.use_count(), 1) << "it ends with the record";
        EXPECT_EQ(pool.take(size)->cold, nullptr);
    }
}

// A thread that takes as fast as another one gives finds the pool empty time and again.
TEST(TaskPool, memory_that_was_made_for_records_is_used) {
    TaskPool pool;
    std::mutex mutex;
    std::vector<Task*> between;
    bool over = false;
    const int freed_before = aligned_blocks_freed;
    std::thread giver([&] {
        std::vector<Task*> taken;
        for (bool last = false; !last;) {
            {
                const std::lock_guard guard(mutex);
                last = over;
                taken.swap(between);
            }
            for (Task* t : taken) pool.give(t);
            taken.clear();
        }
    });
    for (int i = 0; i < 200'000; ++i) {
        Task* const t = pool.take();
        const std::lock_guard guard(mutex);
        between.push_back(t);
        over = i == 199'999;
    }
    giver.join();
    EXPECT_EQ(aligned_blocks_freed, freed_before);
}

TEST(TaskPool, threads_take_give_and_trim_at_once) {
    TaskPool pool;
    const auto work = [&](std::uint64_t seed) {
        std::vector<Task*> used;
        for (int round = 0; round < 200; ++round) {
            for (int i = 0; i < 50; ++i) {
                used.push_back(pool.take(sizes[static_cast<std::size_t>(i) % 3]));
                fill(*used.back(), sizes[static_cast<std::size_t>(i) % 3], seed);
            }
            for (Task* t : used) {
                EXPECT_EQ(t->number, seed);
                pool.give(t);
            }
            used.clear();
        }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t n = 1; n <= 3; ++n) threads.emplace_back(work, n);
    for (int n = 0; n < 2; ++n)  // each gives away only what it has counted itself
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) pool.trim();
        });
    for (std::thread& t : threads) t.join();
}

}  // namespace
