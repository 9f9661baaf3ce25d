// Owns: the locks of the library (driver/locks.hpp).
#include "driver/locks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

namespace locks = kmm::locks;

template<typename L>
class ShortLocks : public testing::Test {};
using BothShortLocks = testing::Types<locks::ShortLock, locks::TinyLock>;
TYPED_TEST_SUITE(ShortLocks, BothShortLocks);

// Unchecked: clang would not let a thread take twice what it has.
template<typename L>
void expect_taken_once(L& lock) KMM_UNCHECKED_LOCKS {
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock_briefly());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock_briefly());
    lock.unlock();
}

TYPED_TEST(ShortLocks, lets_one_thread_in_at_a_time) {
    TypeParam lock;
    long count = 0;
    constexpr int num_threads = 8;
    constexpr int num_rounds = 20000;
    std::vector<std::thread> threads;
    for (int i = 0; i < num_threads; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < num_rounds; ++k) {
                const locks::Guard held(lock);
                ++count;
            }
        });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(count, long{num_threads} * num_rounds);
    expect_taken_once(lock);
}

TYPED_TEST(ShortLocks, a_waiter_that_has_waited_for_long_gets_it) {
    TypeParam lock;
    for (int round = 0; round < 200; ++round) {
        lock.lock();
        bool entered = false;
        std::thread waiter([&] {
            const locks::Guard held(lock);
            entered = true;
        });
        // Long enough, in yields, for the waiter to give up spinning on most rounds.
        for (int i = 0; i < 200; ++i) std::this_thread::yield();
        EXPECT_FALSE(entered);
        lock.unlock();
        waiter.join();
        EXPECT_TRUE(entered);
    }
}

// Books that outlive every static object have one.
static_assert(std::is_trivially_destructible_v<locks::TinyLock> && sizeof(locks::TinyLock) == 4);

struct Counted {
    locks::Mutex mutex;
    locks::Condition changed;
    int count KMM_GUARDED_BY(mutex) = 0;
};

TEST(Condition, wakes_a_thread_whose_predicate_has_become_true) {
    Counted shared;
    std::thread other([&] {
        const locks::Guard lock(shared.mutex);
        shared.count = 1;
        shared.changed.notify_one();
    });
    {
        locks::Lock lock(shared.mutex);
        shared.changed.wait(lock, [&]() KMM_REQUIRES(shared.mutex) { return shared.count == 1; });
        EXPECT_TRUE(lock.owns_lock());
        EXPECT_FALSE(std::async(std::launch::async, [&] { return shared.mutex.try_lock(); }).get());
    }
    other.join();
}

TEST(Condition, says_that_the_time_is_over) {
    Counted shared;
    locks::Lock lock(shared.mutex);
    const auto never = [&]() KMM_REQUIRES(shared.mutex) { return shared.count == 1; };
    EXPECT_FALSE(shared.changed.wait_for(lock, std::chrono::microseconds(1), never));
    EXPECT_FALSE(shared.changed.wait_until(lock, std::chrono::steady_clock::now(), never));
    shared.count = 1;
    EXPECT_TRUE(shared.changed.wait_for(lock, std::chrono::microseconds(1), never));
}

bool is_free(locks::Mutex& mutex) {
    return std::async(std::launch::async,
                      [&] {
                          const bool is = mutex.try_lock();
                          if (is) mutex.unlock();
                          return is;
                      })
        .get();
}

TEST(Lock, is_let_go_in_the_scope_of_an_unlocked_and_back_after_it) {
    locks::Mutex mutex;
    {
        locks::Lock lock(mutex);
        try {
            const locks::Unlocked without(lock, mutex);
            EXPECT_FALSE(lock.owns_lock());
            EXPECT_TRUE(is_free(mutex));
            throw 1;
        } catch (int) {
            EXPECT_FALSE(is_free(mutex));
        }
        lock.unlock();
        EXPECT_TRUE(is_free(mutex));
        EXPECT_TRUE(lock.try_lock());
    }
    EXPECT_TRUE(is_free(mutex));
}

TEST(SharedMutex, lets_many_read_and_one_write) {
    locks::SharedMutex mutex;
    const auto can_write = [&] {
        return std::async(std::launch::async,
                          [&] {
                              const bool can = mutex.try_lock();
                              if (can) mutex.unlock();
                              return can;
                          })
            .get();
    };
    {
        const locks::SharedGuard mine(mutex);
        std::thread([&] { const locks::SharedGuard others(mutex); }).join();
        EXPECT_FALSE(can_write());
    }
    EXPECT_TRUE(can_write());
}

}  // namespace
