// Failures: they can be asked for for ever, are delivered once, and those that were delivered cost nobody anything.
#include <gtest/gtest.h>

#include "kmm/graph/failures.hpp"

namespace {

using kmm::graph::Failure;
using kmm::graph::Failures;
using kmm::graph::RootFailure;
using kmm::graph::Task;
using kmm::graph::TaskNumber;

std::shared_ptr<RootFailure> root_of(TaskNumber number) {
    auto root = std::make_shared<RootFailure>();
    root->number = number;
    return root;
}

/// Task `number` failed because of `root`: by itself if it is the root's task.
void fail(Failures& failures, TaskNumber number, const std::shared_ptr<RootFailure>& root) {
    Task task;
    task.number = number;
    task.failure = std::make_shared<Failure>();
    task.failure->root = root;
    failures.add(task);
}
void fail(Failures& failures, TaskNumber number) { fail(failures, number, root_of(number)); }

/// Number of the root that `failure` comes from; 0: there is none.
TaskNumber root_number(const std::shared_ptr<Failure>& failure) {
    return failure == nullptr ? 0 : failure->root->number;
}

std::vector<TaskNumber> numbers_of(const std::vector<std::shared_ptr<RootFailure>>& roots) {
    std::vector<TaskNumber> numbers;
    for (const auto& r : roots) numbers.push_back(r->number);
    return numbers;
}

TEST(Failures, those_before_a_number_are_delivered_once_in_the_order_of_submission) {
    Failures failures;
    for (const TaskNumber n : {7, 3, 9, 5}) fail(failures, n);
    EXPECT_EQ(numbers_of(failures.deliver_before(8)), (std::vector<TaskNumber>{3, 5, 7}));
    EXPECT_TRUE(failures.deliver_before(8).empty());
    EXPECT_EQ(numbers_of(failures.deliver_before(100)), (std::vector<TaskNumber>{9}));
    EXPECT_TRUE(failures.deliver_before(100).empty());
}

TEST(Failures, what_could_not_be_told_is_delivered_to_the_next_who_asks) {
    Failures failures;
    for (const TaskNumber n : {7, 3, 9}) fail(failures, n);
    failures.take_back(failures.deliver_before(8));
    EXPECT_EQ(root_number(failures.deliver(3)), 3u);
    EXPECT_EQ(numbers_of(failures.deliver_before(100)), (std::vector<TaskNumber>{7, 9}));
    EXPECT_TRUE(failures.deliver_before(100).empty());
}

TEST(Failures, a_cancelled_task_delivers_its_root) {
    Failures failures;
    const auto root = root_of(3);
    fail(failures, 3, root);
    fail(failures, 4, root);
    fail(failures, 5);
    EXPECT_EQ(root_number(failures.deliver(4)), 3u);
    EXPECT_EQ(numbers_of(failures.deliver_before(10)), (std::vector<TaskNumber>{5}));
}

TEST(Failures, what_was_delivered_before_its_task_is_known_is_not_delivered_again) {
    Failures failures;
    const auto root = root_of(3);
    fail(failures, 4, root);
    EXPECT_EQ(root_number(failures.deliver(4)), 3u);
    fail(failures, 3, root);
    EXPECT_TRUE(failures.deliver_before(10).empty());
    EXPECT_EQ(root_number(failures.deliver(3)), 3u);
}

TEST(Failures, they_can_be_asked_for_again_and_again) {
    Failures failures;
    EXPECT_EQ(failures.find(1), nullptr);
    EXPECT_EQ(failures.deliver(1), nullptr);
    for (TaskNumber n = 1; n <= 1000; n++) fail(failures, n);
    for (TaskNumber n = 1; n <= 1000; n++) EXPECT_EQ(root_number(failures.deliver(n)), n);
    for (TaskNumber n = 1; n <= 1000; n++) {
        EXPECT_EQ(root_number(failures.deliver(n)), n);
        EXPECT_EQ(failures.find(n)->root->number, n);
    }
    EXPECT_EQ(failures.deliver(1001), nullptr);
}

/// Steps of n failures that are each delivered by `deliver`, or by a look for all that were not delivered, which
/// follows each.
std::uint64_t steps(TaskNumber n, bool one_by_one) {
    Failures failures;
    for (TaskNumber i = 1; i <= n; i++) {
        fail(failures, i);
        if (one_by_one && failures.deliver(i) == nullptr) ADD_FAILURE() << i;
        EXPECT_EQ(failures.deliver_before(n + 1).size(), one_by_one ? 0u : 1u);
    }
    return failures.num_looked_at();
}

TEST(Failures, what_was_delivered_is_not_looked_at_again) {
    EXPECT_EQ(steps(1000, true), 0u);
    EXPECT_EQ(steps(2000, true), 0u);
    EXPECT_EQ(steps(1000, false), 1000u);
    EXPECT_EQ(steps(2000, false), 2000u);
}

}  // namespace
