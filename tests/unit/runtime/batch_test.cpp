// In which order the schedule is told of the tasks of a batch and of their helpers.
#include "kmm/runtime/batch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

using kmm::detail::Batch;
using kmm::detail::TaskBooks;
using kmm::graph::Task;
using kmm::graph::TaskNumber;

/// Some tasks with numbers, and helpers that stand before any of them.
class Helped final : public Batch {
  public:
    Helped(TaskBooks& books, std::size_t num_tasks) : Batch(&books) {
        for (std::size_t i = 0; i < num_tasks; ++i) add_task();
        books.table().reserve(num_tasks);
        first_ = books.table().add(tasks());
    }
    Task& add(bool is_ahead, std::size_t before) {
        Task& record = *books().pool().take();
        const TaskNumber task = first_ + before;
        (void)(is_ahead ? add_helper_ahead(record, task) : add_helper(record, task));
        record.comes_before = task;
        return record;
    }
    void connect() override {}
    /// Ends as the schedule would.
    void end(const std::vector<Task*>& published) {
        for (Task* const t : published) {
            books().table().remove(t->number);
            books().pool().give(t);
        }
    }

  private:
    TaskNumber first_;
};

TEST(Batch, helpers_stand_before_their_tasks_and_those_ahead_before_the_others) {
    std::mt19937 random(5);
    const auto below = [&random](std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    TaskBooks books(1);
    for (int round = 0; round < 200; ++round) {
        const std::size_t num_tasks = 1 + below(8), num_helpers = below(12);
        Helped batch(books, num_tasks);
        std::vector<Task*> ahead, behind;
        for (std::size_t i = 0; i < num_helpers; ++i) {
            const bool is_ahead = below(2) == 0;
            (is_ahead ? ahead : behind).push_back(&batch.add(is_ahead, below(num_tasks)));
        }
        std::vector<Task*> expected = ahead;
        expected.insert(expected.end(), behind.begin(), behind.end());
        expected.insert(expected.end(), batch.tasks().begin(), batch.tasks().end());
        std::stable_sort(expected.begin(), expected.end(),
                         [](const Task* a, const Task* b) { return a->place() < b->place(); });
        std::vector<Task*> published;
        for (Task* t = &batch.take_all(); t != nullptr; t = t->next_published) published.push_back(t);
        EXPECT_EQ(published, expected);
        EXPECT_TRUE(batch.tasks().empty());
        batch.end(published);
    }
}

}  // namespace
