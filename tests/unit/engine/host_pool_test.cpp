// A thread that waits for a task of the library's own and runs it itself, instead of a thread of the pool.
#include "kmm/engine/host_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using kmm::detail::TaskContext;
using kmm::engine::HostPool;
using kmm::engine::Message;
using kmm::engine::Workers;
using kmm::graph::Task;
using kmm::graph::TaskKind;
using kmm::graph::TaskState;

/// Writes down what the pool tells.
class Listener final : public kmm::engine::Mailbox {
  public:
    void post(Message&& message) override {
        const kmm::locks::Guard guard(mutex_);
        messages_.push_back(std::move(message));
        came_.notify_all();
    }
    void lost() noexcept override {}
    void help() noexcept override { (void)help_once(); }
    bool help_once() noexcept override {
        const kmm::locks::Guard guard(mutex_);
        helpers_.push_back(std::this_thread::get_id());
        return false;
    }
    void leave_turn() noexcept override {}
    kmm::graph::FenceSet take_back_bounce() override { return {}; }
    bool take_back(kmm::memory::MemoryIndex, const void*, std::size_t, kmm::graph::FenceSet*) override { return false; }
    kmm::memory::Reclaimed reclaim(kmm::memory::MemoryIndex, const std::vector<kmm::memory::AddressRange>&, std::size_t,
                                   bool) override {
        return {};
    }
    void discard(Task& task) noexcept override {
        const kmm::locks::Guard guard(mutex_);
        discarded_.push_back(&task);
        came_.notify_all();
    }

    void wait_for(std::size_t ends) {
        kmm::locks::Lock lock(mutex_);
        came_.wait(lock, [&]() KMM_REQUIRES(mutex_) { return messages_.size() + discarded_.size() >= ends; });
    }
    std::vector<Message> ended() {
        const kmm::locks::Guard guard(mutex_);
        return messages_;
    }
    std::vector<Task*> discarded() {
        const kmm::locks::Guard guard(mutex_);
        return discarded_;
    }
    bool has_helped(std::thread::id thread) {
        const kmm::locks::Guard guard(mutex_);
        return std::find(helpers_.begin(), helpers_.end(), thread) != helpers_.end();
    }

  private:
    kmm::locks::Mutex mutex_;
    kmm::locks::Condition came_;
    std::vector<Message> messages_ KMM_GUARDED_BY(mutex_);
    std::vector<Task*> discarded_ KMM_GUARDED_BY(mutex_);
    std::vector<std::thread::id> helpers_ KMM_GUARDED_BY(mutex_);
};

class RunHereTest : public ::testing::Test {
  protected:
    struct Call {
        std::thread::id thread;
        Workers* workers = nullptr;
        bool throws = false;
        bool is_destroyed = false;
    };
    static void run(void* payload, TaskContext&) {
        Call& call = *static_cast<Call*>(payload);
        call.thread = std::this_thread::get_id();
        call.workers = Workers::of_this_thread();
        if (call.throws) throw std::runtime_error("as asked");
    }
    static void destroy(void* payload) noexcept { static_cast<Call*>(payload)->is_destroyed = true; }
    Task& make_task(Call& call) {
        Task& task = tasks_.emplace_back();
        task.number = tasks_.size();
        task.kind = TaskKind::host;
        task.function = {{run, destroy}, &call};
        return task;
    }
    bool was_here(const Call& call) const { return call.thread == std::this_thread::get_id(); }

    Call& make_call() { return calls_.emplace_back(); }

    // These outlive the pool.
    std::deque<Call> calls_;
    std::deque<Task> tasks_;
    Listener listener_;
    HostPool pool_{2, this, false, listener_, kmm::trace::nobody_listens, false, false};
};

TEST_F(RunHereTest, the_task_runs_on_the_thread_that_hands_it_over_and_the_others_on_the_pool) {
    Call& own = make_call();
    Call& other = make_call();
    Task& first = make_task(own);
    Task& second = make_task(other);
    HostPool::RunHere here(pool_, first.number);
    Task* const both[] = {&first, &second};
    pool_.push(both);
    here.run();
    listener_.wait_for(2);
    EXPECT_TRUE(was_here(own));
    EXPECT_EQ(own.workers, nullptr) << "no thread of the pool gives its place to another while it waits";
    EXPECT_TRUE(own.is_destroyed);
    EXPECT_NE(other.thread, std::thread::id());
    EXPECT_FALSE(was_here(other));
    EXPECT_EQ(other.workers, &pool_);
    EXPECT_TRUE(listener_.has_helped(std::this_thread::get_id())) << "so that the end of the task is seen at once";
}

TEST_F(RunHereTest, a_task_that_another_thread_hands_over_runs_on_the_pool) {
    Call& call = make_call();
    Task& task = make_task(call);
    HostPool::RunHere here(pool_, task.number);
    std::thread([&] {
        Task* const one[] = {&task};
        pool_.push(one);
    }).join();
    here.run();
    listener_.wait_for(1);
    EXPECT_FALSE(was_here(call));
    EXPECT_EQ(listener_.ended().size(), 1u);
}

TEST_F(RunHereTest, what_is_handed_over_afterwards_runs_on_the_pool) {
    Call& own = make_call();
    Call& later = make_call();
    Task& first = make_task(own);
    Task& second = make_task(later);
    HostPool::RunHere here(pool_, first.number);
    Task* const one[] = {&first};
    Task* const next[] = {&second};
    pool_.push(one);
    pool_.push(next);
    here.run();
    listener_.wait_for(2);
    EXPECT_TRUE(was_here(own));
    EXPECT_FALSE(was_here(later));
}

TEST_F(RunHereTest, another_task_in_the_record_of_one_that_has_ended_runs_on_the_pool) {
    Call& call = make_call();
    Task& task = make_task(call);
    HostPool::RunHere here(pool_, task.number);
    task.number = 77;  // the first one was issued by another thread, has ended, and its record was used again
    Task* const one[] = {&task};
    pool_.push(one);
    here.run();
    listener_.wait_for(1);
    EXPECT_FALSE(was_here(call));
}

TEST_F(RunHereTest, one_within_another_leaves_that_its_task) {
    Call& own = make_call();
    Call& inner = make_call();
    Task& first = make_task(own);
    Task& second = make_task(inner);
    HostPool::RunHere here(pool_, first.number);
    Task* const one[] = {&first};
    Task* const next[] = {&second};
    pool_.push(one);
    {
        HostPool::RunHere within(pool_, second.number);
        pool_.push(next);
        within.run();
    }
    EXPECT_EQ(own.thread, std::thread::id());
    here.run();
    EXPECT_TRUE(was_here(own));
    EXPECT_TRUE(was_here(inner));
    EXPECT_EQ(listener_.ended().size(), 2u);
}

TEST_F(RunHereTest, what_the_task_throws_is_told_and_not_thrown) {
    Call& call = make_call();
    call.throws = true;
    Task& task = make_task(call);
    HostPool::RunHere here(pool_, task.number);
    Task* const one[] = {&task};
    pool_.push(one);
    EXPECT_NO_THROW(here.run());
    const std::vector<Message> ended = listener_.ended();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_THROW(std::rethrow_exception(ended[0].error), std::runtime_error);
}

TEST_F(RunHereTest, a_task_that_was_cancelled_does_not_run) {
    Call& call = make_call();
    Task& task = make_task(call);
    task.state.store(TaskState::settled);
    HostPool::RunHere here(pool_, task.number);
    Task* const one[] = {&task};
    pool_.push(one);
    here.run();
    EXPECT_EQ(call.thread, std::thread::id());
    EXPECT_TRUE(call.is_destroyed);
    EXPECT_EQ(listener_.discarded(), std::vector<Task*>{&task});
    EXPECT_TRUE(listener_.ended().empty());
}

TEST_F(RunHereTest, nothing_runs_once_the_queue_was_dropped) {
    Call& call = make_call();
    Task& task = make_task(call);
    HostPool::RunHere here(pool_, task.number);
    Task* const one[] = {&task};
    pool_.push(one);
    pool_.drop_queue();
    here.run();
    EXPECT_EQ(call.thread, std::thread::id());
    pool_.wait_until_none_runs();
}

}  // namespace
