// Plans in the schedule: they are made where memory is short, followed, and given up without a trace.
#include <algorithm>
#include <random>
#include <set>

#include "stage.hpp"

namespace {

using namespace kmm::schedule_test;

constexpr std::size_t chunk_bytes = 1 << 20;

/// As a program does it: each task after who wrote its chunks last, or has read them since.
class Submitting {
  public:
    explicit Submitting(Stage& stage) : stage_(stage) {}
    Task& submit(const std::vector<Stage::Wanted>& uses) {
        std::set<TaskNumber> after;
        for (const Stage::Wanted& use : uses) {
            const Users& users = users_[use.chunk];
            if (users.writer != 0) after.insert(users.writer);
            if (use.writes) after.insert(users.readers.begin(), users.readers.end());
        }
        Task& task = stage_.submit(TaskKind::kernel, gpu, uses, {after.begin(), after.end()});
        for (const Stage::Wanted& use : uses) {
            Users& users = users_[use.chunk];
            if (use.writes)
                users = {task.number, {}};
            else
                users.readers.push_back(task.number);
        }
        return task;
    }

  private:
    struct Users {
        TaskNumber writer = 0;
        std::vector<TaskNumber> readers;
    };
    Stage& stage_;
    std::map<const Chunk*, Users> users_;
};

void fill(Stage& stage, Array& array) {
    for (Chunk& c : array.chunks) stage.submit(TaskKind::host, host, {{&c, true, true}});
    stage.finish();
}

/// Of n x n x n tiles, with k outermost.
void submit_product(Stage& stage, std::size_t n, std::size_t bytes) {
    Array& a = stage.make_array(n * n, bytes);
    Array& b = stage.make_array(n * n, bytes);
    Array& c = stage.make_array(n * n, bytes);
    for (Array* x : {&a, &b, &c}) fill(stage, *x);
    Submitting program(stage);
    for (std::size_t k = 0; k < n; ++k)
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j)
                program.submit({{&a.chunks[i * n + k]}, {&b.chunks[k * n + j]}, {&c.chunks[i * n + j], true}});
}

TEST(Planning, of_a_product_moves_fewer_chunks_than_the_same_without_plans) {
    std::size_t moved[2] = {};
    for (const bool is_planned : {false, true}) {
        SchedulerOptions options;
        options.plans = is_planned;
        Stage stage({std::size_t{1} << 40, 12 * chunk_bytes}, options);
        submit_product(stage, 6, chunk_bytes);
        stage.finish();
        EXPECT_EQ(stage.ran.size(), 3 * 36 + 216u);
        EXPECT_TRUE(stage.scheduler->idle());
        moved[is_planned ? 1 : 0] = stage.copies(host, gpu) + stage.copies(gpu, host);
    }
    EXPECT_LT(moved[1], moved[0] * 19 / 20);
}

TEST(Planning, of_tasks_that_move_little_and_a_small_part_of_the_memory_does_not_take_place) {
    for (const std::size_t bytes : {chunk_bytes / 4, chunk_bytes}) {
        Stage stage({std::size_t{1} << 40, 40 * bytes});
        Array& x = stage.make_array(80, bytes);
        fill(stage, x);
        std::vector<Task*> tasks;
        for (int pass = 0; pass < 2; ++pass)
            for (Chunk& c : x.chunks) tasks.push_back(&stage.submit(TaskKind::kernel, gpu, {{&c}}));
        bool any_planned = false;
        stage.dispatch();
        for (int i = 0; i < 200; ++i) {
            stage.complete_one();
            any_planned |=
                std::any_of(tasks.begin(), tasks.end(), [](const Task* t) { return t->order_position != 0; });
        }
        EXPECT_EQ(any_planned, bytes == chunk_bytes);
        stage.finish();
        EXPECT_TRUE(std::none_of(tasks.begin(), tasks.end(), [](const Task* t) { return t->order_position != 0; }));
    }
}

TEST(Planning, of_tasks_that_are_cancelled_leaves_no_trace) {
    Stage stage({std::size_t{1} << 40, 4 * chunk_bytes});
    Array& x = stage.make_array(12, chunk_bytes);
    fill(stage, x);
    Submitting program(stage);
    std::vector<Task*> first;
    for (int pass = 0; pass < 6; ++pass)
        for (Chunk& c : x.chunks) {
            Task& task = program.submit({{&c, true}});
            if (pass == 0) first.push_back(&task);
        }
    stage.dispatch();
    const auto is_planned = [](const Chunk& c) { return c.demands.is_planned(gpu); };
    for (int i = 0; i < 100 && std::none_of(x.chunks.begin(), x.chunks.end(), is_planned); ++i) stage.complete_one();
    ASSERT_TRUE(std::any_of(x.chunks.begin(), x.chunks.end(), is_planned));
    const auto error = std::make_exception_ptr(std::runtime_error("no"));
    for (Task* task : first)
        if (task->state.load() != kmm::graph::TaskState::settled) stage.scheduler->task_failed(task->number, error);
    stage.finish();
    EXPECT_TRUE(stage.scheduler->idle());
    EXPECT_GT(stage.scheduler->counters().cancelled, 20u);
    EXPECT_TRUE(std::none_of(x.chunks.begin(), x.chunks.end(), is_planned));
}

TEST(Planning, of_many_tasks_takes_steps_in_proportion) {
    constexpr std::size_t num_chunks = 600;  // about 200 tasks are ready
    const auto steps_for = [](std::size_t n) {
        Stage stage({std::size_t{1} << 40, 24 * chunk_bytes});
        Array& x = stage.make_array(num_chunks, chunk_bytes);
        fill(stage, x);
        Submitting program(stage);
        std::mt19937_64 random(n);
        const auto any = [&] { return &x.chunks[random() % x.chunks.size()]; };
        for (std::size_t i = 0; i < n; ++i) {
            Chunk* const written = any();
            Chunk* const read = any();
            program.submit(read == written ? std::vector<Stage::Wanted>{{written, true}}
                                           : std::vector<Stage::Wanted>{{written, true}, {read}});
        }
        const std::uint64_t before = stage.scheduler->num_steps();
        stage.finish();
        EXPECT_EQ(stage.ran.size(), n + num_chunks);
        return static_cast<double>(stage.scheduler->num_steps() - before);
    };
    const double once = steps_for(4000);
    const double twice = steps_for(8000);
    EXPECT_LE(twice, 2.2 * once) << twice / 8000 << " a task, " << once / 4000 << " of half as many";
    EXPECT_LE(twice / 8000, 10'000);
}

}  // namespace
