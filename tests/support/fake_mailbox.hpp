// A mailbox for tests of the threads of engine and supply: keeps what they tell, and lets the test answer what they
// ask.
//
// Owns: the messages. Must not know: the scheduler. Any thread; hooks are set before the threads begin, which call
// them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kmm/engine/mailbox.hpp"

namespace kmm::engine::testing {

class FakeMailbox final : public Mailbox {
  public:
    using TakeBack = std::function<bool(memory::MemoryIndex, const void*, std::size_t, graph::FenceSet*)>;
    using Reclaim = std::function<memory::Reclaimed(const std::vector<memory::AddressRange>&, std::size_t)>;

    /// The oldest message that was not taken. Waits for it; throws after a minute, so that a test fails instead of
    /// hanging.
    Message next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] { return !messages_.empty(); }))
            throw std::runtime_error("no message came");
        Message message = std::move(messages_.front());
        messages_.pop_front();
        return message;
    }
    bool empty() const {
        const std::lock_guard guard(mutex_);
        return messages_.empty();
    }
    std::vector<graph::Task*> discarded() const {
        const std::lock_guard guard(mutex_);
        return discarded_;
    }
    std::size_t num_lost() const noexcept { return lost_.load(); }

    std::function<void()> on_help = [] {};
    std::function<bool()> on_help_once = [this] { return on_help(), false; };
    std::function<void()> on_leave_turn = [] {};
    TakeBack on_take_back = [](memory::MemoryIndex, const void*, std::size_t, graph::FenceSet*) { return false; };
    Reclaim on_reclaim = [](const std::vector<memory::AddressRange>&, std::size_t) { return memory::Reclaimed{}; };

    void post(Message&& message) override {
        {
            const std::lock_guard guard(mutex_);
            messages_.push_back(std::move(message));
        }
        changed_.notify_all();
    }
    void lost() noexcept override { ++lost_; }
    void help() noexcept override { on_help(); }
    bool help_once() noexcept override { return on_help_once(); }
    void leave_turn() noexcept override { on_leave_turn(); }
    bool take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes,
                   graph::FenceSet* users) override {
        return on_take_back(memory, address, bytes, users);
    }
    memory::Reclaimed reclaim(memory::MemoryIndex, const std::vector<memory::AddressRange>& regions,
                              std::size_t wanted_bytes, bool) override {
        return on_reclaim(regions, wanted_bytes);
    }
    void discard(graph::Task& task) noexcept override {
        const std::lock_guard guard(mutex_);
        discarded_.push_back(&task);
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Message> messages_;
    std::vector<graph::Task*> discarded_;
    std::atomic<std::size_t> lost_{0};
};

}  // namespace kmm::engine::testing
